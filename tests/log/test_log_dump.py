import pytest

from headrace.log.dump import DumpedBatch, Problem, dump
from headrace.testing.filesystems import MemoryFilesystem
from headrace.testing.logs import DIRECTORY, NOW_MS, batch, open_log, small_segments, values


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
