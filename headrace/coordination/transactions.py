"""The transaction coordinator's rules: transactional ids, epochs, states, and who is fenced.

What always holds, whatever happens between two records:

- A transaction ends one way: from *prepare commit* only *complete commit* follows, from *prepare
  abort* only *complete abort*, and its partitions are those of the record that prepared it.
- The epoch of a producer id never goes back; a request with an older epoch changes nothing.
- With transactions version 2 each end raises the epoch, so a request that was delayed past the end
  of its transaction never touches the next one (KIP-890).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from headrace.coordination.machine import Decision
from headrace.coordination.transaction_moves import (
    AT_REST,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TRANSACTIONS_V2,
    completed,
    fenced,
    illegal,
    is_timed_out,
    may_recover,
    move,
    needed,
    owned,
    owned_or_retried,
    prepare,
    started,
    still_ending,
)
from headrace.coordination.transaction_records import (
    NO_PRODUCER_EPOCH,
    NOBODY,
    Forgotten,
    ProducerIdentity,
    TopicPartition,
    Transaction,
    TransactionRecord,
)
from headrace.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """End this transaction on each of its partitions, then say `markers_written`."""

    transaction: Transaction

    @property
    def committed(self) -> bool:
        return self.transaction.state is PREPARE_COMMIT


@dataclass(frozen=True, slots=True)
class Answer:
    """Who the producer is from now on; with an error, that it must come again."""

    identity: ProducerIdentity = NOBODY
    error: ErrorCode = ErrorCode.NONE


Effect = WriteMarkers | Answer
TransactionDecision = Decision[TransactionRecord, Effect]


class Transactions:
    """The transactional ids of one partition of `__transaction_state`."""

    def __init__(self, *, max_timeout_ms: int) -> None:
        self._max_timeout_ms = max_timeout_ms
        self._by_id: dict[str, Transaction] = {}

    def replay(self, record: TransactionRecord) -> None:
        if isinstance(record, Forgotten):
            self._by_id.pop(record.transactional_id, None)
        else:
            self._by_id[record.transactional_id] = record

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self._by_id.values())

    def find(self, transactional_id: str) -> Transaction | None:
        return self._by_id.get(transactional_id)

    def init(
        self,
        transactional_id: str,
        *,
        timeout_ms: int,
        expected: ProducerIdentity | None,
        fresh_id: int | None,
        now_ms: int,
    ) -> TransactionDecision:
        """A producer starts, or recovers as `expected` (KIP-360): whoever was before is fenced."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if not 0 < timeout_ms <= self._max_timeout_ms:
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"{timeout_ms} ms is not between 1 and transaction.max.timeout.ms",
            )
        txn = self.find(transactional_id) or Transaction(
            transactional_id=transactional_id,
            producer_id=needed(fresh_id),
            producer_epoch=NO_PRODUCER_EPOCH,
            timeout_ms=timeout_ms,
            state=EMPTY,
        )
        if txn.is_ending:
            raise still_ending(txn)
        if expected is not None and not may_recover(txn, expected):
            raise fenced(txn)
        if txn.state is ONGOING:
            # The producer must come again, and gets an epoch that the aborted one never had.
            aborting = prepare(txn, PREPARE_ABORT, TRANSACTIONS_V2, fresh_id, now_ms)
            again = Answer(error=ErrorCode.CONCURRENT_TRANSACTIONS)
            return Decision((aborting,), (WriteMarkers(aborting), again))
        identity, last_epoch = started(txn, expected, fresh_id)
        record = move(
            txn,
            EMPTY,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=-1,
            updated_ms=now_ms,
        )
        return Decision((record,), (Answer(identity),))

    def add_partitions(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        partitions: frozenset[TopicPartition],
        *,
        client_version: int,
        now_ms: int,
    ) -> TransactionDecision:
        """Make partitions part of the transaction, beginning one if none is ongoing."""
        txn = self._known(transactional_id)
        if txn.is_ending:
            raise still_ending(txn)
        owned(txn, identity)
        if txn.state is ONGOING and partitions <= txn.partitions:
            return Decision()
        return Decision(
            (
                move(
                    txn,
                    ONGOING,
                    partitions=txn.partitions | partitions,
                    started_ms=txn.started_ms if txn.state is ONGOING else now_ms,
                    updated_ms=now_ms,
                    client_version=client_version,
                ),
            )
        )

    def missing(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        partitions: Iterable[TopicPartition],
    ) -> frozenset[TopicPartition]:
        """Which of these partitions are not part of the producer's transaction; changes nothing."""
        txn = self._known(transactional_id)
        owned(txn, identity)
        if txn.is_ending:
            raise still_ending(txn)
        return frozenset(partitions) - txn.partitions

    def end(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        *,
        committed: bool,
        client_version: int,
        fresh_id: int | None,
        now_ms: int,
    ) -> TransactionDecision:
        """The producer ends its transaction; asking twice changes nothing the second time."""
        txn = self._known(transactional_id)
        if client_version >= TRANSACTIONS_V2:
            retried = owned_or_retried(txn, identity)
        else:
            owned(txn, identity)
            retried = txn.state in (COMPLETE_COMMIT, COMPLETE_ABORT)
        if txn.is_ending:
            raise still_ending(txn)
        if retried:
            ended = COMPLETE_COMMIT if committed else COMPLETE_ABORT
            if txn.state is not ended:
                raise illegal(txn, ended)
            return Decision(effects=(Answer(txn.identity),))
        ending = PREPARE_COMMIT if committed else PREPARE_ABORT
        if txn.state is EMPTY and client_version < TRANSACTIONS_V2:
            raise illegal(txn, ending)
        record = prepare(txn, ending, client_version, fresh_id, now_ms)
        return Decision((record,), (WriteMarkers(record), Answer(completed(record).identity)))

    def markers_written(self, prepared: Transaction, *, now_ms: int) -> TransactionDecision:
        """Every partition of `prepared` has its marker: the transaction is complete."""
        txn = self.find(prepared.transactional_id)
        if txn != prepared:
            return Decision()
        return Decision((replace(completed(prepared), updated_ms=now_ms),))

    def timed_out(self, now_ms: int) -> list[str]:
        """The transactional ids whose transaction has been ongoing for longer than it may."""
        return [txn.transactional_id for txn in self if is_timed_out(txn, now_ms)]

    def abort_timed_out(
        self, transactional_id: str, *, fresh_id: int | None, now_ms: int
    ) -> TransactionDecision:
        """Abort in the producer's place; the higher epoch fences it."""
        txn = self.find(transactional_id)
        if txn is None or not is_timed_out(txn, now_ms):
            return Decision()
        record = prepare(txn, PREPARE_ABORT, TRANSACTIONS_V2, fresh_id, now_ms)
        return Decision((record,), (WriteMarkers(record),))

    def expire(self, *, expiration_ms: int, now_ms: int) -> TransactionDecision:
        """Forget the transactional ids that nobody used for so long."""
        return Decision(
            tuple(
                Forgotten(txn.transactional_id)
                for txn in self
                if txn.state in AT_REST and txn.updated_ms <= now_ms - expiration_ms
            )
        )

    def unfinished(self) -> tuple[WriteMarkers, ...]:
        """After a load: transactions that were ending, whose markers may be missing anywhere."""
        return tuple(WriteMarkers(txn) for txn in self if txn.is_ending)

    def _known(self, transactional_id: str) -> Transaction:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        txn = self.find(transactional_id)
        if txn is None:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"transactional id {transactional_id} has no producer id",
            )
        return txn
