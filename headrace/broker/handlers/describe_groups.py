"""DescribeGroups: the state of classic groups, with their members and what they were assigned."""

from typing import Any

from headrace.broker.context import Broker, Call
from headrace.coordination.classic_group import ClassicGroup, GroupState
from headrace.coordination.group_member import Member
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message

NOT_FOUND_SINCE = 6

READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 3, 6, 8, 10, 11
AUTHORIZED_OPERATIONS = sum(
    1 << operation for operation in (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
)
"""All that can be done to a group, as bits: no one is refused anything yet."""

NOT_ASKED = -(2**31)


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    granted = AUTHORIZED_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    groups = []
    for group_id in request.groups:
        try:
            fields = _described(group_id, await broker.groups.find(group_id))
            groups.append(Message(authorized_operations=granted, **fields))
        except KafkaError as refusal:
            groups.append(_not_found(call, group_id, refusal, granted))
    return Message(groups=groups)


def _not_found(call: Call, group_id: str, refusal: KafkaError, granted: int) -> Message:
    if refusal.code is not ErrorCode.GROUP_ID_NOT_FOUND:
        return Message(group_id=group_id, error_code=refusal.code)
    dead = GroupState.DEAD.value
    if call.api_version < NOT_FOUND_SINCE:
        return Message(group_id=group_id, group_state=dead, authorized_operations=granted)
    return Message(
        group_id=group_id,
        group_state=dead,
        error_code=refusal.code,
        error_message=refusal.message,
    )


def _described(group_id: str, group: object) -> dict[str, Any]:
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not isinstance(group, ClassicGroup):
        kind = f"Group {group_id} is not a classic group."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, kind)
    protocol = group.protocol if group.is_stable else None
    return {
        "group_id": group_id,
        "group_state": group.state_name,
        "protocol_type": group.protocol_type_name,
        "protocol_data": protocol or "",
        "members": [_member(each, protocol) for each in group.members.values()],
    }


def _member(member: Member, protocol: str | None) -> Message:
    """Before the group is stable nobody knows which metadata will count."""
    return Message(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(protocol),
        member_assignment=member.assignment,
    )
