"""Parked answers: each waits for visible bytes or a deadline, and costs nothing until then."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

# One Fetch waits per connection at most, so this is reached only with as many connections.
MAX_PARKED = 100_000


class Watched(Protocol):
    """Something whose bytes become visible: it tells every waiter it holds."""

    waiters: "dict[Wait, None]"


class Wait:
    """One parked answer: resumes once, when enough bytes came, when told to, or at its deadline.

    A partition counts bytes into it as its high watermark moves; no log is read for that.
    """

    __slots__ = ("_missing_bytes", "_resume", "_timer", "_waits", "_watched", "committed_only")

    def __init__(
        self,
        waits: "Waits",
        watched: Iterable[Watched],
        *,
        missing_bytes: int,
        committed_only: bool,
        resume: Callable[[], None],
    ) -> None:
        self._waits = waits
        self._watched = tuple(watched)
        self._missing_bytes = missing_bytes
        self._resume = resume
        self._timer: asyncio.TimerHandle | None = None
        self.committed_only = committed_only

    def count(self, visible_bytes: int) -> None:
        """So many more bytes can be read now."""
        self._missing_bytes -= visible_bytes
        if self._missing_bytes <= 0:
            self.wake()

    def wake(self) -> None:
        """Resume after the burst that woke it, so that one answer carries all of the burst."""
        if self._release():
            self._waits.loop.call_soon(self._resume)

    def expire(self) -> None:
        if self._release():
            self._resume()

    def cancel(self) -> None:
        """Forget the answer: nobody is left to read it."""
        self._release()

    def _release(self) -> bool:
        """Unlink from everything; False if that was done before."""
        if self not in self._waits.parked:
            return False
        del self._waits.parked[self]
        if self._timer is not None:
            self._timer.cancel()
        for watched in self._watched:
            watched.waiters.pop(self, None)
        return True

    def start(self, delay_s: float) -> None:
        self._waits.parked[self] = None
        for watched in self._watched:
            watched.waiters[self] = None
        self._timer = self._waits.loop.call_later(delay_s, self.expire)


class Waits:
    """Every parked answer of one broker, at most `limit` of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, limit: int = MAX_PARKED) -> None:
        self.loop = loop
        self.parked: dict[Wait, None] = {}
        self._limit = limit

    def park(
        self,
        watched: Iterable[Watched],
        *,
        missing_bytes: int,
        committed_only: bool,
        delay_s: float,
        resume: Callable[[], None],
    ) -> Wait:
        """Call `resume` once: when `missing_bytes` became visible, on wake, or after the delay."""
        wait = Wait(
            self,
            watched,
            missing_bytes=missing_bytes,
            committed_only=committed_only,
            resume=resume,
        )
        if len(self.parked) >= self._limit:
            # Full: answer with what there is, rather than hold more.
            self.loop.call_soon(resume)
        else:
            wait.start(delay_s)
        return wait

    def wake_all(self) -> None:
        """Resume everything now parked, for a broker that drains."""
        for wait in list(self.parked):
            wait.wake()
