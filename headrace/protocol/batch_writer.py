"""Record batches written: of records, and of transaction markers."""

from collections.abc import Iterable
from struct import Struct

from crc32c import crc32c

from headrace.protocol.batch_layout import (
    ATTRIBUTES_POSITION,
    CONTROL_ABORT,
    CONTROL_COMMIT,
    CONTROL_FLAG,
    CONTROL_KEY,
    CONTROL_VALUE,
    CRC,
    CRC_POSITION,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    Record,
)
from headrace.protocol.compression import compress
from headrace.protocol.primitives import Buffer, varint, varlong

# The header as HEADER has it, before and after the end of its checksum.
_UNCHECKED = Struct(">qiibI")
_CHECKED = Struct(">hiqqqhii")


def write_batch(  # noqa: PLR0913 - each argument is one field of the header
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    compression: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
    leader_epoch: int = -1,
    last_offset: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """One batch of these records.

    ``last_offset`` keeps the range of a batch whose last records were compacted away; by default
    it is the offset of the last record.
    """
    rows = _placed(records, base_offset)
    last = last_offset if last_offset is not None else rows[-1].offset if rows else base_offset
    if rows and last < rows[-1].offset:
        raise ValueError(f"last offset {last} is before offset {rows[-1].offset}")
    attributes = compression
    attributes |= TRANSACTIONAL_FLAG if transactional else 0
    attributes |= CONTROL_FLAG if control else 0
    attributes |= LOG_APPEND_TIME_FLAG if log_append_time is not None else 0
    attributes |= DELETE_HORIZON_FLAG if delete_horizon_ms is not None else 0
    base_timestamp, max_timestamp = _timestamps(rows, log_append_time, delete_horizon_ms)
    batch = bytearray(HEADER_BYTES)
    batch += _body(rows, base_offset, base_timestamp, compression)
    size, delta = len(batch) - LENGTH_OVERHEAD, last - base_offset
    producer = (producer_id, producer_epoch, base_sequence)
    head = (base_offset, size, leader_epoch, MAGIC, 0, attributes, delta)
    HEADER.pack_into(batch, 0, *head, base_timestamp, max_timestamp, *producer, len(rows))
    CRC.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
    return batch


def write_one(
    key: bytes | None,
    value: bytes | None,
    timestamp: int,
    transaction: tuple[int, int] | None = None,
) -> bytearray:
    """`write_batch` of one plain record, as coordinators write most of theirs: 3 us instead of 7.

    ``transaction`` is the producer's id and epoch.
    """
    body = b"".join(
        (
            b"\x00\x00\x00",
            b"\x01" if key is None else varint(len(key)) + key,
            b"\x01" if value is None else varint(len(value)) + value,
            b"\x00",
        )
    )
    attributes = TRANSACTIONAL_FLAG if transaction else 0
    producer_id, epoch = transaction or (NO_PRODUCER_ID, -1)
    checked = b"".join(
        (
            _CHECKED.pack(attributes, 0, timestamp, timestamp, producer_id, epoch, -1, 1),
            varint(len(body)),
            body,
        )
    )
    # The checksum of bytes takes a third of the time that a slice of a view does.
    batch = bytearray(_UNCHECKED.pack(0, len(checked) + 9, -1, MAGIC, crc32c(checked)))
    batch += checked
    return batch


def _timestamps(
    rows: list[Record], log_append_time: int | None, delete_horizon_ms: int | None
) -> tuple[int, int]:
    """The base, from which the records' deltas count, and the maximum."""
    base = rows[0].timestamp if rows else NO_TIMESTAMP
    if delete_horizon_ms is not None:
        # KIP-534: the horizon takes the place of the base timestamp.
        base = delete_horizon_ms
    if log_append_time is not None:
        return base, log_append_time
    return base, max((row.timestamp for row in rows), default=NO_TIMESTAMP)


def _body(rows: list[Record], base_offset: int, base_timestamp: int, compression: int) -> Buffer:
    body = bytearray()
    for row in rows:
        _write_record(body, row, row.offset - base_offset, row.timestamp - base_timestamp)
    return compress(compression, body) if compression and rows else body


def _placed(records: Iterable[Record], base_offset: int) -> list[Record]:
    rows: list[Record] = []
    expected = base_offset
    for record in records:
        if record.offset < 0:
            record = record._replace(offset=expected)
        elif record.offset < expected:
            raise ValueError(f"offset {record.offset} where at least {expected} must come")
        rows.append(record)
        expected = record.offset + 1
    return rows


def _write_record(out: bytearray, record: Record, offset_delta: int, timestamp_delta: int) -> None:
    body = bytearray(b"\x00")
    body += varlong(timestamp_delta)
    body += varint(offset_delta)
    _write_field(body, record.key)
    _write_field(body, record.value)
    body += varint(len(record.headers))
    for name, value in record.headers:
        _write_field(body, name.encode("utf-8", "surrogateescape"))
        _write_field(body, value)
    out += varint(len(body))
    out += body


def _write_field(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out += b"\x01"
        return
    out += varint(len(value))
    out += value


def control_batch(
    producer_id: int,
    producer_epoch: int,
    *,
    commit: bool,
    coordinator_epoch: int,
    timestamp: int,
) -> bytearray:
    """The marker that ends a transaction in one partition."""
    key = CONTROL_KEY.pack(0, CONTROL_COMMIT if commit else CONTROL_ABORT)
    value = CONTROL_VALUE.pack(0, coordinator_epoch)
    return write_batch(
        [Record(0, timestamp, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
