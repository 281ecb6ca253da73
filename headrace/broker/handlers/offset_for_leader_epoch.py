"""OffsetForLeaderEpoch: where a leader epoch ended, so that a client can find its common point."""

from headrace.broker.context import Broker, Call
from headrace.errors import KafkaError
from headrace.protocol.messages import Message


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    topics = []
    for topic in request.topics:
        answers = [_partition_answer(broker, topic.topic, asked) for asked in topic.partitions]
        topics.append(Message(topic=topic.topic, partitions=answers))
    return Message(topics=topics)


def _partition_answer(broker: Broker, topic: str, asked: Message) -> Message:
    try:
        partition = broker.partitions.get(topic, asked.partition)
        partition.check_leader_epoch(asked.current_leader_epoch)
    except KafkaError as error:
        return Message(partition=asked.partition, error_code=error.code)
    epoch, end_offset = partition.log.end_offset_for_epoch(asked.leader_epoch)
    return Message(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
