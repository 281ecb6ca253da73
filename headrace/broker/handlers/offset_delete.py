"""OffsetDelete: a group forgets offsets of topics that none of its members reads."""

from headrace.broker.context import Broker, Call
from headrace.coordination.offsets import TopicPartitions
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    known = [_known(broker, topic) for topic in request.topics]
    errors = iter(await broker.groups.delete_offsets(request.group_id, known))
    topics = []
    for topic, found in zip(request.topics, known, strict=True):
        codes = {index: next(errors) for index in found.partitions}
        partitions = [
            Message(
                partition_index=each.partition_index,
                error_code=codes.get(each.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            )
            for each in topic.partitions
        ]
        topics.append(Message(name=topic.name, partitions=partitions))
    return Message(topics=topics)


def _known(broker: Broker, topic: Message) -> TopicPartitions:
    """The partitions that exist, each once."""
    found = broker.catalog.topics.get(topic.name)
    count = 0 if found is None else found.partitions
    indexes = dict.fromkeys(each.partition_index for each in topic.partitions)
    return TopicPartitions(topic.name, [each for each in indexes if 0 <= each < count])
