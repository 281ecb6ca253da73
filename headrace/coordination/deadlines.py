"""Deadlines by key, where moving one later costs a dictionary write: heartbeats do little else."""

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    """Soft state: a key is due at most once for each time it was set.

    The heap holds at most one live entry per key, never later than the key's deadline. An entry
    that comes up too early, because the deadline moved since, is put back at the new time.
    """

    def __init__(self) -> None:
        self._at: dict[K, int] = {}
        self._queued: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, key: K) -> bool:
        return key in self._at

    def set(self, key: K, at_ms: int) -> None:
        self._at[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or at_ms < queued:
            self._push(key, at_ms)

    def cancel(self, key: K) -> None:
        self._at.pop(key, None)

    def next_ms(self) -> int | None:
        """No key is due before this time."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> list[K]:
        """Every key whose deadline has come; each is forgotten as it is returned."""
        found: list[K] = []
        while self._heap and self._heap[0][0] <= now_ms:
            queued_at, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) != queued_at:
                continue
            del self._queued[key]
            at_ms = self._at.get(key)
            if at_ms is None:
                continue
            if at_ms <= now_ms:
                del self._at[key]
                found.append(key)
            else:
                self._push(key, at_ms)
        return found

    def _push(self, key: K, at_ms: int) -> None:
        # The running number keeps the heap from ever comparing two keys.
        self._pushed += 1
        self._queued[key] = at_ms
        heapq.heappush(self._heap, (at_ms, self._pushed, key))
