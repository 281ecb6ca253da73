"""The moves of one transaction: which are legal, who may make them, and what record each writes."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from headrace.coordination.transaction_records import (
    MAX_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerIdentity,
    Transaction,
    TransactionState,
)
from headrace.errors import ErrorCode, KafkaError

TRANSACTIONS_V0: Final = 0
TRANSACTIONS_V2: Final = 2
"""The epoch rises with each end, and partitions are added by what writes to them (KIP-890)."""


EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
DEAD = TransactionState.DEAD
PREPARE_EPOCH_FENCE = TransactionState.PREPARE_EPOCH_FENCE

AT_REST: Final = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})

# An abort may follow a state at rest: since version 2 a client that does not know whether its
# transaction began asks for the abort anyway.
NEXT: Final = MappingProxyType(
    {
        EMPTY: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
        ONGOING: frozenset({ONGOING, PREPARE_COMMIT, PREPARE_ABORT, PREPARE_EPOCH_FENCE}),
        PREPARE_COMMIT: frozenset({COMPLETE_COMMIT}),
        PREPARE_ABORT: frozenset({COMPLETE_ABORT}),
        COMPLETE_COMMIT: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
        COMPLETE_ABORT: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
        DEAD: frozenset[TransactionState](),
        PREPARE_EPOCH_FENCE: frozenset({PREPARE_ABORT}),
    }
)


class ProducerIdNeeded(Exception):
    """The decision needs a producer id that nobody had: decide again with one."""


def owned(txn: Transaction, identity: ProducerIdentity) -> None:
    same_id(txn, identity)
    if txn.producer_epoch != identity.producer_epoch:
        raise fenced(txn)


def same_id(txn: Transaction, identity: ProducerIdentity) -> None:
    if txn.producer_id != identity.producer_id:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"{txn.transactional_id} belongs to another producer id than {identity.producer_id}",
        )


def owned_or_retried(txn: Transaction, identity: ProducerIdentity) -> bool:
    """Whether this is the end that already happened, told by the epoch before the last raise."""
    if txn.is_ending:
        raise still_ending(txn)
    rotated = (
        txn.previous_producer_id == identity.producer_id
        and identity.producer_epoch == MAX_EPOCH - 1
        and txn.producer_epoch == 0
    )
    if not rotated:
        same_id(txn, identity)
    raised = txn.producer_epoch == identity.producer_epoch + 1
    if txn.state in (COMPLETE_COMMIT, COMPLETE_ABORT) and (raised or rotated):
        return True
    if txn.producer_epoch != identity.producer_epoch:
        raise fenced(txn)
    return False


def may_recover(txn: Transaction, expected: ProducerIdentity) -> bool:
    """The epoch is looked at when it is raised; here only whose transactional id it is."""
    return (
        txn.producer_epoch == NO_PRODUCER_EPOCH
        or txn.producer_id == expected.producer_id
        or (txn.previous_producer_id == expected.producer_id and exhausted(expected.producer_epoch))
    )


def started(
    txn: Transaction, expected: ProducerIdentity | None, fresh_id: int | None
) -> tuple[ProducerIdentity, int]:
    """Who the producer goes on as, and the epoch that a repeated request would name."""
    current = txn.producer_epoch
    epoch = None if expected is None else expected.producer_epoch
    if exhausted(current) and epoch in (None, current):
        last_epoch = NO_PRODUCER_EPOCH if epoch is None else current
        return ProducerIdentity(needed(fresh_id), 0), last_epoch
    raised = ProducerIdentity(txn.producer_id, current + 1)
    if epoch is None:
        return raised, NO_PRODUCER_EPOCH
    if epoch == current or current == NO_PRODUCER_EPOCH:
        return raised, current
    if epoch == txn.last_producer_epoch:
        # The answer to this very request was lost: give it again.
        return txn.identity, txn.last_producer_epoch
    raise fenced(txn)


def prepare(
    txn: Transaction,
    ending: TransactionState,
    client_version: int,
    fresh_id: int | None,
    now_ms: int,
) -> Transaction:
    """The record that decides how the transaction ends; nothing can change that any more."""
    epoch, last_epoch = txn.producer_epoch, txn.last_producer_epoch
    next_producer_id = NO_PRODUCER_ID
    if client_version >= TRANSACTIONS_V2:
        if exhausted(epoch):
            # The last epoch is for the markers alone; the producer goes on with a new id.
            next_producer_id = needed(fresh_id)
        epoch, last_epoch = min(epoch + 1, MAX_EPOCH), epoch
    return move(
        txn,
        ending,
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        next_producer_id=next_producer_id,
        # An abort of nothing began when it was asked for.
        started_ms=txn.started_ms if txn.state is ONGOING else now_ms,
        updated_ms=now_ms,
        client_version=client_version,
    )


def completed(prepared: Transaction) -> Transaction:
    rotates = (
        prepared.client_version >= TRANSACTIONS_V2 and prepared.next_producer_id != NO_PRODUCER_ID
    )
    return move(
        prepared,
        COMPLETE_COMMIT if prepared.state is PREPARE_COMMIT else COMPLETE_ABORT,
        producer_id=prepared.next_producer_id if rotates else prepared.producer_id,
        producer_epoch=0 if rotates else prepared.producer_epoch,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
    )


def move(txn: Transaction, state: TransactionState, **changes: Any) -> Transaction:
    if state not in NEXT[txn.state]:
        raise illegal(txn, state)
    return replace(txn, state=state, previous_producer_id=txn.producer_id, **changes)


def is_timed_out(txn: Transaction, now_ms: int) -> bool:
    return txn.state is ONGOING and txn.started_ms + txn.timeout_ms < now_ms


def exhausted(epoch: int) -> bool:
    """The last epoch is never given to a client, so that it can always be fenced."""
    return epoch >= MAX_EPOCH - 1


def needed(fresh_id: int | None) -> int:
    if fresh_id is None:
        raise ProducerIdNeeded
    return fresh_id


def fenced(txn: Transaction) -> KafkaError:
    return KafkaError(
        ErrorCode.PRODUCER_FENCED, f"a newer producer uses transactional id {txn.transactional_id}"
    )


def still_ending(txn: Transaction) -> KafkaError:
    return KafkaError(
        ErrorCode.CONCURRENT_TRANSACTIONS,
        f"the last transaction of {txn.transactional_id} is still ending",
    )


def illegal(txn: Transaction, state: TransactionState) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"{txn.transactional_id} cannot go from {txn.state.title} to {state.title}",
    )
