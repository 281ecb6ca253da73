"""AddOffsetsToTxn: a group's offsets become part of a producer's transaction."""

from headrace.broker.context import Broker, Call
from headrace.coordination.transaction_moves import TRANSACTIONS_V0
from headrace.coordination.transaction_records import ProducerIdentity
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message

FENCED_FROM = 2


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    try:
        await broker.transactions.add_partitions(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            [await broker.transactions.offsets_partition(request.group_id)],
            client_version=TRANSACTIONS_V0,
        )
    except KafkaError as refusal:
        if refusal.code is ErrorCode.PRODUCER_FENCED and call.api_version < FENCED_FROM:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, refusal.message) from refusal
        raise
    return Message(error_code=ErrorCode.NONE)
