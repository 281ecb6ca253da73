"""ListGroups: every group of this broker, or those in some states and of some types."""

from headrace.broker.context import Broker, Call
from headrace.protocol.messages import Message


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    states = {each.strip().lower() for each in request.states_filter}
    types = {each.strip().lower() for each in request.types_filter}
    return Message(
        groups=[
            Message(
                group_id=group.group_id,
                protocol_type=group.protocol_type_name,
                group_state=group.state_name,
                group_type=group.group_type.value,
            )
            for group in await broker.groups.groups()
            if (not states or group.state_name.lower() in states)
            and (not types or group.group_type.value in types)
        ]
    )
