"""Segments dropped by age and by size, as Kafka drops them, whatever the clock does."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.log.retention import DOUBT_MS, LEAP_MS, TrustedTime, drop_expired
from headrace.log.store import Store
from headrace.testing.clock import ManualClock
from headrace.testing.compaction import keyed
from headrace.testing.filesystems import MemoryFilesystem
from headrace.testing.logs import NOW_MS, batch, read_all, small_segments, sync, values

DAY_MS = 86_400_000


def new_log(**settings):
    store = Store(MemoryFilesystem(), "/data", ManualClock(NOW_MS))
    rows = {"retention_ms": -1, "retention_bytes": -1, **settings}
    return store, store.create("orders", 0, uuid.UUID(int=1), small_segments(400, **rows))


def fill(log, count, *, step_ms=0, first_ms=NOW_MS):
    for number in range(count):
        log.append(batch(b"value %d" % number, timestamp=first_ms + number * step_ms))
    sync(log)


def drop(log, now_ms=NOW_MS, high_watermark=None):
    limit = log.log_end_offset if high_watermark is None else high_watermark
    return drop_expired(log, high_watermark=limit, now_ms=now_ms)


def test_a_segment_goes_when_its_newest_record_is_older_than_retention_ms():
    store, log = new_log(retention_ms=1_000)
    fill(log, 20, step_ms=100)
    second = log.segments[1].base_offset
    newest_of_first = NOW_MS + (second - 1) * 100
    assert not drop(log, newest_of_first + 1_000)
    assert drop(log, newest_of_first + 1_001)
    assert log.log_start_offset == second
    store.checkpoint()
    assert log.segments[0].base_offset == second


def test_whole_segments_go_until_the_log_is_no_smaller_than_retention_bytes():
    store, log = new_log(retention_bytes=900)
    fill(log, 30)
    sizes = [segment.size for segment in log.segments]
    assert drop(log)
    store.checkpoint()
    assert 900 <= log.size_bytes < 900 + sizes[0]
    assert not drop(log)
    assert values(read_all(log))[-1] == (29, b"value 29")


@given(
    st.lists(st.integers(1, 400), max_size=40),
    st.integers(-1, 3_000),
    st.integers(-1, 3_000),
    st.integers(0, 5_000),
)
def test_what_goes_is_what_the_rules_say(steps, retention_bytes, retention_ms, age_ms):
    _store, log = new_log(retention_bytes=retention_bytes, retention_ms=retention_ms)
    now_ms = NOW_MS
    for step in steps:
        now_ms += step
        log.append(batch(b"x" * 50, timestamp=now_ms))
    sync(log)
    rows = [(item.next_offset, item.size, item.indexes.max_timestamp) for item in log.segments]
    now_ms += age_ms
    drop(log, now_ms)
    start, left = 0, sum(size for _next, size, _newest in rows) - max(retention_bytes, 0)
    while rows and rows[0][1] and retention_bytes >= 0 and left - rows[0][1] >= 0:
        start, left = rows[0][0], left - rows.pop(0)[1]
    while rows and rows[0][1] and retention_ms >= 0 and now_ms - rows[0][2] > retention_ms:
        start = rows.pop(0)[0]
    assert log.log_start_offset == start


def test_the_active_segment_goes_only_when_all_of_it_expired_and_an_empty_one_takes_its_place():
    store, log = new_log(retention_ms=1_000)
    fill(log, 2, step_ms=500)
    assert len(log.segments) == 1
    assert not drop(log, NOW_MS + 1_400)
    assert drop(log, NOW_MS + 1_501)
    store.checkpoint()
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)
    assert [segment.size for segment in log.segments] == [0]
    assert not drop(log, NOW_MS + 10_000), "an empty segment does not roll for ever"
    assert log.append(batch(b"next")).base_offset == 2


def test_what_readers_may_not_see_yet_does_not_go():
    _store, log = new_log(retention_ms=1_000)
    fill(log, 20)
    last_safe = log.segments[2].base_offset
    assert drop(log, NOW_MS + DAY_MS, high_watermark=last_safe + 1)
    assert log.log_start_offset == last_safe


def test_the_log_start_survives_a_restart_and_a_kill():
    for clean in (True, False):
        store, log = new_log(retention_ms=1_000)
        fill(log, 20, step_ms=100)
        drop(log, NOW_MS + 2_000)
        start = log.log_start_offset
        assert start > 0
        store.checkpoint()
        store.close(clean=clean)
        again = Store(store.filesystem, "/data", ManualClock(NOW_MS))
        assert again.open("orders", 0, None, log.settings).log_start_offset == start


def test_dropped_files_stay_for_file_delete_delay_ms_under_another_name():
    clock = ManualClock(NOW_MS)
    store = Store(MemoryFilesystem(), "/data", clock)
    log = store.create(
        "orders", 0, uuid.UUID(int=1), small_segments(400, retention_ms=1, file_delete_delay_ms=60)
    )
    fill(log, 20)
    reader = log.read(0, max_bytes=100, end_offset=20, min_one=True)
    drop(log, NOW_MS + 100)
    store.checkpoint()

    def left():
        return [name for name in store.filesystem.listdir(log.directory) if "deleted" in name]

    dropped = left()
    assert f"{0:020d}.log.deleted" in dropped
    clock.advance(59)
    store.sweep()
    assert left() == dropped
    clock.advance(1)
    store.sweep()
    assert left() == []
    assert reader.read()


def test_a_full_disk_does_not_wait_to_remove_dropped_files():
    store, log = new_log(retention_ms=1)
    fill(log, 20)
    drop(log, NOW_MS + 100)
    store.filesystem.capacity_bytes = 1 << 20
    store.checkpoint()
    assert not [name for name in store.filesystem.listdir(log.directory) if "deleted" in name]


def test_a_record_from_the_future_keeps_its_segment():
    _store, log = new_log(retention_ms=1_000, message_timestamp_after_max_ms=DAY_MS)
    fill(log, 3)
    log.append(batch(b"early", timestamp=NOW_MS + DAY_MS))
    fill(log, 20)
    future = next(item for item in log.segments if item.indexes.max_timestamp > NOW_MS)
    drop(log, NOW_MS + 5_000)
    assert log.log_start_offset == future.base_offset


def test_records_that_tell_no_time_are_as_old_as_their_file():
    store, log = new_log(retention_ms=1_000)
    fill(log, 20, first_ms=-1)
    store.filesystem.now_ms = NOW_MS
    assert not drop(log, NOW_MS + 1_000)
    assert drop(log, NOW_MS + 1_001)


@pytest.mark.parametrize("policy", [("compact",), ()])
def test_without_the_delete_policy_nothing_expires(policy):
    _store, log = new_log(retention_ms=0, retention_bytes=0, cleanup_policy=policy)
    for number in range(20):
        log.append(keyed((b"key", b"value %d" % number)))
    sync(log)
    assert not drop(log, NOW_MS + DAY_MS)


class TwoClocks:
    """A wall clock that can be set, and a steady one that cannot."""

    def __init__(self):
        self.wall_ms, self.steady_ms = NOW_MS, 5_000

    def now_ms(self):
        return self.wall_ms

    def monotonic_ms(self):
        return self.steady_ms

    def pass_time(self, ms):
        self.wall_ms += ms
        self.steady_ms += ms


def test_a_clock_that_leaps_ahead_for_a_while_deletes_nothing():
    clock = TwoClocks()
    trusted = TrustedTime(clock)
    assert trusted.now_ms() == NOW_MS
    clock.wall_ms += 365 * DAY_MS
    assert trusted.now_ms() == NOW_MS
    clock.pass_time(DOUBT_MS - 1)
    assert trusted.now_ms() == NOW_MS + DOUBT_MS - 1
    clock.wall_ms -= 365 * DAY_MS
    assert trusted.now_ms() == NOW_MS + DOUBT_MS - 1
    clock.wall_ms += 365 * DAY_MS
    clock.pass_time(10)
    assert trusted.now_ms() == NOW_MS + DOUBT_MS + 9, "the doubt starts anew"


def test_a_leap_that_lasts_is_believed_and_a_step_back_at_once():
    clock = TwoClocks()
    trusted = TrustedTime(clock)
    clock.wall_ms += LEAP_MS
    assert trusted.now_ms() == NOW_MS + LEAP_MS, "a small correction is none to doubt"
    clock.wall_ms += DAY_MS
    trusted.now_ms()
    clock.pass_time(DOUBT_MS)
    assert trusted.now_ms() == clock.wall_ms
    clock.wall_ms -= 10 * DAY_MS
    assert trusted.now_ms() == clock.wall_ms
