import logging
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ErrorCode, KafkaError
from headrace.log.origin import Origin
from headrace.log.recovery import Known
from headrace.protocol.records import batches, control_batch
from headrace.testing.filesystems import MemoryFile, MemoryFilesystem, everything, nothing
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

SETTINGS = small_segments(1500, index_interval_bytes=200)
LOGGER = "headrace.log"


def written(count=24, *, synced=True, settings=SETTINGS):
    """A log of a few segments, two records a batch, and what it holds."""
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, settings=settings)
    for at in range(count):
        log.append(
            batch(
                b"first %03d" % at,
                b"second %03d" % at + b"." * (at * 7 % 60),
                producer_id=7,
                producer_epoch=0,
                base_sequence=2 * at,
            )
        )
    if synced:
        sync(log)
    return filesystem, log, values(read_all(log))


def served(log):
    """What a consumer gets that goes past whatever is refused, and the offsets refused."""
    got, refused = [], []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            content = log.read(
                offset, max_bytes=700, end_offset=log.log_end_offset, min_one=True
            ).read()
        except KafkaError as error:
            if error.code != ErrorCode.CORRUPT_MESSAGE or ".log is damaged at byte" not in str(
                error
            ):
                raise
            refused.append(offset)
            offset += 1
            continue
        assert content, f"nothing at {offset}, and nothing said"
        views = list(batches(content))
        assert views[0].base_offset <= offset
        got += [pair for pair in values(views) if pair[0] >= offset]
        offset = views[-1].next_offset
    return got, refused


def damaged(filesystem, path, change):
    copy = filesystem.survivors(everything)
    file = copy.open(path)
    content = bytearray(file.read_at(0, file.size()))
    change(content)
    file.truncate(0)
    file.write_at(0, bytes(content))
    return copy


def test_a_tail_torn_at_any_byte_is_cut_at_the_last_whole_batch():
    filesystem, log, held = written(synced=False)
    last = log.segments[-1]
    tail = read_all(log)[-1]
    for left in range(tail.size):
        torn = damaged(
            filesystem,
            last.path,
            lambda content, cut=tail.size - left: content.__delitem__(
                slice(len(content) - cut, None)
            ),
        )
        again = open_log(torn, settings=SETTINGS)
        assert again.log_end_offset == tail.base_offset
        assert served(again) == (held[:-2], [])
        assert again.append(batch(b"new")).base_offset == tail.base_offset
        assert values(read_all(again))[-1] == (tail.base_offset, b"new")


@given(st.binary(min_size=1, max_size=300))
def test_garbage_after_the_last_batch_is_cut(garbage):
    filesystem, log, held = written(8, synced=False)
    torn = damaged(filesystem, log.segments[-1].path, lambda content: content.extend(garbage))
    again = open_log(torn, settings=SETTINGS)
    assert again.log_end_offset == log.log_end_offset
    assert served(again) == (held, [])
    assert torn.size(log.segments[-1].path) == log.segments[-1].size


@pytest.mark.parametrize("known", [Known(28, 0, True), Known(28, 0, False), Known(0, 0, False)])
def test_a_flipped_bit_anywhere_is_never_served_and_never_hides_the_rest(known, caplog):
    caplog.set_level(logging.ERROR, LOGGER)
    tiny = small_segments(700, index_interval_bytes=200)
    filesystem, log, held = written(14, settings=tiny)
    log.close()
    random = Random(11)
    flips = 0
    last = read_all(log)[-1]
    for segment in log.segments:
        for position in range(segment.size):
            at = position - segment.size + last.size
            if segment is log.segments[-1] and 12 <= at < 16:
                # The last batch's epoch: it has no neighbour and no checksum to betray it.
                continue
            flips += 1
            caplog.clear()
            bit = 1 << random.randrange(8)

            def flip(content, position=position, bit=bit):
                content[position] ^= bit

            again = open_log(damaged(filesystem, segment.path, flip), known, settings=tiny)
            got, refused = served(again)
            assert got == [pair for pair in held if pair[0] not in refused][: len(got)]
            if again.log_end_offset == len(held):
                # In the middle, or below the recovery point: that batch alone is fenced.
                assert len(refused) == 2
                assert len(got) == len(held) - 2
                assert "damage fenced" in caplog.text
            else:
                # In the last batch, not known to be synced: the tail is cut.
                assert known == Known(0, 0, False)
                assert not refused
                assert again.log_end_offset == len(held) - 2
    assert flips > 1500


