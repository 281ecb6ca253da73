"""Batches read from a file with suspicion: where they end, where damage starts and ends."""

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.log.filesystem import File
from headrace.protocol.records import HEADER_BYTES, LENGTH_OVERHEAD, MAGIC, BatchView

CHUNK_BYTES = 1 << 20
WALK_BYTES = 8192
SECTOR_BYTES = 512
MAX_OFFSET_STEP = 1 << 31
_MAGIC_POSITION = 16
_MAGIC_BYTE = bytes([MAGIC])


@dataclass(frozen=True, slots=True)
class Fence:
    """Bytes of a segment that no longer are what was written, and the offsets lost with them."""

    start: int
    end: int
    first_offset: int
    next_offset: int
    reason: str


class Damaged(Exception):
    """The bytes at this position are no batch."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"byte {position}: {reason}")
        self.position = position
        self.reason = reason


def headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchView]]:
    """Each batch by its header alone; raises Damaged where the next one cannot start."""
    chunk = b""
    start = position
    while position < end:
        at = position - start
        if at + HEADER_BYTES > len(chunk):
            chunk = file.read_at(position, min(WALK_BYTES, end - position))
            start, at = position, 0
        view = _view(chunk, at, position, end)
        yield position, view
        position += view.size


def whole_batches(
    file: File, position: int, end: int, *, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[tuple[int, BatchView]]:
    """Each batch with all its bytes, not yet checked; raises Damaged as headers() does."""
    chunk = b""
    start = position
    while position < end:
        at = position - start
        if at + HEADER_BYTES > len(chunk):
            chunk = file.read_at(position, min(chunk_bytes, end - position))
            start, at = position, 0
        view = _view(chunk, at, position, end)
        if at + view.size > len(chunk):
            chunk = file.read_at(position, min(max(chunk_bytes, view.size), end - position))
            start = position
            view = _view(chunk, 0, position, end)
            if view.size > len(chunk):
                raise Damaged(position, "the file ends inside the batch")
        yield position, view
        position += view.size


def _view(chunk: bytes, at: int, position: int, end: int) -> BatchView:
    if len(chunk) - at < HEADER_BYTES:
        raise Damaged(position, f"{end - position} bytes are no batch header")
    view = BatchView(chunk, at)
    if view.magic != MAGIC:
        raise Damaged(position, f"magic {view.magic}")
    if view.size < HEADER_BYTES or position + view.size > end:
        raise Damaged(
            position, f"batch length {view.batch_length}, {end - position} bytes are left"
        )
    if view.last_offset_delta < 0:
        raise Damaged(position, f"last offset delta {view.last_offset_delta}")
    return view


def next_batch(file: File, position: int, end: int, offset: int) -> int:
    """Where the first whole, intact batch at or past the offset starts after `position`.

    Tries where the damaged batch says it ends, then looks at every byte. The end if none.
    """
    head = file.read_at(position, LENGTH_OVERHEAD)
    if len(head) == LENGTH_OVERHEAD:
        claimed = position + LENGTH_OVERHEAD + int.from_bytes(head[8:12], "big", signed=True)
        if position + HEADER_BYTES <= claimed < end and _intact(file, claimed, end, offset):
            return claimed
    position += 1
    while position + HEADER_BYTES <= end:
        chunk = file.read_at(position, min(CHUNK_BYTES, end - position))
        at = chunk.find(_MAGIC_BYTE, _MAGIC_POSITION)
        while at >= 0:
            candidate = at - _MAGIC_POSITION
            if candidate + HEADER_BYTES > len(chunk):
                break
            if _plausible(chunk, candidate, end - position, offset) and _intact(
                file, position + candidate, end, offset
            ):
                return position + candidate
            at = chunk.find(_MAGIC_BYTE, at + 1)
        if position + len(chunk) >= end:
            break
        # The next chunk overlaps by a header, so that none is missed at the seam.
        position += len(chunk) - HEADER_BYTES + 1
    return end


def lost_pages(file: File, start: int, end: int) -> bool:
    """Whether a never written sector lies here: a power cut, not decay, leaves zeros behind."""
    position = start
    while position < end:
        content = file.read_at(position, min(CHUNK_BYTES, end - position))
        if not content:
            break
        if position == start and not any(content[:HEADER_BYTES]):
            return True
        first = -position % SECTOR_BYTES
        for at in range(first, len(content) - SECTOR_BYTES + 1, SECTOR_BYTES):
            if not any(content[at : at + SECTOR_BYTES]):
                return True
        position += len(content)
    return False


def _plausible(chunk: bytes, at: int, room: int, offset: int) -> bool:
    base_offset = int.from_bytes(chunk[at : at + 8], "big", signed=True)
    size = int.from_bytes(chunk[at + 8 : at + 12], "big", signed=True) + LENGTH_OVERHEAD
    return offset <= base_offset < offset + MAX_OFFSET_STEP and HEADER_BYTES <= size <= room - at


def _intact(file: File, position: int, end: int, offset: int) -> bool:
    header = file.read_at(position, HEADER_BYTES)
    try:
        view = _view(header, 0, position, end)
    except Damaged:
        return False
    if not offset <= view.base_offset < offset + MAX_OFFSET_STEP:
        return False
    return BatchView(file.read_at(position, view.size)).crc_valid()
