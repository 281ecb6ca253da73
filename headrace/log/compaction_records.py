"""Records inside a batch, walked by their lengths: keys out, some records left out, bytes kept.

No record becomes an object here: a walk costs about half a microsecond a record, and what is
kept is copied as the bytes it was. BatchView.records is the plain twin, and tests hold the two
together.

A record: length, attributes (1 byte), timestamp delta, offset delta, key, value, headers; all
numbers are zigzag varints, and a length of -1 (the byte 0x01) says that there is no key or value.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from crc32c import crc32c

from headrace.protocol.batch_layout import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CRC,
    CRC_POSITION,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAX_DECOMPRESSED_BYTES,
    NO_TIMESTAMP,
)
from headrace.protocol.compression import CompressionFailed, compress, decompress
from headrace.protocol.primitives import varint, varlong
from headrace.protocol.records import BatchView, CorruptBatch

_ABSENT = 0x01
_CONTINUES = 0x80


class Keys(NamedTuple):
    """What compaction has to know of the records of a batch.

    A key below 64 bytes stands for itself, a longer one is its BLAKE2b digest of 64 bytes: no
    short key can be taken for a long one, and two long ones only if a 512-bit digest collides.
    """

    keys: list[bytes]
    offsets: Sequence[int]
    tombstones: list[int]
    keyless: list[int]


def body_of(batch: BatchView) -> bytes:
    """The records of a batch whose bytes are all there, decompressed."""
    start = batch.position + HEADER_BYTES
    body = bytes(memoryview(batch.buffer)[start : batch.position + batch.size])
    if not (batch.compression and body):
        return body
    try:
        return decompress(batch.compression, body, max_bytes=MAX_DECOMPRESSED_BYTES)
    except CompressionFailed as error:
        raise CorruptBatch(str(error)) from error


def keys_of(batch: BatchView, body: bytes) -> Keys:
    """The keys of all records, with their offsets."""
    keys: list[bytes | None] = []
    slots: list[int] = []
    position = 0
    try:
        for slot in range(batch.record_count):
            size = body[position]
            position += 1
            if size >= _CONTINUES:
                size, position = _rest(body, size, position)
            end = position + (size >> 1)
            position += 1
            while body[position] >= _CONTINUES:
                position += 1
            position += 1
            while body[position] >= _CONTINUES:
                position += 1
            position += 1
            size = body[position]
            position += 1
            if size < _CONTINUES:
                after = position + (size >> 1)
                if size & 1:
                    keys.append(None)
                    after = position
                else:
                    keys.append(body[position:after])
            else:
                size, position = _rest(body, size, position)
                after = position + (size >> 1)
                keys.append(blake2b(body[position:after]).digest())
            if body[after] == _ABSENT:
                slots.append(slot)
            position = end
    except IndexError as error:
        raise CorruptBatch(f"the records end in the midst of one, byte {position}") from error
    if position != len(body):
        raise CorruptBatch(f"{len(body)} bytes of records, and the last ends at {position}")
    return _with_offsets(batch, body, keys, slots)


def _with_offsets(
    batch: BatchView, body: bytes, keys: list[bytes | None], tombstones: list[int]
) -> Keys:
    offsets: Sequence[int] = range(batch.base_offset, batch.next_offset)
    if batch.record_count != len(offsets):
        # Compacted before: only then do records lie apart, and their deltas have to be read.
        deltas = _offset_deltas(body, _starts(batch, body))
        offsets = [batch.base_offset + delta for delta in deltas]
    gone = [offsets[slot] for slot in tombstones]
    if None not in keys:
        return Keys(keys, offsets, gone, [])  # type: ignore[arg-type]  # no key is None
    keyed = [(key, at) for key, at in zip(keys, offsets, strict=True) if key is not None]
    keyless = [at for key, at in zip(keys, offsets, strict=True) if key is None]
    return Keys([key for key, _at in keyed], [at for _key, at in keyed], gone, keyless)


def _rest(body: bytes, first: int, position: int) -> tuple[int, int]:
    """A number whose first byte goes on, still in zigzag form, and where it ends."""
    value, shift = first & 0x7F, 7
    while True:
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < _CONTINUES:
            return value, position
        shift += 7


def _number(body: bytes, position: int) -> tuple[int, int]:
    first = body[position]
    if first < _CONTINUES:
        return first, position + 1
    return _rest(body, first, position + 1)


def _starts(batch: BatchView, body: bytes) -> list[int]:
    """Where each record starts, and where the last one ends."""
    starts = [0]
    position = 0
    try:
        for _ in range(batch.record_count):
            size = body[position]
            position += 1
            if size >= _CONTINUES:
                size, position = _rest(body, size, position)
            position += size >> 1
            starts.append(position)
    except IndexError as error:
        raise CorruptBatch(f"the records end in the midst of one, byte {position}") from error
    if position != len(body):
        raise CorruptBatch(f"{len(body)} bytes of records, and the last ends at {position}")
    return starts


def _offset_deltas(body: bytes, starts: Sequence[int]) -> list[int]:
    return [_number(body, _time(body, start)[1])[0] >> 1 for start in starts[:-1]]


def _time(body: bytes, start: int) -> tuple[int, int]:
    """The timestamp delta of the record at a position, and where it ends."""
    time, after = _number(body, _number(body, start)[1] + 1)
    return (time >> 1) ^ -(time & 1), after


def _kept(batch: BatchView, body: bytes, offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Where the records at these offsets lie, in order."""
    starts = _starts(batch, body)
    base_offset = batch.base_offset
    if batch.record_count == batch.last_offset_delta + 1:
        slots = [offset - base_offset for offset in offsets]
    else:
        wanted = set(offsets)
        deltas = _offset_deltas(body, starts)
        slots = [slot for slot, delta in enumerate(deltas) if base_offset + delta in wanted]
    return [(starts[slot], starts[slot + 1]) for slot in slots]


