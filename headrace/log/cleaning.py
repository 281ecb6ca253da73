"""Compaction of the logs of one store: where each got to, and which log comes next."""

import logging
from collections.abc import Callable, Iterable

from headrace.log import checkpoints, compaction_swap
from headrace.log.compaction_plan import Cleanable, cleanable
from headrace.log.compaction_rewrite import Cleaned
from headrace.log.filesystem import join
from headrace.log.partition_log import PartitionLog
from headrace.log.store import Store

logger = logging.getLogger(__name__)

# Below which offset a log will never change, open transactions and unsynced bytes considered.
StableOffset = Callable[[PartitionLog], int]


class Cleaning:
    """Which part of which log was compacted; on stable storage after each compaction.

    On the thread that owns the logs, except where it says otherwise.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._path = join(store.data_dir, checkpoints.CLEANED_OFFSETS)
        # Logs whose compaction failed: left alone until the next start.
        self.uncleanable: set[str] = set()
        self.max_dirty_ratio = 0.0

    def cleaned_offset(self, log: PartitionLog) -> int | None:
        return self._store.cleaned_offsets.get(_key(log))

    def dirtiest(
        self, logs: Iterable[PartitionLog], stable_offset: StableOffset, now_ms: int
    ) -> Cleanable | None:
        """Of the logs that are due, the one with the largest share of dirty bytes."""
        found = [
            self.examine(log, stable_offset(log), now_ms)
            for log in logs
            if log.settings.compacted and len(log.segments) > 1 and log.name not in self.uncleanable
        ]
        self.max_dirty_ratio = max((item.dirty_ratio for item in found), default=0.0)
        due = [item for item in found if item.due]
        return max(due, key=lambda item: item.dirty_ratio, default=None)

    def examine(self, log: PartitionLog, stable_offset: int, now_ms: int) -> Cleanable:
        return cleanable(
            log,
            cleaned_offset=self.cleaned_offset(log),
            stable_offset=stable_offset,
            now_ms=now_ms,
        )

    def commit(self, log: PartitionLog, cleaned: Cleaned) -> None:
        """From here on a start finishes the exchange. Blocks for the disk; on any thread."""
        compaction_swap.commit(self._store.filesystem, log.directory, cleaned.bases[0])

    def exchange(self, log: PartitionLog, cleaned: Cleaned) -> bool:
        """Put a committed segment in its place, between two reads; False if it came too late."""
        moved = None
        if self._store.logs.get(log.name) is log:
            moved = log.replace_segments(cleaned.bases, cleaned.size)
        if moved is None:
            self.abandon(log.directory, cleaned.bases[0])
            return False
        self._store.remove_later(moved, log.settings.file_delete_delay_ms)
        return True

    def abandon(self, directory: str, base_offset: int) -> None:
        """Remove what was written in vain."""
        try:
            compaction_swap.abandon(self._store.filesystem, directory, base_offset)
        except OSError as error:
            logger.warning("cleaned files left for the next start in=%s: %s", directory, error)

    def note(self, log: PartitionLog, end_offset: int) -> bytes:
        """A log is compacted up to an offset; what to write down about it with save()."""
        offsets = self._store.cleaned_offsets
        offsets[_key(log)] = end_offset
        known = {_key(open_log) for open_log in self._store.logs.values()}
        return checkpoints.write_offsets(
            {key: offset for key, offset in offsets.items() if key in known}
        )

    def save(self, directory: str, content: bytes) -> None:
        """The exchanged names first, then how far they reach. Blocks for the disk; any thread."""
        self._store.filesystem.sync_dir(directory)
        self._store.filesystem.write_atomic(self._path, content)


def _key(log: PartitionLog) -> tuple[str, int]:
    topic, _dash, index = log.name.rpartition("-")
    return topic, int(index)
