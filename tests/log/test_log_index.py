from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.log.index import OFFSET_ENTRY, TAIL_BYTES, TIME_ENTRY, Index
from headrace.log.open_files import OpenFiles
from headrace.testing.filesystems import MemoryFilesystem

PATH = "/00000000000000000000.index"


def ascending(steps):
    total, entries = 0, []
    for at, step in enumerate(steps):
        total += step
        entries.append((total, at * 7))
    return entries


entries = st.lists(st.integers(1, 1000), max_size=60).map(ascending)


def index(filesystem, entry=OFFSET_ENTRY, limit=4):
    return Index(OpenFiles(filesystem, limit), PATH, entry)


@given(entries, st.integers(0, 60), st.integers(0, 50_000))
def test_floor_finds_the_last_entry_at_or_below_whether_written_or_waiting(found, flushed, value):
    filesystem = MemoryFilesystem()
    searched = index(filesystem)
    for at, entry in enumerate(found):
        if at == flushed:
            searched.flush()
        searched.append(*entry)
    for field in (0, 1):
        expected = bisect_right([entry[field] for entry in found], value) - 1
        assert searched.floor(value, field=field) == expected
    assert [searched.entry(slot) for slot in range(len(searched))] == found


def test_floor_searches_a_file_larger_than_one_block():
    filesystem = MemoryFilesystem()
    written = index(filesystem)
    for at in range(5000):
        written.append(at * 10 + 5, at * 100)
    written.flush()
    read = index(filesystem)
    assert len(read) == 5000
    for value in (0, 4, 5, 14, 15, 24_999, 25_005, 49_994, 49_995, 90_000):
        assert read.floor(value) == (value - 5) // 10 if value < 50_000 else 4999


@given(entries, st.integers(0, 60), st.integers(0, 60))
def test_truncate_keeps_the_first_entries(found, flushed, count):
    filesystem = MemoryFilesystem()
    cut = index(filesystem)
    for at, entry in enumerate(found):
        if at == flushed:
            cut.flush()
        cut.append(*entry)
    cut.truncate(count)
    kept = found[:count]
    assert [cut.entry(slot) for slot in range(len(cut))] == kept
    cut.append(10**6, 10**6)
    cut.trim()
    assert [index(filesystem).entry(slot) for slot in range(len(kept) + 1)] == [
        *kept,
        (10**6, 10**6),
    ]


@pytest.mark.parametrize("entry", [OFFSET_ENTRY, TIME_ENTRY])
def test_zeros_allocated_in_advance_are_no_entries(entry):
    filesystem = MemoryFilesystem()
    content = b"".join(entry.pack(at + 1, at + 1) for at in range(9)) + bytes(entry.size * 91)
    filesystem.open(PATH, create=True).write_at(0, content)
    preallocated = index(filesystem, entry)
    assert len(preallocated) == 9
    preallocated.append(50, 50)
    preallocated.trim()
    assert filesystem.size(PATH) == 10 * entry.size


def test_an_append_writes_only_when_a_page_is_full():
    filesystem = MemoryFilesystem()
    lazy = index(filesystem)
    for at in range(TAIL_BYTES // OFFSET_ENTRY.size - 1):
        lazy.append(at, at)
    assert not filesystem.exists(PATH)
    lazy.append(10**6, 10**6)
    assert filesystem.size(PATH) == TAIL_BYTES


def test_a_full_disk_delays_index_entries_but_loses_none():
    filesystem = MemoryFilesystem()
    filesystem.capacity_bytes = 0
    waiting = index(filesystem)
    for at in range(600):
        waiting.append(at, at)
    filesystem.capacity_bytes = None
    waiting.flush()
    assert [index(filesystem).entry(slot) for slot in range(600)] == [(at, at) for at in range(600)]


def test_never_more_files_are_held_than_the_limit():
    filesystem = MemoryFilesystem()
    files = OpenFiles(filesystem, 3)
    indexes = [Index(files, f"/{at}", OFFSET_ENTRY) for at in range(10)]
    for held in indexes:
        held.append(1, 1)
        held.flush()
    assert sum(held._file is not None for held in indexes) == 3
    assert [held.entry(0) for held in indexes] == [(1, 1)] * 10
