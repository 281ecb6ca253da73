"""Metadata: the cluster, and its topics by name or id, created on the way if that is allowed."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from headrace.broker.context import Broker, Call
from headrace.broker.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from headrace.coordination.catalog import Refused
from headrace.coordination.topics import Topic, check_name, is_internal
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message, Packed, pack_element
from headrace.protocol.primitives import ZERO_UUID

METADATA = 3
NOBODY = -1
# In version 0 no topics means all of them; later versions say null.
EMPTY_MEANS_ALL = 0
MIN_VERSION_BY_ID = 12


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    await broker.topics.settled()
    await broker.topics.repair()
    if request.topics is None or (call.api_version == EMPTY_MEANS_ALL and not request.topics):
        found: list[Topic | Message] = list(broker.catalog.topics.values())
    else:
        found = await _asked(broker, call, request)
    host, port = broker.endpoint(call.listener)
    by_cluster = request.include_cluster_authorized_operations
    return Message(
        brokers=[
            Message(node_id=broker.node_id, host=host, port=port, rack=broker.settings.broker_rack)
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=_packed(broker, call.api_version, found, operations),
        cluster_authorized_operations=CLUSTER_OPERATIONS if by_cluster else NOT_ASKED,
    )


def _packed(
    broker: Broker, version: int, found: Sequence[Topic | Message], operations: int
) -> Packed:
    """Topics as bytes, kept from one answer to the next: they are many, and change seldom."""
    kept = broker.topics.packed
    form = version, operations
    parts = []
    for topic in found:
        if isinstance(topic, Message):
            parts.append(pack_element(METADATA, version, "topics", topic))
            continue
        packed = kept.find(topic, form)
        if packed is None:
            answer = described(broker, topic, operations)
            packed = pack_element(METADATA, version, "topics", answer)
            # While a topic is being created its partitions are not all there yet.
            if broker.topics.is_served(topic):
                kept.keep(topic, form, packed)
        parts.append(packed)
    return Packed(len(parts), b"".join(parts))


async def _asked(broker: Broker, call: Call, request: Message) -> list[Topic | Message]:
    by_id = [topic.topic_id for topic in request.topics if topic.topic_id != ZERO_UUID]
    if by_id and call.api_version < MIN_VERSION_BY_ID:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "topics by id need version 12")
    names = [topic.name for topic in request.topics if topic.topic_id == ZERO_UUID]
    if None in names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic has neither name nor id")
    refused = await _create_missing(broker, request, names)
    return [
        *(_by_id(broker, topic_id) for topic_id in dict.fromkeys(by_id)),
        *(_by_name(broker, name, refused) for name in dict.fromkeys(names)),
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


def _by_name(broker: Broker, name: str, refused: dict[str, ErrorCode]) -> Topic | Message:
    # Whatever a creation was refused for, a topic that is there by now is an answer.
    topic = broker.catalog.topics.get(name)
    if topic is not None:
        return topic
    code = refused.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return Message(error_code=code, name=name, is_internal=is_internal(name))


def _by_id(broker: Broker, topic_id: UUID) -> Topic | Message:
    topic = broker.catalog.find(topic_id)
    if topic is not None:
        return topic
    return Message(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)


def described(broker: Broker, topic: Topic, operations: int) -> Message:
    return Message(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        topic_authorized_operations=operations,
        partitions=[_partition(broker, topic.name, index) for index in range(topic.partitions)],
    )


def _partition(broker: Broker, name: str, index: int) -> Message:
    node = [broker.node_id]
    try:
        leader_epoch = broker.partitions.get(name, index).leader_epoch
    except KafkaError:
        # Its directory could not be created yet: clients ask again.
        return Message(
            error_code=ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=index,
            leader_id=NOBODY,
            replica_nodes=node,
            offline_replicas=node,
        )
    return Message(
        partition_index=index,
        leader_id=broker.node_id,
        leader_epoch=leader_epoch,
        replica_nodes=node,
        isr_nodes=node,
    )
