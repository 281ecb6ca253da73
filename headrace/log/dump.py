"""Segments read offline, with no broker: every batch, and what is wrong with them."""

from collections.abc import Iterator
from typing import NamedTuple

from headrace.log.damage import Damaged, next_batch, whole_batches
from headrace.log.filesystem import File, Filesystem, join, parent
from headrace.log.index import OFFSET_ENTRY, TIME_ENTRY, Index
from headrace.log.open_files import OpenFiles
from headrace.protocol.frame import MAX_FRAME
from headrace.protocol.records import LENGTH_OVERHEAD, BatchView

# Past every byte and every offset.
MAX_PLACE = 1 << 63
LENGTH_POSITION = 8


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
    sound = _Sound(base_offset, max(base_offset, expected.get(parent(path), base_offset)))
    for item in _walk(file, path, sound.next_offset):
        yield item
        if isinstance(item, Problem):
            sound.doubt(item.position)
        elif not item.crc_valid:
            yield Problem(path, item.position, "the checksum does not match")
            sound.doubt(item.position)
        else:
            if item.batch.base_offset < sound.next_offset:
                reason = f"base offset {item.batch.base_offset} after {sound.next_offset - 1}"
                yield Problem(path, item.position, reason)
            sound.take(item)
    sound.end()
    expected[parent(path)] = sound.next_offset
    yield from _check_offsets(filesystem, path, sound)
    yield from _check_times(filesystem, path, sound)


class _Gap(NamedTuple):
    """Bytes that are not what was written, and the offsets that lay there."""

    start: int
    end: int
    first_offset: int
    next_offset: int


class _Sound:
    """What the intact batches of a segment say, and the gaps between them.

    A header whose checksum fails proves nothing: it moves no offset and contradicts no index.
    """

    def __init__(self, base_offset: int, next_offset: int) -> None:
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.last_offsets: dict[int, int] = {}
        self.timestamps: dict[int, int] = {}
        self._gaps: list[_Gap] = []
        # Where the gap began that no batch has ended yet: its byte and its first offset.
        self._open: tuple[int, int] | None = None
        self._previous = (0, next_offset)

    def doubt(self, position: int) -> None:
        """What lies here is damaged."""
        self._open = self._open or (position, self.next_offset)

    def take(self, item: DumpedBatch) -> None:
        """The checksum of this batch holds; it does not cover the base offset."""
        batch = item.batch
        if batch.base_offset < self.next_offset:
            # Either this base offset is too low or the one before is too high.
            self._open = self._open or self._previous
        else:
            self._close(item.position, batch.base_offset)
        self._previous = (item.position, self.next_offset)
        # Not the largest so far: one wrong base offset would put all that follow in the wrong.
        self.next_offset = batch.next_offset
        self.last_offsets[item.position] = batch.last_offset
        self.timestamps[batch.last_offset] = batch.max_timestamp

    def end(self) -> None:
        self._close(MAX_PLACE, MAX_PLACE)

    def lost_byte(self, position: int) -> bool:
        return any(gap.start <= position < gap.end for gap in self._gaps)

    def lost_offset(self, offset: int) -> bool:
        return any(gap.first_offset <= offset < gap.next_offset for gap in self._gaps)

    def _close(self, position: int, offset: int) -> None:
        if self._open is not None:
            start, first_offset = self._open
            self._gaps.append(_Gap(start, position, first_offset, offset))
            self._open = None


def _walk(file: File, path: str, expected: int) -> Iterator[DumpedBatch | Problem]:
    position, end = 0, file.size()
    while position < end:
        try:
            for at, batch in whole_batches(file, position, end):
                intact = batch.crc_valid()
                yield DumpedBatch(path, at, batch, intact)
                position = at + batch.size
                if intact:
                    expected = batch.next_offset
                    continue
                true_end = _true_end(file, at, end, expected)
                if true_end:
                    position = true_end
                    break
        except Damaged as damage:
            yield Problem(path, damage.position, damage.reason)
            position = next_batch(file, damage.position, end, expected)


def _true_end(file: File, position: int, end: int, expected: int) -> int:
    """Where a batch ends whose length alone is wrong, which the checksum does not cover; or 0."""
    true_end = next_batch(file, position, end, expected)
    size = true_end - position
    if size > MAX_FRAME:
        return 0
    content = bytearray(file.read_at(position, size))
    content[LENGTH_POSITION:LENGTH_OVERHEAD] = (size - LENGTH_OVERHEAD).to_bytes(4, "big")
    return true_end if BatchView(content).crc_valid() else 0


def _check_offsets(filesystem: Filesystem, path: str, sound: _Sound) -> Iterator[Problem]:
    index = Index(OpenFiles(filesystem), path.removesuffix(".log") + ".index", OFFSET_ENTRY)
    previous = (-1, -1)
    for slot, (relative, position) in _entries(filesystem, index):
        at = slot * OFFSET_ENTRY.size
        offset = relative + sound.base_offset
        if relative <= previous[0] or position <= previous[1]:
            yield Problem(index.path, at, f"entry {slot} does not ascend")
        elif sound.last_offsets.get(position) != offset and not sound.lost_byte(position):
            yield Problem(index.path, at, f"no batch at byte {position} ends at {offset}")
        previous = relative, position


def _check_times(filesystem: Filesystem, path: str, sound: _Sound) -> Iterator[Problem]:
    index = Index(OpenFiles(filesystem), path.removesuffix(".log") + ".timeindex", TIME_ENTRY)
    previous = (-1, -1)
    for slot, (timestamp, relative) in _entries(filesystem, index):
        at = slot * TIME_ENTRY.size
        offset = relative + sound.base_offset
        if timestamp <= previous[0] or relative <= previous[1]:
            yield Problem(index.path, at, f"entry {slot} does not ascend")
        elif sound.timestamps.get(offset) != timestamp and not sound.lost_offset(offset):
            yield Problem(index.path, at, f"no batch up to {offset} is of {timestamp}")
        previous = timestamp, relative


def _entries(filesystem: Filesystem, index: Index) -> Iterator[tuple[int, tuple[int, int]]]:
    if not filesystem.exists(index.path):
        return
    for slot in range(len(index)):
        yield slot, index.entry(slot)
