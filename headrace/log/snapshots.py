"""Producer state on disk: snapshots named by the offset they reach, and replay from there."""

import logging
from collections.abc import Callable, Iterable

from headrace.log.filesystem import Filesystem, join
from headrace.log.producers import Producers
from headrace.log.segment import Segment
from headrace.log.segment_indexes import file_name
from headrace.log.txn_index import AbortedTxn
from headrace.protocol.records import BatchView, CorruptBatch

logger = logging.getLogger(__name__)

SUFFIX = ".snapshot"
# A snapshot may reach past what a power cut leaves, or be torn: older ones stand in for it.
KEPT_SNAPSHOTS = 3


class Snapshots:
    """The snapshot files of one partition, oldest first."""

    __slots__ = ("_directory", "_filesystem", "_offsets")

    def __init__(self, filesystem: Filesystem, directory: str) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._offsets = sorted(
            int(name.removesuffix(SUFFIX))
            for name in filesystem.listdir(directory)
            if name.endswith(SUFFIX) and name.removesuffix(SUFFIX).isdigit()
        )

    @property
    def latest(self) -> int:
        """The offset the newest one reaches, or -1."""
        return self._offsets[-1] if self._offsets else -1

    def write(self, offset: int, producers: Producers) -> str | None:
        """Not synced here: returns the path, for the next sync to include; None if it stands."""
        if self.latest == offset:
            return None
        file = self._filesystem.open(self._path(offset), create=True)
        content = producers.snapshot()
        file.truncate(0)
        file.write_at(0, content)
        self._offsets.append(offset)
        self._remove_old()
        return self._path(offset)

    def load(self, at_most: int) -> tuple[int, Producers]:
        """State from the newest usable snapshot, and the offset to replay from."""
        for offset in reversed(self._offsets):
            if offset > at_most:
                continue
            producers = Producers()
            try:
                producers.load(self._filesystem.read(self._path(offset)))
            except ValueError as error:
                logger.warning("snapshot skipped file=%s reason=%s", self._path(offset), error)
                continue
            return offset, producers
        return 0, Producers()

    def remove_after(self, next_offset: int) -> None:
        """Remove those that reach past the end of the log: their records were lost or cut."""
        late = [offset for offset in self._offsets if offset > next_offset]
        for offset in late:
            self._filesystem.remove(self._path(offset))
            self._offsets.remove(offset)
        if late:
            # At once: the log will grow past that offset again, with other records.
            self._filesystem.sync_dir(self._directory)

    def _remove_old(self) -> None:
        while len(self._offsets) > KEPT_SNAPSHOTS:
            path = self._path(self._offsets.pop(0))
            if self._filesystem.exists(path):
                self._filesystem.remove(path)

    def _path(self, offset: int) -> str:
        return join(self._directory, file_name(offset, SUFFIX))


def replay(
    segments: Iterable[Segment],
    from_offset: int,
    producers: Producers,
    add: Callable[[Segment, AbortedTxn], None],
) -> None:
    """Bring producer state up to the end of the segments, telling of every aborted transaction."""
    for segment in segments:
        if segment.next_offset <= from_offset or segment.size == 0:
            continue
        found = segment.locate(from_offset) if from_offset > segment.base_offset else (0, 0)
        if found is None:
            continue
        for position, header in segment.headers(found[0]):
            if header.producer_id < 0 or header.base_offset < from_offset:
                continue
            try:
                # Only a marker is opened; of other batches the header says all.
                batch = _whole(segment, position, header) if header.is_control else header
                entry = producers.update(batch)
            except CorruptBatch as error:
                logger.warning(
                    "batch left out of producer state file=%s position=%d reason=%s",
                    segment.path,
                    position,
                    error,
                )
                continue
            if entry is not None:
                add(segment, entry)


def _whole(segment: Segment, position: int, header: BatchView) -> BatchView:
    return BatchView(segment.opened().read_at(position, header.size))
