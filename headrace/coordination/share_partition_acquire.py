"""Which of the records that lie in the log a member is given: in whole batches where it may be."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from headrace.coordination.share_partition import AcquiredRecords, ShareLimits, SharePartition
from headrace.coordination.share_partition_runs import Run

FEWEST_DELIVERIES_BEFORE_CARE = 2


class BatchRange(NamedTuple):
    """The offsets of one batch in the log, with those before it that compaction took away."""

    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a member asks for: whole batches until there are enough records, or no record more."""

    member_id: str
    max_records: int
    batch_size: int = 0
    strict: bool = False


def acquirable(
    partition: SharePartition, batches: Iterable[BatchRange], wanted: Wanted, limits: ShareLimits
) -> list[AcquiredRecords]:
    """The records to give; nobody holds them yet."""
    taking = _Taking(partition, wanted, limits)
    for batch in batches:
        if taking.is_full or not taking.take(batch):
            break
        taking.end_of_batch()
    taking.close()
    return taking.taken


class _Taking:
    """Records as they are chosen; `_open` is a range that may still grow."""

    def __init__(self, partition: SharePartition, wanted: Wanted, limits: ShareLimits) -> None:
        self._partition = partition
        self._wanted = wanted
        self._end_offset = partition.end_offset
        self._room = partition.room(limits.max_record_locks)
        self._limit = limits.delivery_count_limit
        self._careful_from = max(FEWEST_DELIVERIES_BEFORE_CARE, (self._limit + 1) // 2)
        self._count = 0
        self._open: AcquiredRecords | None = None
        self.taken: list[AcquiredRecords] = []

    @property
    def is_full(self) -> bool:
        return self._count >= self._wanted.max_records

    def take(self, batch: BatchRange) -> bool:
        """Take what is available of a batch; False if nothing may be taken after it."""
        for run in self._partition.available(*batch):
            first, last, delivered = self._within_limits(run)
            if last < first:
                return False
            if delivered >= self._careful_from:
                return self._take_careful(batch, Run(first, last, delivered))
            self._add(first, last, delivered + 1)
            if last < run.last_offset:
                return False
        return True

    def end_of_batch(self) -> None:
        """A range ends with a batch of the log, once it is as long as the member wants it."""
        size = self._wanted.batch_size
        if self._open and size > 0 and _length(self._open) >= size:
            self.close()

    def close(self) -> None:
        if self._open is not None:
            self.taken.append(self._open)
            self._open = None

    def _within_limits(self, run: Run[int]) -> Run[int]:
        first, last, delivered = run
        if self._wanted.strict:
            last = min(last, first + self._wanted.max_records - self._count - 1)
        if last > self._end_offset:
            new_first = max(first, self._end_offset + 1)
            last = min(last, new_first + self._room - 1)
            self._room -= max(last - new_first + 1, 0)
        return Run(first, last, delivered)

    def _take_careful(self, batch: BatchRange, run: Run[int]) -> bool:
        """A record that failed often may be what fails its batch: with each delivery it comes in
        smaller company, the last time alone, so that its neighbours are not archived with it.
        """
        alone = run.value == self._limit - 1 and self._limit > FEWEST_DELIVERIES_BEFORE_CARE
        if alone and self._count:
            return False
        company = _length(batch) >> (run.value - self._careful_from + 1)
        size = 1 if alone else max(company, 1)
        last = min(run.last_offset, run.first_offset + size - 1)
        self._add(run.first_offset, last, run.value + 1)
        return False

    def _add(self, first: int, last: int, delivery_count: int) -> None:
        self._count += last - first + 1
        grown = self._open
        if grown and grown.last_offset + 1 == first and grown.delivery_count == delivery_count:
            self._open = grown._replace(last_offset=last)
        else:
            self.close()
            self._open = AcquiredRecords(first, last, delivery_count)


def _length(found: BatchRange | AcquiredRecords) -> int:
    return found.last_offset - found.first_offset + 1
