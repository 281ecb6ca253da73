import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ErrorCode, KafkaError
from headrace.log.origin import Origin
from headrace.log.recovery import Known
from headrace.log.settings import TopicSettings
from headrace.protocol.records import Record, batches, control_batch, write_batch
from headrace.testing.filesystems import MemoryFilesystem
from headrace.testing.logs import (
    DIRECTORY,
    NOW_MS,
    batch,
    open_log,
    read_all,
    small_segments,
    sync,
    values,
)

sizes = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 700)), min_size=1, max_size=40)
# An entry every 200 bytes or so, segments of a few batches: every boundary is near.
TIGHT = small_segments(4000, index_interval_bytes=200)


def fill(log, shapes):
    """Append a batch per (records, bytes each); returns what the log must hold."""
    held: list[bytes] = []
    for count, size in shapes:
        payloads = [b"%d:" % (len(held) + at) + b"x" * size for at in range(count)]
        appended = log.append(batch(*payloads))
        assert appended.base_offset == len(held)
        held += payloads
        assert appended.last_offset == len(held) - 1
    return list(enumerate(held))


def restarted(filesystem, log, *, clean, settings=TIGHT):
    log.close(clean=clean)
    known = Known(log.synced_offset, log.log_start_offset, clean)
    return open_log(filesystem, known, settings=settings)


@given(sizes)
def test_what_was_appended_is_read_back_in_order(shapes):
    log = open_log(MemoryFilesystem(), settings=TIGHT)
    held = fill(log, shapes)
    assert values(read_all(log)) == held
    assert values(read_all(log, max_bytes=1)) == held


@given(sizes, st.booleans())
def test_a_restart_changes_nothing(shapes, clean):
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, settings=TIGHT)
    held = fill(log, shapes)
    again = restarted(filesystem, log, clean=clean)
    assert values(read_all(again)) == held
    assert again.log_end_offset == log.log_end_offset
    assert [s.base_offset for s in again.segments] == [s.base_offset for s in log.segments]
    assert again.leader_epochs == log.leader_epochs
    assert again.producers == log.producers
    assert again.max_timestamp() == log.max_timestamp()
    assert again.append(batch(b"next")).base_offset == len(held)
    assert values(read_all(again))[-1] == (len(held), b"next")


@given(sizes, st.data())
def test_a_read_starts_at_the_batch_of_its_offset_and_keeps_every_limit(shapes, data):
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, settings=TIGHT)
    fill(log, shapes)
    if data.draw(st.booleans()):
        log = restarted(filesystem, log, clean=data.draw(st.booleans()))
    views = read_all(log)
    offset = data.draw(st.integers(0, log.log_end_offset))
    end_offset = data.draw(st.integers(0, log.log_end_offset))
    max_bytes = data.draw(st.integers(0, 5000))
    min_one = data.draw(st.booleans())
    content = log.read(offset, max_bytes=max_bytes, end_offset=end_offset, min_one=min_one).read()
    got = list(batches(content))
    allowed = [
        view for view in views if view.last_offset >= offset and view.last_offset < end_offset
    ]
    assert [bytes(view.raw()) for view in got] == [
        bytes(view.raw()) for view in allowed[: len(got)]
    ]
    if allowed and min_one:
        assert got
    if len(got) > 1 or not min_one:
        assert len(content) <= max_bytes
    if len(got) < len(allowed) and got:
        # Nothing was held back: the next batch does not fit, or lies in the next segment.
        following = allowed[len(got)]
        fits = len(content) + following.size <= max_bytes
        assert not fits or following.base_offset in [s.base_offset for s in log.segments]


def test_offsets_outside_the_log_are_refused():
    log = open_log(MemoryFilesystem())
    fill(log, [(3, 1)])
    assert log.read(3, max_bytes=10, end_offset=3, min_one=True).size == 0
    for offset in (-1, 4):
        with pytest.raises(KafkaError) as refused:
            log.read(offset, max_bytes=10, end_offset=3, min_one=True)
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(-5, 55), st.booleans())
def test_times_lead_to_the_first_record_at_or_after_them(times, wanted, restart):
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, settings=TIGHT)
    for time in times:
        log.append(batch(b"x" * 100, timestamp=NOW_MS + time))
    if restart:
        log = restarted(filesystem, log, clean=True)
    expected = next(((at, time) for at, time in enumerate(times) if time >= wanted), None)
    found = log.offset_for_time(NOW_MS + wanted)
    assert (found and (found.offset, found.timestamp - NOW_MS)) == expected
    latest = log.max_timestamp()
    assert latest is not None
    assert (latest.offset, latest.timestamp - NOW_MS) == (times.index(max(times)), max(times))


def test_a_time_inside_a_batch_leads_to_its_record():
    log = open_log(MemoryFilesystem())
    log.append(write_batch([Record(-1, NOW_MS + at, None, b"v") for at in range(5)]))
    assert log.offset_for_time(NOW_MS + 3) == (3, NOW_MS + 3, 0)


