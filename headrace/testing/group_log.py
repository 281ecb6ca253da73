"""A group coordinator without a broker: its log is a list, its clients are tickets."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID, uuid5

from headrace.coordination.consumer_group_heartbeat import HeartbeatAnswer, HeartbeatRequest
from headrace.coordination.coordinator import Coordinator
from headrace.coordination.group import GroupLimits, Now
from headrace.coordination.group_member import MemberProtocol
from headrace.coordination.group_records import GroupCodec, GroupRecord
from headrace.coordination.groups import GroupDecision
from headrace.coordination.join import JoinRequest
from headrace.coordination.leave import Leaver, LeaverAnswer
from headrace.coordination.metadata_records import GROUP_RESOURCE
from headrace.coordination.offsets import OffsetDecision, Outcome
from headrace.coordination.rebalance import Answer, JoinAnswer, SyncAnswer
from headrace.coordination.sync import SyncRequest
from headrace.coordination.topics import Topic
from headrace.errors import ErrorCode
from headrace.protocol.primitives import Writer

_TOPIC_IDS = UUID("5d2c9a0e-0000-4000-8000-000000000000")
START_MS = 1_700_000_000_000

JOIN = JoinRequest(
    group_id="g",
    member_id="",
    new_member_id="",
    group_instance_id=None,
    client_id="client",
    client_host="/127.0.0.1",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=60_000,
    protocol_type="consumer",
    protocols=(MemberProtocol("range", b""),),
    knows_member_id_required=False,
)
BEAT = HeartbeatRequest("g", "", 0, client_id="client", client_host="/127.0.0.1")
SYNC = SyncRequest("g", "", None, 0, None, None, {})


def subscription(*topics: str, owned: Mapping[str, Iterable[int]] | None = None) -> bytes:
    """The consumer protocol's metadata: version 0, or 1 if it tells what its member owns."""

    def write_owned(topic: str) -> None:
        writer.string(topic)
        writer.array(sorted((owned or {})[topic]), writer.int32)

    writer = Writer()
    writer.int16(0 if owned is None else 1)
    writer.array(topics, writer.string)
    writer.sized_bytes(b"")
    if owned is not None:
        writer.array(list(owned), write_owned)
    return writer.getvalue()


