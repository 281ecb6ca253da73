"""ListPartitionReassignments: nothing moves on one node."""

from headrace.broker.context import Broker, Call
from headrace.protocol.messages import Message


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    return Message(error_message=None, topics=[])