def test_a_segment_rolls_before_it_outgrows_its_size():
    log = open_log(MemoryFilesystem(), settings=small_segments(1000))
    fill(log, [(1, 200)] * 20)
    assert len(log.segments) > 1
    assert all(segment.size <= 1000 for segment in log.segments)
    with pytest.raises(KafkaError) as refused:
        log.append(batch(b"x" * 2000))
    assert refused.value.code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 20


def test_a_segment_rolls_when_records_are_older_than_segment_ms():
    log = open_log(MemoryFilesystem(), settings=TopicSettings(segment_ms=1000))
    log.append(batch(b"a", timestamp=NOW_MS - 5000))
    log.append(batch(b"b", timestamp=NOW_MS - 4000))
    assert len(log.segments) == 1
    log.append(batch(b"c", timestamp=NOW_MS - 3999))
    assert [s.base_offset for s in log.segments] == [0, 2]
    assert not log.roll_if_due(NOW_MS - 3000)
    assert log.roll_if_due(NOW_MS)
    assert not log.roll_if_due(NOW_MS)
    assert [s.base_offset for s in log.segments] == [0, 2, 3]


def test_jitter_makes_segments_roll_early_and_not_all_at_once():
    settings = TopicSettings(segment_ms=1000, segment_jitter_ms=500)
    ages = set()
    for partition in range(20):
        log = open_log(MemoryFilesystem(), settings=settings, directory=f"/data/orders-{partition}")
        log.append(batch(b"a", timestamp=NOW_MS - 5000))
        age = next(age for age in range(2000) if log.roll_if_due(NOW_MS - 5000 + age))
        assert 500 < age <= 1001
        ages.add(age)
    assert len(ages) > 10


def test_a_disk_that_cannot_be_read_is_a_storage_error():
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    fill(log, [(1, 10)])
    log.close()
    filesystem.remove(log.segments[0].path)
    for read in (
        lambda: log.read(0, max_bytes=10, end_offset=1, min_one=True),
        lambda: log.offset_for_time(NOW_MS),
    ):
        with pytest.raises(KafkaError) as refused:
            read()
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_segment_rolls_when_its_index_is_full():
    settings = TopicSettings(index_interval_bytes=0, segment_index_bytes=60)
    log = open_log(MemoryFilesystem(), settings=settings)
    fill(log, [(1, 10)] * 20)
    assert len(log.segments) > 2
    assert all(len(s.indexes.by_offset) <= 7 for s in log.segments)


def test_a_segment_rolls_before_offsets_outgrow_its_index():
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    fill(log, [(1, 10)])
    log.log_end_offset = log.segments[-1].next_offset = 0x7FFFFFFF
    log.append(batch(b"fits"))
    log.append(batch(b"does not"))
    assert [s.base_offset for s in log.segments] == [0, 0x80000000]


def test_rolling_leaves_a_snapshot_and_old_ones_go():
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, settings=small_segments(1000))
    for at in range(30):
        log.append(batch(b"x" * 200, producer_id=5, producer_epoch=0, base_sequence=at))
    snapshots = [n for n in filesystem.listdir(DIRECTORY) if n.endswith(".snapshot")]
    assert 1 <= len(snapshots) <= 3
    again = restarted(filesystem, log, clean=False, settings=small_segments(1000))
    duplicate = again.append(batch(b"x" * 200, producer_id=5, producer_epoch=0, base_sequence=29))
    assert (duplicate.base_offset, duplicate.duplicate) == (29, True)


@pytest.mark.parametrize("clean", [True, False])
def test_an_open_transaction_and_the_aborted_ones_survive_a_restart(clean):
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, settings=small_segments(1000))

    def send(producer_id, sequence):
        log.append(
            batch(
                b"x" * 150,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=True,
            )
        )

    for sequence in range(4):
        send(1, sequence)
    log.append(
        control_batch(1, 0, commit=False, coordinator_epoch=0, timestamp=NOW_MS),
        origin=Origin.COORDINATOR,
    )
    sync(log)
    for sequence in range(4):
        send(2, sequence)
    log.append(
        control_batch(2, 0, commit=False, coordinator_epoch=0, timestamp=NOW_MS),
        origin=Origin.COORDINATOR,
    )
    send(3, 0)
    aborted = log.aborted(0, log.log_end_offset)
    assert [(a.producer_id, a.first_offset, a.last_offset) for a in aborted] == [
        (1, 0, 4),
        (2, 5, 9),
    ]
    again = restarted(filesystem, log, clean=clean, settings=small_segments(1000))
    assert again.aborted(0, again.log_end_offset) == aborted
    assert again.aborted(5, again.log_end_offset) == aborted[1:]
    assert again.aborted(0, 5) == aborted[:1]
    assert again.producers.first_unstable_offset == 10
    assert again.producers.snapshot() == log.producers.snapshot()


