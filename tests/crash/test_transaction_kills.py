"""kill -9 before and after every write of a transaction: it ends one way everywhere, and once."""

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.errors import ErrorCode
from headrace.protocol.messages import Message
from headrace.protocol.records import Record, write_batch
from headrace.testing.broker_process import BrokerProcess
from tests.compat.test_groups_like_kafka import Client

CYCLES = int(os.environ.get("HEADRACE_CRASH_CYCLES", "10"))
# Twelve or so writes in each of the three transactions, each with a moment before and after it.
MOMENTS = 76
NAMES = ("one", "two", "three")
TOPICS = ("orders", "sums")
GROUP = "pipeline"
LIMIT_S = 60.0
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}

pytestmark = pytest.mark.crash


class TransactionLost(Exception):
    """The transaction cannot go on; whether it was committed is for the offsets to say."""


class Producer(Protocol):
    """A producer that tries until the broker answers, as clients do."""

    def start(self) -> None: ...

    def write(self, value: bytes, offset: int) -> None: ...

    def end(self, *, committed: bool) -> None: ...

    def close(self) -> None: ...


class Librdkafka:
    """Partitions and offsets are added by requests of their own (transactions version 1)."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def start(self) -> None:
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": "t",
                "transaction.timeout.ms": 5_000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 10,
                "linger.ms": 0,
                "log_level": 0,
                # With its only broker down librdkafka 2.16 forgets it, and afterwards waits for the
                # forgotten one to take the offsets of the transaction.
                "metadata.recovery.strategy": "none",
            }
        )
        self._try(self._producer.init_transactions, LIMIT_S)

    def write(self, value: bytes, offset: int) -> None:
        self._producer.begin_transaction()
        for topic in TOPICS:
            self._producer.produce(topic, value)
        self._producer.flush(LIMIT_S)
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": GROUP, "log_level": 0}
        )
        places = [confluent_kafka.TopicPartition("orders", 0, offset)]
        metadata = consumer.consumer_group_metadata()
        self._try(self._producer.send_offsets_to_transaction, places, metadata, LIMIT_S)
        consumer.close()

    def end(self, *, committed: bool) -> None:
        end = self._producer.commit_transaction if committed else self._producer.abort_transaction
        self._try(end, LIMIT_S)

    def close(self) -> None:
        pass

    def _try(self, call: Callable[..., Any], *arguments: Any) -> None:
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                call(*arguments)
                return
            except confluent_kafka.KafkaException as error:
                found = error.args[0]
                if not found.retriable() or time.monotonic() > deadline:
                    raise TransactionLost(str(found)) from error


class Version2:
    """Partitions are added by what is written to them, and each end raises the epoch."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._client: Client | None = None

    def start(self) -> None:
        answer = self._ask(
            "init_producer_id", 5, transactional_id="t", transaction_timeout_ms=5_000
        )
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    def write(self, value: bytes, offset: int) -> None:
        batch = write_batch(
            [Record(-1, int(time.time() * 1000), None, value, ())],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=0,
            transactional=True,
        )
        partition = Message(index=0, records=bytes(batch))
        self._ask(
            "produce",
            12,
            transactional_id="t",
            acks=-1,
            timeout_ms=10_000,
            topic_data=[Message(name=topic, partition_data=[partition]) for topic in TOPICS],
        )
        place = Message(partition_index=0, committed_offset=offset, committed_metadata="")
        self._ask(
            "txn_offset_commit",
            5,
            transactional_id="t",
            group_id=GROUP,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=[Message(name="orders", partitions=[place])],
        )

    def end(self, *, committed: bool) -> None:
        answer = self._ask(
            "end_txn",
            5,
            transactional_id="t",
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=committed,
        )
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _ask(self, name: str, version: int, **fields: Any) -> Message:
        deadline = time.monotonic() + LIMIT_S
        while True:
            assert time.monotonic() < deadline, f"no answer to {name}"
            try:
                self._client = self._client or Client(self._bootstrap)
                answer = self._client.ask(name, version, **fields)
            except (OSError, AssertionError):
                self.close()
                time.sleep(0.02)
                continue
            failed = [ErrorCode(code) for code in _codes(answer) if code]
            if not failed:
                return answer
            if not all(code.retriable for code in failed):
                raise TransactionLost(f"{name}: {failed}")
            time.sleep(0.02)


def _codes(answer: Any) -> list[int]:
    if isinstance(answer, list | tuple):
        return [code for each in answer for code in _codes(each)]
    if not isinstance(answer, Message):
        return []
    found: list[int] = []
    for name, value in vars(answer).items():
        found += [value] if name.endswith("error_code") else _codes(value)
    return found


def pipeline(producer: Producer, bootstrap: str) -> None:
    """Each name is committed once, with the offset that says so; two is aborted before that."""
    producer.start()
    aborted = False
    while (done := committed_offset(bootstrap)) < len(NAMES):
        name = NAMES[done]
        abort_first = name == "two" and not aborted
        try:
            producer.write(f"{name}{' aborted' if abort_first else ''}".encode(), done + 1)
            aborted = aborted or abort_first
            producer.end(committed=not abort_first)
        except TransactionLost:
            producer.start()


def committed_offset(bootstrap: str) -> int:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 0}
    )
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            (place,) = consumer.committed([confluent_kafka.TopicPartition("orders", 0)], 10)
            consumer.close()
            return max(int(place.offset), 0)
        except confluent_kafka.KafkaException:
            assert time.monotonic() < deadline, "the committed offset cannot be read"


def values(bootstrap: str, topic: str) -> list[bytes]:
    """All that a reader of committed records sees, once nothing is open any more."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    place = confluent_kafka.TopicPartition(topic, 0, 0)
    consumer.assign([place])
    found: list[bytes] = []
    while True:
        message = consumer.poll(LIMIT_S)
        assert message is not None
        if message.error() is None:
            found.append(message.value())
        elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
            break
    consumer.close()
    return found


def live_through(broker: BrokerProcess, moment: int, producer: Producer) -> bool:
    """Run the pipeline on a broker that dies at that moment and is started again."""
    create_topics(broker)
    broker.stop()
    broker.program = [sys.executable, "-m", "tests.crash.killing_broker", str(moment)]
    broker.start()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            pipeline(producer, broker.bootstrap)
        except BaseException as failure:  # noqa: BLE001 - the thread's root: it is raised below
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    killed = False
    while thread.is_alive():
        thread.join(0.02)
        if not killed and not broker.alive:
            killed = True
            broker.kill()
            broker.program = [sys.executable, "-m", "headrace"]
            broker.start()
    producer.close()
    if failures:
        raise failures[0]
    return killed


def create_topics(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in TOPICS]).values():
        made.result(LIMIT_S)


@pytest.mark.parametrize("kind", [Librdkafka, Version2])
def test_a_kill_at_any_write_leaves_the_pipeline_exactly_once(kind: type) -> None:
    count = min(CYCLES // 2, MOMENTS)
    kills = 0
    for number in range(count):
        moment = 1 + number * MOMENTS // count
        with BrokerProcess(SETTINGS) as broker:
            kills += live_through(broker, moment, kind(broker.bootstrap))
            for topic in TOPICS:
                found = values(broker.bootstrap, topic)
                assert found == [name.encode() for name in NAMES], f"killed at {moment}: {found}"
    assert kills >= count // 2
