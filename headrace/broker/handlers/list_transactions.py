"""ListTransactions: the transactional ids of this broker, by state, producer, age and name."""

import re
from collections.abc import Collection, Iterable

from headrace.broker.context import Broker, Call
from headrace.coordination.transaction_records import Transaction, TransactionState
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message

STATES = {state.title: state for state in TransactionState}


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    known = {STATES[title] for title in request.state_filters if title in STATES}
    unknown = [title for title in request.state_filters if title not in STATES]
    found: Iterable[Transaction] = broker.transactions.all()
    if request.state_filters:
        found = [txn for txn in found if txn.state in known]
    if request.producer_id_filters:
        found = _by_producer(found, request.producer_id_filters)
    if request.duration_filter >= 0:
        since_ms = broker.clock.now_ms() - request.duration_filter
        found = [txn for txn in found if txn.started_ms < since_ms]
    if request.transactional_id_pattern:
        pattern = _compiled(request.transactional_id_pattern)
        found = [txn for txn in found if pattern.fullmatch(txn.transactional_id)]
    return Message(
        unknown_state_filters=unknown,
        transaction_states=[
            Message(
                transactional_id=txn.transactional_id,
                producer_id=txn.producer_id,
                transaction_state=txn.state.title,
            )
            for txn in found
            if txn.state is not TransactionState.DEAD
        ],
    )


def _by_producer(found: Iterable[Transaction], wanted: Collection[int]) -> list[Transaction]:
    producer_ids = frozenset(wanted)
    return [txn for txn in found if txn.producer_id in producer_ids]


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern} is not a pattern: {error}"
        ) from error
