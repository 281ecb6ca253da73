"""One data file with its indexes: append, find, read, truncate."""

import logging
from collections.abc import Callable, Iterator, Sequence

from headrace.log.damage import Damaged, Fence, headers, next_batch, whole_batches
from headrace.log.filesystem import Bytes, File, join
from headrace.log.intervals import Intervals
from headrace.log.open_files import OpenFiles
from headrace.log.quick_walk import first_ending_at, last_within
from headrace.log.segment_indexes import SegmentIndexes, file_name
from headrace.log.walk import Walk
from headrace.protocol.records import HEADER_BYTES, MAGIC, NO_TIMESTAMP, BatchView

logger = logging.getLogger(__name__)

# Where recent reads ended, so that whoever follows the log finds its place without a search.
MAX_HINTS = 64
# A walk this much longer than the index promises means the index lost entries: build it anew.
MAX_WALK_BYTES = 16 << 20


class Segment:
    """Batches in offset order from `base_offset` up to `next_offset`.

    Bytes from `trusted_from` on were written or checked by this process; those below it are
    checked when first read. Damage becomes a fence: it is hopped over and never served.
    """

    __slots__ = (
        "_file",
        "_files",
        "_hints",
        "_rolling_timestamp",
        "_verified",
        "base_offset",
        "created_ms",
        "epoch_at",
        "fences",
        "indexes",
        "next_offset",
        "path",
        "size",
        "trusted_from",
    )

    def __init__(self, files: OpenFiles, directory: str, base_offset: int, size: int) -> None:
        self.path = join(directory, file_name(base_offset))
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = size
        self.trusted_from = size
        self.created_ms = 0
        self.fences: dict[int, Fence] = {}
        self.indexes = SegmentIndexes(files, directory, base_offset, self)
        self.epoch_at: Callable[[int], int | None] = _unknown_epoch
        self._files = files
        self._file: File | None = None
        self._hints: dict[int, int] = {}
        self._verified: Intervals | None = None
        self._rolling_timestamp: int | None = None

    @classmethod
    def create(cls, files: OpenFiles, directory: str, base_offset: int) -> "Segment":
        segment = cls(files, directory, base_offset, 0)
        file = files.open(segment, create=True)
        if file.size():
            # What an attempt that failed half way left under this name.
            file.truncate(0)
        segment._file = file
        segment.indexes.start_empty()
        return segment

    def opened(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self._files.open(self)
        return file

    def give_up(self) -> None:
        self._file = None

    def remove(self) -> None:
        self._file = None
        # Indexes first: a data file without indexes is served, an index without data is litter.
        self.indexes.remove()
        self._files.filesystem.remove(self.path)

    # Writing

    def append(self, content: Bytes, batches: Sequence[BatchView]) -> None:
        """Write whole, stamped batches at the end. On OSError nothing has changed but the file."""
        start = self.size
        self.opened().write_at(start, content)
        first = batches[0].position
        note = self.indexes.note
        for batch in batches:
            note(batch, start + batch.position - first)
        if start == 0:
            self._rolling_timestamp = batches[0].max_timestamp
        self.size = start + len(content)
        self.next_offset = batch.next_offset
        self._remember(batches[0].base_offset, start)

    def truncate(self, position: int, next_offset: int) -> None:
        """Cut the file, and build the indexes of what is left."""
        self.opened().truncate(position)
        self.size = position
        self.trusted_from = min(self.trusted_from, position)
        self.next_offset = next_offset
        self._hints.clear()
        self._verified = None
        self._rolling_timestamp = None
        self.fences = {start: fence for start, fence in self.fences.items() if start < position}
        self.indexes.rebuild()

    @property
    def rolling_timestamp(self) -> int:
        """The largest timestamp of the first batch, from which segment.ms counts."""
        if self._rolling_timestamp is None:
            first = next(iter(self.headers(0)), None)
            if first is None:
                return NO_TIMESTAMP
            self._rolling_timestamp = first[1].max_timestamp
        return self._rolling_timestamp

    # Reading

    def headers(self, position: int, end: int | None = None) -> Iterator[tuple[int, BatchView]]:
        """Batch headers from a position on, fenced bytes left out; damage found here is fenced."""
        return self._walk(headers, position, end)

    def batches(self, position: int, end: int | None = None) -> Iterator[tuple[int, BatchView]]:
        """Whole batches from a position on, unchecked; fenced bytes are left out."""
        return self._walk(whole_batches, position, end)

    def _walk(
        self,
        read: Callable[[File, int, int], Iterator[tuple[int, BatchView]]],
        position: int,
        end: int | None,
    ) -> Iterator[tuple[int, BatchView]]:
        stop = self.size if end is None else end
        walk = Walk(self.base_offset, position)
        while position < stop:
            fence = self.fences.get(position)
            if fence is not None:
                walk.hop(fence)
                position = fence.end
                continue
            barrier = min((start for start in self.fences if start > position), default=self.size)
            try:
                for at, batch in read(self.opened(), position, barrier):
                    if at >= stop:
                        return
                    if batch.next_offset > self.next_offset:
                        raise Damaged(at, f"offset {batch.last_offset} past the segment's end")
                    if not walk.step(at, batch):
                        raise self._blame(walk, at, batch)
                    yield at, batch
                    position = at + batch.size
            except Damaged as damage:
                position = damage.position
                if (
                    walk.previous >= 0
                    and position > walk.previous
                    and not self._intact(walk.previous)
                ):
                    # Its length may be what is wrong, and this place no batch's start at all.
                    position = walk.previous
                    walk.take_back()
                known = walk.known or position == 0
                expected = walk.expected if known else self.offset_before(position)
                self.fence(position, damage.reason, expected)

    def _blame(self, walk: Walk, position: int, batch: BatchView) -> Damaged:
        """Two neighbours claim the same offsets: which of them lies?"""
        before = walk.previous
        if walk.began == before:
            # What came before the walk tells where its first batch should have started.
            walk.before = self.offset_before(before)
        if before >= 0 and batch.base_offset >= walk.before:
            first = BatchView(self.opened().read_at(before, HEADER_BYTES))
            if first.base_offset > walk.before:
                walk.take_back()
                return Damaged(before, f"offsets beyond those written at {walk.expected}")
        return Damaged(position, f"base offset {batch.base_offset} where {walk.expected} was due")

    def _intact(self, position: int) -> bool:
        size = BatchView(self.opened().read_at(position, HEADER_BYTES)).size
        return BatchView(self.opened().read_at(position, size)).crc_valid()

    def find(self, offset: int) -> tuple[int, int] | None:
        """Position and base offset of the first batch that ends at or past the offset."""
        position = self._hints.get(offset)
        if position is not None and position < self.size:
            return position, offset
        return self.locate(offset)

    def locate(self, offset: int) -> tuple[int, int] | None:
        """As find(), by the index alone."""
        for attempt in range(2):
            start = self.start_of_walk(offset)
            if start >= self.trusted_from and not self.fences:
                return first_ending_at(self.opened(), start, self.size, offset)
            walked = 0
            for position, batch in self.headers(start):
                if batch.base_offset + batch.last_offset_delta >= offset:
                    return position, batch.base_offset
                walked = position - start
                if walked > MAX_WALK_BYTES + batch.size and not attempt:
                    break
            else:
                return None
            logger.warning("index rebuilt file=%s walked_bytes=%d", self.path, walked)
            self.indexes.rebuild()
        return None

    def start_of_walk(self, offset: int) -> int:
        """The position of an indexed batch that ends at or before the offset, or 0."""
        index = self.indexes.by_offset
        slot = index.floor(offset - self.base_offset)
        back = 1
        while slot >= 0:
            relative, position = index.entry(slot)
            if self._entry_holds(relative + self.base_offset, position):
                return position
            # The entry or its batch is damaged: go back, in growing steps, to one that holds.
            slot -= back
            back *= 2
        return 0

    def boundary(self, start: int, limit: int) -> int:
        """Where the last whole batch ends that ends within the limit; `start` if none does."""
        if limit >= self.size:
            return self.size
        index = self.indexes.by_offset
        slot = index.floor(limit, field=1)
        end = start
        if slot >= 0:
            relative, position = index.entry(slot)
            if position > start and self._entry_holds(relative + self.base_offset, position):
                end = position
        if start >= self.trusted_from and not self.fences:
            end, base_offset = last_within(self.opened(), end, self.size, limit)
            self._remember(base_offset, end)
            return end
        for position, batch in self.headers(end):
            if position + batch.size > limit:
                break
            end = position + batch.size
        else:
            return end
        self._remember(batch.base_offset, position)
        return end

    def _entry_holds(self, last_offset: int, position: int) -> bool:
        if position + HEADER_BYTES > self.size or position in self.fences:
            return False
        batch = BatchView(self.opened().read_at(position, HEADER_BYTES))
        return batch.base_offset + batch.last_offset_delta == last_offset and batch.magic == MAGIC

    def _remember(self, offset: int, position: int) -> None:
        if len(self._hints) >= MAX_HINTS:
            self._hints.clear()
        self._hints[offset] = position

    # Damage

    def verify(self, start: int, end: int) -> int:
        """Check bytes that nobody checked since the start; returns where the good ones end."""
        if start >= self.trusted_from and not self.fences:
            return end
        end = min((fenced for fenced in self.fences if start <= fenced < end), default=end)
        if start >= self.trusted_from:
            return end
        if self._verified is None:
            self._verified = Intervals()
        if self._verified.covered_to(start) >= min(end, self.trusted_from):
            return end
        good = self._check(start, end)
        self._verified.add(start, good)
        return good

    def _check(self, start: int, end: int) -> int:
        # Through the first batch, so that it and the one before it are held to each other.
        for _neighbour in self.headers(self._indexed_before(start), start + 1):
            pass
        if start in self.fences:
            return start
        expected = self.offset_before(start)
        epoch = None
        previous: tuple[int, BatchView] | None = None
        for position, batch in self.batches(start, end):
            if previous is not None:
                if position != previous[0] + previous[1].size:
                    # Damage lies between the two, fenced by now.
                    break
                if (reason := self._doubt(previous[1], expected, batch, epoch)) is not None:
                    self.fence(previous[0], reason, expected)
                    return previous[0]
                expected, epoch = previous[1].next_offset, previous[1].partition_leader_epoch
            if not batch.crc_valid():
                self.fence(position, "the checksum does not match", expected)
                return position
            previous = position, batch
        if previous is None:
            return start
        end = previous[0] + previous[1].size
        _at, following = next(iter(self.headers(end)), (end, None))
        if (reason := self._doubt(previous[1], expected, following, epoch)) is not None:
            self.fence(previous[0], reason, expected)
            return previous[0]
        return end

    def _doubt(
        self, batch: BatchView, expected: int, following: BatchView | None, epoch: int | None
    ) -> str | None:
        """What is wrong with the two fields of a header that its checksum leaves out."""
        base_offset = batch.base_offset
        limit = self.next_offset if following is None else following.base_offset
        if base_offset < expected or (base_offset > expected and batch.next_offset > limit):
            return f"base offset {base_offset} where {expected} was written"
        said = batch.partition_leader_epoch
        if said == epoch or (following is not None and said == following.partition_leader_epoch):
            return None
        written = self.epoch_at(base_offset)
        if written is not None and said != written:
            return f"leader epoch {said} where {written} was written"
        return None

    def offset_before(self, position: int) -> int:
        """The offset that follows the last batch before a position."""
        start = self._indexed_before(position)
        while True:
            fences = len(self.fences)
            offset = self.base_offset
            for _at, batch in self.headers(start, position):
                offset = batch.next_offset
            if len(self.fences) == fences:
                return offset
            # A batch just read turned out to be damaged: its word does not count.

    def _indexed_before(self, position: int) -> int:
        index = self.indexes.by_offset
        slot = index.floor(position - 1, field=1)
        while slot >= 0:
            relative, at = index.entry(slot)
            if self._entry_holds(relative + self.base_offset, at):
                return at
            slot -= 1
        return 0

    def fence(self, position: int, reason: str, expected: int) -> Fence:
        """Give up the bytes from a position to the next intact batch."""
        file = self.opened()
        end = next_batch(file, position, self.size, expected)
        next_offset = self.next_offset
        if end < self.size:
            next_offset = BatchView(file.read_at(end, HEADER_BYTES)).base_offset
        fence = Fence(position, end, expected, next_offset, reason)
        self.fences[position] = fence
        self._hints.clear()
        logger.error(
            "damage fenced file=%s position=%d bytes=%d first_offset=%d next_offset=%d reason=%s",
            self.path,
            position,
            end - position,
            expected,
            next_offset,
            reason,
        )
        return fence

    def fence_at(self, offset: int) -> Fence | None:
        for fence in self.fences.values():
            if fence.first_offset <= offset < fence.next_offset:
                return fence
        return None


def _unknown_epoch(_offset: int) -> int | None:
    return None
