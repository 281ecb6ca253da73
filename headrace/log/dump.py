"""Segments read offline, with no broker: every batch, and what is wrong with them."""

from collections.abc import Iterator
from typing import NamedTuple

from headrace.log.damage import Damaged, next_batch, whole_batches
from headrace.log.filesystem import File, Filesystem, join, parent
from headrace.log.index import OFFSET_ENTRY, TIME_ENTRY, Index
from headrace.log.open_files import OpenFiles
from headrace.protocol.records import BatchView


class DumpedBatch(NamedTuple):
    """A batch, where it lies, and whether its checksum holds. Its records are in `batch`."""

    file: str
    position: int
    batch: BatchView
    crc_valid: bool


class Problem(NamedTuple):
    """Something that must not be: which file, at which byte, and what."""

    file: str
    position: int
    reason: str


def segment_paths(filesystem: Filesystem, path: str) -> list[str]:
    """The data files at a path: itself, or those of the partition, or of every partition below."""
    if path.endswith(".log"):
        return [path]
    names = sorted(filesystem.listdir(path))
    found = [join(path, name) for name in names if name.endswith(".log") and name[:20].isdigit()]
    if found:
        return found
    paths = []
    for name in names:
        try:
            paths += segment_paths(filesystem, join(path, name))
        except (NotADirectoryError, FileNotFoundError):
            continue
    return paths


def dump(filesystem: Filesystem, path: str) -> Iterator[DumpedBatch | Problem]:
    """Batches and problems of all segments at a path, in order; indexes after their segment."""
    expected: dict[str, int] = {}
    for segment in segment_paths(filesystem, path):
        yield from _dump_segment(filesystem, segment, expected)


def _dump_segment(
    filesystem: Filesystem, path: str, expected: dict[str, int]
) -> Iterator[DumpedBatch | Problem]:
    file = filesystem.open(path)
    base_offset = int(path.rpartition("/")[2].removesuffix(".log"))
    last_offsets: dict[int, int] = {}
    timestamps: dict[int, int] = {}
    next_offset = max(base_offset, expected.get(parent(path), base_offset))
    for item in _walk(file, path, next_offset):
        yield item
        if isinstance(item, Problem):
            continue
        batch = item.batch
        if not item.crc_valid:
            yield Problem(path, item.position, "the checksum does not match")
        if batch.base_offset < next_offset:
            yield Problem(
                path, item.position, f"base offset {batch.base_offset} after {next_offset - 1}"
            )
        next_offset = max(next_offset, batch.next_offset)
        last_offsets[item.position] = batch.last_offset
        timestamps[batch.last_offset] = batch.max_timestamp
    expected[parent(path)] = next_offset
    yield from _check_offsets(filesystem, path, base_offset, last_offsets)
    yield from _check_times(filesystem, path, base_offset, timestamps)


def _walk(file: File, path: str, expected: int) -> Iterator[DumpedBatch | Problem]:
    position, end = 0, file.size()
    while position < end:
        try:
            for at, batch in whole_batches(file, position, end):
                yield DumpedBatch(path, at, batch, batch.crc_valid())
                expected = max(expected, batch.next_offset)
                position = at + batch.size
        except Damaged as damage:
            yield Problem(path, damage.position, damage.reason)
            position = next_batch(file, damage.position, end, expected)


def _check_offsets(
    filesystem: Filesystem, path: str, base_offset: int, last_offsets: dict[int, int]
) -> Iterator[Problem]:
    index = Index(OpenFiles(filesystem), path.removesuffix(".log") + ".index", OFFSET_ENTRY)
    previous = (-1, -1)
    for slot, (relative, position) in _entries(filesystem, index):
        at = slot * OFFSET_ENTRY.size
        if relative <= previous[0] or position <= previous[1]:
            yield Problem(index.path, at, f"entry {slot} does not ascend")
        elif last_offsets.get(position) != relative + base_offset:
            yield Problem(
                index.path, at, f"no batch at byte {position} ends at {relative + base_offset}"
            )
        previous = relative, position


def _check_times(
    filesystem: Filesystem, path: str, base_offset: int, timestamps: dict[int, int]
) -> Iterator[Problem]:
    index = Index(OpenFiles(filesystem), path.removesuffix(".log") + ".timeindex", TIME_ENTRY)
    previous = (-1, -1)
    for slot, (timestamp, relative) in _entries(filesystem, index):
        at = slot * TIME_ENTRY.size
        if timestamp <= previous[0] or relative <= previous[1]:
            yield Problem(index.path, at, f"entry {slot} does not ascend")
        elif timestamps.get(relative + base_offset) != timestamp:
            yield Problem(
                index.path, at, f"no batch up to {relative + base_offset} is of {timestamp}"
            )
        previous = timestamp, relative


def _entries(filesystem: Filesystem, index: Index) -> Iterator[tuple[int, tuple[int, int]]]:
    if not filesystem.exists(index.path):
        return
    for slot in range(len(index)):
        yield slot, index.entry(slot)
