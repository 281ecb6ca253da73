"""Every group of one partition of __consumer_offsets: the namespace of ids, and classic membership.

Invariants, after any history:
- an id names at most one group, of one kind;
- a generation never falls; a restart may use again the number of one that was never synced;
- every ticket is answered exactly once, or is parked with exactly one member;
- every member has a deadline, and so has every rebalance, so that nobody waits for ever;
- replaying the records gives the same groups as the log knows them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from headrace.coordination.classic_group import ClassicGroup, GroupState
from headrace.coordination.deadlines import Deadlines
from headrace.coordination.group import Group, GroupLimits, GroupType, Now
from headrace.coordination.group_records import GroupMetadata, GroupRecord
from headrace.coordination.join import JoinRequest, join
from headrace.coordination.leave import Leaver, LeaverAnswer, leave
from headrace.coordination.machine import Decision
from headrace.coordination.rebalance import (
    Answer,
    JoinAnswer,
    Move,
    SyncAnswer,
    Timer,
    TimerKind,
    TimerSet,
    join_timer_fired,
    prepare,
    session_timer_fired,
    sync_timer_fired,
)
from headrace.coordination.sync import SyncRequest, sync
from headrace.errors import ErrorCode, KafkaError

GroupDecision = Decision[GroupRecord, Answer]

_NOTHING: GroupDecision = Decision()


class Groups:
    """Groups by id. What a restart must know changes by replay alone.

    Gathering members is soft: it is lost with the process, as in Kafka, and clients begin again.
    So a decision that writes nothing moves its group at once, and one that writes a record leaves
    the move to the replay of that record.
    """

    def __init__(self, limits: GroupLimits) -> None:
        self.limits = limits
        self.deadlines: Deadlines[Timer] = Deadlines()
        self._groups: dict[str, Group] = {}

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def find(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def existing(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def classic(self, group_id: str) -> ClassicGroup:
        group = self.existing(group_id)
        if not isinstance(group, ClassicGroup):
            kind = f"Group {group_id} is not a classic group."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, kind)
        return group

    # Decisions.

    def join(self, request: JoinRequest, ticket: int, now: Now) -> GroupDecision:
        refused = self._refused_join(request)
        if refused is not None:
            return Decision(effects=(Answer(ticket, JoinAnswer(request.member_id, refused)),))
        found = self._groups.get(request.group_id)
        gives_way = found is not None and _gives_way(found)
        group = None if gives_way else found
        if group is None:
            group = ClassicGroup(request.group_id, state_timestamp_ms=now.wall_ms)
        if not isinstance(group, ClassicGroup):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            return Decision(effects=(Answer(ticket, JoinAnswer("", error)),))
        decision = self._decide(group, now, lambda move: join(move, request, ticket))
        if found is None or not gives_way:
            return decision
        return Decision((*found.tombstones(), *decision.records), decision.effects)

    def sync(self, request: SyncRequest, ticket: int, now: Now) -> GroupDecision:
        group = self._groups.get(request.group_id)
        if not request.group_id:
            refused = ErrorCode.INVALID_GROUP_ID
        elif not isinstance(group, ClassicGroup) or group.is_empty:
            refused = ErrorCode.UNKNOWN_MEMBER_ID
        else:
            return self._decide(group, now, lambda move: sync(move, request, ticket))
        return Decision(effects=(Answer(ticket, SyncAnswer(refused)),))

    def leave(
        self, group_id: str, leavers: Sequence[Leaver], now: Now
    ) -> tuple[tuple[LeaverAnswer, ...], GroupDecision]:
        """Who could leave, and the decision that carries it out."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            return tuple(LeaverAnswer(*leaver, unknown) for leaver in leavers), _NOTHING
        answers: list[LeaverAnswer] = []
        decision = self._decide(group, now, lambda move: answers.extend(leave(move, leavers)))
        return tuple(answers), decision

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> ErrorCode:
        """Keeps a session alive. It changes a deadline and nothing else, so it decides nothing."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return ErrorCode.UNKNOWN_MEMBER_ID
        try:
            group.check_member(member_id, instance_id)
        except KafkaError as refusal:
            return refusal.code
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self.touch(group, member_id, now_ms)
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def touch(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        member = group.members.get(member_id)
        if member is not None:
            timer = Timer(TimerKind.SESSION, group.group_id, member_id)
            self.deadlines.set(timer, now_ms + member.session_timeout_ms)

    def fire(self, timer: Timer, now: Now) -> GroupDecision:
        """A deadline has passed."""
        group = self._groups.get(timer.group_id)
        if not isinstance(group, ClassicGroup):
            return _NOTHING
        match timer:
            case Timer(TimerKind.SESSION, _, member_id):
                return self._decide(group, now, lambda move: session_timer_fired(move, member_id))
            case Timer(TimerKind.JOIN, _, ""):
                return self._decide(group, now, join_timer_fired)
            case Timer(TimerKind.SYNC, _, ""):
                return self._decide(group, now, sync_timer_fired)
            case _:
                # Set while the group was of another kind.
                return _NOTHING

    def start(self, now: Now) -> GroupDecision:
        """After a load: members have one session timeout to show that they live."""
        effects: list[Answer] = []
        for group in list(self._groups.values()):
            if not isinstance(group, ClassicGroup):
                continue
            for member_id in group.members:
                self.touch(group, member_id, now.monotonic_ms)
            if len(group.members) > self.limits.max_size:
                effects.extend(self._decide(group, now, prepare).effects)
        return Decision(effects=tuple(effects))

    def delete(self, group_id: str) -> tuple[GroupRecord, ...]:
        """The records that end a group, if it may end."""
        group = self.existing(group_id)
        group.check_delete()
        return group.tombstones()

    # Replay.

    def replay(self, record: GroupMetadata) -> None:
        if record.value is None:
            self._groups.pop(record.group_id, None)
        elif isinstance(record.live, _Live):
            self._settle(record.live.group, record.live.timers)
        else:
            self._groups[record.group_id] = ClassicGroup.from_stored(record.group_id, record.value)

    def ensure(self, group_id: str) -> None:
        """Whoever commits without joining has a simple group: classic, empty, of no protocol."""
        if group_id not in self._groups:
            self._groups[group_id] = ClassicGroup(group_id)

    def put(self, group: Group) -> None:
        """For the replay of other kinds of group."""
        self._groups[group.group_id] = group

    def remove(self, group_id: str, kind: GroupType) -> None:
        group = self._groups.get(group_id)
        if group is not None and group.group_type is kind:
            del self._groups[group_id]

    # The parts.

    def _refused_join(self, request: JoinRequest) -> ErrorCode | None:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        shortest, longest = self.limits.min_session_timeout_ms, self.limits.max_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= longest:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        group = self._groups.get(request.group_id)
        if request.member_id and (group is None or _gives_way(group)):
            return ErrorCode.UNKNOWN_MEMBER_ID
        return None

    def converted(self, group: ClassicGroup, now: Now, *, rebalance: bool) -> GroupDecision:
        """A group of another kind becomes this one, which is written whatever follows."""
        move = Move(group, now, self.limits)
        for member in group.members.values():
            move.extend_session(member)
        stored = group.stored()
        if rebalance:
            prepare(move)
        live = _Live(move.group, tuple(move.timers))
        return Decision((GroupMetadata(group.group_id, stored, live),), tuple(move.answers))

    def _decide(
        self, group: ClassicGroup, now: Now, rule: Callable[[Move], object]
    ) -> GroupDecision:
        move = Move(group, now, self.limits)
        rule(move)
        if not move.is_recorded:
            self._settle(move.group, move.timers)
            return Decision(effects=tuple(move.answers))
        live = _Live(move.group, tuple(move.timers))
        record = GroupMetadata(group.group_id, move.group.stored(), live)
        return Decision((record,), tuple(move.answers))

    def _settle(self, group: ClassicGroup, timers: Iterable[TimerSet]) -> None:
        self._groups[group.group_id] = group
        for timer, at_ms in timers:
            if at_ms is None:
                self.deadlines.cancel(timer)
            else:
                self.deadlines.set(timer, at_ms)


def _gives_way(group: Group) -> bool:
    """An empty consumer group becomes a classic one as soon as a classic member comes."""
    return group.group_type is GroupType.CONSUMER and group.is_empty


class _Live:
    """A group with what only memory knows, on its way from a decision to its own replay."""

    __slots__ = ("group", "timers")

    def __init__(self, group: ClassicGroup, timers: tuple[TimerSet, ...]) -> None:
        self.group = group
        self.timers = timers
