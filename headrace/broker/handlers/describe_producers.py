"""DescribeProducers: who writes to a partition, and since when in a transaction."""

from headrace.broker.context import Broker, Call
from headrace.broker.partitions import Partition
from headrace.coordination.topics import check_name
from headrace.errors import KafkaError
from headrace.protocol.messages import Message


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    return Message(
        topics=[
            Message(
                name=topic.name,
                partitions=[
                    _partition(broker, topic.name, index) for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _partition(broker: Broker, name: str, index: int) -> Message:
    try:
        check_name(name)
        partition = broker.partitions.get(name, index)
    except KafkaError as error:
        return Message(partition_index=index, error_code=error.code, error_message=error.message)
    return Message(partition_index=index, active_producers=_producers(partition))


def _producers(partition: Partition) -> list[Message]:
    return [
        Message(
            producer_id=producer_id,
            producer_epoch=producer.epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.last_timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.txn_first_offset,
        )
        for producer_id, producer in partition.log.producers.active_producers()
    ]
