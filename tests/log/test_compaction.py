"""Compaction of a log, from the plan to the files it leaves."""

import uuid

import pytest

from headrace.errors import CorruptLog
from headrace.log.cleaning import Cleaning
from headrace.log.compaction_plan import Limits, Plan, plan
from headrace.log.compaction_rewrite import Cleaned
from headrace.log.origin import Origin
from headrace.log.store import Store
from headrace.protocol.records import control_batch
from headrace.testing.clock import ManualClock
from headrace.testing.compaction import LIMITS, compact, keyed, latest, records_of, settle
from headrace.testing.filesystems import MemoryFilesystem
from headrace.testing.logs import NOW_MS, read_all, small_segments

DAY_MS = 86_400_000
TOPIC = "accounts"
COMPACTED = small_segments(
    10_000, cleanup_policy=("compact",), index_interval_bytes=100, file_delete_delay_ms=0
)


def new_log(settings=COMPACTED, filesystem=None, clock=None):
    store = Store(filesystem or MemoryFilesystem(), "/data", clock or ManualClock(NOW_MS))
    return store, store.create(TOPIC, 0, uuid.UUID(int=1), settings)


def reopened(store, settings=COMPACTED, *, clean=True):
    store.close(clean=clean)
    store = Store(store.filesystem, "/data", ManualClock(NOW_MS))
    return store, store.open(TOPIC, 0, None, settings)


def append(log, *pairs, **header):
    return log.append(keyed(*pairs, **header)).base_offset


def transactional(log, producer_id, *pairs, sequence=0, epoch=0):
    header = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    return append(log, *pairs, transactional=True, **header)


def end(log, producer_id, *, commit, epoch=0, timestamp=NOW_MS):
    marker = control_batch(
        producer_id, epoch, commit=commit, coordinator_epoch=0, timestamp=timestamp
    )
    return log.append(marker, origin=Origin.COORDINATOR).base_offset


def shape(log):
    """Base offset, last offset and number of records of every batch."""
    return [(view.base_offset, view.last_offset, view.record_count) for view in read_all(log)]


def test_only_the_last_record_of_each_key_is_left_at_its_offset():
    store, log = new_log()
    for text in ("A1", "B1", "A2", "C1", "B2", "A3"):
        append(log, (text[:1].encode(), text.encode()))
    settle(store, log)
    progress = compact(store, log)
    assert progress is not None
    assert progress.end_offset == 6
    assert records_of(log) == [(3, b"C", b"C1"), (4, b"B", b"B2"), (5, b"A", b"A3")]
    assert (log.log_start_offset, log.log_end_offset) == (0, 6)
    _store, again = reopened(store)
    assert records_of(again) == [(3, b"C", b"C1"), (4, b"B", b"B2"), (5, b"A", b"A3")]


def test_a_reader_who_asks_for_a_dropped_offset_gets_the_next_one():
    store, log = new_log()
    for number in range(50):
        append(log, (b"same", b"%d" % number))
    settle(store, log)
    compact(store, log)
    append(log, (b"other", b"after"))
    for offset in range(52):
        found = log.read(offset, max_bytes=1000, end_offset=51, min_one=True).read()
        assert found if offset < 51 else not found


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_is_written_anew_in_its_own_codec_only_where_records_went(codec):
    store, log = new_log()
    append(log, (b"a", b"1"), (b"b", b"1"), compression=codec)
    whole = append(log, (b"c", b"1"), (b"d", b"1"), compression=codec)
    append(log, (b"a", b"2"))
    before = {view.base_offset: bytes(view.raw()) for view in read_all(log)}
    settle(store, log)
    compact(store, log)
    after = {view.base_offset: view for view in read_all(log)}
    assert bytes(after[whole].raw()) == before[whole]
    assert after[0].compression == codec
    assert [record.key for record in after[0].records()] == [b"b"]
    assert after[0].last_offset == 1


def test_segments_become_one_within_the_limits_of_a_segment():
    store, log = new_log(small_segments(600, cleanup_policy=("compact",)))
    for number in range(60):
        append(log, (b"%d" % (number % 5), b"value %d" % number))
    settle(store, log)
    # Grouped by what they hold before it: full ones are emptied, the next cleaning merges them.
    compact(store, log)
    append(log, (b"5", b"last"))
    settle(store, log)
    compact(store, log)
    assert len(log.segments) <= 4
    assert all(segment.size <= 600 for segment in log.segments)
    assert [key for _offset, key, _value in records_of(log)] == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_segment_is_not_merged_past_the_limits_of_its_indexes():
    settings = small_segments(
        2_000, cleanup_policy=("compact",), index_interval_bytes=1, segment_index_bytes=48
    )
    store, log = new_log(settings)
    for number in range(60):
        append(log, (b"%d" % number, b"value"))
    settle(store, log)
    compact(store, log)
    assert len(log.segments) > 3
    assert all(len(segment.indexes.by_offset) <= 6 for segment in log.segments)


