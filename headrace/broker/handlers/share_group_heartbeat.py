"""ShareGroupHeartbeat: a member of a share group joins, lives or leaves; what it shall read."""

from headrace.broker.context import Broker, Call
from headrace.coordination.share_groups import LEAVE_EPOCH, ShareHeartbeat
from headrace.errors import ErrorCode
from headrace.protocol.messages import Message


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    beat = ShareHeartbeat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.subscribed_topic_names,
        request.rack_id,
        call.client_id or "",
        f"/{call.client_host}",
    )
    answer, interval_ms = await broker.shares.heartbeat(beat)
    assignment = None
    if answer.assignment is not None:
        assignment = Message(
            topic_partitions=[
                Message(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in answer.assignment.items()
            ]
        )
    return Message(
        error_code=ErrorCode.NONE,
        member_id=request.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=0 if answer.member_epoch == LEAVE_EPOCH else interval_ms,
        assignment=assignment,
    )
