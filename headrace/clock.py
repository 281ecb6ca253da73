"""Time as a value that can be handed in, so that rules can be tested without waiting."""

import time
from typing import Protocol


class Clock(Protocol):
    """Wall-clock time for records, monotonic time for deadlines."""

    def now_ms(self) -> int: ...

    def monotonic_ms(self) -> int: ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