def only(batch: BatchView, body: bytes, offsets: Sequence[int]) -> bytearray:
    """The batch with none but the records at these offsets, which are sorted; at least one.

    Its range of offsets and sequences stays, as Kafka keeps it, and so does its base timestamp,
    so that every record left is the bytes it was.
    """
    kept = _kept(batch, body, offsets)
    records = b"".join([body[start:end] for start, end in kept])
    return _rewritten(
        batch,
        records,
        len(kept),
        attributes=batch.attributes,
        base_timestamp=batch.base_timestamp,
        max_timestamp=_max_timestamp(batch, body, kept),
    )


def with_delete_horizon(
    batch: BatchView, body: bytes, offsets: Sequence[int], horizon_ms: int
) -> bytearray:
    """As only(), and the batch says from when on its tombstones or its marker may go.

    KIP-534: the horizon takes the place of the base timestamp, so each record's delta changes.
    """
    kept = _kept(batch, body, offsets)
    append_time = batch.max_timestamp if batch.is_log_append_time else None
    records = bytearray()
    for start, end in kept:
        delta, after = _time(body, start)
        timestamp = batch.base_timestamp + delta if append_time is None else append_time
        moved = varlong(timestamp - horizon_ms)
        records += varint(1 + len(moved) + end - after)
        records.append(body[_number(body, start)[1]])
        records += moved
        records += body[after:end]
    return _rewritten(
        batch,
        records,
        len(kept),
        attributes=batch.attributes | DELETE_HORIZON_FLAG,
        base_timestamp=horizon_ms,
        max_timestamp=_max_timestamp(batch, body, kept),
    )


def emptied(batch: BatchView) -> bytearray:
    """The batch's header alone: it still tells the last sequence and the epoch of its producer."""
    return _rewritten(
        batch,
        b"",
        0,
        attributes=batch.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_FLAG),
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=batch.max_timestamp,
    )


def _max_timestamp(batch: BatchView, body: bytes, kept: Sequence[tuple[int, int]]) -> int:
    if batch.is_log_append_time:
        return batch.max_timestamp
    return batch.base_timestamp + max(_time(body, start)[0] for start, _end in kept)


def _rewritten(
    batch: BatchView,
    records: bytes | bytearray,
    count: int,
    *,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
) -> bytearray:
    if count and attributes & COMPRESSION_MASK:
        records = compress(attributes & COMPRESSION_MASK, records)
    written = bytearray(HEADER_BYTES)
    written += records
    head = (batch.base_offset, len(written) - LENGTH_OVERHEAD, batch.partition_leader_epoch)
    times = (batch.last_offset_delta, base_timestamp, max_timestamp)
    producer = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
    HEADER.pack_into(written, 0, *head, batch.magic, 0, attributes, *times, *producer, count)
    CRC.pack_into(written, CRC_POSITION, crc32c(memoryview(written)[ATTRIBUTES_POSITION:]))
    return written
