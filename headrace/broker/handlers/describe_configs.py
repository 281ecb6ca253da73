"""DescribeConfigs: settings with where they come from, what they are, and what they do."""

from collections.abc import Iterable

from headrace.broker.configs import Resource, describe
from headrace.broker.context import Broker, Call
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message
from headrace.settings import Described


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    await broker.topics.settled()
    return Message(results=[_result(broker, asked, request) for asked in request.resources])


def _result(broker: Broker, asked: Message, request: Message) -> Message:
    resource = Resource(asked.resource_type, asked.resource_name)
    code, message, configs = ErrorCode.NONE, "", list[Message]()
    try:
        found = describe(broker, resource, asked.configuration_keys)
        configs = list(_configs(found, request))
    except KafkaError as error:
        code, message = error.code, error.message
    return Message(
        error_code=code,
        error_message=message,
        resource_type=resource.kind,
        resource_name=resource.name,
        configs=configs,
    )


def _configs(found: Iterable[Described], request: Message) -> Iterable[Message]:
    for config in found:
        synonyms = config.synonyms if request.include_synonyms else ()
        yield Message(
            name=config.name,
            value=config.value,
            read_only=config.read_only,
            config_source=config.source,
            is_sensitive=config.sensitive,
            synonyms=[
                Message(name=synonym.name, value=synonym.value, source=synonym.source)
                for synonym in synonyms
            ],
            config_type=config.kind,
            documentation=config.doc if request.include_documentation else None,
        )
