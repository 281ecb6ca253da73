"""The rules of joining a classic group, as a new, pending, known or static member."""

from dataclasses import dataclass, replace

from headrace.coordination.classic_group import ClassicGroup, GroupState
from headrace.coordination.group_member import Member, MemberProtocol
from headrace.coordination.rebalance import (
    JoinAnswer,
    Move,
    SyncAnswer,
    TimerKind,
    current_generation,
    prepare,
    rebalance_or_complete,
    remove_members,
)
from headrace.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """One JoinGroup; `new_member_id` is the id this member gets if it has none yet.

    `knows_member_id_required` and `knows_skip_assignment` say what the client's version can read.
    """

    group_id: str
    member_id: str
    new_member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    knows_member_id_required: bool = True
    knows_skip_assignment: bool = True


def join(move: Move, request: JoinRequest, ticket: int) -> None:
    group = move.group
    if not _accepts(group, request.member_id, move.limits.max_size):
        remove_members(move, frozenset((request.member_id,)))
        move.answer(ticket, JoinAnswer("", ErrorCode.GROUP_MAX_SIZE_REACHED))
    elif not group.supports(request.protocol_type, request.protocols):
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        move.answer(ticket, JoinAnswer(request.member_id, error))
    elif not request.member_id:
        _join_new(move, request, ticket)
    elif request.member_id not in group.pending_joins:
        _join_known(move, request, ticket)
    elif request.group_instance_id is None:
        _add(move, request, request.member_id, ticket)
    else:
        # Pending ids are given to dynamic members only: to Kafka too this client makes no sense.
        move.answer(ticket, JoinAnswer(request.member_id, ErrorCode.UNKNOWN_SERVER_ERROR))


def _accepts(group: ClassicGroup, member_id: str, max_size: int) -> bool:
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            # Those who joined are counted, not the members: after the limit was lowered,
            # the last to rejoin are turned away.
            member = group.members.get(member_id)
            already = member is not None and member.join_ticket is not None
            return already or group.awaiting_joins < max_size
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            return member_id in group.members or len(group.members) < max_size
        case _:
            return True


def _join_new(move: Move, request: JoinRequest, ticket: int) -> None:
    if request.group_instance_id is not None:
        old_member_id = move.group.static_member_id(request.group_instance_id)
        if old_member_id is not None:
            _replace_static(move, request, old_member_id, ticket)
        else:
            _add(move, request, request.new_member_id, ticket)
    elif request.knows_member_id_required:
        pending = move.group.pending_joins | {request.new_member_id}
        move.group = replace(move.group, pending_joins=pending)
        move.set_timer(TimerKind.SESSION, request.session_timeout_ms, request.new_member_id)
        move.answer(ticket, JoinAnswer(request.new_member_id, ErrorCode.MEMBER_ID_REQUIRED))
    else:
        _add(move, request, request.new_member_id, ticket)


def _join_known(move: Move, request: JoinRequest, ticket: int) -> None:
    group, member_id = move.group, request.member_id
    try:
        group.check_member(member_id, request.group_instance_id)
    except KafkaError as refusal:
        move.answer(ticket, JoinAnswer(member_id, refusal.code))
        return
    member = group.members[member_id]
    is_leader = group.leader == member_id
    unchanged = member.protocols == request.protocols
    if group.state is GroupState.COMPLETING_REBALANCE and unchanged:
        # It may have missed its answer, so it is told about the generation again.
        move.answer(ticket, current_generation(group, member_id, with_members=is_leader))
    elif group.state is GroupState.STABLE and unchanged and not is_leader:
        move.answer(ticket, current_generation(group, member_id, with_members=False))
    else:
        # A leader rejoins when something it assigns has changed, though its metadata has not.
        _update(move, member, request, ticket)
        rebalance_or_complete(move)


def _add(move: Move, request: JoinRequest, member_id: str, ticket: int) -> None:
    group = move.group
    member = Member(
        member_id,
        request.group_instance_id,
        request.client_id,
        request.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        request.protocols,
        is_new=True,
        join_ticket=ticket,
    )
    gathering = group.state is GroupState.PREPARING_REBALANCE
    if gathering and group.previous_state is GroupState.EMPTY:
        group = replace(group, new_member_added=True)
    move.group = group.with_member(member, protocol_type=request.protocol_type)
    # A new member cannot heartbeat while its join is parked, and may be gone without our knowing.
    move.set_timer(TimerKind.SESSION, move.limits.new_member_join_timeout_ms, member_id)
    rebalance_or_complete(move)


def _update(move: Move, member: Member, request: JoinRequest, ticket: int) -> None:
    # The same member asks twice when its first connection broke: nobody listens there any more.
    superseded = JoinAnswer(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)
    move.answer(member.join_ticket, superseded)
    move.group = move.group.updated(_asking(member, request, ticket))


def _asking(member: Member, request: JoinRequest, ticket: int) -> Member:
    return replace(
        member,
        protocols=request.protocols,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        join_ticket=ticket,
    )


def _replace_static(move: Move, request: JoinRequest, old_member_id: str, ticket: int) -> None:
    """A static member restarted: it takes its old place, and whoever still holds it is fenced."""
    old = move.group.members[old_member_id]
    move.answer(old.join_ticket, JoinAnswer(old_member_id, ErrorCode.FENCED_INSTANCE_ID))
    move.answer(old.sync_ticket, SyncAnswer(ErrorCode.FENCED_INSTANCE_ID))
    move.cancel_timer(TimerKind.SESSION, old_member_id)
    fresh = replace(old, member_id=request.new_member_id, is_new=False, sync_ticket=None)
    member = _asking(fresh, request, ticket)
    old_leader = move.group.leader
    move.group = move.group.with_replaced(old_member_id, member)
    move.extend_session(member)
    group = move.group
    if group.state is GroupState.STABLE and group.selected_protocol() == group.protocol:
        _keep_generation(move, request, old_leader)
    elif group.state is GroupState.COMPLETING_REBALANCE:
        # The leader may be assigning to the old id right now: that assignment would reach nobody.
        prepare(move)
    else:
        rebalance_or_complete(move)


def _keep_generation(move: Move, request: JoinRequest, old_leader: str | None) -> None:
    """No rebalance: the new id is written, and the old assignment stays (KIP-345, KIP-814)."""
    member = move.group.members[request.new_member_id]
    move.group = move.group.updated(replace(member, join_ticket=None))
    is_leader = move.group.leader == member.member_id
    if request.knows_skip_assignment:
        answer = current_generation(
            move.group, member.member_id, with_members=is_leader, skip_assignment=is_leader
        )
    else:
        # Under its old id the leader is someone else to this client, so it will not assign.
        told = current_generation(move.group, member.member_id, with_members=False)
        answer = replace(told, leader=old_leader or "")
    move.answer(member.join_ticket, answer)
    move.is_recorded = True
