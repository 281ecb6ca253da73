"""An event loop whose time jumps to the next timer: hours pass in a moment, in the right order."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

START_MS = 1_700_000_000_000


class VirtualLoop(asyncio.SelectorEventLoop):
    """Never sleeps. When nothing is ready, the time of the next timer has come."""

    def __init__(self) -> None:
        self.elapsed_s = 0.0
        super().__init__(_JumpingSelector(self._jump))

    def time(self) -> float:
        return self.elapsed_s

    def _jump(self, seconds: float) -> None:
        self.elapsed_s += seconds


class VirtualClock:
    """The clock that goes with the running virtual loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.get_running_loop()

    def now_ms(self) -> int:
        return START_MS + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return round(self._loop.time() * 1000)


def run_virtually(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run to the end of `main` in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, jump: Callable[[float], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError("everyone waits, and no timer is set: this would hang for ever")
        self._jump(timeout)
        return []
