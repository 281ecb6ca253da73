"""The same requests to Apache Kafka and to Headrace: consumer groups must not answer differently.

Left out are generated ids, who of two equals gives a partition up, which is an assignor's own, and
how soon a member is to ask again, which is sooner here while it waits for something.
"""

import re
import socket
import time
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any
from uuid import UUID, uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from headrace.coordination.consumer_protocol import write_assignment
from headrace.protocol.apis import APIS
from headrace.protocol.frame import framed, request_header
from headrace.protocol.messages import Message, read_response, write_request
from headrace.testing.apache_kafka import ApacheKafka, missing
from headrace.testing.group_log import subscription
from headrace.testing.local_broker import LocalBroker

pytestmark = [
    pytest.mark.compat,
    pytest.mark.oracle,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

SIZE = Struct(">i")
KEYS = {api.name: api.key for api in APIS.values()}
GENERATED = re.compile(r"\bme-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[\w-]{22}\b")
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "1",
}
BEAT = {
    "member_id": "m1",
    "member_epoch": 0,
    "instance_id": None,
    "rack_id": None,
    "rebalance_timeout_ms": -1,
    "subscribed_topic_names": None,
    "subscribed_topic_regex": None,
    "server_assignor": None,
    "topic_partitions": None,
}
CATCH_UP_S = 20.0


class Session:
    """What one broker is asked, and a transcript in which only chance is left out."""

    def __init__(self, bootstrap: str, group: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), 10)
        self._socket.settimeout(20)
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._names: dict[str, str] = {}
        self._sent = 0
        self.group = group
        self.topic = f"t-{group}"
        self.transcript: list[Any] = []
        self._find_coordinator()
        for made in self._admin.create_topics([NewTopic(self.topic, 4, 1)]).values():
            made.result(10)
        self.topic_id = self._topic_id()
        self._wait_until_assignable()

    def close(self) -> None:
        self._socket.close()

    # Asking.

    def _exchange(self, name: str, version: int, fields: dict[str, Any]) -> Message:
        key = KEYS[name]
        flexible = version >= APIS[key].flexible_from
        self._sent += 1
        header = request_header(key, version, self._sent, "me", flexible=flexible)
        self._socket.sendall(framed(header, write_request(key, version, Message(**fields))))
        (size,) = SIZE.unpack(self._read(SIZE.size))
        return read_response(key, version, self._read(size)[5 if flexible else 4 :])

    def _read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            chunk = self._socket.recv(size - len(found))
            assert chunk, "the broker closed the connection"
            found += chunk
        return bytes(found)

    def ask(self, name: str, version: int, **fields: Any) -> Message:
        answer = self._exchange(name, version, fields)
        self.transcript.append((name, self._plain(answer)))
        return answer

    def beat(self, member_id: str, epoch: int, version: int = 1, **fields: Any) -> Message:
        owned = fields.pop("owned", None)
        if owned is not None:
            partitions = [Message(topic_id=self.topic_id, partitions=list(owned))] if owned else []
            fields["topic_partitions"] = partitions
        sent = {**BEAT, "group_id": self.group, "member_id": member_id, "member_epoch": epoch}
        sent |= fields
        if version == 0:
            del sent["subscribed_topic_regex"]
        return self.ask("consumer_group_heartbeat", version, **sent)

    def join(self, member_id: str, *topics: str, **fields: Any) -> Message:
        wanted = {"rebalance_timeout_ms": 30_000, "owned": ()}
        names = list(topics or (self.topic,))
        return self.beat(member_id, 0, **{**wanted, "subscribed_topic_names": names, **fields})

    def describe(self) -> None:
        self.ask(
            "consumer_group_describe",
            1,
            group_ids=[self.group],
            include_authorized_operations=True,
        )

    def listed(self) -> None:
        answer = self._exchange("list_groups", 5, {"states_filter": [], "types_filter": []})
        mine = [self._plain(each) for each in answer.groups if each.group_id == self.group]
        self.transcript.append(("list_groups", mine))

    def commit(self, member_id: str, epoch: int, partition: int, version: int = 9) -> None:
        offset = Message(
            partition_index=partition,
            committed_offset=5,
            committed_leader_epoch=0,
            committed_metadata="",
        )
        self.ask(
            "offset_commit",
            version,
            group_id=self.group,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            group_instance_id=None,
            topics=[Message(name=self.topic, partitions=[offset])],
        )

    def fetch(self, member_id: str, epoch: int) -> None:
        wanted = Message(name=self.topic, partition_indexes=[0])
        who = Message(group_id=self.group, member_id=member_id, member_epoch=epoch, topics=[wanted])
        self.ask("offset_fetch", 9, groups=[who], require_stable=True)

    def classic_join(
        self, member_id: str = "", *, owns: tuple[int, ...] = (), **fields: Any
    ) -> str:
        metadata = subscription(self.topic, owned={self.topic: owns} if owns else {})
        sent = {
            "group_id": self.group,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 20_000,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [Message(name="range", metadata=metadata)],
            **fields,
        }
        answer = self.ask("join_group", 9, member_id=member_id, **sent)
        if answer.error_code == 79:
            answer = self.ask("join_group", 9, member_id=answer.member_id, **sent)
        return str(answer.member_id)

    def sync(self, member_id: str, generation: int, assignment: bytes | None = None) -> None:
        mine = [Message(member_id=member_id, assignment=assignment)] if assignment else []
        self.ask(
            "sync_group",
            5,
            group_id=self.group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=mine,
        )

    def heartbeat(self, member_id: str, generation: int) -> None:
        self.ask(
            "heartbeat",
            4,
            group_id=self.group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=None,
        )

    def leave(self, member_id: str) -> None:
        who = Message(member_id=member_id, group_instance_id=None, reason=None)
        self.ask("leave_group", 5, group_id=self.group, members=[who])

    def grow(self, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(self.topic, partitions)])[self.topic].result(
            10
        )

    def beat_until(self, member_id: str, epoch: int, changed: int, **fields: Any) -> None:
        """Kafka's coordinator hears of topics and of matches a little later than it answers."""
        deadline = time.monotonic() + CATCH_UP_S
        while self.beat(member_id, epoch, **fields).member_epoch != changed:
            assert time.monotonic() < deadline, self.transcript[-1]
            self.transcript.pop()
            time.sleep(0.1)

    # Making plain.

    def _find_coordinator(self) -> None:
        asked = {"key_type": 0, "coordinator_keys": [self.group]}
        deadline = time.monotonic() + CATCH_UP_S
        while self._exchange("find_coordinator", 4, asked).coordinators[0].error_code:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def _topic_id(self) -> UUID:
        asked = {"topics": [Message(topic_id=None, name=self.topic)]}
        deadline = time.monotonic() + CATCH_UP_S
        while True:
            found = self._exchange("metadata", 12, asked).topics[0]
            if not found.error_code:
                return UUID(int=found.topic_id.int)
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def _wait_until_assignable(self) -> None:
        """Kafka's coordinator hears of a topic later than the client that made it."""
        deadline = time.monotonic() + CATCH_UP_S
        while True:
            answer = self.join("probe", group_id=f"probe-{uuid4()}")
            if answer.assignment and answer.assignment.topic_partitions:
                break
            assert time.monotonic() < deadline, answer
            time.sleep(0.1)
        self.transcript.clear()

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Message):
            fields = {name: self._plain(each) for name, each in sorted(vars(value).items())}
            if fields.get("heartbeat_interval_ms"):
                fields["heartbeat_interval_ms"] = "soon"
            return fields
        if isinstance(value, list | tuple):
            return sorted((self._plain(each) for each in value), key=str)
        if isinstance(value, str):
            return GENERATED.sub(self._name, value)
        return "a topic id" if isinstance(value, UUID) and value.int else value

    def _name(self, found: "re.Match[str]") -> str:
        return self._names.setdefault(found[0], f"generated {len(self._names)}")


