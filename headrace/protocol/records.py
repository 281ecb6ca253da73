"""Record batches read in place: the header as a view, the records one by one."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from headrace.protocol.batch_layout import (
    ATTRIBUTES,
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CONTROL_ABORT,
    CONTROL_COMMIT,
    CONTROL_FLAG,
    CONTROL_KEY,
    CONTROL_VALUE,
    CRC,
    CRC_POSITION,
    DELETE_HORIZON_FLAG,
    EPOCH,
    EPOCH_POSITION,
    HEADER,
    HEADER_BYTES,
    LENGTH_AND_MAGIC,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    MAX_DECOMPRESSED_BYTES,
    MAX_TIMESTAMP_POSITION,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    OFFSET,
    SEQUENCE_WRAP,
    TIMESTAMP,
    TRANSACTIONAL_FLAG,
    CorruptBatch,
    Headers,
    Record,
    UnsupportedMagic,
)
from headrace.protocol.batch_writer import control_batch, write_batch, write_one
from headrace.protocol.compression import CompressionFailed, decompress
from headrace.protocol.primitives import Buffer

__all__ = [
    "HEADER_BYTES",
    "LENGTH_OVERHEAD",
    "MAGIC",
    "MAX_DECOMPRESSED_BYTES",
    "NO_PRODUCER_ID",
    "NO_TIMESTAMP",
    "BatchView",
    "CorruptBatch",
    "EndMarker",
    "Headers",
    "Record",
    "UnsupportedMagic",
    "batches",
    "control_batch",
    "end_marker",
    "stamp",
    "write_batch",
    "write_one",
]

# Seven bits a byte: five bytes for a varint, ten for a varlong.
_VARINT_BITS = 35
_VARLONG_BITS = 70


class BatchView:
    """The header of the batch at ``position``, unpacked once; the records stay in the buffer.

    The fields are as they were when the view was made, save those that ``stamp`` writes.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "buffer",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "position",
        "producer_epoch",
        "producer_id",
        "record_count",
    )

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        self.buffer = buffer
        self.position = position
        try:
            # One unpack into slots; each field is then read at the price of an attribute.
            (
                self.base_offset,
                self.batch_length,
                self.partition_leader_epoch,
                self.magic,
                self.crc,
                self.attributes,
                self.last_offset_delta,
                self.base_timestamp,
                self.max_timestamp,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
                self.record_count,
            ) = HEADER.unpack_from(buffer, position)
        except struct.error as error:
            raise CorruptBatch(
                f"{max(len(buffer) - position, 0)} bytes cannot hold a batch header"
            ) from error

    def __repr__(self) -> str:
        return (
            f"BatchView({self.base_offset}..{self.last_offset}, {self.record_count} records, "
            f"{self.size} bytes, producer {self.producer_id}/{self.producer_epoch}, "
            f"sequence {self.base_sequence}, attributes {self.attributes:#x})"
        )

    @property
    def size(self) -> int:
        return LENGTH_OVERHEAD + self.batch_length

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_FLAG != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_FLAG != 0

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        if self.base_sequence < 0:
            return -1
        # Sequences run from 0 to 2^31 - 1 and start again at 0.
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_WRAP

    def raw(self) -> memoryview:
        """The whole batch, not copied."""
        return memoryview(self.buffer)[self.position : self.position + self.size]

    def crc_valid(self) -> bool:
        start = self.position + ATTRIBUTES_POSITION
        end = self.position + self.size
        if end > len(self.buffer) or end < start:
            return False
        checksum: int = crc32c(memoryview(self.buffer)[start:end])
        return checksum == self.crc

    def stamp(self, base_offset: int, leader_epoch: int) -> None:
        stamp(self.buffer, self.position, base_offset, leader_epoch)
        self.base_offset = base_offset
        self.partition_leader_epoch = leader_epoch

    def stamp_append_time(self, timestamp: int) -> None:
        """Every record gets this timestamp; the CRC covers it, so the CRC is computed anew."""
        buffer, position = self.buffer, self.position
        self.attributes |= LOG_APPEND_TIME_FLAG
        self.max_timestamp = timestamp
        ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_POSITION, self.attributes)
        TIMESTAMP.pack_into(buffer, position + MAX_TIMESTAMP_POSITION, timestamp)
        self.crc = crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : position + self.size])
        CRC.pack_into(buffer, position + CRC_POSITION, self.crc)

    def records(self, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
        """Every record, strictly read: the counts, lengths and deltas must all agree."""
        start, end = self.position + HEADER_BYTES, self.position + self.size
        if self.magic != MAGIC:
            raise UnsupportedMagic(f"magic {self.magic}")
        if end < start or end > len(self.buffer):
            raise CorruptBatch(f"batch length {self.batch_length} does not fit the buffer")
        if self.record_count < 0:
            raise CorruptBatch(f"record count {self.record_count}")
        body = bytes(memoryview(self.buffer)[start:end])
        # A batch of no records (compaction leaves them) has no compressed block either.
        if self.compression and body:
            try:
                body = decompress(self.compression, body, max_bytes=max_bytes)
            except CompressionFailed as error:
                raise CorruptBatch(str(error)) from error
        return self._parse(body)

    def _parse(self, body: bytes) -> Iterator[Record]:
        base_offset, base_timestamp = self.base_offset, self.base_timestamp
        append_time = self.max_timestamp if self.is_log_append_time else None
        previous_delta, position = -1, 0
        try:
            for _ in range(self.record_count):
                timestamp_delta, delta, key, value, headers, position = _record_at(body, position)
                if not previous_delta < delta <= self.last_offset_delta:
                    raise CorruptBatch(
                        f"offset delta {delta} after {previous_delta}, "
                        f"the last is {self.last_offset_delta}"
                    )
                previous_delta = delta
                timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
                yield Record(base_offset + delta, timestamp, key, value, headers)
        except IndexError as error:
            raise CorruptBatch(f"the records end in the midst of one, byte {position}") from error
        if position != len(body):
            raise CorruptBatch(f"{len(body) - position} bytes after the last record")


def _record_at(
    body: bytes, position: int
) -> tuple[int, int, bytes | None, bytes | None, Headers, int]:
    """Timestamp delta, offset delta, key, value and headers, and where the next record begins.

    A field that claims more than the record holds moves the position past the record's end, so the
    one comparison at the end sees it.
    """
    length, position = _zigzag_at(body, position)
    end = position + length
    if length < 0 or end > len(body):
        raise CorruptBatch(f"record of {length} bytes, {len(body) - position} are left")
    timestamp_delta, position = _zigzag_at(body, position + 1, _VARLONG_BITS)
    delta, position = _zigzag_at(body, position)
    key, position = _field_at(body, position)
    value, position = _field_at(body, position)
    count, position = _zigzag_at(body, position)
    headers: Headers = ()
    if count:
        headers, position = _headers_at(body, position, end, count)
    if position != end:
        raise CorruptBatch(f"a record of {length} bytes ends {position - end} bytes off")
    return timestamp_delta, delta, key, value, headers, position


def _zigzag_at(body: bytes, position: int, max_bits: int = _VARINT_BITS) -> tuple[int, int]:
    byte = body[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value, shift = byte & 0x7F, 7
    while shift < max_bits:
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise CorruptBatch(f"a varint before byte {position} has no end")


def _field_at(body: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = _zigzag_at(body, position)
    if length >= 0:
        end = position + length
        return body[position:end], end
    if length < -1:
        raise CorruptBatch(f"field of {length} bytes")
    return None, position


def _headers_at(body: bytes, position: int, end: int, count: int) -> tuple[Headers, int]:
    if not 0 <= count <= end - position:
        raise CorruptBatch(f"{count} headers, {end - position} bytes are left")
    headers = []
    for _ in range(count):
        name, position = _field_at(body, position)
        if name is None:
            raise CorruptBatch("a header has no name")
        value, position = _field_at(body, position)
        # Kafka takes any bytes as a name; escaped, they are written back as they came.
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position


def batches(buffer: Buffer, start: int = 0, end: int | None = None) -> Iterator[BatchView]:
    """Each whole batch from ``start`` to ``end``; a torn or senseless one raises."""
    stop = len(buffer) if end is None else end
    position = start
    while position < stop:
        if position + HEADER_BYTES > stop:
            _refuse_short(buffer, position, stop)
        view = BatchView(buffer, position)
        if view.magic != MAGIC:
            raise UnsupportedMagic(f"magic {view.magic} at byte {position}")
        size = view.size
        if size < HEADER_BYTES or position + size > stop:
            raise CorruptBatch(
                f"batch length {view.batch_length} at byte {position}, "
                f"{stop - position} bytes are left"
            )
        yield view
        position += size


def _refuse_short(buffer: Buffer, position: int, stop: int) -> None:
    # Entries of the old formats may be shorter than a header of today's.
    if position + LENGTH_AND_MAGIC.size <= stop:
        magic = LENGTH_AND_MAGIC.unpack_from(buffer, position)[1]
        if magic != MAGIC:
            raise UnsupportedMagic(f"magic {magic} at byte {position}")
    raise CorruptBatch(f"{stop - position} bytes at {position} cannot hold a batch header")


def stamp(buffer: Buffer, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write the two fields that lie outside the CRC, in place."""
    OFFSET.pack_into(buffer, position, base_offset)
    EPOCH.pack_into(buffer, position + EPOCH_POSITION, leader_epoch)


class EndMarker(NamedTuple):
    """What a control batch says."""

    commit: bool
    coordinator_epoch: int


def end_marker(batch: BatchView) -> EndMarker | None:
    """The transaction marker in a control batch; None for control records of other kinds."""
    record = next(batch.records(), None)
    if record is None or record.key is None or len(record.key) < CONTROL_KEY.size:
        raise CorruptBatch("a control batch without a control record")
    kind = CONTROL_KEY.unpack_from(record.key)[1]
    if kind not in (CONTROL_ABORT, CONTROL_COMMIT):
        return None
    if record.value is None or len(record.value) < CONTROL_VALUE.size:
        raise CorruptBatch("a transaction marker without a value")
    return EndMarker(kind == CONTROL_COMMIT, CONTROL_VALUE.unpack_from(record.value)[1])
