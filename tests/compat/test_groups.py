"""Consumer groups of other people's clients: every assignor, members that come, go and die."""

import asyncio
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor as AioSticky,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from headrace.testing import LocalBroker

pytestmark = pytest.mark.compat

WAIT_S = 30.0
HEARTBEAT_MS = 40
SESSION_MS = 6000
SHORT_SESSION_MS = 500
PER_PARTITION = 10

Partition = tuple[str, int]


class Consumer(Protocol):
    """What the tests need of a client."""

    def poll(self) -> list[tuple[str, int, int]]: ...

    def assignment(self) -> set[Partition]: ...

    def commit(self) -> None: ...

    def close(self) -> None: ...


class Confluent:
    def __init__(self, bootstrap: str, group: str, topics: list[str], assignor: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "partition.assignment.strategy": assignor,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "session.timeout.ms": SESSION_MS,
            }
        )
        self._consumer.subscribe(topics)

    def poll(self) -> list[tuple[str, int, int]]:
        messages = self._consumer.consume(100, 0.05)
        return [
            (message.topic(), message.partition(), message.offset())
            for message in messages
            if message.error() is None
        ]

    def assignment(self) -> set[Partition]:
        return {(each.topic, each.partition) for each in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    def __init__(self, bootstrap: str, group: str, topics: list[str], assignor: Any) -> None:
        self._consumer = kafka.KafkaConsumer(
            *topics,
            bootstrap_servers=bootstrap,
            group_id=group,
            partition_assignment_strategy=[assignor],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=SESSION_MS,
        )

    def poll(self) -> list[tuple[str, int, int]]:
        # A poll that ends while its join is under way loses the answer: kafka-python 3.0.12 does
        # so with Apache Kafka too. Here a join takes a few heartbeats.
        found = self._consumer.poll(timeout_ms=10 * HEARTBEAT_MS)
        return [
            (each.topic, each.partition, each.offset) for batch in found.values() for each in batch
        ]

    def assignment(self) -> set[Partition]:
        return {(each.topic, each.partition) for each in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


class Member:
    """A consumer in a thread of its own, as every member of a group has."""

    def __init__(self, consumer: Callable[[], Consumer]) -> None:
        self.assigned: set[Partition] = set()
        self.always: set[Partition] = set()
        self.read: list[tuple[str, int, int]] = []
        self._open = consumer
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        consumer = self._open()
        while not self.stopping.is_set():
            got = consumer.poll()
            self.read += got
            self.assigned = consumer.assignment()
            self.always &= self.assigned
            if got:
                try:
                    consumer.commit()
                except Exception:  # noqa: BLE001  each client has its own word for a rebalance
                    continue
        consumer.close()
        self.assigned = set()

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


def until(settled: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not settled():
        assert time.monotonic() < deadline, what()
        time.sleep(0.01)


def shares(members: list[Member]) -> list[int]:
    return sorted(len(member.assigned) for member in members)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with LocalBroker(settings={"group.min.session.timeout.ms": str(SHORT_SESSION_MS)}) as broker:
        yield broker.bootstrap


@pytest.fixture
def start() -> Iterator[Callable[[Callable[[], Consumer]], Member]]:
    """Starts members, and stops those that a test has left running."""
    crew: list[Member] = []

    def started(consumer: Callable[[], Consumer]) -> Member:
        crew.append(Member(consumer))
        return crew[-1]

    yield started
    for member in crew:
        member.stopping.set()
    for member in crew:
        member.stop()


@pytest.fixture
def topics(bootstrap: str) -> list[str]:
    """Two topics of three partitions with ten records each."""
    name = uuid.uuid4().hex[:8]
    names = [f"{name}-a", f"{name}-b"]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(each, 3, 1) for each in names]).values():
        created.result(WAIT_S)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for each in names:
        for number in range(3 * PER_PARTITION):
            producer.produce(each, str(number), partition=number % 3)
    assert producer.flush(WAIT_S) == 0
    return names


CLIENTS = [
    pytest.param(Confluent, "range", id="confluent-range"),
    pytest.param(Confluent, "roundrobin", id="confluent-roundrobin"),
    pytest.param(Confluent, "cooperative-sticky", id="confluent-cooperative-sticky"),
    pytest.param(KafkaPython, RangePartitionAssignor, id="kafka-python-range"),
    pytest.param(KafkaPython, RoundRobinPartitionAssignor, id="kafka-python-roundrobin"),
    pytest.param(KafkaPython, StickyPartitionAssignor, id="kafka-python-sticky"),
    pytest.param(KafkaPython, CooperativeStickyAssignor, id="kafka-python-cooperative-sticky"),
]


@pytest.mark.parametrize(("client", "assignor"), CLIENTS)
def test_members_share_the_partitions_and_pass_them_on(start, bootstrap, topics, client, assignor):
    group = f"g-{uuid.uuid4().hex[:8]}"
    everything = {(topic, index) for topic in topics for index in range(3)}

    def member() -> Member:
        started: Member = start(lambda: client(bootstrap, group, topics, assignor))
        return started

    members = [member()]
    until(lambda: members[0].assigned == everything, lambda: members[0].assigned)
    until(lambda: len(members[0].read) == 6 * PER_PARTITION, lambda: len(members[0].read))
    members.append(member())
    until(lambda: sum(shares(members)) == 6 and 0 not in shares(members), lambda: shares(members))
    assert members[0].assigned.isdisjoint(members[1].assigned)
    assert not members[1].read, "what was committed is not read again"
    members.pop(0).stop()
    until(lambda: members[0].assigned == everything, lambda: members[0].assigned)


@pytest.mark.parametrize(
    ("count", "expected"), [(3, [2, 2, 2]), (6, [1] * 6), (8, [0, 0, *[1] * 6])]
)
def test_a_partition_has_one_consumer_and_extra_members_wait(
    start, bootstrap, topics, count, expected
):
    """MISSION A3.1."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    members = [
        start(lambda: Confluent(bootstrap, group, topics, "roundrobin")) for _ in range(count)
    ]
    until(lambda: shares(members) == expected, lambda: shares(members))
    until(lambda: sum(len(each.read) for each in members) == 6 * PER_PARTITION, lambda: None)
    owners = Counter(partition for each in members for partition in each.assigned)
    assert set(owners.values()) == {1}


def test_the_range_assignor_gives_the_first_member_more_of_each_topic(start, bootstrap, topics):
    """MISSION A3.2: two topics of three partitions, two consumers."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    members = [start(lambda: Confluent(bootstrap, group, topics, "range")) for _ in range(2)]
    until(lambda: shares(members) == [2, 4], lambda: shares(members))
    fewer, more = sorted((each.assigned for each in members), key=len)
    assert fewer == {(topic, 2) for topic in topics}
    assert more == {(topic, index) for topic in topics for index in (0, 1)}


@pytest.mark.parametrize("assignor", [AioRange, AioRoundRobin, AioSticky])
def test_aiokafka_members_share_the_partitions(bootstrap, topics, assignor):
    asyncio.run(share_with_aiokafka(bootstrap, topics, assignor))


async def share_with_aiokafka(bootstrap: str, topics: list[str], assignor: Any) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"

    async def started() -> Any:
        consumer = aiokafka.AIOKafkaConsumer(
            *topics,
            bootstrap_servers=bootstrap,
            group_id=group,
            partition_assignment_strategy=[assignor],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=SESSION_MS,
        )
        await consumer.start()
        return consumer

    async with asyncio.timeout(WAIT_S):
        first = await started()
        got = 0
        while got < 6 * PER_PARTITION:
            batches = await first.getmany(timeout_ms=50)
            got += sum(len(each) for each in batches.values())
        await first.commit()
        second = await started()
        while not (len(first.assignment()) + len(second.assignment()) == 6 and second.assignment()):
            await first.getmany(timeout_ms=20)
            assert not await second.getmany(timeout_ms=20)
        await first.stop()
        while len(second.assignment()) < 6:
            assert not await second.getmany(timeout_ms=20)
        await second.stop()


def test_a_static_member_restarts_without_moving_partitions(bootstrap, topics):
    """MISSION A3.8."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    revoked: list[object] = []

    def consumer(instance: str) -> Any:
        found = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.instance.id": instance,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
            }
        )
        found.subscribe(topics, on_revoke=lambda _, partitions: revoked.append(partitions))
        return found

    def settle(*consumers: Any) -> list[set[Partition]]:
        def assigned() -> list[set[Partition]]:
            for each in consumers:
                each.poll(0.02)
            return [{(at.topic, at.partition) for at in each.assignment()} for each in consumers]

        until(lambda: sum(map(len, found := assigned())) == 6 and all(found), lambda: assigned())
        return assigned()

    one, two = consumer("one"), consumer("two")
    before = settle(one, two)
    two.close()
    revoked.clear()
    again = consumer("two")
    assert settle(one, again) == before
    assert not revoked
    one.close()
    again.close()


CONSUME_FOREVER = """
import sys, confluent_kafka
bootstrap, group, session_ms, *topics = sys.argv[1:]
consumer = confluent_kafka.Consumer({
    "bootstrap.servers": bootstrap, "group.id": group, "session.timeout.ms": session_ms,
})
consumer.subscribe(topics, on_assign=lambda *_: print("assigned", flush=True))
while True:
    consumer.poll(0.1)
"""


def test_the_partitions_of_a_member_that_dies_go_to_another(start, bootstrap, topics):
    """MISSION A3.15: killed, it says no goodbye, so its session has to end."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    arguments = [bootstrap, group, str(SHORT_SESSION_MS), *topics]
    killed = subprocess.Popen(
        [sys.executable, "-c", CONSUME_FOREVER, *arguments], stdout=subprocess.PIPE, text=True
    )
    with killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "assigned\n"
        killed.kill()
    survivor = start(lambda: Confluent(bootstrap, group, topics, "range"))
    until(lambda: len(survivor.assigned) == 6, lambda: survivor.assigned)
    assert len(survivor.read) <= 6 * PER_PARTITION
    until(lambda: len(survivor.read) == 6 * PER_PARTITION, lambda: len(survivor.read))


@pytest.mark.parametrize(
    ("client", "assignor"),
    [
        pytest.param(Confluent, "cooperative-sticky", id="confluent"),
        pytest.param(KafkaPython, CooperativeStickyAssignor, id="kafka-python"),
    ],
)
def test_a_cooperative_rebalance_moves_only_what_must_move(
    start, bootstrap, topics, client, assignor
):
    """MISSION A3.7: of three and three partitions, a third member takes one each."""
    group = f"g-{uuid.uuid4().hex[:8]}"

    def member() -> Member:
        started: Member = start(lambda: client(bootstrap, group, topics, assignor))
        return started

    members = [member(), member()]
    until(lambda: shares(members) == [3, 3], lambda: shares(members))
    before = [set(each.assigned) for each in members]
    for each in members:
        each.always = set(each.assigned)
    members.append(member())
    until(lambda: shares(members) == [2, 2, 2], lambda: shares(members))
    for owned, each in zip(before, members, strict=False):
        assert each.assigned < owned
        assert each.always == each.assigned, "what stays is never taken away, not even for a moment"


def test_members_outlive_a_restart_of_the_broker():
    with LocalBroker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for created in admin.create_topics([NewTopic("t", 2, 1)]).values():
            created.result(WAIT_S)
        member = Member(lambda: Confluent(broker.bootstrap, "g", ["t"], "range"))
        until(lambda: len(member.assigned) == 2, lambda: member.assigned)
        member.always = set(member.assigned)
        broker.stop()
        broker.start()
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("t", b"after the restart")
        assert producer.flush(WAIT_S) == 0
        until(lambda: len(member.read) == 1, lambda: member.read)
        assert len(member.always) == 2, "its session was still good, so nothing moved"
        member.stop()
        (group,) = admin.list_consumer_groups().result(WAIT_S).valid
        assert (group.group_id, group.state.name) == ("g", "EMPTY")


def test_the_consumer_of_the_documents_runs_unchanged(bootstrap, topics):
    """MISSION A3.18."""
    consumer = kafka.KafkaConsumer(
        topics[0],
        bootstrap_servers=bootstrap,
        group_id=f"g-{uuid.uuid4().hex[:8]}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    for count, msg in enumerate(consumer, 1):
        assert msg.value is not None
        consumer.commit()
        if count == 3 * PER_PARTITION:
            break
    committed = [consumer.committed(kafka.TopicPartition(topics[0], index)) for index in range(3)]
    assert committed == [PER_PARTITION] * 3
    consumer.close()