class FakeTopics:
    """A catalog that tests write by hand."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.group_configs: dict[str, dict[str, str]] = {}
        self.version = 0

    def put(self, name: str, partitions: int) -> UUID:
        """Make a topic, or change how many partitions it has."""
        self.version += 1
        known = self.topics.get(name)
        topic_id = known.topic_id if known else uuid5(_TOPIC_IDS, f"{name}/{self.version}")
        self.topics[name] = Topic(name, topic_id, partitions)
        return topic_id

    def delete(self, name: str) -> None:
        self.version += 1
        self.topics.pop(name, None)

    def find(self, topic_id: UUID) -> Topic | None:
        return next((each for each in self.topics.values() if each.topic_id == topic_id), None)

    def configs_of(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self.group_configs.get(name, {}) if resource_type == GROUP_RESOURCE else {}


class _Transaction:
    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id


class GroupLog:
    """Runs decisions as a shard does: append, replay, carry out the effects.

    `log` holds (key, value, producer id or None) or, for a marker, (producer id, committed).
    """

    def __init__(self, limits: GroupLimits | None = None) -> None:
        self.limits = limits or GroupLimits(initial_rebalance_delay_ms=0)
        self.topics = FakeTopics()
        self.machine = self._new_machine()
        self.codec = GroupCodec()
        self.elapsed_ms = 0
        self.log: list[tuple[bytes, bytes | None, int | None] | tuple[int, bool]] = []
        self.answers: dict[int, JoinAnswer | SyncAnswer] = {}
        self.asked: set[int] = set()
        self._tickets = 0

    @property
    def now(self) -> Now:
        return Now(START_MS + self.elapsed_ms, self.elapsed_ms)

    # What clients do.

    def join(self, member_id: str = "", **changes: Any) -> int:
        """Ask to join; `changes` are fields of the JoinRequest. Returns the ticket."""
        ticket = self._ticket()
        request = replace(JOIN, member_id=member_id, new_member_id=f"m{ticket}", **changes)
        self.run(lambda: self.machine.join(request, ticket, self.now))
        return ticket

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        **changes: Any,
    ) -> int:
        ticket = self._ticket()
        request = replace(
            SYNC,
            member_id=member_id,
            generation_id=generation,
            assignments=assignments or {},
            **changes,
        )
        self.run(lambda: self.machine.sync(request, ticket, self.now))
        return ticket

    def leave(self, *leavers: Leaver, group_id: str = "g") -> tuple[LeaverAnswer, ...]:
        answers, decision = self.machine.leave(group_id, leavers, self.now)
        self.run(lambda: decision)
        return answers

    def beat(self, member_id: str, epoch: int, **changes: Any) -> HeartbeatAnswer:
        """A heartbeat of the consumer protocol; `changes` are fields of the HeartbeatRequest."""
        request = replace(BEAT, member_id=member_id, member_epoch=epoch, **changes)
        answer, decision = self.machine.consumer_groups.heartbeat(request, self.now)
        self.run(lambda: decision)
        return answer

    def heartbeat(
        self,
        member_id: str,
        generation: int,
        *,
        group_id: str = "g",
        instance_id: str | None = None,
    ) -> ErrorCode:
        return self.machine.heartbeat(group_id, member_id, instance_id, generation, self.now)

    def commit(self, outcome: Outcome, producer_id: int | None = None) -> tuple[ErrorCode, ...]:
        self.run(lambda: outcome.decision, producer_id)
        return outcome.errors

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        self.log.append((producer_id, committed))
        self.machine.replay_marker(_Transaction(producer_id), committed=committed)

    # What the broker does.

    def run(
        self,
        decide: Callable[[], GroupDecision | OffsetDecision],
        producer_id: int | None = None,
    ) -> None:
        decision = decide()
        for record in decision.records:
            self.log.append((*self.codec.encode(record), producer_id))
            self._replay(self.machine, record, producer_id)
        self._carry_out(decision.effects)

    def advance(self, elapsed_ms: int) -> None:
        """Let time pass; every deadline fires at its own moment, in order."""
        end_ms = self.elapsed_ms + elapsed_ms
        while True:
            deadlines = self.machine.groups.deadlines
            next_ms = deadlines.next_ms()
            if next_ms is None or next_ms > end_ms:
                break
            self.elapsed_ms = max(self.elapsed_ms, next_ms)
            for timer in deadlines.due(self.elapsed_ms):
                self.run(partial(self.machine.fire, timer, self.now))
        self.elapsed_ms = end_ms

    def reloaded(self) -> Coordinator:
        """A machine that knows only what the log says."""
        machine = self._new_machine()
        for entry in self.log:
            if len(entry) == 2:
                machine.replay_marker(_Transaction(entry[0]), committed=entry[1])
                continue
            key, value, producer_id = entry
            record = self.codec.decode(key, value)
            assert record is not None
            self._replay(machine, record, producer_id)
        return machine

    def restart(self) -> None:
        """A new process: parked clients are disconnected, sessions begin anew."""
        self.machine = self.reloaded()
        self.asked.difference_update(self.parked)
        self.run(lambda: self.machine.start(self.now))

    @property
    def parked(self) -> set[int]:
        return self.asked - set(self.answers)

    def joined(self, ticket: int) -> JoinAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, JoinAnswer)
        return answer

    def synced(self, ticket: int) -> SyncAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, SyncAnswer)
        return answer

    def _new_machine(self) -> Coordinator:
        return Coordinator(self.limits, lambda: self.topics)

    def _ticket(self) -> int:
        self._tickets += 1
        self.asked.add(self._tickets)
        return self._tickets

    def _replay(self, machine: Coordinator, record: GroupRecord, producer_id: int | None) -> None:
        if producer_id is None:
            machine.replay(record)
        else:
            machine.replay_transactional(record, _Transaction(producer_id))

    def _carry_out(self, effects: Sequence[Answer]) -> None:
        for ticket, body in effects:
            assert ticket in self.asked, f"nobody asked under ticket {ticket}"
            assert ticket not in self.answers, f"ticket {ticket} was answered twice"
            self.answers[ticket] = body
