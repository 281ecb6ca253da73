"""Which segments of a log are too old or too many: Kafka's rules, and time one can trust."""

import logging

from headrace.clock import Clock
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import Segment

logger = logging.getLogger(__name__)

# The wall clock may gain this much on the steady one between two looks: a correction, no leap.
LEAP_MS = 60_000
# A leap ahead is believed after this long: until then somebody may set the clock right again.
DOUBT_MS = 3_600_000


class TrustedTime:
    """The wall clock, but a leap ahead is believed only once it has lasted.

    Deleting by a clock that was wrong for a minute cannot be undone; deleting an hour late
    harms nobody. A clock set back is believed at once: it only keeps records longer.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ms = clock.now_ms() - clock.monotonic_ms()
        self._doubted_since: int | None = None

    def now_ms(self) -> int:
        steady_ms = self._clock.monotonic_ms()
        ahead_ms = self._clock.now_ms() - steady_ms
        leapt = ahead_ms - self._ahead_ms > LEAP_MS
        if leapt and self._doubted_since is None:
            self._doubted_since = steady_ms
            logger.warning(
                "clock leapt ahead, retention waits leap_ms=%d wait_ms=%d",
                ahead_ms - self._ahead_ms,
                DOUBT_MS,
            )
        if not leapt or steady_ms - (self._doubted_since or 0) >= DOUBT_MS:
            self._ahead_ms, self._doubted_since = ahead_ms, None
        return steady_ms + self._ahead_ms


def drop_expired(log: PartitionLog, *, high_watermark: int, now_ms: int) -> bool:
    """Move the log's start past segments that retention no longer keeps; whether it moved.

    Their files go with the next checkpoint. The active segment goes too when all its records
    are expired: as in Kafka, an empty one takes its place.
    """
    if "delete" not in log.settings.cleanup_policy:
        return False
    kept = [segment for segment in log.segments if segment.next_offset > log.log_start_offset]
    within = [segment for segment in kept if segment.size and segment.next_offset <= high_watermark]
    expired = _too_many(log, kept, within)
    expired += _too_old(log, within[expired:], now_ms)
    if not expired:
        return False
    last = within[expired - 1]
    start = last.next_offset
    if last is log.segments[-1]:
        log.roll(now_ms)
    log.delete_records(start)
    logger.info(
        "segments expired partition=%s segments=%d log_start_offset=%d", log.name, expired, start
    )
    return True


def _too_many(log: PartitionLog, kept: list[Segment], within: list[Segment]) -> int:
    limit = log.settings.retention_bytes
    if limit < 0:
        return 0
    excess = sum(segment.size for segment in kept) - limit
    count = 0
    for segment in within:
        excess -= segment.size
        if excess < 0:
            break
        count += 1
    return count


def _too_old(log: PartitionLog, within: list[Segment], now_ms: int) -> int:
    limit = log.settings.retention_ms
    if limit < 0:
        return 0
    count = 0
    for segment in within:
        # One record from the future keeps its whole segment, and all that follow.
        if now_ms - _newest_ms(log, segment) <= limit:
            break
        count += 1
    return count


def _newest_ms(log: PartitionLog, segment: Segment) -> int:
    newest = segment.indexes.max_timestamp
    # Records that tell no time are as old as the file.
    return newest if newest >= 0 else log.modified_ms(segment)
