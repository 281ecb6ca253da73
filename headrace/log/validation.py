"""What a produced batch must be: Kafka's rules, read off the header wherever that is enough.

Most batches are judged by their header, their checksum and their first bytes. Records are decoded
only for rules that need them: keys of compacted topics, a bound on how old records may be,
another codec than the producer's, and to say which record is at fault.
"""

from typing import Final, NamedTuple

from headrace.errors import ErrorCode, KafkaError
from headrace.log.origin import Origin
from headrace.log.settings import TopicSettings
from headrace.protocol.batch_layout import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
)
from headrace.protocol.produce import RecordError
from headrace.protocol.records import (
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    BatchView,
    CorruptBatch,
    Record,
    UnsupportedMagic,
    batches,
    write_batch,
)

CODECS: Final = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
LAST_CODEC: Final = 4
SNAPPY: Final = 2
# What gzip, framed snappy, lz4 and zstd data start with.
_FIRST_BYTES: Final = {
    1: b"\x1f\x8b",
    SNAPPY: b"\x82SNAPPY\x00",
    3: b"\x04\x22\x4d\x18",
    4: b"\x28\xb5\x2f\xfd",
}
# No snappy block grows more than this: at best three bytes stand for 64.
_SNAPPY_RATIO: Final = 22
# Length, attributes, two deltas, two lengths and a count, at one byte each.
LEAST_RECORD_BYTES: Final = 7
# The least length of an entry that any Kafka wrote.
_LEAST_LENGTH: Final = 14
# A batch whose every record is at fault need not be answered with a message for each.
MAX_RECORD_ERRORS: Final = 1000
# Bits that no producer sets, so that whoever does gets a closer look.
_ODD_FLAGS: Final = LOG_APPEND_TIME_FLAG | CONTROL_FLAG | DELETE_HORIZON_FLAG
_LONG_MAX: Final = 2**63 - 1


class InvalidRecords(KafkaError):
    """A refusal that names the records at fault."""

    def __init__(
        self, code: ErrorCode, message: str, record_errors: tuple[RecordError, ...]
    ) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class Validated(NamedTuple):
    """What to write: the same memory, or a rewritten copy, with a view on each batch in it."""

    buffer: memoryview | bytearray
    batches: list[BatchView]
    # -1 where records keep their producer's time.
    log_append_time_ms: int


def validate(
    records: memoryview | bytearray,
    *,
    settings: TopicSettings,
    now_ms: int,
    origin: Origin = Origin.CLIENT,
) -> Validated:
    """The batch to write for what was sent; KafkaError with Kafka's code if none may be."""
    if origin is not Origin.CLIENT:
        return _own(records, settings, now_ms)
    batch = _only_batch(records)
    _check_header(batch, settings)
    if not batch.crc_valid():
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the checksum does not match: {batch}")
    _check_counts(batch)
    if _header_is_enough(batch, settings, now_ms):
        if not settings.append_time:
            return Validated(records, [batch], NO_TIMESTAMP)
        return _stamped(records, batch, now_ms)
    return _decoded(records, batch, settings, now_ms)


def _own(records: memoryview | bytearray, settings: TopicSettings, now_ms: int) -> Validated:
    """A coordinator's batches: made in this process, so only what a disk needs is checked."""
    try:
        found = list(batches(records))
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    for batch in found:
        if batch.size > settings.max_message_bytes:
            raise _too_large(batch.size, settings.max_message_bytes)
        if not batch.crc_valid():
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the checksum does not match: {batch}")
        if settings.append_time:
            batch.stamp_append_time(now_ms)
    return Validated(records, found, now_ms if settings.append_time else NO_TIMESTAMP)


def _only_batch(records: memoryview | bytearray) -> BatchView:
    try:
        batch = BatchView(records)
    except CorruptBatch:
        raise _malformed(records) from None
    if batch.magic != MAGIC or LENGTH_OVERHEAD + batch.batch_length != len(records):
        raise _malformed(records)
    return batch


