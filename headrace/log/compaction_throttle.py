"""A limit on how many bytes the cleaner reads and writes in a second."""

import time
from collections.abc import Callable

from headrace.clock import Clock

# A wait is cut into naps, so that a clock that jumps costs no more than one.
MAX_NAP_S = 1.0


class IoThrottle:
    """Called with every byte count; sleeps whenever they came faster than the rate."""

    def __init__(
        self,
        bytes_per_second: float,
        clock: Clock,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._started_ms = clock.monotonic_ms()
        self._bytes = 0

    def __call__(self, count: int) -> None:
        self._bytes += count
        ahead_s = self._bytes / self._rate - (self._clock.monotonic_ms() - self._started_ms) / 1000
        while ahead_s > 0:
            nap_s = min(ahead_s, MAX_NAP_S)
            self._sleep(nap_s)
            ahead_s -= nap_s
