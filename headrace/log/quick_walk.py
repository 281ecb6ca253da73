"""Batches skipped by their lengths alone, over bytes that this process wrote or checked.

The plain twin is Segment.headers, which trusts nothing; on batches of one record this is about
six times faster (a look-up reads some 25 headers), and tests hold the two together.
"""

from struct import Struct

from headrace.log.filesystem import File
from headrace.protocol.records import LENGTH_OVERHEAD

WALK_BYTES = 8192
# Base offset, batch length and last offset delta: as much as a skip needs.
_BRIEF = Struct(">qi11xi")


def first_ending_at(file: File, position: int, end: int, offset: int) -> tuple[int, int] | None:
    """Position and base offset of the first batch whose last offset is at or past the offset."""
    unpack = _BRIEF.unpack_from
    while position < end:
        chunk = file.read_at(position, min(WALK_BYTES, end - position))
        at, room = 0, len(chunk) - _BRIEF.size
        while at <= room:
            base_offset, length, delta = unpack(chunk, at)
            if base_offset + delta >= offset:
                return position + at, base_offset
            at += length + LENGTH_OVERHEAD
        if at == 0:
            break
        position += at
    return None


def last_within(file: File, position: int, end: int, limit: int) -> tuple[int, int]:
    """Where the first batch starts that ends past the limit, and its base offset.

    The limit lies before the end, so there is one.
    """
    unpack = _BRIEF.unpack_from
    base_offset = -1
    while position < end:
        chunk = file.read_at(position, min(WALK_BYTES, end - position))
        at, room = 0, len(chunk) - _BRIEF.size
        while at <= room:
            base_offset, length, _delta = unpack(chunk, at)
            following = at + length + LENGTH_OVERHEAD
            if position + following > limit:
                return position + at, base_offset
            at = following
        if at == 0:
            break
        position += at
    return position, base_offset
