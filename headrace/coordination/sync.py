"""The rules of the second half of a rebalance: the leader's assignment, and who waits for it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.coordination.classic_group import ClassicGroup, GroupState
from headrace.coordination.group_members import Members
from headrace.coordination.rebalance import Move, SyncAnswer, TimerKind
from headrace.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """One SyncGroup; only the leader's assignments count."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


def sync(move: Move, request: SyncRequest, ticket: int) -> None:
    group = move.group
    try:
        _check(group, request)
    except KafkaError as refusal:
        move.answer(ticket, SyncAnswer(refusal.code))
        return
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            move.answer(ticket, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
        case GroupState.COMPLETING_REBALANCE:
            _park(move, request.member_id, ticket)
            if group.leader == request.member_id:
                _assign(move, request.assignments)
        case _:
            _synced(move, request.member_id)
            move.answer(ticket, _assigned(group, group.members[request.member_id].assignment))


def _check(group: ClassicGroup, request: SyncRequest) -> None:
    group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"it is {group.generation}")
    for asked, chosen in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol),
    ):
        if asked is not None and chosen is not None and asked != chosen:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"it is {chosen}")


def _park(move: Move, member_id: str, ticket: int) -> None:
    member = move.group.members[member_id]
    move.answer(member.sync_ticket, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
    move.group = move.group.updated(replace(member, sync_ticket=ticket))
    _synced(move, member_id)


def _synced(move: Move, member_id: str) -> None:
    if member_id not in move.group.pending_syncs:
        return
    move.group = replace(move.group, pending_syncs=move.group.pending_syncs - {member_id})
    if not move.group.pending_syncs:
        move.cancel_timer(TimerKind.SYNC)


def _assign(move: Move, assignments: Mapping[str, bytes]) -> None:
    """Everyone who waits is answered; who has no assignment gets an empty one."""
    group = move.group.moved(GroupState.STABLE, move.now.wall_ms)
    members = []
    for member in group.members.values():
        assignment = assignments.get(member.member_id, b"")
        if member.sync_ticket is not None:
            move.answer(member.sync_ticket, _assigned(group, assignment))
            move.extend_session(member)
        members.append(replace(member, assignment=assignment, sync_ticket=None))
    move.group = replace(group, members=Members(members))
    move.is_recorded = True


def _assigned(group: ClassicGroup, assignment: bytes) -> SyncAnswer:
    return SyncAnswer(ErrorCode.NONE, group.protocol_type, group.protocol, assignment)
