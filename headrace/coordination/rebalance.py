"""How a classic group passes from one generation to the next: gather, complete, propagate.

Empty -> PreparingRebalance -> CompletingRebalance -> Stable
           ^ everyone joins      the leader syncs       |
           +--------------------------------------------+  someone joins, leaves or dies
"""

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from headrace.coordination.classic_group import ClassicGroup, GroupState, InitialDelay
from headrace.coordination.group import GroupLimits, Now
from headrace.coordination.group_member import Member
from headrace.coordination.group_members import Members
from headrace.errors import ErrorCode


class JoinedMember(NamedTuple):
    """What the leader learns of each member."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """The answer to a join."""

    member_id: str
    error: ErrorCode = ErrorCode.NONE
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """The answer to a sync."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Answer(NamedTuple):
    """The effect of answering whoever waits under this ticket."""

    ticket: int
    body: JoinAnswer | SyncAnswer


class TimerKind(Enum):
    """What a deadline of a group is about."""

    SESSION = "session"
    JOIN = "join"
    SYNC = "sync"
    REVOCATION = "revocation"


class Timer(NamedTuple):
    """The name of one deadline; the joins and syncs of a classic group have no member."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


class TimerSet(NamedTuple):
    """A deadline to set, or with no time one to cancel."""

    timer: Timer
    at_ms: int | None


@dataclass(slots=True)
class Move:
    """One decision under way on one group: the group as it will be, and what follows from it.

    With `is_recorded`, the new group is written before anyone is answered.
    """

    group: ClassicGroup
    now: Now
    limits: GroupLimits
    answers: list[Answer] = field(default_factory=list)
    timers: list[TimerSet] = field(default_factory=list)
    is_recorded: bool = False

    def answer(self, ticket: int | None, body: JoinAnswer | SyncAnswer) -> None:
        if ticket is not None:
            self.answers.append(Answer(ticket, body))

    def set_timer(self, kind: TimerKind, delay_ms: int, member_id: str = "") -> None:
        timer = Timer(kind, self.group.group_id, member_id)
        self.timers.append(TimerSet(timer, self.now.monotonic_ms + delay_ms))

    def cancel_timer(self, kind: TimerKind, member_id: str = "") -> None:
        self.timers.append(TimerSet(Timer(kind, self.group.group_id, member_id), None))

    def extend_session(self, member: Member) -> None:
        self.set_timer(TimerKind.SESSION, member.session_timeout_ms, member.member_id)


def current_generation(
    group: ClassicGroup, member_id: str, *, with_members: bool, skip_assignment: bool = False
) -> JoinAnswer:
    """What a member is told about the generation that is there."""
    members = (
        JoinedMember(each.member_id, each.group_instance_id, each.metadata(group.protocol))
        for each in (group.members.values() if with_members else ())
    )
    return JoinAnswer(
        member_id,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        skip_assignment=skip_assignment,
        members=tuple(members),
    )


def remove_members(move: Move, member_ids: frozenset[str]) -> None:
    """Whoever still waits learns that it is no member, so that it joins again if it is alive."""
    for member_id in member_ids:
        member = move.group.members.get(member_id)
        if member is not None:
            move.answer(member.join_ticket, JoinAnswer("", ErrorCode.UNKNOWN_MEMBER_ID))
            move.answer(member.sync_ticket, SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
        move.cancel_timer(TimerKind.SESSION, member_id)
    move.group = move.group.without_members(member_ids)


def rebalance_or_complete(move: Move) -> None:
    """After a change of members: begin a rebalance, or see whether the one under way can end."""
    if move.group.can_rebalance:
        prepare(move)
    else:
        complete_if_all_joined(move)


def complete_if_all_joined(move: Move) -> None:
    group = move.group
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    # A new group waits for its timer, so that members that start together meet in one generation.
    if group.previous_state is not GroupState.EMPTY and group.all_joined:
        complete_join(move)


def prepare(move: Move) -> None:
    group = move.group
    if group.state is GroupState.COMPLETING_REBALANCE:
        _refuse_syncs(move, ErrorCode.REBALANCE_IN_PROGRESS)
    move.cancel_timer(TimerKind.SYNC)
    is_initial = group.state is GroupState.EMPTY
    moved = move.group.moved(GroupState.PREPARING_REBALANCE, move.now.wall_ms)
    move.group = replace(moved, pending_syncs=frozenset())
    if is_initial:
        delay_ms = move.limits.initial_rebalance_delay_ms
        remaining_ms = max(move.group.rebalance_timeout_ms - delay_ms, 0)
        move.group = replace(move.group, initial_delay=InitialDelay(delay_ms, remaining_ms))
        move.set_timer(TimerKind.JOIN, delay_ms)
    elif move.group.all_joined:
        complete_join(move)
    else:
        move.set_timer(TimerKind.JOIN, move.group.rebalance_timeout_ms)


def join_timer_fired(move: Move) -> None:
    group = move.group
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    delay = group.initial_delay
    if delay is not None and group.new_member_added and delay.remaining_ms:
        next_ms = min(move.limits.initial_rebalance_delay_ms, delay.remaining_ms)
        later = InitialDelay(next_ms, max(delay.remaining_ms - delay.delay_ms, 0))
        move.group = replace(group, new_member_added=False, initial_delay=later)
        move.set_timer(TimerKind.JOIN, next_ms)
    else:
        complete_join(move)


def complete_join(move: Move) -> None:
    """End the gathering: who did not come is out, who came learns the new generation."""
    move.cancel_timer(TimerKind.JOIN)
    absent = frozenset(
        member.member_id
        for member in move.group.members.values()
        # A static member may be restarting, so only its session timeout removes it (KIP-345).
        if member.join_ticket is None and member.group_instance_id is None
    )
    remove_members(move, absent)
    if move.group.members and not _elect_leader(move):
        move.set_timer(TimerKind.JOIN, move.group.rebalance_timeout_ms)
        return
    move.group = move.group.next_generation(move.now.wall_ms)
    if not move.group.members:
        move.is_recorded = True
        return
    _answer_joins(move)
    move.set_timer(TimerKind.SYNC, move.group.rebalance_timeout_ms)


def sync_timer_fired(move: Move) -> None:
    group = move.group
    if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) and group.pending_syncs:
        remove_members(move, group.pending_syncs)
        prepare(move)


def session_timer_fired(move: Move, member_id: str) -> None:
    group = move.group
    member = group.members.get(member_id)
    if member is None and member_id not in group.pending_joins:
        return
    if member is not None and member.satisfies_heartbeat:
        return
    remove_members(move, frozenset((member_id,)))
    if member is not None and group.can_rebalance:
        prepare(move)
    elif group.state is GroupState.PREPARING_REBALANCE and move.group.all_joined:
        complete_join(move)


def _elect_leader(move: Move) -> bool:
    """The leader must be one who joined, for it has to assign; False while nobody did."""
    group = move.group
    leader = group.members.get(group.leader or "")
    if leader is not None and leader.join_ticket is not None:
        return True
    for member in group.members.values():
        if member.join_ticket is not None:
            move.group = replace(group, leader=member.member_id)
            return True
    return False


def _answer_joins(move: Move) -> None:
    group = move.group
    members: list[Member] = []
    for member in group.members.values():
        answer = current_generation(
            group, member.member_id, with_members=member.member_id == group.leader
        )
        move.answer(member.join_ticket, answer)
        move.extend_session(member)
        members.append(replace(member, join_ticket=None, is_new=False))
    move.group = replace(group, members=Members(members), pending_syncs=frozenset(group.members))


def _refuse_syncs(move: Move, error: ErrorCode) -> None:
    members: list[Member] = []
    for member in move.group.members.values():
        if member.sync_ticket is not None:
            move.answer(member.sync_ticket, SyncAnswer(error))
            move.extend_session(member)
        members.append(replace(member, sync_ticket=None, assignment=b""))
    move.group = replace(move.group, members=Members(members))