@pytest.fixture(scope="module")
def brokers() -> Iterator[tuple[str, str]]:
    with ApacheKafka(SETTINGS, heap="400M") as kafka, LocalBroker(settings=SETTINGS) as ours:
        yield kafka.bootstrap, ours.bootstrap


def malformed(session: Session) -> None:
    session.describe()
    session.join("m1", group_id="")
    session.join("")
    session.join("  ")
    session.beat("", 1, version=0)
    session.join("m1", rebalance_timeout_ms=-1)
    session.join("m1", owned=(0,))
    session.join("m1", topic_partitions=None, owned=None)
    session.join("m1", subscribed_topic_names=None)
    session.join("m1", instance_id="")
    session.join("m1", rack_id="")
    session.beat("m1", -3)
    session.beat("m1", -2)
    session.join("m1", server_assignor="nope")
    session.beat("m1", 5)
    session.beat("m1", -1)
    for pattern in ("(a", "(?=a)", "a**", r"\1", "[b-a]"):
        session.join("m1", subscribed_topic_names=None, subscribed_topic_regex=pattern)
    session.describe()


def reconciliation(session: Session) -> None:
    session.join("m1")
    session.beat("m1", 2)
    session.beat(
        "m1", 2, rebalance_timeout_ms=30_000, subscribed_topic_names=[session.topic], owned=(0, 1)
    )
    session.beat("m1", 9)
    session.beat("m9", 2)
    session.join("m2")
    session.describe()
    session.beat("m2", 3)
    session.beat("m1", 2)
    session.describe()
    session.beat("m1", 2, owned=(0, 1, 2))
    session.beat("m2", 3)
    session.beat("m1", 2, owned=(0, 1))
    session.beat("m1", 2, owned=(0, 1))
    session.beat("m1", 2, owned=(0, 1, 2))
    session.beat("m2", 3)
    session.describe()
    session.listed()
    for member_id, epoch in (("m1", 3), ("m1", 2), ("m9", 3)):
        session.fetch(member_id, epoch)
    for member_id, epoch, partition in (
        ("m1", 3, 0),
        ("m1", 2, 0),
        ("m1", 2, 3),
        ("m2", 2, 3),
        ("m1", 9, 0),
        ("m9", 3, 0),
        ("", -1, 0),
    ):
        session.commit(member_id, epoch, partition)
    session.commit("m1", 3, 0, version=8)
    session.ask("delete_groups", 2, groups_names=[session.group])
    session.ask("describe_groups", 6, groups=[session.group], include_authorized_operations=False)


