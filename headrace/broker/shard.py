"""One state machine driven over one internal partition: decide, append, replay, wait, answer."""

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from headrace.clock import Clock
from headrace.coordination.machine import Decision, Machine
from headrace.errors import ErrorCode, KafkaError
from headrace.log.origin import Origin
from headrace.protocol.records import (
    BatchView,
    Record,
    batches,
    control_batch,
    end_marker,
    write_batch,
    write_one,
)

log = logging.getLogger(__name__)

LOAD_BYTES = 1 << 20
"""How much of the log is read at once while loading; one larger batch is still read whole."""

BATCH_OVERHEAD = 61
RECORD_OVERHEAD = 32
"""Upper bounds of what a batch header, and the varints of one record, add to keys and values."""

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)
E = TypeVar("E")
M = TypeVar("M", bound=Machine[Any])


class Producer(NamedTuple):
    """Who writes inside a transaction."""

    producer_id: int
    producer_epoch: int


class Codec(Protocol[R]):
    """How a machine's records become the key and value of a log record, and back."""

    def encode(self, record: R) -> tuple[bytes | None, bytes | None]: ...

    def decode(self, key: bytes | None, value: bytes | None) -> R | None:
        """The record, or None for one that is unknown or newer: it is skipped and counted."""
        ...


@runtime_checkable
class TransactionalMachine(Protocol[R_contra]):
    """A machine whose records may arrive inside transactions, as offsets do.

    `replay_transactional` keeps a record pending; `replay_marker` makes everything pending of that
    producer id true, or drops it. Pending is keyed by producer id alone: since KIP-890 a marker
    may carry a newer epoch than the records it closes. What is still pending after a load belongs
    to a transaction that is still open.
    """

    def replay_transactional(self, record: R_contra, producer: Producer) -> None: ...

    def replay_marker(self, producer: Producer, *, committed: bool) -> None: ...


class JournalSlice(Protocol):
    """Bytes of whole batches."""

    def read(self) -> bytes: ...


class JournalLog(Protocol):
    """What loading needs of a PartitionLog."""

    @property
    def name(self) -> str: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...

    def read(
        self, offset: int, *, max_bytes: int, end_offset: int, min_one: bool
    ) -> JournalSlice: ...


class JournalSettings(Protocol):
    """What appending needs of TopicSettings."""

    @property
    def max_message_bytes(self) -> int: ...


class Journal(Protocol):
    """What a shard needs of a Partition."""

    @property
    def log(self) -> JournalLog: ...
    @property
    def settings(self) -> JournalSettings: ...

    def append(self, records: bytearray, *, origin: Origin) -> object: ...

    def durable(self, next_offset: int) -> Awaitable[None] | None:
        """None if everything below the offset is on stable storage, else what says when."""
        ...


