"""DescribeTopicPartitions: topics in the order of their names, a page at a time."""

from headrace.broker.context import Broker, Call
from headrace.broker.operations import TOPIC_OPERATIONS
from headrace.coordination.topics import Topic, check_name, is_internal
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message

NOBODY = -1


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    await broker.topics.settled()
    catalog = broker.catalog
    names = sorted({topic.name for topic in request.topics} or catalog.topics)
    cursor = request.cursor
    if cursor is not None:
        if cursor.partition_index < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the cursor's partition is negative")
        names = [name for name in names if name >= cursor.topic_name]
    # A page is never empty, or a client would ask for it for ever.
    limit = broker.settings.max_request_partition_size_limit
    room = max(min(request.response_partition_limit, limit), 1)
    answers = []
    next_cursor = None
    for name in names:
        if room <= 0:
            next_cursor = Message(topic_name=name, partition_index=0)
            break
        topic = catalog.topics.get(name)
        if topic is None:
            answers.append(_missing(name))
            continue
        at_cursor = cursor is not None and cursor.topic_name == name
        first = cursor.partition_index if at_cursor else 0
        end = min(topic.partitions, first + room)
        answers.append(_described(broker, topic, range(first, end)))
        room -= max(end - first, 0)
        if end < topic.partitions:
            next_cursor = Message(topic_name=name, partition_index=end)
            break
    return Message(topics=answers, next_cursor=next_cursor)


def _described(broker: Broker, topic: Topic, indexes: range) -> Message:
    return Message(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        topic_authorized_operations=TOPIC_OPERATIONS,
        partitions=[_partition(broker, topic.name, index) for index in indexes],
    )


def _partition(broker: Broker, name: str, index: int) -> Message:
    node = [broker.node_id]
    answer = {"replica_nodes": node, "eligible_leader_replicas": [], "last_known_elr": []}
    try:
        epoch = broker.partitions.get(name, index).leader_epoch
    except KafkaError:
        # Its directory could not be created yet: clients ask again.
        code = ErrorCode.LEADER_NOT_AVAILABLE
        return Message(error_code=code, partition_index=index, leader_id=NOBODY, **answer)
    return Message(
        partition_index=index,
        leader_id=broker.node_id,
        leader_epoch=epoch,
        isr_nodes=node,
        **answer,
    )


def _missing(name: str) -> Message:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_name(name)
    except KafkaError as error:
        code = error.code
    return Message(
        error_code=code,
        name=name,
        is_internal=is_internal(name),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
