"""After a stop: which segments there are, where the log ends, what of its tail is torn.

A clean stop is believed. After any other, batches from the recovery point on are checked: what
a power cut left half written is cut off; what was whole once and is damaged now is fenced.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.log import compaction_swap
from headrace.log.damage import Damaged, lost_pages, next_batch, whole_batches
from headrace.log.filesystem import join
from headrace.log.leader_epochs import FILE_NAME, LeaderEpochs
from headrace.log.open_files import OpenFiles
from headrace.log.segment import Segment
from headrace.log.segment_indexes import MAX_OFFSET, file_name
from headrace.protocol.records import HEADER_BYTES, LENGTH_OVERHEAD, MAGIC, BatchView

logger = logging.getLogger(__name__)

# An epoch grows by one at a time; a leap this wide is a flipped bit.
MAX_EPOCH_STEP = 1 << 16
_OF_A_SEGMENT = (".index", ".timeindex", ".txnindex")
_LITTER = (".tmp", ".deleted", ".cleaned")


@dataclass(frozen=True, slots=True)
class Known:
    """What the checkpoints say about a log before its files are read."""

    recovery_point: int = 0
    log_start_offset: int = 0
    clean: bool = False


@dataclass(slots=True)
class Files:
    """What was found: the segments, oldest first, and what they say."""

    segments: list[Segment]
    leader_epochs: LeaderEpochs
    # Whether they differ from what their file says.
    epochs_changed: bool
    log_start_offset: int

    @property
    def next_offset(self) -> int:
        return self.segments[-1].next_offset


def open_segments(
    files: OpenFiles, directory: str, known: Known, *, contiguous: bool, interval_bytes: int
) -> Files:
    """Open what is there, or start an empty log. `contiguous`: never compacted, so no gaps."""
    names = set(files.filesystem.listdir(directory))
    if compaction_swap.finish(files.filesystem, directory, names):
        logger.info("compaction finished after a stop directory=%s", directory)
        names = set(files.filesystem.listdir(directory))
    offsets = sorted(_offset(name) for name in names if name.endswith(".log") and _numbered(name))
    _sweep(files, directory, names, set(offsets))
    epochs = _load_epochs(files, directory)
    stored = epochs.entries()
    if not offsets:
        segment = Segment.create(files, directory, known.log_start_offset)
        segment.indexes.interval_bytes = interval_bytes
        return Files([segment], epochs, False, segment.base_offset)
    segments = [
        Segment(files, directory, offset, files.filesystem.size(_path(directory, offset)))
        for offset in offsets
    ]
    for segment, following in zip(segments, [*offsets[1:], offsets[-1]], strict=True):
        segment.next_offset = following
        segment.indexes.interval_bytes = interval_bytes
        segment.epoch_at = epochs.epoch_at
    if epochs.latest < 0:
        _epochs_of_segments(segments, epochs)
    scan = _Scan(files, directory, segments, epochs, known, contiguous)
    if not known.clean or not scan.believe():
        scan.run()
    epochs.truncate_end(segments[-1].next_offset)
    log_start_offset = max(known.log_start_offset, offsets[0])
    if log_start_offset > segments[-1].next_offset:
        logger.error(
            "log start offset past the end ignored directory=%s log_start_offset=%d end=%d",
            directory,
            log_start_offset,
            segments[-1].next_offset,
        )
        log_start_offset = offsets[0]
    return Files(segments, epochs, epochs.entries() != stored, log_start_offset)


class _Scan:
    """One reading of a log from its recovery point to its end."""

    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        segments: list[Segment],
        epochs: LeaderEpochs,
        known: Known,
        contiguous: bool,
    ) -> None:
        self._files = files
        self._directory = directory
        self._segments = segments
        self._epochs = epochs
        self._recovery_point = known.recovery_point
        self._contiguous = contiguous

    def believe(self) -> bool:
        """After a clean stop only the end is looked for, from the last index entry on."""
        segment = self._segments[-1]
        if segment.size == 0:
            return True
        next_offset, segment.next_offset = segment.base_offset, MAX_OFFSET
        end = 0
        for position, batch in segment.headers(segment.start_of_walk(MAX_OFFSET)):
            next_offset = batch.next_offset
            end = position + batch.size
        # A clean stop leaves the recovery point at the end; 0 says there was no checkpoint.
        elsewhere = self._recovery_point not in (0, next_offset)
        if end != segment.size or segment.fences or elsewhere:
            segment.fences.clear()
            segment.next_offset = segment.base_offset
            logger.warning("end not clean after a clean stop file=%s", segment.path)
            return False
        segment.next_offset = next_offset
        return True

    def run(self) -> None:
        first = self._first()
        for at in range(first, len(self._segments)):
            segment = self._segments[at]
            last = at == len(self._segments) - 1
            start = self._start(segment) if at == first else (0, segment.base_offset)
            if not self._read(segment, *start, last=last):
                self._drop(at + 1)
                break

    def _first(self) -> int:
        at = len(self._segments) - 1
        while at and self._segments[at].base_offset > self._recovery_point:
            at -= 1
        return at

    def _start(self, segment: Segment) -> tuple[int, int]:
        """The last indexed batch at or below the recovery point: position and base offset."""
        index = segment.indexes.by_offset
        slot = index.floor(self._recovery_point - 1 - segment.base_offset)
        # The last entries are the likeliest to lie, and the tail before them costs little.
        slot = min(slot, len(index) - 1)
        while slot >= 0:
            relative, position = index.entry(slot)
            if position + HEADER_BYTES <= segment.size:
                batch = BatchView(segment.opened().read_at(position, HEADER_BYTES))
                if batch.magic == MAGIC and batch.last_offset == relative + segment.base_offset:
                    return position, batch.base_offset
            slot -= 1
        return 0, segment.base_offset

    def _read(self, segment: Segment, position: int, expected: int, *, last: bool) -> bool:
        """Check a segment from a position on; False when the log ends here, before its files do."""
        segment.indexes.cut(position)
        segment.trusted_from = position
        following = None if last else self._first_batch_after(segment)
        while position < segment.size:
            try:
                for at, batch in self._checked(segment, position, expected, following):
                    self._epochs.assign(batch.partition_leader_epoch, batch.base_offset)
                    segment.indexes.note(batch, at)
                    expected = batch.next_offset
                    position = at + batch.size
            except Damaged as damage:
                position = damage.position
                if self._torn(segment, position, expected, last=last):
                    self._cut(segment, position, expected)
                    return False
                if last:
                    segment.next_offset = max(expected, self._recovery_point)
                position = segment.fence(position, damage.reason, expected).end
                expected = segment.fences[damage.position].next_offset
        if last:
            segment.next_offset = expected
            return True
        if self._contiguous and expected < segment.next_offset and expected >= self._recovery_point:
            # The file ends at a batch, but batches that were to follow never reached the disk.
            self._cut(segment, segment.size, expected)
            return False
        return True

    def _checked(
        self, segment: Segment, position: int, expected: int, following: BatchView | None
    ) -> Iterator[tuple[int, BatchView]]:
        """Batches that are whole and in their place; raises Damaged at the first that is not."""
        pending: tuple[int, BatchView] | None = None
        file = segment.opened()
        try:
            for at, batch in whole_batches(file, position, segment.size):
                if pending is not None:
                    self._accept(*pending, expected, batch)
                    yield pending
                    expected = pending[1].next_offset
                    pending = None
                if not batch.crc_valid():
                    raise Damaged(at, "the checksum does not match")
                if segment is not self._segments[-1] and batch.next_offset > segment.next_offset:
                    raise Damaged(at, f"base offset {batch.base_offset} past the segment's end")
                pending = at, batch
        except Damaged as damage:
            # What comes before the damage is judged first, without the bytes after it.
            if pending is not None and pending[0] != damage.position:
                self._accept(*pending, expected, None)
                yield pending
            raise
        if pending is not None:
            self._accept(*pending, expected, following)
            yield pending

    def _first_batch_after(self, segment: Segment) -> BatchView | None:
        following = self._segments[self._segments.index(segment) + 1]
        if following.size < HEADER_BYTES:
            return None
        return BatchView(following.opened().read_at(0, HEADER_BYTES))

    def _accept(
        self, position: int, batch: BatchView, expected: int, following: BatchView | None
    ) -> None:
        """Judge the base offset and the leader epoch, which no checksum covers."""
        base_offset, epoch = batch.base_offset, batch.partition_leader_epoch
        if base_offset < expected or (base_offset > expected and self._contiguous):
            raise Damaged(position, f"base offset {base_offset} where {expected} was written")
        leaps = base_offset > expected and following is not None
        if leaps and following is not None and following.base_offset < batch.next_offset:
            raise Damaged(position, f"base offset {base_offset} where {expected} was written")
        latest = self._epochs.epoch_at(base_offset)
        if latest is None or epoch == latest:
            return
        leaps = epoch > max(latest, self._epochs.latest) + MAX_EPOCH_STEP
        if leaps or (following is not None and following.partition_leader_epoch < epoch):
            raise Damaged(position, f"leader epoch {epoch} where {latest} was written")
        if epoch < latest and following is not None and following.partition_leader_epoch > epoch:
            raise Damaged(position, f"leader epoch {epoch} where {latest} was written")

    def _torn(self, segment: Segment, position: int, expected: int, *, last: bool) -> bool:
        """Whether a power cut left this, and not decay of what had been whole and synced."""
        if expected < self._recovery_point:
            return False
        file = segment.opened()
        following = next_batch(file, position, segment.size, expected)
        if following < segment.size:
            return lost_pages(file, position, following)
        return last or not _once_whole(segment, position)

    def _cut(self, segment: Segment, position: int, expected: int) -> None:
        logger.warning(
            "tail cut file=%s position=%d bytes=%d next_offset=%d",
            segment.path,
            position,
            segment.size - position,
            expected,
        )
        segment.opened().truncate(position)
        # At once: what was cut must not come back among what is written next.
        segment.opened().sync()
        segment.size = position
        segment.trusted_from = min(segment.trusted_from, position)
        segment.next_offset = expected

    def _drop(self, first: int) -> None:
        for segment in self._segments[first:]:
            logger.warning("segment after a torn one dropped file=%s", segment.path)
            segment.remove()
        if self._segments[first:]:
            del self._segments[first:]
            self._files.filesystem.sync_dir(self._directory)


def _once_whole(segment: Segment, position: int) -> bool:
    """Whether a segment's last batch is all there, but for a few bits."""
    if lost_pages(segment.opened(), position, segment.size):
        return False
    content = bytearray(segment.opened().read_at(position, segment.size - position))
    if len(content) < HEADER_BYTES:
        return False
    claimed = int.from_bytes(content[8:12], "big", signed=True) + LENGTH_OVERHEAD
    if claimed == len(content):
        return True
    # Perhaps only the length is wrong: then the checksum holds with the length of the file.
    content[8:12] = (len(content) - LENGTH_OVERHEAD).to_bytes(4, "big")
    return BatchView(content).crc_valid()


