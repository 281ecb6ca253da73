"""Groups of the consumer protocol (KIP-848) with other people's clients and Kafka's own tools."""

import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from headrace.testing import LocalBroker
from headrace.testing.apache_kafka import missing, tool

pytestmark = pytest.mark.compat

WAIT_S = 30.0
PER_PARTITION = 10
SESSION_MS = 2000

# Heartbeats are the clock of this protocol: faster ones let the tests be fast.
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "50",
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
}

Seen = Counter[tuple[str, int, int]]


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(settings=SETTINGS) as running:
        yield running


@pytest.fixture
def admin(broker: LocalBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def make_topic(admin: AdminClient, name: str, partitions: int) -> str:
    for made in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        made.result(WAIT_S)
    return name


@pytest.fixture
def topic(broker: LocalBroker, admin: AdminClient) -> str:
    """Six partitions with ten records each."""
    name = make_topic(admin, f"orders-{uuid.uuid4().hex[:8]}", 6)
    fill(broker, name, range(6))
    return name


def fill(broker: LocalBroker, topic: str, partitions: range) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition in partitions:
        for number in range(PER_PARTITION):
            producer.produce(topic, str(number).encode(), partition=partition)
    assert producer.flush(WAIT_S) == 0


class Members:
    """Consumers of one group, closed at the end whatever happens."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.group_id = f"group-{uuid.uuid4().hex[:8]}"
        self.all: list[Consumer] = []
        self.seen: Seen = Counter()

    def add(self, *topics: str, protocol: str = "consumer", **settings: Any) -> Consumer:
        settings = {name.replace("_", "."): value for name, value in settings.items()}
        if protocol == "classic":
            settings["partition.assignment.strategy"] = "cooperative-sticky"
            settings["heartbeat.interval.ms"] = 50
        member = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self.group_id,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 200,
                **settings,
            }
        )
        member.subscribe(list(topics))
        self.all.append(member)
        return member

    def remove(self, member: Consumer) -> None:
        self.all.remove(member)
        member.close()

    def poll(self) -> None:
        for member in self.all:
            for message in member.consume(100, 0.02):
                if message.error() is None:
                    self.seen[message.topic(), message.partition(), message.offset()] += 1

    def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not done():
            assert time.monotonic() < deadline, f"{self.shares()} {len(self.seen)} records"
            self.poll()

    def shares(self) -> list[set[tuple[str, int]]]:
        return [{(each.topic, each.partition) for each in one.assignment()} for one in self.all]

    def have(self, partitions: int, *, each: int | None = None) -> bool:
        """All partitions have an owner, and with `each` everyone has as many."""
        shares = self.shares()
        owned = set().union(*shares)
        return len(owned) == partitions == sum(map(len, shares)) and (
            each is None or {len(share) for share in shares} == {each}
        )


@pytest.fixture
def members(broker: LocalBroker) -> Iterator[Members]:
    group = Members(broker.bootstrap)
    yield group
    for member in group.all:
        member.close()


def group_type(admin: AdminClient, group_id: str) -> tuple[str, str]:
    listed = admin.list_consumer_groups().result(WAIT_S).valid
    return next((each.type.name, each.state.name) for each in listed if each.group_id == group_id)


def test_members_share_a_topic_and_read_every_record_once(members: Members, topic: str) -> None:
    for _ in range(3):
        members.add(topic)
    members.until(lambda: members.have(6, each=2) and len(members.seen) == 60)


def test_partitions_follow_members_that_come_and_go(members: Members, topic: str) -> None:
    first = members.add(topic)
    members.until(lambda: members.have(6, each=6))
    members.add(topic)
    members.until(lambda: members.have(6, each=3))
    members.remove(first)
    members.until(lambda: members.have(6, each=6))


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_each_assignor_can_be_asked_for(
    members: Members, admin: AdminClient, topic: str, assignor: str
) -> None:
    for _ in range(2):
        members.add(topic, group_remote_assignor=assignor)
    members.until(lambda: members.have(6, each=3))
    described = admin.describe_consumer_groups([members.group_id])[members.group_id].result(WAIT_S)
    assert (described.state.name, described.type.name) == ("STABLE", "CONSUMER")
    assert described.partition_assignor == assignor
    assert sorted(len(each.assignment.topic_partitions) for each in described.members) == [3, 3]


def test_a_pattern_takes_in_a_topic_made_later(
    broker: LocalBroker, members: Members, admin: AdminClient
) -> None:
    prefix = f"events-{uuid.uuid4().hex[:8]}"
    make_topic(admin, f"{prefix}-a", 2)
    members.add(f"^{prefix}-.*")
    members.until(lambda: members.have(2))
    fill(broker, make_topic(admin, f"{prefix}-b", 1), range(1))
    members.until(lambda: members.have(3) and len(members.seen) == 10)


def test_new_partitions_are_given_out(members: Members, admin: AdminClient, topic: str) -> None:
    for _ in range(2):
        members.add(topic)
    members.until(lambda: members.have(6, each=3))
    admin.create_partitions([NewPartitions(topic, 8)])[topic].result(WAIT_S)
    members.until(lambda: members.have(8, each=4))


def test_a_group_goes_on_where_it_committed(members: Members, topic: str) -> None:
    first = members.add(topic)
    members.until(lambda: len(members.seen) == 60)
    first.commit(asynchronous=False)
    members.remove(first)
    members.seen.clear()
    second = members.add(topic)
    members.until(lambda: members.have(6, each=6))
    found = second.committed([TopicPartition(topic, each) for each in range(6)], WAIT_S)
    assert [each.offset for each in found] == [PER_PARTITION] * 6
    members.poll()
    assert not members.seen


def test_a_static_member_comes_back_to_its_own_partitions(members: Members, topic: str) -> None:
    first = members.add(topic, group_instance_id="one")
    members.add(topic, group_instance_id="two")
    members.until(lambda: members.have(6, each=3))
    kept = members.shares()
    members.remove(first)
    members.add(topic, group_instance_id="one")
    members.until(lambda: members.have(6, each=3))
    assert members.shares() == kept[::-1]


def test_a_killed_members_partitions_go_to_the_others(
    broker: LocalBroker, members: Members, topic: str
) -> None:
    members.add(topic)
    script = f"""
from confluent_kafka import Consumer
c = Consumer({{"bootstrap.servers": "{broker.bootstrap}", "group.id": "{members.group_id}",
              "group.protocol": "consumer"}})
c.subscribe(["{topic}"])
while True:
    c.poll(0.05)
    if len(c.assignment()) == 3:
        print("joined", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as victim:
        assert victim.stdout is not None
        members.until(lambda: members.have(3))
        assert victim.stdout.readline() == b"joined\n"
        victim.kill()
    members.until(lambda: members.have(6, each=6))


def test_a_live_group_moves_from_the_classic_protocol_and_back(
    members: Members, admin: AdminClient, topic: str
) -> None:
    classic = [members.add(topic, protocol="classic") for _ in range(2)]
    members.until(lambda: members.have(6, each=3) and len(members.seen) == 60)
    assert group_type(admin, members.group_id)[0] == "CLASSIC"
    new = members.add(topic)
    # The coordinator calls it stable when the members have said what they own.
    members.until(
        lambda: (
            members.have(6, each=2)
            and group_type(admin, members.group_id) == ("CONSUMER", "STABLE")
        )
    )
    members.remove(new)
    members.until(
        lambda: (
            members.have(6, each=3) and group_type(admin, members.group_id) == ("CLASSIC", "STABLE")
        )
    )
    for old in classic:
        members.add(topic)
        members.remove(old)
    members.until(lambda: members.have(6, each=3))
    assert group_type(admin, members.group_id)[0] == "CONSUMER"


def test_groups_outlive_the_broker(admin: AdminClient, tmp_path: Any) -> None:
    with LocalBroker(data_dir=tmp_path, settings=SETTINGS) as first:
        topic = make_topic(AdminClient({"bootstrap.servers": first.bootstrap}), "t", 2)
        group = Members(first.bootstrap)
        group.add(topic)
        group.until(lambda: group.have(2))
        left = group.all[0].memberid()
        group.remove(group.all[0])
    with LocalBroker(data_dir=tmp_path, settings=SETTINGS) as second:
        again = AdminClient({"bootstrap.servers": second.bootstrap})
        assert left
        assert group_type(again, group.group_id) == ("CONSUMER", "EMPTY")
        again.delete_consumer_groups([group.group_id])[group.group_id].result(WAIT_S)
        assert not again.list_consumer_groups().result(WAIT_S).valid


GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"


@pytest.mark.parametrize("subscription", ["topic", "pattern"])
@pytest.mark.oracle
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_kafkas_own_consumer_and_tools(broker: LocalBroker, topic: str, subscription: str) -> None:
    address = ("--bootstrap-server", broker.bootstrap)
    group = f"java-{uuid.uuid4().hex[:8]}"
    which = ("--topic", topic) if subscription == "topic" else ("--include", f"{topic}.*")
    protocol = ("--command-property", "group.protocol=consumer", "--group", group)
    limits = ("--from-beginning", "--max-messages", "60", "--timeout-ms", "30000")
    printed = tool(CONSOLE, *address, *which, *protocol, *limits)
    assert Counter(printed.split()) == {str(number): 6 for number in range(PER_PARTITION)}
    described = tool(GROUP_COMMAND, *address, "--describe", "--group", group)
    assert described.count(topic) == 6
    state = tool(GROUP_COMMAND, *address, "--describe", "--group", group, "--state")
    assert "Empty" in state
    listed = tool(GROUP_COMMAND, *address, "--list", "--type")
    assert any(line.split() == [group, "Consumer"] for line in listed.splitlines())
    tool(GROUP_COMMAND, *address, "--delete", "--group", group)
    assert group not in tool(GROUP_COMMAND, *address, "--list")


@pytest.mark.oracle
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_kafkas_tools_show_the_members_and_read_our_records(
    broker: LocalBroker, members: Members, topic: str
) -> None:
    members.add(topic, client_id="ours")
    members.until(lambda: members.have(6))
    address = ("--bootstrap-server", broker.bootstrap)
    one = ("--describe", "--group", members.group_id)
    shown = tool(GROUP_COMMAND, *address, *one, "--members", "--verbose")
    assert f"{topic}:0,1,2,3,4,5" in shown
    assert "Stable" in tool(GROUP_COMMAND, *address, *one, "--state", "--verbose")
    members.poll()
    segments = [
        str(each)
        for each in broker.data_dir.glob("__consumer_offsets-*/*.log")
        if members.group_id.encode() in each.read_bytes()
    ]
    dumped = tool(
        "org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", ",".join(segments)
    )
    for kind in (3, 5, 6, 7, 8):
        assert f'key: {{"type":"{kind}","data":{{"groupId":"{members.group_id}"' in dumped, dumped
    assert '"subscribedTopicNames":["' + topic + '"]' in dumped
