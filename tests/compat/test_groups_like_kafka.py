"""The same requests to Apache Kafka and to Headrace: the answers about groups must not differ."""

import re
import socket
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any
from uuid import UUID

import pytest

from headrace.protocol.apis import APIS
from headrace.protocol.frame import framed, request_header
from headrace.protocol.messages import Message, read_response, write_request
from headrace.testing.apache_kafka import ApacheKafka, missing
from headrace.testing.local_broker import LocalBroker

pytestmark = [
    pytest.mark.compat,
    pytest.mark.oracle,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

SIZE = Struct(">i")
KEYS = {api.name: api.key for api in APIS.values()}
GENERATED = re.compile(r"\b(\w+)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
SUBSCRIPTION = bytes.fromhex("0000 00000001 0002 7431 ffffffff")
RANGE = [Message(name="range", metadata=SUBSCRIPTION)]
BOTH = [Message(name="sticky", metadata=SUBSCRIPTION), *RANGE]


class Client:
    """One connection on which requests may be sent before earlier ones are answered."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), 10)
        self._socket.settimeout(20)
        self._sent: list[tuple[int, int]] = []

    def send(self, name: str, version: int, **fields: Any) -> None:
        key = KEYS[name]
        flexible = version >= APIS[key].flexible_from
        header = request_header(key, version, len(self._sent), "me", flexible=flexible)
        self._socket.sendall(framed(header, write_request(key, version, Message(**fields))))
        self._sent.append((key, version))

    def answer(self) -> Message:
        key, version = self._sent.pop(0)
        (size,) = SIZE.unpack(self._read(SIZE.size))
        frame = self._read(size)
        # A flexible response header ends with its own tagged fields, of which there are none.
        head = 5 if version >= APIS[key].flexible_from else 4
        return read_response(key, version, frame[head:])

    def ask(self, name: str, version: int, **fields: Any) -> Message:
        self.send(name, version, **fields)
        return self.answer()

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            chunk = self._socket.recv(size - len(found))
            assert chunk, "the broker closed the connection"
            found += chunk
        return bytes(found)


class Session:
    """What one broker is asked, and a transcript in which only chance is left out."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._clients: list[Client] = []
        self._names: dict[str, str] = {}
        self.transcript: list[Any] = []
        self.client = self.connect()

    def connect(self) -> Client:
        client = Client(self._bootstrap)
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def ask(self, name: str, version: int, **fields: Any) -> Message:
        return self.say(self.client.ask(name, version, **fields))

    def say(self, answer: Message) -> Message:
        self.transcript.append(self._plain(answer))
        return answer

    def join(self, version: int = 5, client: Client | None = None, **fields: Any) -> Message:
        client = client or self.client
        client.send("join_group", version, **{**JOIN, **fields})
        return self.say(client.answer())

    def member(self, **fields: Any) -> Message:
        """Join as the only member and sync: a stable group."""
        first = self.join(**fields)
        if first.error_code:
            first = self.join(**{**fields, "member_id": first.member_id})
        self.sync(first, {first.member_id: b"assigned"}, **fields)
        return first

    def sync(self, joined: Message, assignments: dict[str, bytes], **fields: Any) -> Message:
        wanted = [Message(member_id=key, assignment=each) for key, each in assignments.items()]
        return self.ask(
            "sync_group",
            3,
            group_id=fields.get("group_id", "g"),
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=fields.get("group_instance_id"),
            assignments=wanted,
        )

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Message):
            return {name: self._plain(each) for name, each in sorted(vars(value).items())}
        if isinstance(value, list | tuple):
            # Kafka keeps most of these in hash tables: their order says nothing.
            return sorted((self._plain(each) for each in value), key=str)
        if isinstance(value, str):
            return GENERATED.sub(self._name, value)
        if isinstance(value, UUID) and value.int:
            return "a topic id"
        return value

    def _name(self, found: "re.Match[str]") -> str:
        return self._names.setdefault(found[0], f"{found[1]}-{len(self._names)}")


JOIN = {
    "group_id": "g",
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "member_id": "",
    "protocol_type": "consumer",
    "protocols": RANGE,
}

ANYWHERE = {"host": "", "port": 0, "node_id": 0}

HEARTBEAT = {"group_id": "g", "generation_id": 1, "member_id": "x"}


def joins_that_are_refused(session: Session) -> None:
    session.join(group_id="")
    session.join(session_timeout_ms=10)
    session.join(session_timeout_ms=10_000_000)
    session.join(member_id="x", group_id="nobody")
    session.join(protocols=[], group_id="nobody")
    session.join(protocol_type="", group_id="nobody")
    session.member()
    session.join(member_id="x")
    session.join(member_id="x", group_instance_id="i")
    session.join(protocol_type="other")
    session.join(protocols=[Message(name="other", metadata=b"")])
    for version in range(10):
        session.join(version, member_id="x")


def syncs_heartbeats_and_leaves_that_are_refused(session: Session) -> None:
    sync = {"group_id": "g", "generation_id": 1, "member_id": "x", "assignments": []}
    session.ask("sync_group", 3, **sync)
    session.ask("heartbeat", 3, **HEARTBEAT)
    leaver = Message(member_id="x", group_instance_id=None)
    session.ask("leave_group", 3, group_id="g", members=[leaver])
    session.ask("leave_group", 2, group_id="g", member_id="x")
    session.ask("leave_group", 3, group_id="", members=[leaver])
    session.ask("heartbeat", 3, **{**HEARTBEAT, "group_id": ""})
    session.ask("sync_group", 3, **{**sync, "group_id": ""})
    joined = session.member(group_instance_id="i")
    mine = {"member_id": joined.member_id}
    session.ask("sync_group", 3, **sync)
    session.ask("sync_group", 3, **{**sync, **mine, "generation_id": 7})
    session.ask("sync_group", 3, **{**sync, **mine, "group_instance_id": "unknown"})
    session.ask("sync_group", 3, **{**sync, "group_instance_id": "i"})
    session.ask("sync_group", 5, **{**sync, **mine})
    other = {"protocol_type": "other", "protocol_name": "range"}
    session.ask("sync_group", 5, **{**sync, **mine, **other})
    session.ask("sync_group", 5, **{**sync, **mine, **other, "protocol_type": "consumer"})
    session.ask("heartbeat", 3, **HEARTBEAT)
    session.ask("heartbeat", 3, **{**HEARTBEAT, **mine, "generation_id": 7})
    session.ask("heartbeat", 3, **{**HEARTBEAT, "group_instance_id": "i"})
    session.ask("heartbeat", 3, **{**HEARTBEAT, **mine, "group_instance_id": "j"})
    session.ask("heartbeat", 4, **{**HEARTBEAT, **mine})
    leavers = [
        leaver,
        Message(member_id="x", group_instance_id="i"),
        Message(member_id="", group_instance_id="unknown"),
        Message(member_id="", group_instance_id=None),
        Message(member_id="", group_instance_id="i"),
    ]
    session.ask("leave_group", 5, group_id="g", members=leavers)
    session.ask("describe_groups", 5, groups=["g"])


def a_rebalance_of_two(session: Session) -> None:
    leader = session.member()
    session.ask("heartbeat", 4, **{**HEARTBEAT, "member_id": leader.member_id})
    other = session.connect()
    pending = session.say(other.ask("join_group", 9, **{**JOIN, "protocols": BOTH}))
    session.ask("describe_groups", 6, groups=["g"])
    other.send("join_group", 9, **{**JOIN, "protocols": BOTH, "member_id": pending.member_id})
    beat = {**HEARTBEAT, "member_id": leader.member_id}
    while not session.client.ask("heartbeat", 4, **beat).error_code:
        pass
    session.ask("heartbeat", 4, **beat)
    session.ask("describe_groups", 6, groups=["g"])
    session.ask("list_groups", 5, states_filter=["preparingRebalance"], types_filter=[])
    session.ask("offset_commit", 8, **commit(1, member_id=leader.member_id, generation=1))
    again = session.join(member_id=leader.member_id)
    joined = session.say(other.answer())
    session.ask("offset_commit", 8, **commit(1, member_id=leader.member_id, generation=2))
    session.ask("describe_groups", 6, groups=["g"])
    session.sync(again, {joined.member_id: b"theirs", again.member_id: b"mine"})
    session.sync(joined, {})
    session.ask("describe_groups", 6, groups=["g"], include_authorized_operations=True)
    session.ask("offset_commit", 8, **commit(1, member_id=leader.member_id, generation=1))
    session.ask("offset_commit", 8, **commit(1, member_id=leader.member_id, generation=2))
    session.ask("offset_commit", 8, **commit(1))
    session.ask("leave_group", 1, group_id="g", member_id=leader.member_id)
    session.ask("heartbeat", 4, **{**HEARTBEAT, "member_id": joined.member_id, "generation_id": 2})
    session.ask("delete_groups", 2, groups_names=["g"])
    session.ask("leave_group", 1, group_id="g", member_id=joined.member_id)
    session.ask("describe_groups", 6, groups=["g"])
    session.ask("delete_groups", 2, groups_names=["g"])


def static_members(session: Session) -> None:
    first = session.member(group_instance_id="i")
    again = session.join(9, group_instance_id="i")
    older = session.join(5, group_instance_id="i")
    session.sync(older, {}, group_instance_id="i")
    for joined in (first, again, older):
        beat = {"member_id": joined.member_id, "group_instance_id": "i"}
        session.ask("heartbeat", 4, **{**HEARTBEAT, **beat})
    session.ask(
        "offset_commit",
        8,
        **commit(1, member_id=first.member_id, generation=1, instance="i"),
    )
    session.ask("describe_groups", 4, groups=["g"])
    session.join(9, group_instance_id="i", protocols=BOTH)
    session.join(9, group_instance_id="i", protocols=BOTH[:1])
    session.ask("describe_groups", 4, groups=["g"])


def commit(
    offset: int,
    *,
    group_id: str = "g",
    member_id: str = "",
    generation: int = -1,
    instance: str | None = None,
    topic: str = "t1",
    partition: int = 0,
    metadata: str | None = None,
) -> dict[str, Any]:
    wanted = Message(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    return {
        "group_id": group_id,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "group_instance_id": instance,
        "topics": [Message(name=topic, partitions=[wanted])],
    }


def offsets_of_no_members(session: Session) -> None:
    for version in range(2, 10):
        session.ask("offset_commit", version, **commit(version, metadata="note"))
        session.ask("offset_commit", version, **commit(5, generation=3, group_id="nobody"))
    session.ask("offset_commit", 9, **commit(5, group_id=""))
    session.ask("offset_commit", 9, **commit(5, topic="unknown"))
    session.ask("offset_commit", 9, **commit(5, partition=77))
    session.ask("offset_commit", 9, **commit(5, metadata="x" * 5000))
    session.ask("offset_commit", 9, **commit(5, member_id="x"))
    asked = [
        Message(name="t1", partition_indexes=[0, 1, 77]),
        Message(name="u", partition_indexes=[0]),
    ]
    for version in range(1, 8):
        for group_id in ("g", "nobody", ""):
            session.ask("offset_fetch", version, group_id=group_id, topics=asked)
            if version >= 2:
                session.ask("offset_fetch", version, group_id=group_id, topics=None)
    for version in (8, 9):
        groups = [
            Message(group_id="g", topics=asked),
            Message(group_id="g", topics=None),
            Message(group_id="nobody", topics=asked),
            Message(group_id="nobody", topics=None),
        ]
        session.ask("offset_fetch", version, groups=groups, require_stable=version == 9)
    for version in range(6):
        session.ask("list_groups", version)
    session.ask("list_groups", 5, states_filter=["Stable"])
    session.ask("list_groups", 5, types_filter=["Classic"])
    session.ask("list_groups", 5, types_filter=["consumer"])
    session.ask("list_groups", 5, types_filter=["what"])


def topic_ids(session: Session) -> None:
    found = session.client.ask("metadata", 12, topics=[Message(topic_id=UUID(int=0), name="t1")])
    (topic,) = found.topics
    wanted = [Message(partition_index=index, committed_offset=5) for index in (0, 77)]
    unknown = UUID(int=77)
    session.ask(
        "offset_commit",
        10,
        group_id="g",
        topics=[
            Message(topic_id=topic.topic_id, partitions=wanted),
            Message(topic_id=unknown, partitions=wanted),
        ],
    )
    asked = [
        Message(topic_id=topic.topic_id, partition_indexes=[0, 1]),
        Message(topic_id=unknown, partition_indexes=[0]),
    ]
    groups = [Message(group_id="g", topics=asked), Message(group_id="g", topics=None)]
    session.ask("offset_fetch", 10, groups=groups)


def deleted_offsets(session: Session) -> None:
    topics = [
        Message(name="t1", partitions=[Message(partition_index=0), Message(partition_index=77)]),
        Message(name="t2", partitions=[Message(partition_index=0)]),
        Message(name="unknown", partitions=[Message(partition_index=0)]),
    ]
    session.ask("offset_delete", 0, group_id="g", topics=topics)
    session.ask("offset_delete", 0, group_id="", topics=topics)
    joined = session.member()
    member = {"member_id": joined.member_id, "generation": 1}
    session.ask("offset_commit", 8, **commit(5, **member))
    session.ask("offset_commit", 8, **commit(5, topic="t2", **member))
    session.ask("offset_delete", 0, group_id="g", topics=topics)
    session.ask("offset_fetch", 7, group_id="g", topics=None)
    session.ask("leave_group", 1, group_id="g", member_id=joined.member_id)
    session.ask("offset_delete", 0, group_id="g", topics=topics)
    session.ask("offset_fetch", 7, group_id="g", topics=None)
    session.member(group_id="other", protocol_type="connect")
    session.ask("offset_delete", 0, group_id="other", topics=topics)


def groups_that_are_looked_at(session: Session) -> None:
    for version in range(7):
        more = {"include_authorized_operations": True} if version >= 3 else {}
        session.ask("describe_groups", version, groups=["nobody", ""], **more)
    session.ask("delete_groups", 2, groups_names=["nobody", "", "nobody"])
    session.join(4)
    session.ask("describe_groups", 6, groups=["g"])
    session.ask("list_groups", 5)
    session.ask("delete_groups", 2, groups_names=["g"])


def coordinators(session: Session) -> None:
    for version in range(4):
        answer = session.client.ask("find_coordinator", version, key="g")
        vars(answer).update(ANYWHERE)
        session.say(answer)
    for version in (4, 5, 6):
        answer = session.client.ask("find_coordinator", version, coordinator_keys=["g", "h"])
        for each in answer.coordinators:
            vars(each).update(ANYWHERE)
        session.say(answer)
    session.ask("find_coordinator", 5, key_type=2, coordinator_keys=["g:x:0"])
    session.ask("find_coordinator", 6, key_type=2, coordinator_keys=["g"])


SCENARIOS: list[Callable[[Session], None]] = [
    joins_that_are_refused,
    syncs_heartbeats_and_leaves_that_are_refused,
    a_rebalance_of_two,
    static_members,
    offsets_of_no_members,
    topic_ids,
    deleted_offsets,
    groups_that_are_looked_at,
    coordinators,
]


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka() as broker:
        yield broker


def transcript(bootstrap: str, scenario: Callable[[Session], None]) -> list[Any]:
    session = Session(bootstrap)
    try:
        prepare(session.client)
        scenario(session)
        return session.transcript
    finally:
        session.close()


def prepare(client: Client) -> None:
    """Two topics, no groups, and a coordinator that is ready."""
    topics = [Message(name=name, num_partitions=2, replication_factor=1) for name in ("t1", "t2")]
    client.ask("create_topics", 5, topics=topics, timeout_ms=10_000)
    for group_id in ("g", "nobody", "other", ""):
        while client.ask("find_coordinator", 3, key=group_id).error_code:
            pass
        # Kafka loads its fifty shards one by one.
        while client.ask("describe_groups", 4, groups=[group_id]).groups[0].error_code:
            pass
    found = client.ask("list_groups", 4)
    for group in found.groups:
        described = client.ask("describe_groups", 4, groups=[group.group_id])
        for member in described.groups[0].members:
            gone = Message(member_id=member.member_id, group_instance_id=member.group_instance_id)
            client.ask("leave_group", 3, group_id=group.group_id, members=[gone])
        client.ask("delete_groups", 1, groups_names=[group.group_id])


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_answers_are_kafkas(kafka, scenario):
    with LocalBroker() as broker:
        ours = transcript(broker.bootstrap, scenario)
    assert ours == transcript(kafka.bootstrap, scenario)
