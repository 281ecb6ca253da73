"""The rules of leaving a classic group, several members at once if an administrator says so."""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.coordination.classic_group import ClassicGroup, GroupState
from headrace.coordination.rebalance import (
    Move,
    complete_if_all_joined,
    prepare,
    remove_members,
)
from headrace.errors import ErrorCode, KafkaError


class Leaver(NamedTuple):
    """Who leaves: by member id, or a static member by instance id alone."""

    member_id: str
    group_instance_id: str | None = None


class LeaverAnswer(NamedTuple):
    """How it went for one of them."""

    member_id: str
    group_instance_id: str | None
    error: ErrorCode


def leave(move: Move, leavers: Sequence[Leaver]) -> tuple[LeaverAnswer, ...]:
    answers = tuple(_leave_one(move, leaver) for leaver in leavers)
    if any(answer.error is ErrorCode.NONE for answer in answers):
        if move.group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            prepare(move)
        else:
            complete_if_all_joined(move)
    return answers


def _leave_one(move: Move, leaver: Leaver) -> LeaverAnswer:
    try:
        remove_members(move, frozenset((_leaving(move.group, leaver),)))
        error = ErrorCode.NONE
    except KafkaError as refusal:
        error = refusal.code
    return LeaverAnswer(leaver.member_id, leaver.group_instance_id, error)


def _leaving(group: ClassicGroup, leaver: Leaver) -> str:
    if leaver.member_id in group.pending_joins:
        return leaver.member_id
    if leaver.member_id:
        group.check_member(leaver.member_id, leaver.group_instance_id)
        return leaver.member_id
    member_id = group.static_member_id(leaver.group_instance_id or "")
    if leaver.group_instance_id is None or member_id is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "no such static member")
    return member_id
