"""Producers of one partition: their epochs, last sequences and open transactions, from the log."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from headrace.errors import ErrorCode, KafkaError
from headrace.log.origin import Origin
from headrace.log.txn_index import AbortedTxn
from headrace.protocol.records import BatchView, EndMarker, end_marker

# A producer may have this many batches in flight, so as many are known again when retried.
KEPT_BATCHES = 5
NO_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1
MAX_EPOCH = 2**15 - 1
SEQUENCE_MAX = 2**31 - 1
SEQUENCE_WRAP = SEQUENCE_MAX + 1

SNAPSHOT_VERSION = 1
_VERSION_AND_CRC = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
# Producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch,
# first offset of the open transaction.
_ENTRY = struct.Struct(">qhiqiqiq")


class Duplicate(NamedTuple):
    """A batch already written: where it is."""

    base_offset: int
    last_offset: int
    timestamp: int


class KeptBatch(NamedTuple):
    """What is remembered of a written batch."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) % SEQUENCE_WRAP


class Producer:
    """One producer, as the log has seen it."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "txn_first_offset")

    def __init__(self) -> None:
        self.epoch = NO_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.txn_first_offset = NO_OFFSET
        # Oldest first, all of this epoch.
        self.batches: tuple[KeptBatch, ...] = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Producer):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        facts = (f"{name}={getattr(self, name)}" for name in self.__slots__)
        return f"Producer({', '.join(facts)})"

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def in_transaction(self) -> bool:
        return self.txn_first_offset != NO_OFFSET

    def expired(self, now_ms: int, expiration_ms: int) -> bool:
        return not self.in_transaction and now_ms - self.last_timestamp >= expiration_ms

    def enter(self, epoch: int) -> None:
        """Sequences start anew with each epoch."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches = ()


class Producers:
    """Asked before a batch is written, told after; replaying the log rebuilds the same state."""

    __slots__ = ("_open", "_producers")

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        # Open transactions: first offset to producer id, the oldest first.
        self._open: dict[int, int] = {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Producers):
            return NotImplemented
        return self._producers == other._producers and self._open == other._open

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __len__(self) -> int:
        return len(self._producers)

    def check(
        self, batch: BatchView, *, origin: Origin, epoch_bumped: bool = False
    ) -> Duplicate | None:
        """Whether a batch may be written; the place of its first copy if it already was.

        `epoch_bumped`: the producer gives each transaction an epoch of its own (KIP-890), so a
        marker's epoch is above that of the records, and a transaction's sequences start at 0.
        """
        producer_id = batch.producer_id
        if producer_id < 0:
            return None
        producer = self._producers.get(producer_id)
        if batch.is_control:
            _check_marker(producer, batch, end_marker(batch), epoch_bumped=epoch_bumped)
            return None
        if producer is None:
            if epoch_bumped and batch.is_transactional and batch.base_sequence > 0:
                raise _out_of_order(batch, NO_SEQUENCE)
            return None
        epoch = producer.epoch
        if origin is Origin.CLIENT:
            # The usual case first: the next sequence of a known producer.
            last = producer.batches[-1].last_sequence if producer.batches else NO_SEQUENCE
            first = batch.base_sequence
            if batch.producer_epoch != epoch or not _follows(last, first):
                duplicate = _duplicate(producer, batch)
                if duplicate is not None:
                    return duplicate
                _check_epoch(producer, batch)
                if batch.producer_epoch == epoch or first != 0:
                    raise _out_of_order(batch, last if batch.producer_epoch == epoch else None)
        else:
            _check_epoch(producer, batch)
        if producer.in_transaction and not batch.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} has an open transaction and wrote outside of it",
            )
        return None

    def update(self, batch: BatchView) -> AbortedTxn | None:
        """Take note of a written batch; what its marker aborted, if it is one."""
        if batch.producer_id < 0:
            return None
        if batch.is_control:
            # Compaction leaves empty control batches of transactions that are gone.
            marker = end_marker(batch) if batch.record_count else None
            return None if marker is None else self._end(batch, marker)
        producer = self._known(batch.producer_id)
        producer.enter(batch.producer_epoch)
        kept = KeptBatch(
            batch.last_sequence, batch.last_offset, batch.last_offset_delta, batch.max_timestamp
        )
        producer.batches = (*producer.batches[1 - KEPT_BATCHES :], kept)
        producer.last_timestamp = batch.max_timestamp
        if batch.is_transactional and not producer.in_transaction:
            producer.txn_first_offset = batch.base_offset
            self._open[batch.base_offset] = batch.producer_id
        return None

    def _known(self, producer_id: int) -> Producer:
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer()
        return producer

    def _end(self, batch: BatchView, marker: EndMarker) -> AbortedTxn | None:
        producer = self._known(batch.producer_id)
        first_offset = producer.txn_first_offset
        producer.enter(batch.producer_epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = batch.max_timestamp
        producer.txn_first_offset = NO_OFFSET
        if first_offset == NO_OFFSET:
            return None
        del self._open[first_offset]
        if marker.commit:
            return None
        undecided = self.first_unstable_offset
        stable = batch.base_offset + 1 if undecided is None else undecided
        return AbortedTxn(batch.producer_id, first_offset, batch.base_offset, stable)

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest open transaction starts; None if none is open."""
        return next(iter(self._open), None)

    def open_transactions(self) -> Iterator[tuple[int, int, Producer]]:
        """First offset, producer id and producer of each, the oldest first."""
        for first_offset, producer_id in self._open.items():
            yield first_offset, producer_id, self._producers[producer_id]

    def find(self, producer_id: int) -> Producer | None:
        """What is known of one producer; not to be changed."""
        return self._producers.get(producer_id)

    def in_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether this epoch of a producer has a transaction open here."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.in_transaction and producer.epoch == producer_epoch

    def active_producers(self) -> Iterator[tuple[int, Producer]]:
        """Every producer known, with its id; not to be changed."""
        return iter(self._producers.items())

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that wrote nothing for so long; how many."""
        gone = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.expired(now_ms, expiration_ms)
        ]
        for producer_id in gone:
            del self._producers[producer_id]
        return len(gone)

    def snapshot(self) -> bytes:
        """Kafka's .snapshot file: each producer with the last of its batches."""
        body = bytearray(_COUNT.pack(len(self._producers)))
        for producer_id, producer in self._producers.items():
            last = producer.batches[-1] if producer.batches else KeptBatch(-1, -1, 0, -1)
            body += _ENTRY.pack(
                producer_id,
                producer.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.txn_first_offset,
            )
        return _VERSION_AND_CRC.pack(SNAPSHOT_VERSION, crc32c(body)) + body

    def load(self, snapshot: bytes) -> None:
        """Become what a snapshot says; ValueError if it is torn, damaged or not of this format."""
        entries = _entries(snapshot)
        self._producers = {}
        for producer_id, epoch, last_sequence, last_offset, delta, timestamp, *rest in entries:
            producer = self._known(producer_id)
            producer.epoch = epoch
            producer.last_timestamp = timestamp
            producer.coordinator_epoch = rest[0]
            producer.txn_first_offset = max(rest[1], NO_OFFSET)
            if last_offset >= 0:
                producer.batches = (KeptBatch(last_sequence, last_offset, delta, timestamp),)
        self._open = dict(
            sorted(
                (producer.txn_first_offset, producer_id)
                for producer_id, producer in self._producers.items()
                if producer.in_transaction
            )
        )


