"""Offsets looked up by time, over the segments of one log."""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.errors import ErrorCode, KafkaError
from headrace.log.segment import Segment
from headrace.protocol.records import HEADER_BYTES, NO_TIMESTAMP, BatchView, CorruptBatch


class TimedOffset(NamedTuple):
    """A record's offset and timestamp, and the leader epoch it was written in."""

    offset: int
    timestamp: int
    leader_epoch: int


def first_at_or_after(
    segments: Sequence[Segment], timestamp_ms: int, log_start_offset: int
) -> TimedOffset | None:
    """The first record whose timestamp is at or past the one asked for."""
    for segment in segments:
        if segment.next_offset <= log_start_offset or segment.indexes.max_timestamp < timestamp_ms:
            continue
        start = _start(segment, timestamp_ms, log_start_offset)
        for position, batch in segment.headers(start):
            if batch.max_timestamp < timestamp_ms or batch.last_offset < log_start_offset:
                continue
            found = _first_record(segment, position, timestamp_ms, log_start_offset)
            if found is not None:
                return found
    return None


def latest(segments: Sequence[Segment]) -> TimedOffset | None:
    """The first record with the largest timestamp of all."""
    filled = [segment for segment in segments if segment.indexes.max_timestamp != NO_TIMESTAMP]
    if not filled:
        return None
    segment = max(filled, key=lambda item: item.indexes.max_timestamp)
    found = segment.locate(segment.indexes.offset_of_max_timestamp)
    if found is None:
        return None
    return _first_record(segment, found[0], segment.indexes.max_timestamp, segment.base_offset)


def _start(segment: Segment, timestamp_ms: int, log_start_offset: int) -> int:
    offset = segment.indexes.before(timestamp_ms)
    found = segment.locate(max(offset, log_start_offset))
    return 0 if found is None else found[0]


def _first_record(
    segment: Segment, position: int, timestamp_ms: int, from_offset: int
) -> TimedOffset | None:
    size = BatchView(segment.opened().read_at(position, HEADER_BYTES)).size
    if segment.verify(position, position + size) == position:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{segment.path} is damaged at byte {position}")
    batch = BatchView(segment.opened().read_at(position, size))
    epoch = batch.partition_leader_epoch
    if batch.is_log_append_time and batch.base_offset >= from_offset:
        # All its records carry the one timestamp: no need to open the batch.
        return TimedOffset(batch.base_offset, batch.max_timestamp, epoch)
    try:
        for record in batch.records():
            if record.timestamp >= timestamp_ms and record.offset >= from_offset:
                return TimedOffset(record.offset, record.timestamp, epoch)
    except CorruptBatch as error:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"{segment.path} at byte {position}: {error}"
        ) from error
    return None
