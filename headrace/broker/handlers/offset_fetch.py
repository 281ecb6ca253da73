"""OffsetFetch: how far one or several groups have come, in some partitions or in all."""

from headrace.broker.context import Broker, Call
from headrace.coordination.offsets import FetchedOffset, FetchedTopic, TopicPartitions
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message
from headrace.protocol.primitives import ZERO_UUID

TOP_LEVEL_ERROR_SINCE = 2
BATCHED_SINCE = 8
TOPIC_IDS_SINCE = 10

NO_OFFSET = -1
NO_EPOCH = -1


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    if call.api_version >= BATCHED_SINCE:
        groups = [
            await _fetch(broker, call, group, require_stable=request.require_stable)
            for group in request.groups
        ]
        return Message(groups=groups)
    asked = Message(
        group_id=request.group_id, topics=request.topics, member_id=None, member_epoch=-1
    )
    found = await _fetch(broker, call, asked, require_stable=request.require_stable)
    if found.error_code and call.api_version < TOP_LEVEL_ERROR_SINCE:
        topics = _all_refused(request.topics, found.error_code)
    else:
        topics = found.topics
    # These versions name their topics, and know nothing of ids.
    topics = [Message(name=topic.name, partitions=topic.partitions) for topic in topics]
    return Message(topics=topics, error_code=found.error_code)


async def _fetch(broker: Broker, call: Call, group: Message, *, require_stable: bool) -> Message:
    by_id = call.api_version >= TOPIC_IDS_SINCE
    known = None
    if group.topics is not None:
        asked = [_known(broker, topic, by_id=by_id) for topic in group.topics]
        known = [topic for topic in asked if topic is not None]
    try:
        fetched = await broker.groups.fetch_offsets(
            group.group_id,
            known,
            require_stable=require_stable,
            member=(group.member_id, group.member_epoch),
        )
    except KafkaError as refusal:
        return Message(group_id=group.group_id, topics=[], error_code=refusal.code)
    found = [_answer(broker, topic, by_id=by_id) for topic in fetched]
    topics = [topic for topic in found if topic is not None]
    if by_id and known is not None:
        unknown = [each for each in group.topics if broker.catalog.find(each.topic_id) is None]
        topics += _all_refused(unknown, ErrorCode.UNKNOWN_TOPIC_ID)
    return Message(group_id=group.group_id, topics=topics, error_code=ErrorCode.NONE)


def _known(broker: Broker, topic: Message, *, by_id: bool) -> TopicPartitions | None:
    catalog = broker.catalog
    found = catalog.find(topic.topic_id) if by_id else catalog.topics.get(topic.name)
    if found is not None:
        return TopicPartitions(found.name, topic.partition_indexes, found.topic_id)
    return None if by_id else TopicPartitions(topic.name, topic.partition_indexes)


def _answer(broker: Broker, topic: FetchedTopic, *, by_id: bool) -> Message | None:
    found = broker.catalog.topics.get(topic.topic)
    if by_id and found is None:
        return None
    return Message(
        name=topic.topic,
        topic_id=found.topic_id if found else ZERO_UUID,
        partitions=[_partition(each) for each in topic.partitions],
    )


def _partition(fetched: FetchedOffset) -> Message:
    committed = fetched.committed
    if committed is None:
        return _no_offset(fetched.partition, fetched.error)
    return Message(
        partition_index=fetched.partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=fetched.error,
    )


def _no_offset(partition: int, error: ErrorCode) -> Message:
    return Message(
        partition_index=partition,
        committed_offset=NO_OFFSET,
        committed_leader_epoch=NO_EPOCH,
        metadata="",
        error_code=error,
    )


def _all_refused(topics: list[Message], error: ErrorCode) -> list[Message]:
    return [
        Message(
            name=topic.name,
            topic_id=getattr(topic, "topic_id", ZERO_UUID),
            partitions=[_no_offset(each, error) for each in topic.partition_indexes],
        )
        for topic in topics or ()
    ]
