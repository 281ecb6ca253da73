from hypothesis import given
from hypothesis import strategies as st

from headrace.log.damage import lost_pages, next_batch
from headrace.log.intervals import MAX_RANGES, Intervals
from headrace.protocol.records import stamp
from headrace.testing.filesystems import MemoryFilesystem
from headrace.testing.logs import batch


def file_of(content):
    file = MemoryFilesystem().open("/f", create=True)
    file.write_at(0, bytes(content))
    return file


def stamped(offset, *values):
    content = batch(*values)
    stamp(content, 0, offset, 0)
    return content


@given(st.binary(max_size=200), st.integers(0, 3))
def test_the_next_intact_batch_is_found_behind_any_bytes(garbage, before):
    content = bytes([255]) + garbage + stamped(7, b"a", b"b")
    file = file_of(content)
    assert next_batch(file, 0, len(content), 7 - before) == len(garbage) + 1
    assert next_batch(file, 0, len(content), 8) == len(content)


def test_a_batch_at_the_seam_of_two_chunks_is_found():
    for shift in range(-70, 10, 7):
        content = bytes(b"\xff" * ((1 << 20) + shift)) + stamped(3, b"seam")
        assert next_batch(file_of(content), 0, len(content), 0) == (1 << 20) + shift


def test_a_broken_batch_is_never_the_next():
    good = stamped(5, b"value")
    for position in range(17, len(good)):
        broken = bytearray(good)
        broken[position] ^= 1
        content = b"\xff" + broken
        assert next_batch(file_of(content), 0, len(content), 0) == len(content)


def test_only_a_sector_never_written_counts_as_lost():
    assert lost_pages(file_of(bytes(100)), 0, 100)
    assert not lost_pages(file_of(b"\1" + bytes(100)), 0, 101)
    assert not lost_pages(file_of(b"\1" * 600 + bytes(600) + b"\1"), 0, 1201)
    assert lost_pages(file_of(b"\1" * 512 + bytes(512) + b"\1"), 0, 1025)


ranges = st.lists(st.tuples(st.integers(0, 200), st.integers(1, 20)), max_size=40)


@given(ranges, st.integers(0, 230))
def test_intervals_cover_what_was_added_and_nothing_else(added, position):
    intervals, covered = Intervals(), set()
    for start, size in added:
        intervals.add(start, start + size)
        covered |= set(range(start, start + size))
    end = position
    while end in covered:
        end += 1
    assert intervals.covered_to(position) == end


def test_intervals_are_bounded_and_keep_the_newest():
    intervals = Intervals()
    for start in range(10_000, 0, -10):
        intervals.add(start, start + 5)
        assert intervals.covered_to(start) == start + 5
    assert len(intervals._ranges) == MAX_RANGES