def _entries(snapshot: bytes) -> list[tuple[int, ...]]:
    start = _VERSION_AND_CRC.size
    if len(snapshot) < start + _COUNT.size:
        raise ValueError(f"{len(snapshot)} bytes are no snapshot")
    version, crc = _VERSION_AND_CRC.unpack_from(snapshot)
    if version != SNAPSHOT_VERSION:
        raise ValueError(f"snapshot version {version}")
    if crc32c(memoryview(snapshot)[start:]) != crc:
        raise ValueError("the snapshot's checksum does not match")
    (count,) = _COUNT.unpack_from(snapshot, start)
    body = memoryview(snapshot)[start + _COUNT.size :]
    if len(body) != count * _ENTRY.size:
        raise ValueError(f"{count} producers do not take {len(body)} bytes")
    return list(_ENTRY.iter_unpack(body))


def _follows(last: int, first: int) -> bool:
    return first == last + 1 or (first == 0 and last == SEQUENCE_MAX)


def _duplicate(producer: Producer, batch: BatchView) -> Duplicate | None:
    if batch.producer_epoch != producer.epoch:
        return None
    first, last = batch.base_sequence, batch.last_sequence
    for kept in producer.batches:
        if kept.last_sequence == last and kept.first_sequence == first:
            base_offset = kept.last_offset - kept.offset_delta
            return Duplicate(base_offset, kept.last_offset, kept.timestamp)
    return None


def _check_epoch(producer: Producer, batch: BatchView) -> None:
    if batch.producer_epoch < producer.epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {batch.producer_id} wrote with epoch {batch.producer_epoch}, "
            f"and epoch {producer.epoch} has been seen",
        )


def _check_marker(
    producer: Producer | None, batch: BatchView, marker: EndMarker | None, *, epoch_bumped: bool
) -> None:
    if producer is None or marker is None:
        return
    _check_epoch(producer, batch)
    # A marker without an open transaction is a retry, and above the last epoch there is none.
    same_epoch = batch.producer_epoch == producer.epoch != MAX_EPOCH
    if epoch_bumped and same_epoch and producer.in_transaction:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"a marker of producer {batch.producer_id} with epoch {batch.producer_epoch} "
            "belongs to an earlier transaction",
        )
    if marker.coordinator_epoch < producer.coordinator_epoch:
        raise KafkaError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"a marker of producer {batch.producer_id} came with coordinator epoch "
            f"{marker.coordinator_epoch}, and {producer.coordinator_epoch} has been seen",
        )


def _out_of_order(batch: BatchView, last: int | None) -> KafkaError:
    expected = "a new epoch starts at 0" if last is None else f"the last one was {last}"
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {batch.producer_id} sent sequence {batch.base_sequence} in epoch "
        f"{batch.producer_epoch}; {expected}",
    )