def test_leader_epochs_are_kept_and_answered():
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    log.append(batch(b"a", b"b"), leader_epoch=2)
    log.append(batch(b"c"), leader_epoch=5)
    for opened in (log, restarted(filesystem, log, clean=True)):
        assert opened.end_offset_for_epoch(2) == (2, 2)
        assert opened.end_offset_for_epoch(3) == (2, 2)
        assert opened.end_offset_for_epoch(5) == (5, 3)
        assert opened.end_offset_for_epoch(6) == (-1, -1)


def test_deleted_records_are_out_of_range_and_their_segments_go_at_the_checkpoint():
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, settings=small_segments(1000))
    held = fill(log, [(1, 200)] * 20)
    bases = [s.base_offset for s in log.segments]
    middle = bases[2] + 1
    assert log.delete_records(middle) == middle
    assert log.delete_records(3) == middle
    assert values(read_all(log)) == held[middle:]
    with pytest.raises(KafkaError) as refused:
        log.read(middle - 1, max_bytes=10, end_offset=20, min_one=True)
    assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    with pytest.raises(KafkaError) as refused:
        log.delete_records(21)
    assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    slice_being_sent = log.segments[0].opened()
    moved = log.remove_segments_below(log.log_start_offset)
    assert sum(path.endswith(".log.deleted") for path in moved) == 2
    assert all(filesystem.exists(path) for path in moved)
    assert slice_being_sent.read_at(0, 8) == bytes(8)
    names = {name for name in filesystem.listdir(DIRECTORY) if name.endswith(".log")}
    assert names == {f"{base:020d}.log" for base in bases[2:]}
    again = restarted(filesystem, log, clean=False, settings=small_segments(1000))
    assert again.log_start_offset == middle
    assert values(read_all(again)) == held[middle:]


@given(sizes, st.data())
def test_truncation_leaves_the_log_as_if_the_rest_had_never_been(shapes, data):
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, settings=TIGHT)
    held = fill(log, shapes)
    cut = data.draw(st.integers(0, len(held)))
    views = read_all(log)
    log.truncate(cut)
    kept = max((v.next_offset for v in views if v.next_offset <= cut), default=0)
    assert log.log_end_offset == kept
    assert values(read_all(log)) == held[:kept]
    log.append(batch(b"next"))
    again = restarted(filesystem, log, clean=data.draw(st.booleans()))
    assert values(read_all(again)) == [*held[:kept], (kept, b"next")]


def test_a_full_disk_refuses_writes_serves_reads_and_heals_when_space_returns():
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, settings=small_segments(1000))
    held = fill(log, [(1, 100)] * 10)
    for room in range(0, 400, 7):
        filesystem.capacity_bytes = None
        used = sum(filesystem.size(f"{DIRECTORY}/{n}") for n in filesystem.listdir(DIRECTORY))
        filesystem.capacity_bytes = used + room
        end, size = log.log_end_offset, log.size_bytes
        with pytest.raises(KafkaError) as refused:
            log.append(batch(b"y" * 500, producer_id=9, producer_epoch=0, base_sequence=0))
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (log.log_end_offset, log.size_bytes) == (end, size)
        assert values(read_all(log)) == held
    filesystem.capacity_bytes = None
    log.append(batch(b"y" * 500, producer_id=9, producer_epoch=0, base_sequence=0))
    held.append((10, b"y" * 500))
    assert values(read_all(log)) == held
    again = restarted(filesystem, log, clean=False, settings=small_segments(1000))
    assert values(read_all(again)) == held


def test_half_a_write_that_cannot_be_undone_is_undone_before_the_next():
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    fill(log, [(1, 100)])
    filesystem.capacity_bytes = log.size_bytes + 300
    filesystem.failing = {"truncate": OSError(errno.EIO, "Input/output error")}
    with pytest.raises(KafkaError):
        log.append(batch(b"z" * 500))
    assert filesystem.size(log.segments[0].path) > log.size_bytes
    filesystem.failing = {}
    log.append(batch(b"s"))
    assert filesystem.size(log.segments[0].path) == log.size_bytes
    assert values(read_all(log))[-1] == (1, b"s")


def test_nothing_counts_as_synced_before_its_ticket_is_settled():
    log = open_log(MemoryFilesystem())
    log.append(batch(b"a"))
    ticket = log.dirty()
    assert ticket is not None
    assert log.synced_offset == 0
    log.append(batch(b"b"))
    ticket.sync()
    log.synced(ticket)
    assert (log.synced_offset, log.log_end_offset) == (1, 2)
    sync(log)
    assert log.synced_offset == 2
    assert log.dirty() is None


def test_reading_never_changes_a_byte_on_disk():
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, settings=TIGHT)
    fill(log, [(2, 100)] * 50)
    log = restarted(filesystem, log, clean=True)
    calls = filesystem.calls
    read_all(log)
    log.offset_for_time(NOW_MS)
    assert filesystem.calls == calls
