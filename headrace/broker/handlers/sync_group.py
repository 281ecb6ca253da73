"""SyncGroup: the leader hands in the assignment, everyone else waits for theirs."""

from headrace.broker.context import Broker, Call
from headrace.coordination.sync import SyncRequest
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message

PROTOCOL_REQUIRED_SINCE = 5


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    protocol = request.protocol_type, request.protocol_name
    if call.api_version >= PROTOCOL_REQUIRED_SINCE and None in protocol:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the protocol is not named")
    answer = await broker.groups.sync(
        SyncRequest(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            *protocol,
            {each.member_id: each.assignment for each in request.assignments},
        )
    )
    return Message(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )
