"""The .txnindex file: the aborted transactions of a segment, in the order they ended."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

VERSION = 0
# Version, producer id, first offset, last offset, last stable offset.
_ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size


class AbortedTxn(NamedTuple):
    """A transaction whose records no read-committed consumer shows.

    `last_offset` is its marker's; below `last_stable_offset` every transaction had ended by then.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode(entry: AbortedTxn) -> bytes:
    return _ENTRY.pack(VERSION, *entry)


def decode(content: bytes) -> Iterator[AbortedTxn]:
    """Every entry; a torn tail is left out, and ValueError says that the rest cannot be right.

    To leave out an entry in silence would show a consumer records that were taken back.
    """
    last_offset = -1
    for position in range(0, len(content) - ENTRY_BYTES + 1, ENTRY_BYTES):
        if not any(content[position:]):
            # What a file system leaves where bytes never reached the disk.
            return
        version, *fields = _ENTRY.unpack_from(content, position)
        entry = AbortedTxn(*fields)
        if version != VERSION:
            raise ValueError(f"version {version} of an aborted transaction at byte {position}")
        if not (entry.last_offset > last_offset and _sound(entry)):
            raise ValueError(f"no aborted transaction at byte {position}: {entry}")
        last_offset = entry.last_offset
        yield entry


def _sound(entry: AbortedTxn) -> bool:
    return entry.producer_id >= 0 and 0 <= entry.first_offset < entry.last_offset
