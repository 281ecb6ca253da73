"""ListConfigResources: what DescribeConfigs can be asked about."""

from headrace.broker.context import Broker, Call
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
# Version 0 was made for client metrics alone.
ONLY_CLIENT_METRICS = 0


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    await broker.topics.settled()
    every = [TOPIC, BROKER, CLIENT_METRICS, GROUP]
    asked = [CLIENT_METRICS] if call.api_version == ONLY_CLIENT_METRICS else request.resource_types
    unknown = set(asked) - set(every)
    if unknown:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"no resources of type {min(unknown)}")
    found = []
    for kind in asked or every:
        found += [Message(resource_name=name, resource_type=kind) for name in _names(broker, kind)]
    return Message(config_resources=found)


def _names(broker: Broker, kind: int) -> list[str]:
    if kind == TOPIC:
        return list(broker.catalog.topics)
    if kind == GROUP:
        return broker.catalog.names_with_configs(GROUP)
    return [str(broker.node_id)] if kind == BROKER else []
