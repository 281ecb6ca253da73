"""JoinGroup: ask to be a member of a classic group, and wait for its next generation."""

import logging
from uuid import uuid4

from headrace.broker.context import Broker, Call
from headrace.coordination.group_member import MemberProtocol
from headrace.coordination.join import JoinRequest
from headrace.protocol.messages import Message

logger = logging.getLogger(__name__)

MEMBER_ID_REQUIRED_SINCE = 4
NULL_PROTOCOL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    version = call.api_version
    logger.debug(
        "join group=%s member=%s reason=%s", request.group_id, request.member_id, request.reason
    )
    answer = await broker.groups.join(_join_request(call, request))
    return Message(
        error_code=answer.error,
        generation_id=answer.generation_id,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name or (None if version >= NULL_PROTOCOL_SINCE else ""),
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[Message(**each._asdict()) for each in answer.members],
    )


def _join_request(call: Call, request: Message) -> JoinRequest:
    client_id = call.client_id or ""
    rebalance_timeout_ms = request.rebalance_timeout_ms
    return JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        new_member_id=f"{request.group_instance_id or client_id}-{uuid4()}",
        group_instance_id=request.group_instance_id,
        client_id=client_id,
        client_host=f"/{call.client_host}",
        session_timeout_ms=request.session_timeout_ms,
        # The first version has one timeout for both.
        rebalance_timeout_ms=(
            rebalance_timeout_ms if call.api_version else request.session_timeout_ms
        ),
        protocol_type=request.protocol_type,
        protocols=tuple(MemberProtocol(each.name, each.metadata) for each in request.protocols),
        knows_member_id_required=call.api_version >= MEMBER_ID_REQUIRED_SINCE,
        knows_skip_assignment=call.api_version >= SKIP_ASSIGNMENT_SINCE,
    )
