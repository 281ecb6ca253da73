"""CreatePartitions: topics grow, their new directories there when answered."""

from collections import Counter

from headrace.broker.context import Broker, Call
from headrace.coordination.catalog import Refused
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    asked = Counter(topic.name for topic in request.topics)
    twice = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    answers = [_refused(name, twice) for name, count in asked.items() if count > 1]
    wanted = [
        (topic.name, topic.count, _assignments(topic))
        for topic in request.topics
        if asked[topic.name] == 1
    ]
    effects = await broker.topics.add_partitions(wanted, validate_only=request.validate_only)
    answers += [
        _refused(effect.name, effect.error)
        if isinstance(effect, Refused)
        else Message(name=effect.topic.name)
        for effect in effects
    ]
    return Message(results=answers)


def _assignments(topic: Message) -> list[list[int]] | None:
    if topic.assignments is None:
        return None
    return [list(assignment.broker_ids) for assignment in topic.assignments]


def _refused(name: str, error: KafkaError) -> Message:
    return Message(name=name, error_code=error.code, error_message=error.message)
