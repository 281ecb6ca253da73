"""Segments written anew without the records that compaction may drop, beside the old ones.

Reads the files a plan names and writes files that end in .cleaned; who serves the log is not
disturbed and takes them over, or does not.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.errors import CorruptLog
from headrace.log.compaction_keys import LastOffsets
from headrace.log.compaction_plan import Plan, Source, grouped
from headrace.log.compaction_records import (
    body_of,
    emptied,
    keys_of,
    only,
    with_delete_horizon,
)
from headrace.log.compaction_swap import CLEANED, part
from headrace.log.compaction_transactions import Transactions
from headrace.log.damage import Damaged, whole_batches
from headrace.log.filesystem import Filesystem, join
from headrace.log.open_files import OpenFiles
from headrace.log.segment import Segment
from headrace.log.segment_indexes import file_name
from headrace.log.txn_index import encode
from headrace.protocol.primitives import Buffer
from headrace.protocol.records import BatchView, CorruptBatch

# Told how many bytes were read or written, it returns when more may be.
Throttle = Callable[[int], None]


class Cleaned(NamedTuple):
    """Neighbouring segments by their base offsets, and the size of the one that replaces them."""

    bases: tuple[int, ...]
    size: int


@dataclass(slots=True)
class Progress:
    """How far a compaction got, and what it cost."""

    end_offset: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    keys: int = 0
    key_buffer_used: float = 0.0


class Compaction:
    """One plan carried out: run() yields each segment once it is on stable storage."""

    def __init__(self, filesystem: Filesystem, plan: Plan, throttle: Throttle) -> None:
        self._filesystem = filesystem
        self._files = OpenFiles(filesystem)
        self._plan = plan
        self._throttle = throttle
        self._last = LastOffsets(plan.limits.key_buffer_bytes)
        self.progress = Progress(end_offset=plan.first_dirty)

    def run(self) -> Iterator[Cleaned]:
        """Raises CorruptLog at damage, FileNotFoundError if a segment was deleted meanwhile."""
        self._note_keys()
        progress = self.progress
        progress.keys, progress.key_buffer_used = len(self._last), self._last.utilization
        transactions = Transactions(self._plan.aborted)
        for group in grouped(self._plan, progress.end_offset):
            yield self._rewrite(group, transactions)

    # The keys

    def _note_keys(self) -> None:
        plan = self._plan
        # Those whose marker lies before would never be seen to end.
        transactions = Transactions(
            entry for entry in plan.aborted if entry.last_offset >= plan.first_dirty
        )
        for source in plan.sources:
            if source.next_offset <= plan.first_dirty:
                continue
            for position, batch in self._batches(source):
                if batch.last_offset < plan.first_dirty:
                    continue
                if self._last.full:
                    self._last.seal()
                    return
                try:
                    self._note(batch, transactions)
                except CorruptBatch as error:
                    raise self._corrupt(source, position, str(error)) from error
                self.progress.end_offset = batch.next_offset
            # Compaction may have left nothing at the end of the segment.
            self.progress.end_offset = source.next_offset
        self._last.seal()

    def _note(self, batch: BatchView, transactions: Transactions) -> None:
        if batch.is_control:
            transactions.outlived(batch)
        elif not transactions.aborts(batch):
            self._last.note(keys_of(batch, body_of(batch)), self._plan.first_dirty)

    # The segments

    def _rewrite(self, group: Sequence[Source], transactions: Transactions) -> Cleaned:
        plan = self._plan
        base_offset = group[0].base_offset
        segment = _CleanedSegment.create(self._files, plan.directory, base_offset)
        segment.indexes.interval_bytes = plan.index_interval_bytes
        transactions.kept_aborted.clear()
        out = _Output(segment, plan.limits.io_buffer_bytes, self._write)
        for source in group:
            for position, batch in self._batches(source):
                try:
                    kept = self._filtered(batch, transactions)
                except CorruptBatch as error:
                    raise self._corrupt(source, position, str(error)) from error
                if kept is not None:
                    out.add(kept)
        out.flush()
        segment.indexes.seal()
        segment.opened().sync()
        self._write_aborted(base_offset, transactions)
        for suffix in (".index", ".timeindex"):
            self._filesystem.open(part(plan.directory, base_offset, suffix, CLEANED)).sync()
        return Cleaned(tuple(source.base_offset for source in group), segment.size)

    def _write(self, count: int) -> None:
        self.progress.written_bytes += count
        self._throttle(count)

    def _write_aborted(self, base_offset: int, transactions: Transactions) -> None:
        path = part(self._plan.directory, base_offset, ".txnindex", CLEANED)
        content = b"".join(encode(entry) for entry in transactions.kept_aborted)
        if content or self._filesystem.exists(path):
            file = self._filesystem.open(path, create=True)
            file.truncate(0)
            file.write_at(0, content)
            file.sync()

    def _filtered(self, batch: BatchView, transactions: Transactions) -> Buffer | None:
        """What stays of a batch: all of it, a part, its header, or nothing."""
        if batch.is_control:
            outlived = transactions.outlived(batch)
            if outlived and (not batch.record_count or self._past_horizon(batch)):
                return self._empty(batch)
            if outlived and not batch.has_delete_horizon:
                return with_delete_horizon(
                    batch, body_of(batch), [batch.base_offset], self._horizon_ms
                )
            return batch.raw()
        if transactions.aborts(batch):
            return self._empty(batch)
        if not batch.record_count:
            return self._empty(batch)
        if batch.base_offset >= self.progress.end_offset:
            # Its keys did not fit this time.
            return batch.raw()
        if batch.base_offset >= self._plan.first_dirty:
            return self._filtered_dirty(batch)
        return self._filtered_clean(batch)

    def _filtered_dirty(self, batch: BatchView) -> Buffer | None:
        """By offsets alone: when the keys were noted, it was found which of them are the last."""
        first, last = batch.base_offset, batch.last_offset
        kept: Sequence[int] = self._last.last_between(first, last)
        tombstones: Container[int] = ()
        if found := self._last.tombstones_between(first, last):
            tombstones = set(found)
        if tombstones and self._past_horizon(batch):
            kept = [offset for offset in kept if offset not in tombstones]
        if not kept:
            return self._empty(batch)
        marks = not batch.has_delete_horizon and any(offset in tombstones for offset in kept)
        if len(kept) == batch.record_count and not marks:
            return batch.raw()
        if marks:
            return with_delete_horizon(batch, body_of(batch), kept, self._horizon_ms)
        return only(batch, body_of(batch), kept)

    def _filtered_clean(self, batch: BatchView) -> Buffer | None:
        body = body_of(batch)
        keys = keys_of(batch, body)
        kept = self._last.not_superseded(keys)
        if keys.tombstones and self._past_horizon(batch):
            gone = set(keys.tombstones)
            kept = [offset for offset in kept if offset not in gone]
        if not kept:
            return self._empty(batch)
        marks = False
        if keys.tombstones and not batch.has_delete_horizon:
            marks = not set(keys.tombstones).isdisjoint(kept)
        if len(kept) == batch.record_count and not marks:
            return batch.raw()
        if marks:
            return with_delete_horizon(batch, body, kept, self._horizon_ms)
        return only(batch, body, kept)

    def _empty(self, batch: BatchView) -> bytearray | None:
        """A batch without records stays if the state of its producer, or the end, rests on it."""
        if batch.next_offset == self._plan.upper_bound or self._is_last_of_producer(batch):
            return emptied(batch)
        return None

    def _is_last_of_producer(self, batch: BatchView) -> bool:
        if batch.producer_id < 0:
            return False
        last = self._plan.last_records.get(batch.producer_id)
        if last is None:
            return False
        if last.last_data_offset is not None:
            return batch.last_offset == last.last_data_offset
        return batch.is_control and batch.producer_epoch == last.producer_epoch

    @property
    def _horizon_ms(self) -> int:
        return self._plan.now_ms + self._plan.delete_retention_ms

    def _past_horizon(self, batch: BatchView) -> bool:
        """A batch with a delete horizon has it in the place of its base timestamp."""
        return batch.has_delete_horizon and batch.base_timestamp <= self._plan.now_ms

    # Reading

    def _batches(self, source: Source) -> Iterator[tuple[int, BatchView]]:
        """Every batch of a segment, checked: damage must not pass for something written anew."""
        file = self._filesystem.open(join(self._plan.directory, file_name(source.base_offset)))
        read_bytes = self._plan.limits.io_buffer_bytes
        throttled = 0
        expected, epoch = source.base_offset, -1
        try:
            for position, batch in whole_batches(file, 0, source.size, chunk_bytes=read_bytes):
                if not batch.crc_valid():
                    raise Damaged(position, "the checksum does not match")
                # The two fields that the checksum leaves out: both only ever grow.
                if not expected <= batch.base_offset <= batch.last_offset < source.next_offset:
                    raise Damaged(position, f"base offset {batch.base_offset} is out of place")
                if not epoch <= batch.partition_leader_epoch <= self._plan.latest_epoch:
                    raise Damaged(position, f"leader epoch {batch.partition_leader_epoch}")
                expected, epoch = batch.next_offset, batch.partition_leader_epoch
                end = position + batch.size
                if end - throttled >= read_bytes or end == source.size:
                    self._throttle(end - throttled)
                    self.progress.read_bytes += end - throttled
                    throttled = end
                yield position, batch
        except Damaged as damage:
            raise self._corrupt(source, damage.position, damage.reason) from damage

    def _corrupt(self, source: Source, position: int, reason: str) -> CorruptLog:
        path = join(self._plan.directory, file_name(source.base_offset))
        return CorruptLog(path, position, reason)


class _CleanedSegment(Segment):
    """A segment whose files are not yet those of the log."""

    __slots__ = ()

    def __init__(self, files: OpenFiles, directory: str, base_offset: int, size: int) -> None:
        super().__init__(files, directory, base_offset, size)
        for holder in (self, self.indexes.by_offset, self.indexes.by_time):
            holder.path += CLEANED


class _Output:
    """Batches on their way into a segment, written many at a time."""

    def __init__(self, segment: Segment, buffer_bytes: int, written: Callable[[int], None]) -> None:
        self._segment = segment
        self._buffer_bytes = buffer_bytes
        self._written = written
        self._content = bytearray()
        self._batches: list[BatchView] = []

    def add(self, batch: Buffer) -> None:
        self._batches.append(BatchView(batch))
        self._batches[-1].position = len(self._content)
        self._content += batch
        if len(self._content) >= self._buffer_bytes:
            self.flush()

    def flush(self) -> None:
        if self._batches:
            self._segment.append(self._content, self._batches)
            self._written(len(self._content))
            self._content, self._batches = bytearray(), []
