"""Record batches written: of records, and of transaction markers."""

from collections.abc import Iterable

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
from headrace.protocol.primitives import varint, varlong


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
    base_timestamp = rows[0].timestamp if rows else NO_TIMESTAMP
    max_timestamp = max((row.timestamp for row in rows), default=NO_TIMESTAMP)
    if log_append_time is not None:
        attributes |= LOG_APPEND_TIME_FLAG
        max_timestamp = log_append_time
    if delete_horizon_ms is not None:
        # KIP-534: the horizon takes the place of the base timestamp, and the deltas count from it.
        attributes |= DELETE_HORIZON_FLAG
        base_timestamp = delete_horizon_ms
    body = bytearray()
    for row in rows:
        _write_record(body, row, row.offset - base_offset, row.timestamp - base_timestamp)
    packed = compress(compression, body) if compression and rows else body
    batch = bytearray(HEADER_BYTES)
    batch += packed
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LENGTH_OVERHEAD,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last - base_offset,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(rows),
    )
    CRC.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
    return batch


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
