"""The memory that requests wait in: leased buffers under one bound for the whole process."""

from collections.abc import Callable

# A buffer this large costs page faults to make anew (about 100 us a megabyte), so a few are kept.
POOLED_BUFFERS = 8
POOLED_BUFFER_BYTES = 4 << 20
SMALLEST_BUFFER_BYTES = 4 << 10


class RequestMemory:
    """Leases buffers while their sum stays under the bound; who finds none free is told later."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._pool: dict[int, list[bytearray]] = {}
        self._pooled = 0
        self._waiting: dict[Callable[[], None], None] = {}
        self.leased_bytes = 0

    def lease(self, size: int, *, replacing_bytes: int = 0) -> bytearray | None:
        """A buffer of at least `size` bytes; None if the bound is reached.

        Whoever is alone is always granted one, so that no request can block forever.
        """
        capacity = max(SMALLEST_BUFFER_BYTES, 1 << (size - 1).bit_length())
        others_bytes = self.leased_bytes - replacing_bytes
        if others_bytes and others_bytes + capacity > self._limit_bytes:
            return None
        return self._grant(capacity)

    def lease_past_bound(self, size: int) -> bytearray:
        """For bytes that were received already; the connection reads no more until some is free."""
        return self._grant(max(SMALLEST_BUFFER_BYTES, 1 << (size - 1).bit_length()))

    def release(self, buffer: bytearray) -> None:
        capacity = len(buffer)
        self.leased_bytes -= capacity
        if capacity <= POOLED_BUFFER_BYTES and self._pooled < POOLED_BUFFERS:
            self._pool.setdefault(capacity, []).append(buffer)
            self._pooled += 1
        waiting, self._waiting = self._waiting, {}
        for freed in waiting:
            freed()

    @property
    def contended(self) -> bool:
        """Whether someone waits for memory."""
        return bool(self._waiting)

    def when_freed(self, freed: Callable[[], None]) -> None:
        """Call back at the next release; one entry per waiting connection."""
        self._waiting[freed] = None

    def forget(self, freed: Callable[[], None]) -> None:
        self._waiting.pop(freed, None)

    def _grant(self, capacity: int) -> bytearray:
        self.leased_bytes += capacity
        pooled = self._pool.get(capacity)
        if pooled:
            self._pooled -= 1
            return pooled.pop()
        return bytearray(capacity)
