"""When a log starts a new segment: Kafka's rules, from the topic's settings."""

from zlib import crc32

from headrace.errors import ErrorCode, KafkaError
from headrace.log.index import OFFSET_ENTRY
from headrace.log.segment import Segment
from headrace.log.settings import TopicSettings
from headrace.protocol.records import BatchView

MAX_RELATIVE_OFFSET = 0x7FFFFFFF


class RollRule:
    """By size, by age, by a full index, by offsets that no longer fit the index."""

    __slots__ = ("_index_bytes", "_index_safe_bytes", "_jitter_ms", "_segment_bytes", "_segment_ms")

    def __init__(self, settings: TopicSettings) -> None:
        self._segment_bytes = settings.roll_bytes
        self._segment_ms = settings.segment_ms
        if settings.compacted:
            # What has to be compacted by then must have left the active segment.
            self._segment_ms = min(settings.segment_ms, settings.max_compaction_lag_ms)
        self._jitter_ms = min(settings.segment_jitter_ms, self._segment_ms)
        self._index_bytes = settings.segment_index_bytes
        # Below this size the index cannot be full, whatever the batches were.
        self._index_safe_bytes = settings.index_interval_bytes * (
            settings.segment_index_bytes // OFFSET_ENTRY.size - 1
        )

    def due(self, active: Segment, size: int, last: BatchView, now_ms: int) -> bool:
        """Whether batches of this size, the last of them given, belong in a new segment."""
        if size > self._segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{size} bytes do not fit a segment of {self._segment_bytes}",
            )
        filled = active.size
        if filled == 0:
            return False
        if filled + size > self._segment_bytes:
            return True
        if filled > self._index_safe_bytes and active.indexes.is_full(self._index_bytes):
            return True
        if last.base_offset + last.last_offset_delta - active.base_offset > MAX_RELATIVE_OFFSET:
            return True
        first = active.rolling_timestamp
        # By the clock only if the records tell no time.
        waited = last.max_timestamp - first if first >= 0 else now_ms - active.created_ms
        return waited > self._age_ms(active)

    def aged(self, active: Segment, now_ms: int) -> bool:
        """Whether the first record is older than segment.ms, with no append to find out."""
        if active.size == 0:
            return False
        return now_ms - max(active.rolling_timestamp, 0) > self._age_ms(active)

    def _age_ms(self, active: Segment) -> int:
        if not self._jitter_ms:
            return self._segment_ms
        # Spread over the partitions, and the same for a segment every time it is asked.
        return self._segment_ms - crc32(active.path.encode()) % self._jitter_ms