def test_a_tombstone_removes_its_key_and_goes_itself_after_delete_retention():
    store, log = new_log(small_segments(10_000, cleanup_policy=("compact",)))
    append(log, (b"a", b"1"), (b"b", b"1"))
    append(log, (b"a", None), (b"c", b"1"))
    settle(store, log)
    compact(store, log)
    assert records_of(log) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    horizon = read_all(log)[1]
    assert horizon.has_delete_horizon
    assert horizon.base_timestamp == NOW_MS + DAY_MS
    assert [record.timestamp for record in horizon.records()] == [NOW_MS, NOW_MS]
    append(log, (b"d", b"1"))
    settle(store, log)
    compact(store, log, now_ms=NOW_MS + DAY_MS - 1)
    assert (2, b"a", None) in records_of(log), "the horizon must not move or pass early"
    append(log, (b"d", b"2"))
    settle(store, log)
    compact(store, log, now_ms=NOW_MS + DAY_MS)
    assert records_of(log) == [(1, b"b", b"1"), (3, b"c", b"1"), (5, b"d", b"2")]


def test_records_without_a_key_go():
    store, log = new_log()
    log.append(keyed((b"a", b"1")))
    log.append(keyed((None, b"lost"), (b"b", b"1")), origin=Origin.COORDINATOR)
    settle(store, log)
    compact(store, log)
    assert [key for _offset, key, _value in records_of(log)] == [b"a", b"b"]


def test_the_last_batch_of_a_cleaning_stays_without_its_records_so_that_the_end_is_known():
    store, log = new_log()
    append(log, (b"a", b"1"))
    log.append(keyed((None, b"lost"), (None, b"lost")), origin=Origin.COORDINATOR)
    settle(store, log)
    compact(store, log)
    assert shape(log) == [(0, 0, 1), (1, 2, 0)]


def test_an_aborted_record_replaces_nothing_and_goes():
    store, log = new_log()
    append(log, (b"a", b"kept"))
    transactional(log, 1, (b"a", b"aborted"), (b"b", b"aborted"))
    marker = end(log, 1, commit=False)
    # Another epoch: nothing rests on the batch of the aborted one any more.
    transactional(log, 1, (b"z", b"committed"), epoch=1)
    end(log, 1, commit=True, epoch=1)
    settle(store, log)
    compact(store, log)
    assert records_of(log) == [(0, b"a", b"kept"), (4, b"z", b"committed")]
    assert (marker, marker, 1) in shape(log)
    # As in Kafka it takes a second cleaning to find that nothing of the transaction is left.
    assert [entry.last_offset for entry in log.aborted(0, 10)] == [marker]
    append(log, (b"b", b"later"))
    settle(store, log)
    compact(store, log)
    assert log.aborted(0, 10) == []
    assert (marker, marker, 1) in shape(log)


def test_a_transaction_aborted_before_the_dirty_part_says_nothing_of_the_next_one():
    store, log = new_log()
    transactional(log, 1, (b"a", b"aborted"))
    end(log, 1, commit=False)
    settle(store, log)
    compact(store, log)
    append(log, (b"a", b"1"))
    transactional(log, 1, (b"a", b"2"), sequence=1)
    end(log, 1, commit=True)
    settle(store, log)
    compact(store, log)
    assert records_of(log) == [(3, b"a", b"2")]


def test_the_marker_of_a_transaction_goes_a_while_after_its_records():
    store, log = new_log()
    transactional(log, 1, (b"a", b"1"))
    first = end(log, 1, commit=True)
    transactional(log, 1, (b"b", b"1"), epoch=1)
    second = end(log, 1, commit=True, epoch=1)
    append(log, (b"a", b"2"))
    now_ms = NOW_MS

    def cleaned():
        settle(store, log)
        compact(store, log, now_ms=now_ms)
        return {view.base_offset: view for view in read_all(log)}

    left = cleaned()
    assert 0 not in left
    # The first cleaning saw the records go; the second finds the marker alone and sets a horizon.
    append(log, (b"x", b"1"))
    left = cleaned()
    assert left[first].has_delete_horizon
    assert not left[second].has_delete_horizon
    now_ms += DAY_MS
    append(log, (b"x", b"2"))
    left = cleaned()
    assert first not in left
    assert left[second].record_count == 1
    assert log.producers.find(1).epoch == 1


