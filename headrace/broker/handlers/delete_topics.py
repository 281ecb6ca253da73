"""DeleteTopics: by name or by id; gone from sight when answered, from the disk soon after."""

from collections import Counter
from uuid import UUID

from headrace.broker.context import Broker, Call
from headrace.coordination.topics import Topic
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message
from headrace.protocol.primitives import ZERO_UUID

Key = tuple[str | None, UUID]


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    # The older versions have bare names.
    keys: list[Key] = [(name, ZERO_UUID) for name in request.topic_names]
    keys += [(topic.name, topic.topic_id) for topic in request.topics]
    asked = Counter(keys)
    topics: dict[UUID, Topic] = {}
    refusals = []
    for key in asked:
        try:
            topic = _find(broker, key, asked[key])
            topics[topic.topic_id] = topic
        except KafkaError as error:
            refusals.append(_refused(key, error))
    await broker.topics.delete(list(topics))
    await broker.groups.topics_deleted([topic.name for topic in topics.values()])
    await broker.shares.topics_deleted(list(topics))
    deleted = [Message(name=topic.name, topic_id=topic.topic_id) for topic in topics.values()]
    return Message(responses=deleted + refusals)


def _find(broker: Broker, key: Key, count: int) -> Topic:
    name, topic_id = key
    if not broker.settings.delete_topic_enable:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    if name is None and topic_id == ZERO_UUID:
        raise _invalid("Neither topic name nor id were specified.")
    if name is not None and topic_id != ZERO_UUID:
        raise _invalid("You may not specify both topic name and topic id.")
    if count > 1:
        raise _invalid("Duplicate topic id." if name is None else "Duplicate topic name.")
    return broker.catalog.topic_by_id(topic_id) if name is None else broker.catalog.topic(name)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _refused(key: Key, error: KafkaError) -> Message:
    name, topic_id = key
    return Message(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)
