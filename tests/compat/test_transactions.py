"""Transactions of other people's clients: atomic, isolated, fenced, with offsets inside."""

import asyncio
import contextlib
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing import LocalBroker
from headrace.testing.apache_kafka import missing, tool

pytestmark = pytest.mark.compat

WAIT_S = 20.0


class Producer(Protocol):
    """What the tests need of a transactional producer; it has started when it is made."""

    def begin(self) -> None: ...

    def send(self, topic: str, partition: int, value: bytes) -> None: ...

    def offsets(self, group: str, topic: str, partition: int, offset: int) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Confluent:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._bootstrap = bootstrap
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(WAIT_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._producer.produce(topic, value, partition=partition)
        self._producer.flush(WAIT_S)

    def offsets(self, group: str, topic: str, partition: int, offset: int) -> None:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": group}
        )
        place = confluent_kafka.TopicPartition(topic, partition, offset)
        metadata = consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction([place], metadata, WAIT_S)
        consumer.close()

    def commit(self) -> None:
        self._producer.commit_transaction(WAIT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(WAIT_S)

    def close(self) -> None:
        pass


class KafkaPython:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, acks="all"
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._producer.send(topic, value, partition=partition).get(WAIT_S)

    def offsets(self, group: str, topic: str, partition: int, offset: int) -> None:
        place = {kafka.TopicPartition(topic, partition): kafka.OffsetAndMetadata(offset, "", -1)}
        self._producer.send_offsets_to_transaction(place, group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=1)


class AioKafka:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._loop = asyncio.new_event_loop()
        # What a fenced producer leaves behind is aiokafka's own business.
        self._loop.set_exception_handler(lambda loop, context: None)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._producer: Any = None
        self._run(self._start(bootstrap, transactional_id))

    async def _start(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id
        )
        await self._producer.start()

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._run(self._producer.send_and_wait(topic, value, partition=partition))

    def offsets(self, group: str, topic: str, partition: int, offset: int) -> None:
        place = {aiokafka.TopicPartition(topic, partition): offset}
        self._run(self._producer.send_offsets_to_transaction(place, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        async def stop() -> None:
            with contextlib.suppress(aiokafka.errors.KafkaError):
                await self._producer.stop()

        self._run(stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()


Start = Callable[[str], Producer]


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as running:
        yield running


@pytest.fixture
def topic(broker: LocalBroker) -> str:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(WAIT_S)
    return name


@pytest.fixture(params=[Confluent, KafkaPython, AioKafka])
def start(request: pytest.FixtureRequest, broker: LocalBroker) -> Iterator[Start]:
    started: list[Producer] = []

    def begin(transactional_id: str) -> Producer:
        producer: Producer = request.param(broker.bootstrap, transactional_id)
        started.append(producer)
        return producer

    yield begin
    for producer in started:
        producer.close()


def values(bootstrap: str, topic: str, *, isolation: str = "read_committed") -> list[bytes]:
    """Every record of both partitions that a reader of this isolation sees."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(2)])
    found: list[bytes] = []
    ended: set[int] = set()
    deadline = time.monotonic() + WAIT_S
    while len(ended) < 2:
        assert time.monotonic() < deadline, f"no end in sight after {found}"
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.append(message.value())
        else:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
    consumer.close()
    return sorted(found)


def committed(bootstrap: str, group: str, topic: str) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    (place,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], WAIT_S)
    consumer.close()
    return int(place.offset)


def documents(text: str) -> Iterator[Any]:
    """JSON documents printed one after the other."""
    decoder, position = json.JSONDecoder(), 0
    while position < len(text.rstrip()):
        found, position = decoder.raw_decode(text, position)
        yield found


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(
    start: Start, broker: LocalBroker, topic: str
) -> None:
    producer = start(topic)
    for name, end in (
        (b"one", producer.commit),
        (b"two", producer.abort),
        (b"six", producer.commit),
    ):
        producer.begin()
        producer.send(topic, 0, name + b" a")
        producer.send(topic, 1, name + b" b")
        end()
    assert values(broker.bootstrap, topic) == [b"one a", b"one b", b"six a", b"six b"]
    everything = values(broker.bootstrap, topic, isolation="read_uncommitted")
    assert len(everything) == 6


def test_an_open_transaction_is_seen_by_nobody_who_reads_committed(
    start: Start, broker: LocalBroker, topic: str
) -> None:
    producer = start(topic)
    producer.begin()
    producer.send(topic, 0, b"open")
    assert values(broker.bootstrap, topic) == []
    assert values(broker.bootstrap, topic, isolation="read_uncommitted") == [b"open"]
    producer.commit()
    assert values(broker.bootstrap, topic) == [b"open"]


def test_offsets_move_with_the_transaction_or_not_at_all(
    start: Start, broker: LocalBroker, topic: str
) -> None:
    producer = start(topic)
    group = f"group-{topic}"
    producer.begin()
    producer.send(topic, 1, b"one")
    producer.offsets(group, topic, 0, 7)
    producer.commit()
    assert committed(broker.bootstrap, group, topic) == 7
    producer.begin()
    producer.send(topic, 1, b"two")
    producer.offsets(group, topic, 0, 9)
    producer.abort()
    assert committed(broker.bootstrap, group, topic) == 7


def test_a_new_producer_fences_the_old_one_and_aborts_its_transaction(
    start: Start, broker: LocalBroker, topic: str
) -> None:
    zombie = start(topic)
    zombie.begin()
    zombie.send(topic, 0, b"zombie")
    heir = start(topic)
    heir.begin()
    heir.send(topic, 0, b"heir")
    heir.commit()
    with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
        zombie.commit()
    assert values(broker.bootstrap, topic) == [b"heir"]


# aiokafka leaves a socket open when it finds the broker down.
@pytest.mark.filterwarnings("ignore:.*socket:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_committed_transaction_outlives_the_broker(
    start: Start, broker: LocalBroker, topic: str
) -> None:
    producer = start(topic)
    producer.begin()
    producer.send(topic, 0, b"kept")
    producer.commit()
    producer.begin()
    producer.send(topic, 1, b"open")
    broker.restart()
    assert values(broker.bootstrap, topic) == [b"kept"]
    producer.commit()
    assert values(broker.bootstrap, topic) == [b"kept", b"open"]


@pytest.mark.oracle
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
class TestKafkasTools:
    """The Java client of Kafka 4.3 speaks transactions version 2."""

    def test_the_java_producer_commits_and_its_tools_tell_of_it(
        self, broker: LocalBroker, topic: str
    ) -> None:
        tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", topic, "--num-records", "300", "--record-size", "10"),
            *("--throughput", "1000", "--transactional-id", topic),
            *("--transaction-duration-ms", "20"),
            *("--command-property", f"bootstrap.servers={broker.bootstrap}", "acks=all"),
        )
        assert len(values(broker.bootstrap, topic)) == 300
        server = ("--bootstrap-server", broker.bootstrap)
        listed = tool("org.apache.kafka.tools.TransactionsCommand", *server, "list")
        (row,) = (line.split() for line in listed.splitlines() if line.startswith(topic))
        assert row[3] == "CompleteCommit"
        described = tool(
            "org.apache.kafka.tools.TransactionsCommand",
            *server,
            *("describe", "--transactional-id", topic),
        )
        epoch = int(described.splitlines()[-1].split()[3])
        assert epoch > 2, "each transaction raises the epoch"

    def test_its_formatter_reads_our_transaction_log(self, broker: LocalBroker, topic: str) -> None:
        producer = Confluent(broker.bootstrap, topic)
        producer.begin()
        producer.send(topic, 1, b"one")
        producer.commit()
        printed = tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", broker.bootstrap, "--topic", "__transaction_state"),
            *("--from-beginning", "--timeout-ms", "4000", "--formatter"),
            "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter",
        )
        ours = [
            record
            for record in documents(printed)
            if record["key"]["data"] == {"transactionalId": topic}
        ]
        states = [record["value"]["data"]["transactionStatus"] for record in ours]
        assert states == [0, 1, 2, 4], "Empty, Ongoing, PrepareCommit, CompleteCommit"
        assert {record["value"]["version"] for record in ours} == {1}

    def test_a_hanging_transaction_is_found_and_aborted(self, topic: str) -> None:
        # Only without verification can anybody leave a transaction hanging.
        settings = {"transaction.partition.verification.enable": "false"}
        with LocalBroker(settings=settings) as lax:
            admin = AdminClient({"bootstrap.servers": lax.bootstrap})
            admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(WAIT_S)
            producer = Confluent(lax.bootstrap, topic)
            producer.begin()
            producer.send(topic, 0, b"open")
            server = ("--bootstrap-server", lax.bootstrap)
            command = "org.apache.kafka.tools.TransactionsCommand"
            tool(
                command,
                *server,
                "abort",
                "--topic",
                topic,
                "--partition",
                "0",
                "--start-offset",
                "0",
            )
            assert values(lax.bootstrap, topic) == []
            shown = tool(
                command, *server, "describe-producers", "--topic", topic, "--partition", "0"
            )
            assert shown.splitlines()[-1].split()[-1] == "None"
