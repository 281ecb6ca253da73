"""kill -9 under load, again and again: what was acknowledged is there, once, in order."""

import os
import random
import threading
import time

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.broker_process import BrokerProcess

CYCLES = int(os.environ.get("HEADRACE_CRASH_CYCLES", "10"))
TOPIC, PARTITIONS = "survivors", 3
LONGEST_RUN_S = 0.5
# Large enough for segments to roll while brokers are killed.
RECORD_BYTES = 500
FLUSH_LIMIT_S = 60.0
PROGRESS_LIMIT_S = 60.0
READ_LIMIT_S = 60.0

pytestmark = pytest.mark.crash


class Load:
    """One idempotent producer that lives through every kill and notes what was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 10,
                # Else librdkafka forgets its only broker each time that one is down.
                "metadata.recovery.strategy": "none",
                "message.timeout.ms": 120_000,
            }
        )
        self.sent = [0] * PARTITIONS
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        self.failures: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait_for_progress(self) -> None:
        """Until the broker acknowledged something new: a kill before that would hit no load."""
        before = sum(map(len, self.acknowledged))
        deadline = time.monotonic() + PROGRESS_LIMIT_S
        while sum(map(len, self.acknowledged)) == before:
            assert time.monotonic() < deadline, "nothing was acknowledged since the last kill"
            time.sleep(0.005)

    def finish(self) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(FLUSH_LIMIT_S) == 0

    def _run(self) -> None:
        while not self._stopping.is_set():
            for partition in range(PARTITIONS):
                if self.sent[partition] - len(self.acknowledged[partition]) > 500:
                    continue
                value = str(self.sent[partition]).encode().ljust(RECORD_BYTES)
                self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._note)
                self.sent[partition] += 1
            self._producer.poll(0.001)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        self.acknowledged[message.partition()][message.offset()] = int(message.value())


def read_everything(bootstrap: str) -> list[list[tuple[int, int]]]:
    """Offset and value of every record, by partition, from the first offset to the end."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    ends = [
        consumer.get_watermark_offsets(TopicPartition(TOPIC, index), timeout=10)[1]
        for index in range(PARTITIONS)
    ]
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    records: list[list[tuple[int, int]]] = [[] for _ in range(PARTITIONS)]
    deadline = time.monotonic() + READ_LIMIT_S
    while any(end and (not got or got[-1][0] < end - 1) for got, end in zip(records, ends)):  # noqa: B905 - both have one entry a partition
        assert time.monotonic() < deadline, "the log could not be read to its end"
        for message in consumer.consume(1000, 1.0):
            assert message.error() is None, message.error()
            records[message.partition()].append((message.offset(), int(message.value())))
    consumer.close()
    return records


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("caching", ["false", "true"])
def test_acknowledged_records_survive_every_kill(caching: str) -> None:
    source = random.Random(CYCLES)
    kills = CYCLES if caching == "false" else max(2, CYCLES // 5)
    with BrokerProcess({"log.write.caching": caching, "log.segment.bytes": "1048576"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
            created.result(30)
        load = Load(broker.bootstrap)
        try:
            for _ in range(kills):
                load.wait_for_progress()
                time.sleep(source.uniform(0.02, LONGEST_RUN_S))
                broker.kill()
                broker.start()
        finally:
            load.finish()
        records = read_everything(broker.bootstrap)
    assert load.failures == []
    for partition in range(PARTITIONS):
        values = [value for _, value in records[partition]]
        assert values == list(range(load.sent[partition]))
        assert load.acknowledged[partition].items() <= dict(records[partition]).items()
    total = sum(load.sent)
    print(f"{kills} kills, {total:,} records acknowledged, none lost, none twice")  # noqa: T201 - the count is the result
    assert total > kills