def changes(session: Session) -> None:
    session.join("m1")
    session.beat("m1", 2, subscribed_topic_names=[session.topic, "none"])
    session.grow(6)
    session.beat_until("m1", 3, 4)
    session.describe()
    session.beat("m1", 4, subscribed_topic_names=[])
    session.describe()
    session.beat("m1", 4, owned=())
    session.beat("m1", -1)
    session.describe()
    session.beat("m1", -1)
    session.commit("", -1, 0)
    session.ask("delete_groups", 2, groups_names=[session.group])
    session.describe()


def static_members(session: Session) -> None:
    session.join("m1", instance_id="i")
    session.join("m2", instance_id="i")
    session.beat("m2", 2, instance_id="i")
    session.beat("m2", 2, instance_id="j")
    session.beat("m1", 2)
    session.beat("m1", -2, instance_id="i")
    session.describe()
    session.beat("m1", 2, instance_id="i")
    session.join("m2", instance_id="i")
    session.describe()
    session.beat("m1", 2, instance_id="i")
    session.beat("m2", -1, instance_id="i")
    session.describe()


def patterns(session: Session) -> None:
    pattern = re.escape(session.topic[:-1]) + "."
    answer = session.join("m1", subscribed_topic_names=None, subscribed_topic_regex=pattern)
    deadline = time.monotonic() + CATCH_UP_S
    # Here a pattern is matched before the first answer, there a little after it.
    while answer.member_epoch != 2:
        assert time.monotonic() < deadline, answer
        time.sleep(0.1)
        answer = session.beat("m1", answer.member_epoch)
    session.transcript.clear()
    session.describe()
    session.join("m2", subscribed_topic_names=None, subscribed_topic_regex=pattern)
    session.beat("m1", 2)
    session.describe()
    session.beat("m2", 3, subscribed_topic_names=["none"], subscribed_topic_regex="")
    session.beat("m1", -1)
    session.describe()


def upgrade(session: Session) -> None:
    first = session.classic_join()
    session.sync(first, 1, write_assignment({session.topic: frozenset(range(4))}, 0))
    session.heartbeat(first, 1)
    session.describe()
    session.join("k1")
    session.listed()
    session.describe()
    session.ask("describe_groups", 6, groups=[session.group], include_authorized_operations=False)
    session.heartbeat(first, 1)
    session.sync(first, 1)
    session.classic_join(first, owns=(0, 1, 2, 3))
    session.describe()
    session.sync(first, 1)
    session.heartbeat(first, 1)
    session.beat("k1", 2)
    session.classic_join(first, owns=(0, 1))
    session.sync(first, 2)
    session.heartbeat(first, 2)
    session.beat("k1", 2)
    session.describe()
    session.heartbeat(first, 9)
    session.heartbeat("k1", 2)
    session.commit(first, 2, 0)
    session.commit(first, 2, 0, version=8)
    session.commit(first, 1, 0)
    session.commit(first, 1, 3)
    session.classic_join(protocols=[Message(name="foo", metadata=subscription(session.topic))])
    session.classic_join(session_timeout_ms=10)
    session.leave("k9")
    session.leave("k1")
    session.listed()


def downgrade(session: Session) -> None:
    session.join("k1")
    first = session.classic_join()
    session.listed()
    session.beat("k1", -1)
    session.listed()
    session.classic_join(first)
    session.listed()
    session.leave(first)
    session.listed()
    session.join("k2")
    session.listed()
    session.beat("k2", -1)
    last = session.classic_join()
    session.listed()
    session.leave(last)


@pytest.mark.parametrize(
    "scenario", [malformed, reconciliation, changes, static_members, patterns, upgrade, downgrade]
)
def test_consumer_groups_answer_as_apache_kafka_does(
    brokers: tuple[str, str], scenario: Callable[[Session], None]
) -> None:
    group = uuid4().hex[:6]
    transcripts = []
    for bootstrap in brokers:
        session = Session(bootstrap, group)
        try:
            scenario(session)
        finally:
            session.close()
        transcripts.append(session.transcript)
    theirs, ours = transcripts
    for place, (expected, found) in enumerate(zip(theirs, ours, strict=True)):
        assert found == expected, f"answer {place} of {scenario.__name__}"
