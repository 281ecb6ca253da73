"""LeaveGroup: one member goes, or an administrator removes several."""

import logging

from headrace.broker.context import Broker, Call
from headrace.coordination.leave import Leaver
from headrace.protocol.messages import Message

logger = logging.getLogger(__name__)

BATCHED_SINCE = 3


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    if call.api_version < BATCHED_SINCE:
        (answer,) = await broker.groups.leave(request.group_id, [Leaver(request.member_id)])
        return Message(error_code=answer.error)
    for member in request.members:
        logger.debug(
            "leave group=%s member=%s reason=%s", request.group_id, member.member_id, member.reason
        )
    leavers = [Leaver(each.member_id, each.group_instance_id) for each in request.members]
    answers = await broker.groups.leave(request.group_id, leavers)
    return Message(
        members=[
            Message(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                error_code=each.error,
            )
            for each in answers
        ]
    )
