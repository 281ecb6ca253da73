"""DeleteGroups: empty groups go, and their offsets or share states with them."""

from headrace.broker.context import Broker, Call
from headrace.broker.shares import state_keys
from headrace.coordination.share_group import ShareGroup
from headrace.protocol.messages import Message


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    names = dict.fromkeys(request.groups_names)
    for name in names:
        group = await broker.groups.find(name)
        if isinstance(group, ShareGroup) and group.is_empty:
            # Before the group: a new one of this name must not find what the old one did.
            await broker.shares.delete_states(state_keys(name, group.states.initialized))
    deleted = await broker.groups.delete(names)
    return Message(
        results=[Message(group_id=each.group_id, error_code=each.error) for each in deleted]
    )
