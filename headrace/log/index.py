"""Sparse indexes of one segment: sorted entries of fixed size, in a file and in memory.

.index      4 bytes last offset of a batch, relative to the segment; 4 bytes its position
.timeindex  8 bytes largest timestamp so far; 4 bytes last offset of its batch, relative

Indexes are rebuilt from the log and never synced: whoever follows an entry checks where it led.
"""

import contextlib
from struct import Struct

from headrace.log.filesystem import File
from headrace.log.open_files import OpenFiles

OFFSET_ENTRY = Struct(">II")
TIME_ENTRY = Struct(">qI")
# Entries wait in memory until they fill a page, so that an append costs no second write.
TAIL_BYTES = 4096
# A binary search in a file ends with one read of this many bytes.
BLOCK_BYTES = 4096


class Index:
    """Entries sorted by both their fields: those in the file, then those in memory."""

    __slots__ = ("_entry", "_file", "_files", "_stored", "_tail", "path")

    def __init__(self, files: OpenFiles, path: str, entry: Struct) -> None:
        self.path = path
        self._files = files
        self._entry = entry
        self._file: File | None = None
        # Unknown until somebody looks: opening ten thousand partitions must not read them.
        self._stored = -1
        self._tail = bytearray()

    def __len__(self) -> int:
        if self._stored < 0:
            self._load()
        return self._stored + len(self._tail) // self._entry.size

    def append(self, first: int, second: int) -> None:
        self._tail += self._entry.pack(first, second)
        if len(self._tail) >= TAIL_BYTES:
            # On a full disk the entries wait in memory; the log itself cannot grow either.
            with contextlib.suppress(OSError):
                self.flush()

    def last(self) -> tuple[int, int] | None:
        count = len(self)
        return self.entry(count - 1) if count else None

    def entry(self, slot: int) -> tuple[int, int]:
        count = len(self)
        if slot >= self._stored:
            return self._unpack(self._tail, slot - self._stored)
        if slot < 0 or slot >= count:
            raise IndexError(slot)
        size = self._entry.size
        return self._unpack(self._opened().read_at(slot * size, size), 0)

    def floor(self, value: int, *, field: int = 0) -> int:
        """The slot of the last entry whose field is at most the value; -1 if there is none."""
        count = len(self)
        if self._tail and self._unpack(self._tail, 0)[field] <= value:
            return self._stored + self._search(self._tail, count - self._stored, value, field)
        if not self._stored:
            return -1
        low, high = 0, self._stored
        block = BLOCK_BYTES // self._entry.size
        while high - low > block:
            middle = (low + high) // 2
            if self.entry(middle)[field] <= value:
                low = middle
            else:
                high = middle
        size = self._entry.size
        content = self._opened().read_at(low * size, (high - low) * size)
        return low + self._search(content, len(content) // size, value, field)

    def flush(self) -> None:
        """Write what waits in memory; also makes the file exist, as Kafka expects it."""
        if self._stored < 0:
            self._load()
        if self._file is None:
            self._file = self._files.open(self, create=True)
        if self._tail:
            self._file.write_at(self._stored * self._entry.size, self._tail)
            self._stored += len(self._tail) // self._entry.size
            self._tail = bytearray()

    def trim(self) -> None:
        """Write everything, and cut off zeros that Kafka allocated in advance."""
        self.flush()
        size = self._stored * self._entry.size
        if self._opened().size() > size:
            self._opened().truncate(size)

    def truncate(self, count: int) -> None:
        """Forget all entries but the first ones."""
        kept = min(count, len(self))
        if kept >= self._stored:
            del self._tail[(kept - self._stored) * self._entry.size :]
            return
        self._tail.clear()
        self._opened().truncate(kept * self._entry.size)
        self._stored = kept

    def reset(self) -> None:
        """Forget all entries, whatever the file holds, before the index is built anew."""
        self._tail.clear()
        self._stored = 0
        if self._files.filesystem.exists(self.path):
            self._opened().truncate(0)

    def give_up(self) -> None:
        self._file = None

    def remove(self) -> None:
        self._file = None
        if self._files.filesystem.exists(self.path):
            self._files.filesystem.remove(self.path)

    def _opened(self) -> File:
        if self._file is None:
            self._file = self._files.open(self)
        return self._file

    def _load(self) -> None:
        self._stored = 0
        if not self._files.filesystem.exists(self.path):
            return
        file = self._opened()
        size = self._entry.size
        count = file.size() // size
        if count > 1 and not any(file.read_at((count - 1) * size, size)):
            # Kafka allocates an index in advance; without a clean stop the zeros are still there.
            low, high = 0, count - 1
            while low < high:
                middle = (low + high) // 2
                if any(file.read_at(middle * size, size)):
                    low = middle + 1
                else:
                    high = middle
            count = low
        self._stored = count

    def _unpack(self, content: bytes | bytearray, slot: int) -> tuple[int, int]:
        first, second = self._entry.unpack_from(content, slot * self._entry.size)
        return first, second

    def _search(self, content: bytes | bytearray, count: int, value: int, field: int) -> int:
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if self._unpack(content, middle)[field] <= value:
                low = middle + 1
            else:
                high = middle
        return low - 1
