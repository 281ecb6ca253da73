"""What of a log is to be compacted, decided as Kafka's cleaner decides it, and told to a worker."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from headrace.log.index import OFFSET_ENTRY, TIME_ENTRY
from headrace.log.partition_log import PartitionLog
from headrace.log.producers import Producers
from headrace.log.rolling import MAX_RELATIVE_OFFSET
from headrace.log.segment import Segment
from headrace.log.txn_index import AbortedTxn

# So many files are renamed in one go on the thread that serves clients: about a millisecond.
MAX_GROUP = 64


class Source(NamedTuple):
    """A segment as the worker has to know it."""

    base_offset: int
    next_offset: int
    size: int
    index_bytes: int
    time_index_bytes: int


class LastRecord(NamedTuple):
    """Where a producer's last sequence is kept, or, without data, its last epoch."""

    last_data_offset: int | None
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Limits:
    """How much memory and how much of the disk's time one compaction may take."""

    key_buffer_bytes: int
    io_buffer_bytes: int
    io_bytes_per_second: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that compacting one log depends on, as values.

    `first_dirty` is where no compaction has been; `upper_bound`, the base offset of a segment,
    is where it has to stop.
    """

    directory: str
    sources: tuple[Source, ...]
    first_dirty: int
    upper_bound: int
    aborted: tuple[AbortedTxn, ...]
    last_records: dict[int, LastRecord]
    latest_epoch: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    limits: Limits

    def encode(self) -> str:
        """One line of text."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, line: str) -> "Plan":
        fields = json.loads(line)
        fields["sources"] = tuple(Source(*row) for row in fields["sources"])
        fields["aborted"] = tuple(AbortedTxn(*row) for row in fields["aborted"])
        fields["last_records"] = {
            int(producer_id): LastRecord(*row)
            for producer_id, row in fields["last_records"].items()
        }
        fields["limits"] = Limits(**fields["limits"])
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Cleanable:
    """A log, and how much of it compaction has not seen."""

    log: PartitionLog
    first_dirty: int
    upper_bound: int
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def due(self) -> bool:
        """Whether enough is dirty, or some of it has waited too long."""
        if not self.dirty_bytes:
            return False
        return self.overdue_ms > 0 or self.dirty_ratio > self.log.settings.min_cleanable_dirty_ratio


def cleanable(
    log: PartitionLog, *, cleaned_offset: int | None, stable_offset: int, now_ms: int
) -> Cleanable:
    """What of a log may be compacted now.

    `cleaned_offset` is where the last compaction ended, `stable_offset` what it must not touch:
    open transactions, and what a power cut could take.
    """
    start = log.log_start_offset
    first_dirty = cleaned_offset if cleaned_offset is not None else start
    if not start <= first_dirty <= log.log_end_offset:
        # Records were deleted, or lost, since.
        first_dirty = start
    upper_bound = max(_upper_bound(log, first_dirty, stable_offset, now_ms), first_dirty)
    clean = dirty = 0
    for segment in log.segments[:-1]:
        if segment.base_offset < first_dirty:
            clean += segment.size
        if segment.next_offset > first_dirty and segment.base_offset < upper_bound:
            dirty += segment.size
    return Cleanable(
        log, first_dirty, upper_bound, clean, dirty, _overdue_ms(log, first_dirty, now_ms)
    )


def _upper_bound(log: PartitionLog, first_dirty: int, stable_offset: int, now_ms: int) -> int:
    lag_ms = log.settings.min_compaction_lag_ms
    for segment in log.segments[:-1]:
        if segment.next_offset > stable_offset:
            return segment.base_offset
        young = lag_ms > 0 and segment.next_offset > first_dirty
        if young and segment.indexes.max_timestamp > now_ms - lag_ms:
            return segment.base_offset
    return log.segments[-1].base_offset


def _overdue_ms(log: PartitionLog, first_dirty: int, now_ms: int) -> int:
    until = now_ms - log.settings.max_compaction_lag_ms
    if until <= 0:
        return 0
    dirty = [segment for segment in log.segments[:-1] if segment.next_offset > first_dirty]
    written = [segment.rolling_timestamp for segment in dirty]
    earliest = min((timestamp for timestamp in written if timestamp > 0), default=until)
    return max(until - earliest, 0)


def plan(found: Cleanable, *, now_ms: int, limits: Limits) -> Plan:
    """All that a worker needs; nothing in it changes when the log grows."""
    log = found.log
    settings = log.settings
    return Plan(
        directory=log.directory,
        sources=tuple(
            _source(segment) for segment in log.segments if segment.base_offset < found.upper_bound
        ),
        first_dirty=found.first_dirty,
        upper_bound=found.upper_bound,
        aborted=tuple(log.aborted(0, found.upper_bound)),
        last_records=dict(_last_records(log.producers)),
        latest_epoch=log.leader_epochs.latest,
        now_ms=now_ms,
        delete_retention_ms=settings.delete_retention_ms,
        segment_bytes=settings.roll_bytes,
        segment_index_bytes=settings.segment_index_bytes,
        index_interval_bytes=settings.index_interval_bytes,
        limits=limits,
    )


def _source(segment: Segment) -> Source:
    return Source(
        segment.base_offset,
        segment.next_offset,
        segment.size,
        len(segment.indexes.by_offset) * OFFSET_ENTRY.size,
        len(segment.indexes.by_time) * TIME_ENTRY.size,
    )


def _last_records(producers: Producers) -> Iterator[tuple[int, LastRecord]]:
    for producer_id, producer in producers.active_producers():
        last = producer.batches[-1].last_offset if producer.batches else None
        yield producer_id, LastRecord(last, producer.epoch)


def grouped(plan: Plan, end_offset: int) -> list[list[Source]]:
    """Neighbouring segments below an offset that become one, within the limits of a segment."""
    groups: list[list[Source]] = []
    for source in plan.sources:
        if source.base_offset >= end_offset:
            break
        if groups and _fits(plan, groups[-1], source):
            groups[-1].append(source)
        else:
            groups.append([source])
    return groups


def _fits(plan: Plan, group: Sequence[Source], source: Source) -> bool:
    size, index_bytes, time_index_bytes = (
        sum(member[field] for member in (*group, source)) for field in (2, 3, 4)
    )
    last_offset = source.next_offset - 1
    return (
        len(group) < MAX_GROUP
        and size <= plan.segment_bytes
        and index_bytes <= plan.segment_index_bytes
        and time_index_bytes <= plan.segment_index_bytes
        and (not source.size or last_offset - group[0].base_offset <= MAX_RELATIVE_OFFSET)
    )