def test_the_last_sequence_of_a_producer_survives_the_loss_of_all_its_records():
    store, log = new_log()
    header = {"producer_id": 5, "producer_epoch": 2}
    append(log, (b"a", b"1"), (b"a", b"2"), base_sequence=0, **header)
    append(log, (b"a", b"3"), base_sequence=2, **header)
    append(log, (b"a", b"4"))
    append(log, (b"b", b"1"))
    settle(store, log)
    compact(store, log)
    assert shape(log) == [(2, 2, 0), (3, 3, 1), (4, 4, 1)]
    for name in store.filesystem.listdir(log.directory):
        if name.endswith(".snapshot"):
            store.filesystem.remove(f"{log.directory}/{name}")
    _store, again = reopened(store, clean=False)
    assert again.producers.find(5).last_sequence == 2
    retried = again.append(keyed((b"a", b"3"), base_sequence=2, **header))
    assert retried.duplicate
    assert retried.base_offset == 2


def test_the_active_segment_and_open_transactions_are_left_alone():
    store, log = new_log(small_segments(300, cleanup_policy=("compact",)))
    for number in range(10):
        append(log, (b"a", b"%d" % number))
    transactional(log, 1, (b"a", b"open"))
    opened = log.log_end_offset - 1
    for number in range(10):
        append(log, (b"a", b"%d more" % number))
    held = records_of(log)
    settle(store, log)
    append(log, (b"a", b"active"))
    assert log.segments[-1].base_offset == log.log_end_offset - 1
    compact(store, log)
    left = records_of(log)
    assert [row for row in left if row[0] >= opened] == [
        *(row for row in held if row[0] >= opened),
        (21, b"a", b"active"),
    ]
    assert len([row for row in left if row[0] < opened]) < 10


def test_unsynced_segments_are_left_alone():
    store, log = new_log(small_segments(300, cleanup_policy=("compact",)))
    for number in range(20):
        append(log, (b"a", b"%d" % number))
    assert len(log.segments) > 2
    assert Cleaning(store).examine(log, log.synced_offset, NOW_MS).dirty_bytes == 0


def test_a_full_map_of_keys_ends_a_cleaning_and_the_next_one_goes_on():
    store, log = new_log()
    for number in range(100):
        append(log, (b"%d" % (number % 50), b"%d" % number))
    settle(store, log)
    expected = latest(records_of(log))
    tiny = Limits(256 * 8, 512, float("inf"))
    rounds = 0
    reached = 0
    while (progress := compact(store, log, limits=tiny)) is not None:
        assert progress.end_offset > reached, "each cleaning must get further"
        reached = progress.end_offset
        assert latest(records_of(log)) == expected
        rounds += 1
    assert rounds > 5
    assert len(records_of(log)) == 50


def test_a_key_of_a_megabyte_is_a_key_like_any_other():
    store, log = new_log(small_segments(64 << 20, cleanup_policy=("compact",)))
    long, other = b"k" * (1 << 20), b"k" * (1 << 20) + b"!"
    log.settings = small_segments(64 << 20, cleanup_policy=("compact",), max_message_bytes=4 << 20)
    for value in (b"1", b"2", b"3"):
        append(log, (long, value))
        append(log, (other, value))
    settle(store, log)
    compact(store, log)
    assert records_of(log) == [(4, long, b"3"), (5, other, b"3")]


def test_many_tombstones_leave_nothing_behind():
    store, log = new_log(
        small_segments(256 << 10, cleanup_policy=("compact",), delete_retention_ms=0)
    )
    for start in range(0, 20_000, 500):
        append(log, *((b"%d" % number, b"value") for number in range(start, start + 500)))
    for start in range(0, 20_000, 500):
        append(log, *((b"%d" % number, None) for number in range(start, start + 500)))
    for last in range(2):
        append(log, (b"last", b"%d" % last))
        settle(store, log)
        while compact(store, log, limits=Limits(16 << 20, 1 << 16, float("inf"))):
            pass
    assert records_of(log) == [(40_001, b"last", b"1")]
    assert log.size_bytes < 200


