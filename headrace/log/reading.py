"""Offsets to slices of a file: whole batches, within limits, checked before they are served."""

from dataclasses import dataclass

from headrace.errors import ErrorCode, KafkaError
from headrace.log.filesystem import File
from headrace.log.segment import Segment


@dataclass(frozen=True, slots=True)
class FileSlice:
    """Whole batches in a file, not yet read; the file stays open for as long as this lives."""

    file: File | None
    position: int
    size: int

    def read(self) -> bytes:
        return b"" if self.file is None else self.file.read_at(self.position, self.size)

    def fileno(self) -> int:
        return -1 if self.file is None else self.file.fileno()


EMPTY = FileSlice(None, 0, 0)


def read_segment(
    segment: Segment, offset: int, *, max_bytes: int, end_offset: int, min_one: bool
) -> FileSlice | None:
    """Batches from the one that holds the offset; None if the segment has nothing from there on."""
    while offset < end_offset:
        fences = len(segment.fences)
        found = segment.find(offset)
        if segment.fences:
            _refuse_fenced(segment, offset)
        start, base_offset = found or (segment.size, segment.next_offset)
        if base_offset > offset and _hides(segment, offset, start):
            continue
        if found is None:
            # Compaction emptied the end of this segment: the next one goes on.
            return None
        end = _end(segment, start, max_bytes, end_offset, min_one=min_one)
        if end <= start:
            return EMPTY
        good = segment.verify(start, end)
        if good > start:
            return FileSlice(segment.opened(), start, good - start)
        if len(segment.fences) == fences:
            return EMPTY
        # The first batch was found to be damaged: it is fenced now, so look again.
    return EMPTY


def _refuse_fenced(segment: Segment, offset: int) -> None:
    fence = segment.fence_at(offset)
    if fence is not None:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"{segment.path} is damaged at byte {fence.start} ({fence.reason}); "
            f"offsets {fence.first_offset} to {fence.next_offset - 1} are lost",
        )


def _hides(segment: Segment, offset: int, position: int) -> bool:
    """No batch holds the offset: is that compaction's doing, or damage before the position?"""
    fences = len(segment.fences)
    before = segment.start_of_walk(offset)
    while before < position and len(segment.fences) == fences:
        fence = segment.fences.get(before)
        good = segment.verify(before, position) if fence is None else fence.end
        if good == before:
            break
        before = good
    return len(segment.fences) > fences


def _end(segment: Segment, start: int, max_bytes: int, end_offset: int, *, min_one: bool) -> int:
    limit = segment.size
    if end_offset < segment.next_offset:
        found = segment.find(end_offset)
        if found is not None:
            limit = found[0]
    if limit - start <= max_bytes or limit <= start:
        return limit
    end = segment.boundary(start, start + max_bytes)
    if end == start and min_one:
        for position, batch in segment.headers(start):
            return min(position + batch.size, limit)
    return end