def _load_epochs(files: OpenFiles, directory: str) -> LeaderEpochs:
    path = join(directory, FILE_NAME)
    if not files.filesystem.exists(path):
        return LeaderEpochs()
    try:
        return LeaderEpochs.decode(files.filesystem.read(path))
    except ValueError as error:
        logger.warning("leader epochs rebuilt file=%s reason=%s", path, error)
        return LeaderEpochs()


def _epochs_of_segments(segments: list[Segment], epochs: LeaderEpochs) -> None:
    """The best to be known without reading everything: the epoch each segment starts with."""
    for segment in segments:
        try:
            for _position, batch in whole_batches(segment.opened(), 0, segment.size):
                if batch.crc_valid():
                    epochs.assign(batch.partition_leader_epoch, batch.base_offset)
                break
        except Damaged:
            continue


def _sweep(files: OpenFiles, directory: str, names: set[str], offsets: set[int]) -> None:
    """Remove what interrupted writes and deletions left behind."""
    for name in names:
        orphan = name.endswith(_OF_A_SEGMENT) and _numbered(name) and _offset(name) not in offsets
        if orphan or name.endswith(_LITTER):
            files.filesystem.remove(join(directory, name))


def _numbered(name: str) -> bool:
    number, _dot, suffix = name.partition(".")
    return len(number) == 20 and number.isdigit() and "." not in suffix


def _offset(name: str) -> int:
    return int(name.partition(".")[0])


def _path(directory: str, offset: int) -> str:
    return join(directory, file_name(offset))