def test_a_flipped_bit_in_an_index_costs_time_and_nothing_else():
    filesystem, log, held = written()
    log.close()
    random = Random(5)
    for segment in log.segments:
        for suffix in (".index", ".timeindex"):
            path = segment.path.removesuffix(".log") + suffix
            for position in range(filesystem.size(path)):
                bit = 1 << random.randrange(8)

                def flip(content, position=position, bit=bit):
                    content[position] ^= bit

                hurt = damaged(filesystem, path, flip)
                for clean in (True, False):
                    copy = hurt.survivors(everything)
                    again = open_log(copy, Known(48, 0, clean), settings=SETTINGS)
                    assert served(again) == (held, [])
                    assert again.append(batch(b"new")).base_offset == 48


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", "checkpoint"])
@pytest.mark.parametrize("how", ["removed", "emptied", "torn", "garbage"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_lost_file_beside_the_data_is_made_again(suffix, how, clean):
    filesystem, log, held = written()
    log.close()
    copy = filesystem.survivors(everything)
    for name in copy.listdir(DIRECTORY):
        if not name.endswith(suffix):
            continue
        path = f"{DIRECTORY}/{name}"
        if how == "removed":
            copy.remove(path)
            continue
        size = copy.size(path)
        copy.open(path).truncate({"emptied": 0, "torn": size // 2, "garbage": size}[how])
        if how == "garbage":
            copy.open(path).write_at(0, b"\xa5" * size)
    again = open_log(copy, Known(48, 0, clean), settings=SETTINGS)
    assert served(again) == (held, [])
    assert again.producers.snapshot() == log.producers.snapshot()
    assert again.leader_epochs == log.leader_epochs
    assert again.append(batch(b"new")).base_offset == 48
    assert again.max_timestamp() == log.max_timestamp()


def test_zeros_a_power_cut_left_before_later_pages_end_the_log():
    filesystem, log, held = written(21, synced=False)
    last = log.segments[-1]
    views = [view for view in read_all(log) if view.base_offset >= last.base_offset]
    assert len(views) > 3

    def lose_second(content):
        start = views[0].size
        content[start : start + views[1].size] = bytes(views[1].size)

    again = open_log(damaged(filesystem, last.path, lose_second), settings=SETTINGS)
    assert again.log_end_offset == views[1].base_offset
    assert served(again) == (held[: views[1].base_offset], [])


def test_segments_after_one_whose_end_never_reached_the_disk_are_dropped():
    filesystem, log, held = written(synced=False)
    first, second = log.segments[:2]
    view = next(v for v in reversed(read_all(log)) if v.base_offset < second.base_offset)
    for cut in (1, view.size // 2, view.size):
        torn = damaged(
            filesystem,
            first.path,
            lambda content, cut=cut: content.__delitem__(slice(len(content) - cut, None)),
        )
        again = open_log(torn, settings=SETTINGS)
        assert served(again) == (held[: view.base_offset], [])
        assert not torn.exists(second.path)


def test_what_was_synced_is_never_dropped_even_if_its_segment_is_short():
    filesystem, log, held = written()
    first, second = log.segments[:2]
    torn = damaged(filesystem, first.path, lambda content: content.__delitem__(slice(-1, None)))
    again = open_log(torn, Known(48, 0, False), settings=SETTINGS)
    got, refused = served(again)
    assert refused == [second.base_offset - 2, second.base_offset - 1]
    assert len(got) == len(held) - 2


def test_a_clean_stop_is_believed_and_little_is_read(monkeypatch):
    filesystem, log, _held = written(200)
    log.close()
    read = []
    original = MemoryFile.read_at

    def noted(self, position, size):
        read.append(self.path)
        return original(self, position, size)

    monkeypatch.setattr(MemoryFile, "read_at", noted)
    again = open_log(filesystem, Known(400, 0, True), settings=SETTINGS)
    assert again.log_end_offset == 400
    sealed = {segment.path for segment in again.segments[:-1]}
    assert not sealed & set(read)
    assert len(read) < 12


def test_after_a_kill_only_the_log_from_the_recovery_point_is_read(monkeypatch):
    filesystem = MemoryFilesystem()
    settings = small_segments(1 << 20, index_interval_bytes=200)
    log = open_log(filesystem, settings=settings)
    for _ in range(200):
        log.append(batch(b"x" * 1000))
    sync(log)
    log.checkpoint()
    log.segments[-1].indexes.by_offset.flush()
    for _ in range(3):
        log.append(batch(b"y"))
    read = []
    original = MemoryFile.read_at

    def counted(self, position, size):
        content = original(self, position, size)
        if self.path.endswith(".log"):
            read.append(len(content))
        return content

    monkeypatch.setattr(MemoryFile, "read_at", counted)
    again = open_log(filesystem, Known(200, 0, False), settings=settings)
    assert again.log_end_offset == 203
    assert sum(read) < 20_000 < log.size_bytes


def test_what_is_cut_or_dropped_stays_so_through_the_next_power_cut():
    filesystem, log, _held = written(synced=False)
    first, second = log.segments[:2]
    torn = damaged(filesystem, first.path, lambda content: content.__delitem__(slice(-1, None)))
    torn = torn.survivors(everything)
    again = open_log(torn, settings=SETTINGS)
    left = torn.survivors(nothing)
    assert left.size(first.path) == again.size_bytes
    assert not left.exists(second.path)
    assert not [name for name in left.listdir(DIRECTORY) if name.endswith(".snapshot")]


def test_what_outlived_a_kill_is_synced_with_the_first_ticket_after():
    filesystem, log, held = written(synced=False)
    assert len(log.segments) == 3
    again = open_log(filesystem, settings=SETTINGS)
    assert again.synced_offset == 0
    sync(again)
    assert again.synced_offset == 48
    assert served(open_log(filesystem.survivors(nothing), settings=SETTINGS)) == (held, [])


def test_a_new_segment_is_known_to_its_directory_once_synced():
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, settings=small_segments(200))
    log.append(batch(b"a" * 80))
    # A snapshot at the very offset of the roll: the roll itself writes none.
    log._write_snapshot()
    sync(log)
    log.append(batch(b"b" * 80))
    assert len(log.segments) == 2
    sync(log)
    again = open_log(filesystem.survivors(nothing), Known(1, 0, False))
    assert [offset for offset, _ in served(again)[0]] == [0, 1]


def test_a_directory_kafka_left_without_a_clean_stop_is_opened():
    filesystem, log, held = written()
    log.close()
    last = log.segments[-1].path.removesuffix(".log")
    for suffix, size in ((".index", 10 << 10), (".timeindex", 12 << 10)):
        file = filesystem.open(last + suffix)
        file.write_at(file.size(), bytes(size - file.size()))
    filesystem.open(f"{DIRECTORY}/00000000000000000099.index", create=True)
    filesystem.open(f"{DIRECTORY}/00000000000000000000.log.deleted", create=True)
    again = open_log(filesystem, Known(0, 0, False), settings=SETTINGS)
    assert served(again) == (held, [])
    again.append(batch(b"new"))
    again.close()
    assert filesystem.size(last + ".index") < 1000
    names = filesystem.listdir(DIRECTORY)
    assert not [name for name in names if "99" in name or name.endswith(".deleted")]


def test_a_recovery_point_past_the_end_loses_nothing_that_is_there():
    filesystem, log, held = written()
    log.close()
    for clean in (True, False):
        again = open_log(filesystem.survivors(everything), Known(1000, 0, clean), settings=SETTINGS)
        assert values(read_all(again)) == held


def test_a_log_start_past_the_end_is_not_believed():
    filesystem, log, held = written()
    log.close()
    again = open_log(filesystem, Known(48, 49, True), settings=SETTINGS)
    assert again.log_start_offset == 0
    assert served(again) == (held, [])


@pytest.mark.parametrize("clean", [True, False])
def test_a_flipped_bit_in_the_list_of_aborted_transactions_shows_none_of_their_records(clean):
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, settings=SETTINGS)
    for producer_id in range(1, 7):
        header = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
        log.append(batch(b"x" * 200, transactional=True, **header))
        log.append(
            control_batch(producer_id, 0, commit=False, coordinator_epoch=0, timestamp=NOW_MS),
            origin=Origin.COORDINATOR,
        )
    log.close()
    expected = log.aborted(0, 12)
    assert len(expected) == 6
    paths = [f"{DIRECTORY}/{n}" for n in filesystem.listdir(DIRECTORY) if n.endswith(".txnindex")]
    assert len(paths) > 1
    for path in paths:
        for position in range(filesystem.size(path)):
            if position % 34 >= 26:
                # The last stable offset only says how far to look on.
                continue

            def flip(content, position=position):
                content[position] ^= 1 << position % 8

            again = open_log(
                damaged(filesystem, path, flip), Known(12, 0, clean), settings=SETTINGS
            )
            assert [entry[:3] for entry in again.aborted(0, 12)] == [e[:3] for e in expected]


def test_a_flipped_header_bit_is_found_whichever_offset_is_asked_for_first():
    filesystem, log, held = written()
    log.close()
    first = log.segments[0]
    views = [view for view in read_all(log) if view.next_offset <= first.next_offset]
    # Positions from the base offset to the last offset delta, which every look-up reads.
    header = [*range(12), *range(16, 27)]
    random = Random(3)
    start = 0
    for view in views:
        for at, bit in random.sample([(at, 1 << b) for at in header for b in range(8)], 25):

            def flip(content, position=start + at, bit=bit):
                content[position] ^= bit

            again = open_log(
                damaged(filesystem, first.path, flip), Known(48, 0, True), settings=SETTINGS
            )
            lost = range(view.base_offset, view.next_offset)
            for offset in random.sample(range(48), 48):
                place = f"flip {bit} of byte {at} in {view}, asked for {offset}"
                found = asked(again, offset, random.choice([1, 300, 5000]))
                assert found == (None if offset in lost else held[offset]), place
        start += view.size


def test_a_batch_that_denies_its_last_record_is_not_taken_for_a_gap():
    filesystem, log, held = written()
    log.close()
    for segment in log.segments[:-1]:
        start = 0
        for view in [v for v in read_all(log) if v.last_offset in range(*_span(segment))]:

            def deny(content, position=start + 26):
                content[position] ^= 1

            again = open_log(
                damaged(filesystem, segment.path, deny), Known(48, 0, True), settings=SETTINGS
            )
            assert asked(again, view.last_offset, 1) is None
            assert asked(again, view.next_offset, 1) == held[view.next_offset]
            start += view.size


def _span(segment):
    return segment.base_offset, segment.next_offset


def asked(log, offset, max_bytes):
    """The record at an offset as a consumer that asks for it gets it; None if it is refused."""
    try:
        content = log.read(
            offset, max_bytes=max_bytes, end_offset=log.log_end_offset, min_one=True
        ).read()
    except KafkaError as error:
        if error.code != ErrorCode.CORRUPT_MESSAGE:
            raise
        return None
    return next((pair for pair in values(list(batches(content))) if pair[0] >= offset), "nothing")