def test_min_compaction_lag_keeps_what_is_young():
    settings = small_segments(300, cleanup_policy=("compact",), min_compaction_lag_ms=1000)
    store, log = new_log(settings)
    for number in range(20):
        append(log, (b"a", b"%d" % number), timestamp=NOW_MS + number * 100)
    settle(store, log)
    held = records_of(log)
    compact(store, log, now_ms=NOW_MS + 2_000)
    left = records_of(log)
    young = [row for row in held if NOW_MS + row[0] * 100 > NOW_MS + 1_000]
    assert [row for row in left if row in young] == young
    assert len(left) < len(held)


def test_a_log_is_due_by_its_dirty_share_or_by_the_age_of_what_is_dirty():
    settings = small_segments(
        100_000,
        cleanup_policy=("compact",),
        min_cleanable_dirty_ratio=0.5,
        max_compaction_lag_ms=10_000,
    )
    clock = ManualClock(NOW_MS)
    store, log = new_log(settings, clock=clock)
    cleaning = Cleaning(store)

    def looked(now_ms=NOW_MS):
        return cleaning.dirtiest([log], lambda log: log.synced_offset, now_ms)

    assert looked() is None
    for number in range(100):
        append(log, (b"%d" % number, b"value"))
    settle(store, log)
    assert looked() is not None, "all of it is dirty"
    compact(store, log)
    assert looked() is None
    append(log, (b"0", b"again"))
    settle(store, log)
    assert looked() is None, "a hundredth of it is dirty"
    assert 0 < cleaning.max_dirty_ratio < 0.5
    assert looked(NOW_MS + 10_001).overdue_ms == 1
    cleaning.uncleanable.add(log.name)
    assert looked(NOW_MS + 10_001) is None


def test_a_compacted_log_rolls_before_its_records_are_overdue():
    settings = small_segments(
        100_000, cleanup_policy=("compact",), max_compaction_lag_ms=5_000, segment_ms=DAY_MS
    )
    _store, log = new_log(settings)
    append(log, (b"a", b"1"))
    assert not log.roll_if_due(NOW_MS + 5_000)
    assert log.roll_if_due(NOW_MS + 5_001)


def test_damage_stops_the_cleaning_and_changes_nothing():
    store, log = new_log()
    for number in range(10):
        append(log, (b"a", b"%d" % number))
    settle(store, log)
    file = log.segments[0].opened()
    file.write_at(300, bytes([file.read_at(300, 1)[0] ^ 1]))
    names = set(store.filesystem.listdir(log.directory))
    with pytest.raises(CorruptLog):
        compact(store, log)
    left = {name for name in store.filesystem.listdir(log.directory) if ".cleaned" not in name}
    assert left == names


def test_a_segment_deleted_meanwhile_is_not_brought_back():
    store, log = new_log(small_segments(300, cleanup_policy=("compact", "delete")))
    for number in range(20):
        append(log, (b"a", b"%d" % number))
    settle(store, log)
    cleaning = Cleaning(store)
    bases = tuple(segment.base_offset for segment in log.segments[:2])
    log.delete_records(log.segments[1].base_offset)
    store.checkpoint()
    held = records_of(log)
    assert not cleaning.exchange(log, Cleaned(bases, 0))
    assert records_of(log) == held


def test_the_cleaned_offset_is_kept_in_kafkas_file_and_forgotten_with_the_topic():
    store, log = new_log()
    for number in range(10):
        append(log, (b"a", b"%d" % number))
    settle(store, log)
    compact(store, log)
    written = store.filesystem.read("/data/cleaner-offset-checkpoint")
    assert written == b"0\n1\naccounts 0 10\n"
    store, log = reopened(store)
    assert Cleaning(store).cleaned_offset(log) == 10
    store.delete(log.name)
    new = store.create(TOPIC, 0, uuid.UUID(int=2), COMPACTED)
    assert Cleaning(store).cleaned_offset(new) is None


def test_a_plan_is_the_same_after_it_was_sent_as_text():
    store, log = new_log()
    transactional(log, 1, (b"a", b"1"))
    end(log, 1, commit=False)
    transactional(log, 2, (b"a", b"1"))
    end(log, 2, commit=True, epoch=1)
    settle(store, log)
    found = Cleaning(store).examine(log, log.synced_offset, NOW_MS)
    made = plan(found, now_ms=NOW_MS, limits=LIMITS)
    assert made.aborted
    assert made.last_records
    assert Plan.decode(made.encode()) == made


def test_a_compacted_log_whose_policy_changed_opens_after_a_kill():
    store, log = new_log()
    for number in range(20):
        append(log, (b"%d" % (number % 3), b"%d" % number))
    settle(store, log)
    compact(store, log)
    held = records_of(log)
    _store, again = reopened(store, small_segments(10_000), clean=False)
    assert records_of(again) == held
