"""What a log holds for a share group: whole batches with records that the group may be given."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from headrace.broker.partitions import Isolation, Partition
from headrace.coordination.share_partition import AcquiredRecords, SharePartition
from headrace.coordination.share_partition_acquire import BatchRange
from headrace.log.txn_index import AbortedTxn
from headrace.protocol.records import BatchView, batches

CHUNK_BYTES = 256 << 10
"""How much of a log is read at a time: a few hundred records are wanted, not a whole segment."""


@dataclass(slots=True)
class Offer:
    """Batches that hold something available, and those whose transaction was aborted."""

    ranges: list[BatchRange] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)
    aborted: list[BatchRange] = field(default_factory=list)
    size: int = 0

    def holding(self, acquired: Iterable[AcquiredRecords]) -> bytes:
        """The batches that hold these records, and no other."""
        taken = list(acquired)
        if not taken:
            return b""
        first, last = taken[0].first_offset, taken[-1].last_offset
        return b"".join(
            part
            for found, part in zip(self.ranges, self.parts, strict=True)
            if found.last_offset >= first and found.first_offset <= last
        )


@dataclass(frozen=True, slots=True)
class Appetite:
    """How much is looked for."""

    max_records: int
    max_bytes: int
    isolation: Isolation
    max_record_locks: int


def look(log: Partition, share: SharePartition, appetite: Appetite, *, min_one: bool) -> Offer:
    """Enough batches for the appetite, if there are; the first is whole even if it is too large."""
    offer = Offer()
    found = 0
    room = share.room(appetite.max_record_locks)
    for batch, part, is_aborted in _batches(log, share, appetite, min_one=min_one):
        if is_aborted:
            offer.aborted.append(batch)
            continue
        available = sum(run[1] - run[0] + 1 for run in share.available(*batch))
        if batch.first_offset > share.end_offset and room <= 0:
            break
        room -= max(batch.last_offset - max(batch.first_offset - 1, share.end_offset), 0)
        offer.ranges.append(batch)
        offer.parts.append(part)
        offer.size += len(part)
        found += available
        if found >= appetite.max_records or offer.size >= appetite.max_bytes:
            break
    return offer


def _batches(
    log: Partition, share: SharePartition, appetite: Appetite, *, min_one: bool
) -> Iterator[tuple[BatchRange, bytes, bool]]:
    """Batches with something available; each range covers the gap before its batch too."""
    offset = share.next_offset(log.log_start_offset)
    limit = log.read_limit(appetite.isolation)
    left = appetite.max_bytes
    while offset < limit and (left > 0 or min_one):
        found, aborted = log.read(
            offset,
            max_bytes=min(CHUNK_BYTES, max(left, 0)),
            isolation=appetite.isolation,
            min_one=min_one or left >= CHUNK_BYTES,
        )
        if found is None:
            return
        read = found.read()
        before = offset
        for batch in batches(read):
            if batch.last_offset < offset:
                continue
            part = bytes(memoryview(read)[batch.position : batch.position + batch.size])
            yield BatchRange(offset, batch.last_offset), part, _is_aborted(batch, aborted)
            left -= len(part)
            min_one = False
            offset = share.next_offset(batch.next_offset)
        if offset == before:
            return


def _is_aborted(batch: BatchView, aborted: Iterable[AbortedTxn]) -> bool:
    return batch.is_transactional and any(
        each.producer_id == batch.producer_id
        and each.first_offset <= batch.base_offset <= each.last_offset
        for each in aborted
        if not batch.is_control
    )
