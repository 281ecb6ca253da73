"""Bytes of a client that cannot be handled yet: half a frame, or one whose turn has not come."""

from struct import Struct

from headrace.broker.memory import RequestMemory

SIZE = Struct(">i")
SIZE_BYTES = 4

# A frame gets memory as its bytes arrive, not on its word: at most so many times what came.
# Large enough that what one read takes of a full batch brings memory for all of it.
GROWTH = 16


class Inbox:
    """Holds bytes in leased memory; empty, as it nearly always is, it holds no memory at all."""

    __slots__ = ("_buffer", "_memory", "end", "start", "view")

    def __init__(self, memory: RequestMemory) -> None:
        self._memory = memory
        self._buffer: bytearray | None = None
        self.view = memoryview(b"")
        self.start = 0
        self.end = 0

    def __bool__(self) -> bool:
        return self._buffer is not None

    def hold(self, rest: memoryview) -> None:
        """Keep a copy of bytes that were received already."""
        size = len(rest)
        wanted = _frame_bytes(rest, 0, size)
        capacity = max(size, min(wanted, GROWTH * size))
        # These bytes must go somewhere: past the bound only this much, then reading stops.
        buffer = self._memory.lease(capacity) or self._memory.lease_past_bound(size)
        self._adopt(buffer, rest)

    def space(self) -> memoryview | None:
        """Where the rest of the first frame goes; None if there is no memory for it now."""
        frame_bytes = _frame_bytes(self.view, self.start, self.end)
        if self.start + frame_bytes > len(self.view) and self.end == len(self.view):
            capacity = min(frame_bytes, GROWTH * (self.end - self.start))
            buffer = self._memory.lease(capacity, replacing_bytes=len(self.view))
            if buffer is None:
                return None
            self._adopt(buffer, self.view[self.start : self.end])
        return self.view[self.end : self.start + frame_bytes]

    def consume(self, start: int) -> None:
        """Everything before `start` is handled."""
        self.start = start
        if start == self.end:
            self.clear()

    def clear(self) -> None:
        buffer, self._buffer = self._buffer, None
        self.view = memoryview(b"")
        self.start = self.end = 0
        if buffer is not None:
            self._memory.release(buffer)

    def _adopt(self, buffer: bytearray, content: memoryview) -> None:
        view = memoryview(buffer)
        size = len(content)
        view[:size] = content
        self.clear()
        self._buffer = buffer
        self.view = view
        self.end = size


def _frame_bytes(view: memoryview, start: int, end: int) -> int:
    """How long the first frame is with its size, as far as that is known."""
    if end - start < SIZE_BYTES:
        return SIZE_BYTES
    return SIZE_BYTES + int(SIZE.unpack_from(view, start)[0])
