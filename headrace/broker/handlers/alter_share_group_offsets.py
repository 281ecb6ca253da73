"""AlterShareGroupOffsets: an empty share group begins again somewhere else."""

from headrace.broker.context import Broker, Call
from headrace.coordination.share_group_records import StateTopic
from headrace.coordination.share_records import SharePartitionKey
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message
from headrace.protocol.primitives import ZERO_UUID


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")
    shard = await broker.groups.shard_of(request.group_id)
    state_epoch = await shard.run_for(lambda machine: machine.shares.begin_alter(request.group_id))
    answers, made = [], {}
    for asked in request.topics:
        topic = broker.catalog.topics.get(asked.topic_name)
        partitions = []
        moved = set()
        for each in asked.partitions:
            index = each.partition_index
            if topic is None or not 0 <= index < topic.partitions:
                partitions.append(_unknown(index))
                continue
            key = SharePartitionKey(request.group_id, topic.topic_id, index)
            try:
                await broker.shares.initialize(key, state_epoch, each.start_offset)
                moved.add(index)
                partitions.append(Message(partition_index=index, error_code=ErrorCode.NONE))
            except KafkaError as refusal:
                partitions.append(
                    Message(
                        partition_index=index,
                        error_code=refusal.code,
                        error_message=refusal.message,
                    )
                )
        topic_id = ZERO_UUID if topic is None else topic.topic_id
        if topic is not None and moved:
            made[topic_id] = StateTopic(topic.name, frozenset(moved))
        answers.append(
            Message(topic_name=asked.topic_name, topic_id=topic_id, partitions=partitions)
        )
    if made:
        await shard.run(lambda machine: machine.shares.state_made(request.group_id, made))
    return Message(error_code=ErrorCode.NONE, responses=answers)


def _unknown(index: int) -> Message:
    return Message(
        partition_index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message="This server does not host this topic-partition.",
    )
