"""InitProducerId: an id for an idempotent producer, or the next epoch of a transactional one."""

from headrace.broker.context import Broker, Call
from headrace.coordination.transaction_records import NOBODY, ProducerIdentity
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message

NONE = -1
FENCED_FROM = 4
"""Older clients know a fenced producer by its epoch alone."""


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    error, identity = ErrorCode.NONE, NOBODY
    try:
        identity = await _identity(broker, request)
    except KafkaError as refusal:
        error = refusal.code
        if error is ErrorCode.PRODUCER_FENCED and call.api_version < FENCED_FROM:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
    return Message(
        error_code=error,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
    )


async def _identity(broker: Broker, request: Message) -> ProducerIdentity:
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "a producer id and its epoch come together or not at all"
        )
    if request.transactional_id is None:
        # Without transactions nobody else can have the id, so a new one serves as well as an epoch.
        return ProducerIdentity(await broker.topics.next_producer_id(), 0)
    known = ProducerIdentity(request.producer_id, request.producer_epoch)
    return await broker.transactions.init(
        request.transactional_id,
        timeout_ms=request.transaction_timeout_ms,
        expected=None if request.producer_id == NONE else known,
    )
