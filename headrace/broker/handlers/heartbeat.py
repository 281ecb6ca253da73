"""Heartbeat: a member of a classic group is alive, and learns whether a rebalance is under way."""

from headrace.broker.context import Broker, Call
from headrace.protocol.messages import Message


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    error = await broker.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return Message(error_code=error)
