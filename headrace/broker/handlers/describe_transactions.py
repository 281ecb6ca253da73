"""DescribeTransactions: all that the coordinator knows of a transactional id."""

from headrace.broker.context import Broker, Call
from headrace.coordination.transaction_records import by_topic
from headrace.errors import ErrorCode
from headrace.protocol.messages import Message


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    return Message(
        transaction_states=[_described(broker, each) for each in request.transactional_ids]
    )


def _described(broker: Broker, transactional_id: str) -> Message:
    if not transactional_id:
        return Message(transactional_id=transactional_id, error_code=ErrorCode.INVALID_REQUEST)
    txn = broker.transactions.find(transactional_id)
    if txn is None:
        return Message(
            transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        )
    return Message(
        transactional_id=transactional_id,
        transaction_state=txn.state.title,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=txn.started_ms,
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        topics=[
            Message(topic=topic, partitions=indexes) for topic, indexes in by_topic(txn.partitions)
        ],
    )
