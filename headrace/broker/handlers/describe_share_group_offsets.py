"""DescribeShareGroupOffsets: where share groups are in their partitions, and how far behind."""

from collections.abc import Mapping

from headrace.broker.context import Broker, Call
from headrace.coordination.share_group import ShareGroup
from headrace.coordination.share_records import SharePartitionKey
from headrace.coordination.topics import Topic
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message

UNKNOWN = -1


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    groups = []
    for asked in request.groups:
        try:
            groups.append(await _described(broker, asked))
        except KafkaError as refusal:
            groups.append(
                Message(
                    group_id=asked.group_id,
                    error_code=refusal.code,
                    error_message=refusal.message or None,
                )
            )
    return Message(groups=groups)


async def _described(broker: Broker, asked: Message) -> Message:
    group = await broker.groups.find(asked.group_id)
    wanted: Mapping[str, list[int]]
    if asked.topics is None:
        # A group that nobody knows has been nowhere, which Kafka does not take for an error.
        states = group.states.initialized if isinstance(group, ShareGroup) else {}
        wanted = {topic.name: sorted(topic.partitions) for topic in states.values()}
    else:
        wanted = {topic.topic_name: list(topic.partitions) for topic in asked.topics}
    topics = []
    for name, partitions in wanted.items():
        topic = broker.catalog.topics.get(name)
        if topic is None:
            topics.append(_unknown(name, partitions))
            continue
        found = [await _partition(broker, asked.group_id, topic, each) for each in partitions]
        topics.append(Message(topic_name=name, topic_id=topic.topic_id, partitions=found))
    return Message(group_id=asked.group_id, topics=topics, error_code=ErrorCode.NONE)


async def _partition(broker: Broker, group_id: str, topic: Topic, index: int) -> Message:
    key = SharePartitionKey(group_id, topic.topic_id, index)
    shard = await broker.shares.shard_of(key)
    share = await shard.look(lambda machine: machine.find(key))
    if share is None or not share.is_initialized:
        return Message(partition_index=index, start_offset=UNKNOWN, lag=UNKNOWN)
    log = broker.partitions.get(topic.name, index)
    behind = log.high_watermark - share.start_offset - share.complete_count
    return Message(
        partition_index=index,
        start_offset=share.start_offset,
        leader_epoch=share.leader_epoch,
        lag=max(behind, 0),
    )


def _unknown(name: str, partitions: list[int]) -> Message:
    return Message(
        topic_name=name,
        partitions=[
            Message(partition_index=each, start_offset=UNKNOWN, lag=UNKNOWN) for each in partitions
        ],
    )
