"""Consume, transform, produce in transactions while the broker is killed: exactly once."""

import os
import random
import threading
import time

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.broker_process import BrokerProcess

CYCLES = int(os.environ.get("HEADRACE_CRASH_CYCLES", "10"))
PARTITIONS = 2
PER_CYCLE = 20
BATCH = 5
LIMIT_S = 60.0
GROUP = "pipeline"
RECONNECT = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 10,
    # With its only broker down librdkafka 2.16 forgets it, and waits for the forgotten one.
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}

pytestmark = pytest.mark.crash


class Pipeline:
    """One process of an application; when it cannot go on, another takes its place."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._total: int | None = None
        self.transactions = 0
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def finish(self, total: int) -> None:
        """There are so many records in all: return when they are done."""
        self._total = total
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), "the pipeline does not come to its end"
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            while not self._live():
                pass
        except BaseException as failure:  # noqa: BLE001 - the thread's root: the test raises it
            self.failure = failure

    def _live(self) -> bool:
        """Run until all is done, or until only a new process can go on."""
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": "pipeline",
                "linger.ms": 0,
                **RECONNECT,
            }
        )
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 20,
                **RECONNECT,
            }
        )
        try:
            producer.init_transactions(LIMIT_S)
            places = consumer.committed(
                [TopicPartition("input", index) for index in range(PARTITIONS)], LIMIT_S
            )
            at = {place.partition: max(place.offset, 0) for place in places}
            consumer.assign([TopicPartition("input", index, at[index]) for index in at])
            while self._total is None or sum(at.values()) < self._total:
                self._transaction(producer, consumer, at)
            return True
        except KafkaException:
            return False
        finally:
            consumer.close()

    def _transaction(self, producer: Producer, consumer: Consumer, at: dict[int, int]) -> None:
        messages = [each for each in consumer.consume(BATCH, 0.5) if each.error() is None]
        if not messages:
            return
        producer.begin_transaction()
        for message in messages:
            producer.produce("output", b"did " + message.value(), partition=message.partition())
            at[message.partition()] = message.offset() + 1
        places = [TopicPartition("input", index, offset) for index, offset in at.items()]
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), LIMIT_S)
        producer.commit_transaction(LIMIT_S)
        self.transactions += 1


def read(bootstrap: str, topic: str) -> list[list[bytes]]:
    """Every committed record, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(LIMIT_S)
        assert message is not None, "the end of the topic cannot be read"
        if message.error() is None:
            found[message.partition()].append(message.value())
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
    consumer.close()
    return found


class Input:
    """Numbers, written between the kills."""

    def __init__(self, bootstrap: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        topics = [NewTopic(topic, PARTITIONS, 1) for topic in ("input", "output")]
        for made in admin.create_topics(topics).values():
            made.result(LIMIT_S)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, **RECONNECT}
        )
        self.count = 0

    def write(self, count: int) -> None:
        for number in range(self.count, self.count + count):
            self._producer.produce("input", str(number).encode(), partition=number % PARTITIONS)
        self.count += count
        assert self._producer.flush(LIMIT_S) == 0


def test_output_equals_input_through_every_kill() -> None:
    source = random.Random(CYCLES)
    with BrokerProcess() as broker:
        numbers = Input(broker.bootstrap)
        pipeline = Pipeline(broker.bootstrap)
        for _ in range(CYCLES):
            numbers.write(PER_CYCLE)
            time.sleep(source.uniform(0.0, 0.2))
            broker.kill()
            broker.start()
        pipeline.finish(numbers.count)
        output = read(broker.bootstrap, "output")
    for index, found in enumerate(output):
        expected = [b"did %d" % number for number in range(index, numbers.count, PARTITIONS)]
        assert found == expected
    assert pipeline.transactions
