"""AlterConfigs: the settings of a resource become those named, and no others."""

from headrace.broker.configs import Changes, Resource, alter_each, replaced, stated
from headrace.broker.context import Broker, Call
from headrace.protocol.messages import Message


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    def plan(asked: Message) -> Changes:
        current = stated(broker, Resource(asked.resource_type, asked.resource_name))
        return replaced(current, {config.name: config.value for config in asked.configs})

    return await alter_each(broker, request.resources, plan, dry=request.validate_only)