def _malformed(records: memoryview | bytearray) -> KafkaError:
    """Why these bytes are not exactly one batch of today's format, in Kafka's order."""
    invalid, corrupt = ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE
    if len(records) < LENGTH_OVERHEAD:
        return KafkaError(invalid, "there must be one batch of records")
    length = int.from_bytes(records[8:LENGTH_OVERHEAD], "big", signed=True)
    if length < _LEAST_LENGTH:
        return KafkaError(corrupt, f"a batch cannot be {length} bytes long")
    try:
        whole = sum(1 for _ in batches(records[: LENGTH_OVERHEAD + length]))
    except UnsupportedMagic as error:
        old = len(records) > 16 and records[16] < MAGIC
        return KafkaError(invalid if old else corrupt, f"{error}; it must be {MAGIC}")
    except CorruptBatch as error:
        short = len(records) < LENGTH_OVERHEAD + length
        return KafkaError(invalid if short else corrupt, f"there is no whole batch: {error}")
    extra = len(records) - LENGTH_OVERHEAD - length
    return KafkaError(invalid, f"{extra} bytes follow {whole} batch; there must be one alone")


def _check_header(batch: BatchView, settings: TopicSettings) -> None:
    """What needs no checksum to be refused."""
    if batch.base_offset != 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"base offset {batch.base_offset} must be 0")
    size = LENGTH_OVERHEAD + batch.batch_length
    if size > settings.max_message_bytes:
        raise _too_large(size, settings.max_message_bytes)
    if size > settings.roll_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"a batch of {size} bytes does not fit a segment of {settings.roll_bytes}",
        )


def _check_counts(batch: BatchView) -> None:
    """What would break readers, and what clients may not write."""
    count, delta = batch.record_count, batch.last_offset_delta
    if count <= 0 or delta != count - 1:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"{count} records cannot have the last offset delta {delta}"
        )
    if batch.attributes & CONTROL_FLAG:
        raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control records")
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"producer {batch.producer_id} sent sequence {batch.base_sequence}",
        )
    _check_body(batch)


def _check_body(batch: BatchView) -> None:
    """A look at the first bytes: no proof, but clients that write nonsense fail it."""
    codec = batch.compression
    if codec:
        if codec > LAST_CODEC:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec} is unknown")
        start = batch.position + HEADER_BYTES
        magic = _FIRST_BYTES[codec]
        if batch.buffer[start : start + len(magic)] != magic and not _bare_snappy(batch):
            raise KafkaError(ErrorCode.INVALID_RECORD, f"the records are not of codec {codec}")
        return
    size = batch.batch_length + LENGTH_OVERHEAD - HEADER_BYTES
    count = batch.record_count
    if size < count * LEAST_RECORD_BYTES:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{size} bytes cannot hold {count} records")
    # One record must fill the batch, the first of several must leave room for the others.
    zigzag, used = _varint(batch)
    needed = used + (zigzag >> 1) + (count - 1) * LEAST_RECORD_BYTES
    if zigzag & 1 or needed > size or (count == 1 and needed != size):
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"{count} records do not fill {size} bytes as they should"
        )


