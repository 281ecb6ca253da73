"""IncrementalAlterConfigs: set, delete, append to and subtract from single settings."""

from headrace.broker.configs import Changes, Edit, Resource, alter_each, edited
from headrace.broker.context import Broker, Call
from headrace.protocol.messages import Message


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    def plan(asked: Message) -> Changes:
        resource = Resource(asked.resource_type, asked.resource_name)
        edits = (Edit(one.name, one.config_operation, one.value) for one in asked.configs)
        return edited(broker, resource, edits)

    return await alter_each(broker, request.resources, plan, dry=request.validate_only)
