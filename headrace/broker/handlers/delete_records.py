"""DeleteRecords: move a log's start forward, for good."""

from headrace.broker.context import Broker, Call
from headrace.broker.partitions import Partition
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message

HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    topics = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            index = asked.partition_index
            try:
                partition = broker.partitions.get(topic.name, index)
                low_watermark = await _delete(broker, partition, asked.offset)
                answers.append(Message(partition_index=index, low_watermark=low_watermark))
            except KafkaError as error:
                answers.append(
                    Message(
                        partition_index=index,
                        low_watermark=NO_LOW_WATERMARK,
                        error_code=error.code,
                    )
                )
        topics.append(Message(name=topic.name, partitions=answers))
    return Message(topics=topics)


async def _delete(broker: Broker, partition: Partition, offset: int) -> int:
    if partition.internal:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is internal")
    if "delete" not in partition.settings.cleanup_policy:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"records of {partition} go by compaction alone"
        )
    await partition.caught_up()
    before = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= before <= partition.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{partition} can be cut at 0 to {partition.high_watermark}, not at {before}",
        )
    if before > partition.log_start_offset:
        partition.log.delete_records(before)
        # The promise that they are gone must outlive a crash: the new start goes to disk first.
        broker.store.checkpoint()
        partition.log_start_moved()
    return partition.log_start_offset
