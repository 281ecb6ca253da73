"""The last offset of every key in the part of a log that compaction has not seen yet."""

from array import array
from bisect import bisect_left, bisect_right

from headrace.log.compaction_records import Keys

# A key of up to 64 bytes, its offset and its share of a hash table, at the worst moment: while
# the table grows. A test measures it.
BYTES_PER_KEY = 256


class LastOffsets:
    """Told the keys of batches in offset order, then asked which records still count.

    Full, it takes no further batch: the cleaning ends there, and the next one goes on.
    """

    def __init__(self, buffer_bytes: int) -> None:
        self._capacity = max(buffer_bytes // BYTES_PER_KEY, 1)
        self._offsets: dict[bytes, int] = {}
        # Every offset that is its key's last, sorted, once all keys are known.
        self._last = array("q")
        self._tombstones = array("q")

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def full(self) -> bool:
        return len(self._offsets) >= self._capacity

    @property
    def utilization(self) -> float:
        return len(self._offsets) / self._capacity

    def note(self, keys: Keys, from_offset: int) -> None:
        """Take note of the records of a batch at or past an offset."""
        if keys.offsets and keys.offsets[0] < from_offset:
            pairs = zip(keys.keys, keys.offsets, strict=True)
            self._offsets.update((key, offset) for key, offset in pairs if offset >= from_offset)
        else:
            self._offsets.update(zip(keys.keys, keys.offsets, strict=True))
        self._tombstones.extend(keys.tombstones)

    def seal(self) -> None:
        """Every key is known."""
        self._last = array("q", sorted(self._offsets.values()))

    def last_between(self, first: int, last: int) -> "array[int]":
        """Offsets in a range of noted ones that are the last of their key."""
        return self._last[bisect_left(self._last, first) : bisect_right(self._last, last)]

    def tombstones_between(self, first: int, last: int) -> "array[int]":
        tombstones = self._tombstones
        return tombstones[bisect_left(tombstones, first) : bisect_right(tombstones, last)]

    def not_superseded(self, keys: Keys) -> list[int]:
        """Which of these records no later record of the same key has replaced."""
        last_of = self._offsets.get
        return [
            offset
            for key, offset in zip(keys.keys, keys.offsets, strict=True)
            if last_of(key, -1) <= offset
        ]