def _bare_snappy(batch: BatchView) -> bool:
    """Whether this may be a block of snappy without a frame, which Kafka takes as well."""
    size = batch.batch_length + LENGTH_OVERHEAD - HEADER_BYTES
    if batch.compression != SNAPPY or size < LEAST_RECORD_BYTES:
        return False
    length, used = _varint(batch)
    # A block cannot start by copying what came before.
    literal = batch.buffer[batch.position + HEADER_BYTES + used] & 3 == 0
    # At worst six bytes become seven, and a few more.
    least = max(batch.record_count * LEAST_RECORD_BYTES, (size - 32) * 6 // 7)
    return literal and least <= length <= size * _SNAPPY_RATIO


def _varint(batch: BatchView) -> tuple[int, int]:
    """The number the body starts with, unsigned, and how many bytes it takes, at most five."""
    start = batch.position + HEADER_BYTES
    value = used = 0
    while True:
        byte = batch.buffer[start + used]
        value |= (byte & 0x7F) << (7 * used)
        used += 1
        if byte < 0x80 or used == 5:
            return value, used


def _header_is_enough(batch: BatchView, settings: TopicSettings, now_ms: int) -> bool:
    if settings.compacted or batch.attributes & _ODD_FLAGS:
        return False
    kind = settings.compression_type
    if kind != "producer" and CODECS[kind] != batch.compression:
        return False
    if settings.append_time:
        return True
    if settings.message_timestamp_before_max_ms != _LONG_MAX:
        return False
    return batch.max_timestamp - now_ms <= settings.message_timestamp_after_max_ms


def _decoded(
    records: memoryview | bytearray, batch: BatchView, settings: TopicSettings, now_ms: int
) -> Validated:
    """Every record read: refused by record, or written with what the records say."""
    try:
        rows = list(batch.records())
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the records are malformed: {error}") from None
    _check_records(batch, rows, settings, now_ms)
    kind = settings.compression_type
    if kind != "producer" and CODECS[kind] != batch.compression:
        return _rewritten(batch, rows, settings, now_ms, CODECS[kind])
    if settings.append_time:
        return _stamped(records, batch, now_ms)
    latest = max(row.timestamp for row in rows)
    if batch.attributes & _ODD_FLAGS or batch.max_timestamp != latest:
        # The header says what is not so; the records do not.
        return _rewritten(batch, rows, settings, now_ms, batch.compression)
    return Validated(records, [batch], NO_TIMESTAMP)


def _check_records(
    batch: BatchView, rows: list[Record], settings: TopicSettings, now_ms: int
) -> None:
    code = ErrorCode.INVALID_RECORD
    faults: list[RecordError] = []
    stamped_by_client = batch.is_log_append_time
    for index, row in enumerate(rows):
        if settings.compacted and row.key is None:
            faults.append(RecordError(index, "a record of a compacted topic must have a key"))
        elif settings.append_time:
            if stamped_by_client:
                code = ErrorCode.INVALID_TIMESTAMP
                faults.append(RecordError(index, "producers may not set the append time"))
        elif (reason := _out_of_bounds(row.timestamp, settings, now_ms)) is not None:
            code = ErrorCode.INVALID_TIMESTAMP
            faults.append(RecordError(index, reason))
    if faults:
        message = f"{len(faults)} of {len(rows)} records are refused, first: {faults[0].message}"
        raise InvalidRecords(code, message, tuple(faults[:MAX_RECORD_ERRORS]))


def _out_of_bounds(timestamp: int, settings: TopicSettings, now_ms: int) -> str | None:
    if timestamp == NO_TIMESTAMP:
        return None
    low = now_ms - settings.message_timestamp_before_max_ms
    high = now_ms + settings.message_timestamp_after_max_ms
    if low <= timestamp <= high:
        return None
    return f"timestamp {timestamp} is not between {low} and {high}"


def _stamped(records: memoryview | bytearray, batch: BatchView, now_ms: int) -> Validated:
    if isinstance(records, memoryview) and records.readonly:
        records = bytearray(records)
        batch = BatchView(records)
    batch.stamp_append_time(now_ms)
    return Validated(records, [batch], now_ms)


def _rewritten(
    batch: BatchView, rows: list[Record], settings: TopicSettings, now_ms: int, codec: int
) -> Validated:
    append_time = now_ms if settings.append_time else None
    buffer = write_batch(
        rows,
        compression=codec,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.is_transactional,
        log_append_time=append_time,
    )
    if len(buffer) > settings.max_message_bytes:
        raise _too_large(len(buffer), settings.max_message_bytes)
    return Validated(
        buffer, [BatchView(buffer)], NO_TIMESTAMP if append_time is None else append_time
    )


def _too_large(size: int, limit: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a batch of {size} bytes is more than max.message.bytes ({limit})",
    )
