"""DeleteGroups: empty groups go, and their offsets with them."""

from headrace.broker.context import Broker, Call
from headrace.protocol.messages import Message


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    deleted = await broker.groups.delete(dict.fromkeys(request.groups_names))
    return Message(
        results=[Message(group_id=each.group_id, error_code=each.error) for each in deleted]
    )
