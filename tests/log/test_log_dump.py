import pytest

from headrace.log.dump import DumpedBatch, Problem, dump
from headrace.protocol.records import HEADER_BYTES
from headrace.testing.filesystems import MemoryFilesystem
from headrace.testing.logs import DIRECTORY, NOW_MS, batch, open_log, small_segments, values

MAGIC_POSITION = 16


@pytest.fixture
def written():
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, settings=small_segments(1000, index_interval_bytes=100))
    for at in range(30):
        log.append(batch(b"%d" % at, timestamp=NOW_MS + at))
    log.close()
    assert len(log.segments) > 2
    return filesystem, log


def split(items):
    listed = list(items)
    return (
        [item for item in listed if isinstance(item, DumpedBatch)],
        [item for item in listed if isinstance(item, Problem)],
    )


def test_a_sound_log_is_dumped_whole_and_without_problems(written):
    filesystem, log = written
    for path in (DIRECTORY, "/data"):
        found, problems = split(dump(filesystem, path))
        assert values([item.batch for item in found]) == [(at, b"%d" % at) for at in range(30)]
        assert all(item.crc_valid for item in found)
        assert problems == []
    found, problems = split(dump(filesystem, log.segments[1].path))
    assert found[0].position == 0
    assert found[0].batch.base_offset == log.segments[1].base_offset
    assert problems == []


def flip(filesystem, path, position, bit=1):
    file = filesystem.open(path)
    file.write_at(position, bytes([file.read_at(position, 1)[0] ^ bit]))


def test_every_flipped_bit_in_a_segment_is_told_with_its_place(written):
    filesystem, log = written
    path = log.segments[1].path
    found, _ = split(dump(filesystem, path))
    # All but the epoch, which nothing in a segment can contradict.
    for position in [*range(12), *range(16, found[0].batch.size)]:
        flip(filesystem, path, position)
        _, problems = split(dump(filesystem, DIRECTORY))
        assert [p for p in problems if p.file == path], position
        flip(filesystem, path, position)


def test_one_flipped_bit_in_a_header_is_one_problem(written):
    filesystem, log = written
    path = log.segments[1].path
    found, _ = split(dump(filesystem, path))
    # Neither the first nor the last: what comes before and after is sound. Not the epoch, which
    # nothing in a segment can contradict.
    damaged, after = found[2:4]
    for at in [*range(12), *range(16, HEADER_BYTES)]:
        for bit in range(8):
            flip(filesystem, path, damaged.position + at, 1 << bit)
            _, problems = split(dump(filesystem, DIRECTORY))
            assert [p.file for p in problems] == [path], (at, bit)
            # A base offset that is too high shows at the next batch.
            places = (damaged.position, after.position) if at < 8 else (damaged.position,)
            assert problems[0].position in places, (at, bit)
            flip(filesystem, path, damaged.position + at, 1 << bit)
    assert split(dump(filesystem, DIRECTORY))[1] == []


def test_damage_in_two_batches_is_told_twice(written):
    filesystem, log = written
    path = log.segments[1].path
    found, _ = split(dump(filesystem, path))
    for one in found[2:4]:
        flip(filesystem, path, one.position + one.batch.size - 1)
    again, problems = split(dump(filesystem, DIRECTORY))
    assert [p.position for p in problems] == [one.position for one in found[2:4]]
    assert len(again) == 30
    flip(filesystem, path, found[3].position + MAGIC_POSITION)
    _, problems = split(dump(filesystem, DIRECTORY))
    assert [(p.file, p.position) for p in problems] == [
        (path, found[2].position),
        (path, found[3].position),
    ]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_every_flipped_bit_in_an_index_is_told(written, suffix):
    filesystem, log = written
    path = log.segments[0].path.removesuffix(".log") + suffix
    assert filesystem.size(path) > 40
    for position in range(filesystem.size(path)):
        flip(filesystem, path, position)
        _, problems = split(dump(filesystem, DIRECTORY))
        assert [p for p in problems if p.file == path], position
        flip(filesystem, path, position)


def test_reading_offline_changes_nothing(written):
    filesystem, _log = written
    calls = filesystem.calls
    list(dump(filesystem, "/data"))
    assert filesystem.calls == calls
