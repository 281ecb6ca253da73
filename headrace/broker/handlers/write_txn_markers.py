"""WriteTxnMarkers: an administrator ends a transaction that its coordinator does not know."""

from headrace.broker.context import Broker, Call
from headrace.coordination.transaction_records import ProducerIdentity
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    return Message(markers=[await _ended(broker, marker) for marker in request.markers])


async def _ended(broker: Broker, marker: Message) -> Message:
    return Message(
        producer_id=marker.producer_id,
        topics=[
            Message(
                name=topic.name,
                partitions=[
                    Message(
                        partition_index=index,
                        error_code=await _written(broker, marker, topic.name, index),
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )


async def _written(broker: Broker, marker: Message, topic: str, index: int) -> ErrorCode:
    try:
        await broker.transactions.markers.append(
            broker.partitions.get(topic, index),
            ProducerIdentity(marker.producer_id, marker.producer_epoch),
            committed=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
        )
    except KafkaError as refusal:
        return refusal.code
    return ErrorCode.NONE
