"""CreateTopics: each topic created or refused on its own, its directories there when answered."""

from collections import Counter
from uuid import uuid4

from headrace.broker.context import Broker, Call
from headrace.coordination.catalog import Refused, TopicCreated
from headrace.coordination.topics import NewTopic
from headrace.errors import ErrorCode, KafkaError
from headrace.log.settings import described
from headrace.protocol.messages import Message


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    asked = Counter(topic.name for topic in request.topics)
    wanted = [_new_topic(topic) for topic in request.topics if asked[topic.name] == 1]
    effects = await broker.topics.create(wanted, validate_only=request.validate_only)
    twice = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    answers = [_refused(name, twice) for name, count in asked.items() if count > 1]
    answers += [
        _refused(effect.name, effect.error)
        if isinstance(effect, Refused)
        else _created(broker, effect)
        for effect in effects
    ]
    return Message(topics=answers)


def _new_topic(topic: Message) -> NewTopic:
    return NewTopic(
        topic.name,
        uuid4(),
        topic.num_partitions,
        topic.replication_factor,
        [(one.partition_index, one.broker_ids) for one in topic.assignments],
        {config.name: config.value for config in topic.configs},
    )


def _refused(name: str, error: KafkaError) -> Message:
    return Message(name=name, error_code=error.code, error_message=error.message, configs=[])


def _created(broker: Broker, effect: TopicCreated) -> Message:
    topic = effect.topic
    return Message(
        name=topic.name,
        topic_id=topic.topic_id,
        error_message=None,
        num_partitions=topic.partitions,
        replication_factor=1,
        configs=[
            Message(
                name=config.name,
                value=config.value,
                read_only=config.read_only,
                config_source=config.source,
                is_sensitive=config.sensitive,
            )
            for config in described(topic.configs, broker.topics.layers)
        ],
    )
