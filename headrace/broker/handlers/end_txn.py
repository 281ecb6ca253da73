"""EndTxn: commit or abort; with transactions version 2 the answer says who the producer is next."""

from headrace.broker.context import Broker, Call
from headrace.coordination.transaction_moves import TRANSACTIONS_V0, TRANSACTIONS_V2
from headrace.coordination.transaction_records import ProducerIdentity
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message

EPOCH_RAISED_FROM = 5
FENCED_FROM = 2


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    version = TRANSACTIONS_V2 if call.api_version >= EPOCH_RAISED_FROM else TRANSACTIONS_V0
    try:
        producer_id, producer_epoch = await broker.transactions.end(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            committed=request.committed,
            client_version=version,
        )
    except KafkaError as refusal:
        if refusal.code is ErrorCode.PRODUCER_FENCED and call.api_version < FENCED_FROM:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, refusal.message) from refusal
        raise
    return Message(producer_id=producer_id, producer_epoch=producer_epoch)
