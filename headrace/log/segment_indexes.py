"""The two indexes of one segment, and the largest timestamp they lead up to."""

from collections.abc import Iterable
from typing import Protocol

from headrace.log.filesystem import join
from headrace.log.index import OFFSET_ENTRY, TIME_ENTRY, Index
from headrace.log.open_files import OpenFiles
from headrace.protocol.records import HEADER_BYTES, NO_TIMESTAMP, BatchView

DEFAULT_INTERVAL_BYTES = 4096
MAX_OFFSET = (1 << 63) - 1


class Batches(Protocol):
    """The segment itself: entries are only ever believed after a look at their batch."""

    def headers(self, position: int) -> Iterable[tuple[int, BatchView]]: ...

    def start_of_walk(self, offset: int) -> int: ...


def file_name(base_offset: int, suffix: str = ".log") -> str:
    """Kafka's name of a file that starts at an offset."""
    return f"{base_offset:020d}{suffix}"


class SegmentIndexes:
    """An entry in both indexes for about every `interval_bytes` of batches.

    Timestamps are loaded when first asked for: opening a partition reads none of this.
    """

    __slots__ = (
        "_base_offset",
        "_batches",
        "_max_timestamp",
        "_offset_of_max_timestamp",
        "_unindexed_bytes",
        "by_offset",
        "by_time",
        "interval_bytes",
    )

    def __init__(
        self, files: OpenFiles, directory: str, base_offset: int, batches: Batches
    ) -> None:
        self.by_offset = Index(
            files, join(directory, file_name(base_offset, ".index")), OFFSET_ENTRY
        )
        self.by_time = Index(
            files, join(directory, file_name(base_offset, ".timeindex")), TIME_ENTRY
        )
        self.interval_bytes = DEFAULT_INTERVAL_BYTES
        self._base_offset = base_offset
        self._batches = batches
        self._unindexed_bytes = 0
        self._max_timestamp: int | None = None
        self._offset_of_max_timestamp = -1

    def note(self, batch: BatchView, position: int) -> None:
        """Bring the indexes up to the batch at the position; it follows the one noted before."""
        max_timestamp = self._max_timestamp
        if max_timestamp is None:
            max_timestamp = self.max_timestamp
        last_offset = batch.base_offset + batch.last_offset_delta
        if batch.max_timestamp > max_timestamp:
            self._max_timestamp = batch.max_timestamp
            self._offset_of_max_timestamp = last_offset
        if self._unindexed_bytes > self.interval_bytes:
            self.by_offset.append(last_offset - self._base_offset, position)
            self._note_time()
            self._unindexed_bytes = 0
        self._unindexed_bytes += batch.size

    @property
    def max_timestamp(self) -> int:
        if self._max_timestamp is None:
            self._load()
            if self._max_timestamp is None:
                return NO_TIMESTAMP
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        if self._max_timestamp is None:
            self._load()
        return self._offset_of_max_timestamp

    def is_full(self, max_bytes: int) -> bool:
        return (
            len(self.by_offset) >= max_bytes // OFFSET_ENTRY.size
            or len(self.by_time) >= max_bytes // TIME_ENTRY.size - 1
        )

    def seal(self) -> None:
        """Before the segment rests: the time index ends with the largest timestamp, as in Kafka."""
        if self.max_timestamp >= 0:
            self._note_time()
        self.by_offset.trim()
        self.by_time.trim()

    def flush(self) -> None:
        self.by_offset.flush()
        self.by_time.flush()

    def start_empty(self) -> None:
        """Forget everything, before batches are noted from the first on."""
        self.by_offset.reset()
        self.by_time.reset()
        self._unindexed_bytes = 0
        self._max_timestamp, self._offset_of_max_timestamp = NO_TIMESTAMP, -1

    def rebuild(self) -> None:
        self.start_empty()
        for position, batch in self._batches.headers(0):
            self.note(batch, position)

    def cut(self, position: int) -> None:
        """Forget entries at or past the position; the batches from there on are noted next."""
        if position == 0:
            self.start_empty()
            return
        self.by_offset.truncate(self.by_offset.floor(position - 1, field=1) + 1)
        last = self.by_offset.last()
        offset = -1 if last is None else last[0]
        self.by_time.truncate(self.by_time.floor(offset, field=1) + 1)
        self._unindexed_bytes = 0
        self._max_timestamp, self._offset_of_max_timestamp = NO_TIMESTAMP, -1
        if (time := self.by_time.last()) is not None:
            self._max_timestamp = time[0]
            self._offset_of_max_timestamp = time[1] + self._base_offset

    def remove(self) -> None:
        self.by_offset.remove()
        self.by_time.remove()

    def _note_time(self) -> None:
        timestamp = self._max_timestamp
        if timestamp is None or timestamp < 0:
            return
        last = self.by_time.last()
        if last is None or timestamp > last[0]:
            self.by_time.append(timestamp, self._offset_of_max_timestamp - self._base_offset)

    def before(self, timestamp: int) -> int:
        """An offset before which every record is older than the time."""
        slot = self.by_time.floor(timestamp - 1)
        if slot >= 0 and not self._time_holds(*self.by_time.entry(slot)):
            self.rebuild()
            slot = self.by_time.floor(timestamp - 1)
        return self._base_offset + (self.by_time.entry(slot)[1] if slot >= 0 else 0)

    def _time_holds(self, timestamp: int, relative: int) -> bool:
        offset = relative + self._base_offset
        for _position, batch in self._batches.headers(self._batches.start_of_walk(offset)):
            if batch.last_offset >= offset:
                return batch.last_offset == offset and batch.max_timestamp == timestamp
        return False

    def _load(self) -> None:
        time = self.by_time.last()
        if time is not None and not self._time_holds(*time):
            self.rebuild()
            return
        self._max_timestamp, self._offset_of_max_timestamp = NO_TIMESTAMP, -1
        start = 0
        if time is not None:
            self._max_timestamp = time[0]
            self._offset_of_max_timestamp = time[1] + self._base_offset
            start = self._batches.start_of_walk(MAX_OFFSET)
        # The entries may end before the batches do; without entries the indexes were lost.
        seen = last_bytes = 0
        for position, batch in self._batches.headers(start):
            last_bytes = batch.size
            seen = position + last_bytes - start
            if batch.max_timestamp > self._max_timestamp:
                self._max_timestamp = batch.max_timestamp
                self._offset_of_max_timestamp = batch.last_offset
        self._unindexed_bytes = seen
        if seen > 2 * self.interval_bytes + last_bytes + HEADER_BYTES:
            self.rebuild()