class Shard(Generic[M, R]):
    """The machine in memory is what its log says, and no answer rests on an unsynced record.

    When an append fails half way, or a sync fails and cuts the log, the two disagree: the callers
    get a retriable refusal, and the next call starts from a new machine loaded from the log.
    Reach the machine through `machine` on every use, because a reload replaces it.

    `restore` brings a new machine to a snapshot and returns the offset where the log goes on.
    """

    def __init__(
        self,
        partition: Journal,
        new_machine: Callable[[], M],
        codec: Codec[R],
        clock: Clock,
        *,
        restore: Callable[[M], int] | None = None,
        unavailable: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ) -> None:
        self._partition = partition
        self._new_machine = new_machine
        self._codec = codec
        self._clock = clock
        self._restore = restore
        self._refusing = _Refusing(partition, unavailable)
        self._end_offset = 0
        self.machine = new_machine()

    def load(self) -> None:
        """Replay the whole log, synced or not: what is not synced yet is waited for by `run`."""
        for _ in self.load_steps(LOAD_BYTES):
            pass

    def load_steps(self, step_bytes: int) -> Iterator[None]:
        """The same a little at a time; before the last step the machine is not this one's."""
        machine = self._new_machine()
        start = self._restore(machine) if self._restore else 0
        unknown = 0
        replayed_bytes = 0
        for batch in self._batches_from(start):
            unknown += self._replay_batch(machine, batch, start)
            replayed_bytes += batch.size
            if replayed_bytes >= step_bytes:
                replayed_bytes = 0
                yield
        if unknown:
            log.warning("records skipped partition=%s unknown=%d", self._name, unknown)
        self.machine = machine
        self._end_offset = self._partition.log.log_end_offset

    async def run(
        self, decide: Callable[[], Decision[R, E]], *, producer: Producer | None = None
    ) -> tuple[E, ...]:
        """Carry out a decision; with a `producer`, its records are part of that transaction.

        A decision that fits one batch is all or nothing after a crash; a larger one is split.
        """
        effects = self.apply(decide, producer=producer)
        await self.durable()
        return effects

    def apply(
        self, decide: Callable[[], Decision[R, E]], *, producer: Producer | None = None
    ) -> tuple[E, ...]:
        """The first half of `run`: nothing may be said of it before `durable` returned."""
        self.revive()
        decision = decide()
        self.write(decision.records, producer)
        return decision.effects

    def revive(self) -> None:
        """Load the machine anew if the log is no longer as replayed; before each decision."""
        # Half a decision was appended, or a failed sync cut the log.
        if self._end_offset != self._partition.log.log_end_offset:
            log.warning("shard reloads partition=%s", self._name)
            with self._refusing:
                self.load()

    def write(self, records: Sequence[R], producer: Producer | None = None) -> None:
        """Append and replay what was decided; no await may lie between."""
        if not records:
            return
        if len(records) == 1:
            self._append(self._single(records[0], producer))
        else:
            for batch in self._encoded(records, producer):
                self._append(batch)
        self._end_offset = self._partition.log.log_end_offset
        _replay(self.machine, records, producer)

    async def durable(self, next_offset: int | None = None) -> None:
        """Everything applied so far, or below an offset, is on stable storage."""
        # Wait even with nothing appended: the answer may rest on an unsynced record.
        if next_offset is None:
            next_offset = self._partition.log.log_end_offset
        waiting = self._partition.durable(next_offset)
        if waiting is not None:
            with self._refusing:
                await waiting

    async def write_marker(
        self, producer: Producer, *, committed: bool, coordinator_epoch: int
    ) -> None:
        """End a producer's transaction on this partition."""
        self.revive()
        marker = control_batch(
            producer.producer_id,
            producer.producer_epoch,
            commit=committed,
            coordinator_epoch=coordinator_epoch,
            timestamp=self._clock.now_ms(),
        )
        self._append(marker)
        self._end_offset = self._partition.log.log_end_offset
        machine = _transactional(self.machine)
        if machine is not None:
            machine.replay_marker(producer, committed=committed)
        await self.durable()

    @property
    def _name(self) -> str:
        return self._partition.log.name

    def _append(self, batch: bytearray) -> None:
        with self._refusing:
            self._partition.append(batch, origin=Origin.COORDINATOR)

    def _single(self, record: R, producer: Producer | None) -> bytearray:
        key, value = self._codec.encode(record)
        return write_one(key, value, self._clock.now_ms(), producer)

    def _encoded(self, records: Sequence[R], producer: Producer | None) -> Iterator[bytearray]:
        limit = self._partition.settings.max_message_bytes
        now_ms = self._clock.now_ms()
        chunk: list[Record] = []
        size = BATCH_OVERHEAD
        for record in records:
            key, value = self._codec.encode(record)
            added = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
            if chunk and size + added > limit:
                yield _batch(chunk, producer)
                chunk, size = [], BATCH_OVERHEAD
            chunk.append(Record(len(chunk), now_ms, key, value, ()))
            size += added
        yield _batch(chunk, producer)

    def _batches_from(self, start: int) -> Iterator[BatchView]:
        journal = self._partition.log
        offset, end = max(start, journal.log_start_offset), journal.log_end_offset
        lost = 0
        while offset < end:
            try:
                part = journal.read(offset, max_bytes=LOAD_BYTES, end_offset=end, min_one=True)
            except KafkaError as error:
                if error.code is not ErrorCode.CORRUPT_MESSAGE:
                    raise
                # The rest of the state is worth more than refusing all of it.
                lost += 1
                offset += 1
                continue
            found = part.read()
            if not found:
                # Compaction may leave nothing between here and the end of the log.
                break
            for batch in batches(found):
                yield batch
                offset = batch.next_offset
        if lost:
            log.error("damaged records left out partition=%s offsets=%d", self._name, lost)

    def _replay_batch(self, machine: M, batch: BatchView, start: int) -> int:
        """Replay one batch; returns how many of its records nobody here understands."""
        producer = None
        if batch.is_transactional:
            transactional = _transactional(machine)
            if transactional is None:
                return batch.record_count
            producer = Producer(batch.producer_id, batch.producer_epoch)
            if batch.is_control:
                # Compaction leaves empty control batches of transactions that are gone.
                marker = end_marker(batch) if batch.record_count else None
                if marker:
                    transactional.replay_marker(producer, committed=marker.commit)
        if batch.is_control:
            return 0
        found = [
            self._codec.decode(record.key, record.value)
            for record in batch.records()
            if record.offset >= start
        ]
        known = [record for record in found if record is not None]
        _replay(machine, known, producer)
        return len(found) - len(known)


class _Refusing:
    """Turns a failing disk into a refusal a client will retry; other refusals pass."""

    def __init__(self, partition: Journal, code: ErrorCode) -> None:
        self._partition = partition
        self._code = code

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        storage = isinstance(error, KafkaError) and error.code is ErrorCode.KAFKA_STORAGE_ERROR
        if storage or isinstance(error, OSError):
            raise KafkaError(
                self._code, f"{self._partition.log.name} cannot be written: {error}"
            ) from error


def _replay(machine: Machine[R], records: Sequence[R], producer: Producer | None) -> None:
    if producer is None:
        replay = machine.replay
        for record in records:
            replay(record)
        return
    transactional = _transactional(machine)
    if transactional is None:
        raise TypeError(f"{type(machine).__name__} takes no records inside transactions")
    for record in records:
        transactional.replay_transactional(record, producer)


def _transactional(machine: object) -> TransactionalMachine[Any] | None:
    return machine if isinstance(machine, TransactionalMachine) else None


def _batch(records: list[Record], producer: Producer | None) -> bytearray:
    if producer is None:
        return write_batch(records)
    return write_batch(
        records,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transactional=True,
    )
