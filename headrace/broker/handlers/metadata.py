"""Metadata: the cluster, and its topics by name or id, created on the way if that is allowed."""

from collections.abc import Iterable
from uuid import UUID

from headrace.broker.context import Broker, Call
from headrace.broker.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from headrace.coordination.catalog import Refused
from headrace.coordination.topics import Topic, check_name, is_internal
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message
from headrace.protocol.primitives import ZERO_UUID

# In version 0 no topics means all of them; later versions say null.
EMPTY_MEANS_ALL = 0
MIN_VERSION_BY_ID = 12


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    if request.topics is None or (call.api_version == EMPTY_MEANS_ALL and not request.topics):
        topics = [_topic(broker, topic, operations) for topic in broker.catalog.topics.values()]
    else:
        topics = await _asked(broker, call, request, operations)
    host, port = broker.endpoint(call.listener)
    by_cluster = request.include_cluster_authorized_operations
    return Message(
        brokers=[
            Message(node_id=broker.node_id, host=host, port=port, rack=broker.settings.broker_rack)
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS if by_cluster else NOT_ASKED,
    )


async def _asked(broker: Broker, call: Call, request: Message, operations: int) -> list[Message]:
    by_id = [topic.topic_id for topic in request.topics if topic.topic_id != ZERO_UUID]
    if by_id and call.api_version < MIN_VERSION_BY_ID:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "topics by id need version 12")
    nameless = [None for topic in request.topics if topic.name is None and not topic.topic_id.int]
    if nameless:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic has neither name nor id")
    names = [topic.name for topic in request.topics if topic.topic_id == ZERO_UUID]
    refused = await _create_missing(broker, request, names)
    return [
        *(_by_id(broker, topic_id, operations) for topic_id in dict.fromkeys(by_id)),
        *(_by_name(broker, name, refused, operations) for name in dict.fromkeys(names)),
    ]


async def _create_missing(
    broker: Broker, request: Message, names: Iterable[str]
) -> dict[str, ErrorCode]:
    """Why topics that were asked for are not there after this."""
    missing = [name for name in dict.fromkeys(names) if name not in broker.catalog.topics]
    if not missing:
        return {}
    if not (request.allow_auto_topic_creation and broker.settings.auto_create_topics_enable):
        return {name: _reason(name) for name in missing}
    effects = await broker.topics.ensure(missing)
    return {effect.name: effect.error.code for effect in effects if isinstance(effect, Refused)}


def _reason(name: str) -> ErrorCode:
    try:
        check_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _by_name(broker: Broker, name: str, refused: dict[str, ErrorCode], operations: int) -> Message:
    # Whatever a creation was refused for, a topic that is there by now is an answer.
    topic = broker.catalog.topics.get(name)
    if topic is not None:
        return _topic(broker, topic, operations)
    code = refused.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return Message(error_code=code, name=name, is_internal=is_internal(name), partitions=[])


def _by_id(broker: Broker, topic_id: UUID, operations: int) -> Message:
    topic = broker.catalog.find(topic_id)
    if topic is not None:
        return _topic(broker, topic, operations)
    return Message(
        error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id, partitions=[]
    )


def _topic(broker: Broker, topic: Topic, operations: int) -> Message:
    node_id = broker.node_id
    node = [node_id]
    partitions = broker.partitions
    return Message(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        topic_authorized_operations=operations,
        partitions=[
            Message(
                partition_index=index,
                leader_id=node_id,
                leader_epoch=partitions.get(topic.name, index).leader_epoch,
                replica_nodes=node,
                isr_nodes=node,
            )
            for index in range(topic.partitions)
        ],
    )
