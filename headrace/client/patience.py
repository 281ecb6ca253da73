"""Asking again while a cluster settles: a leader is chosen, a coordinator loads."""

import time
from collections.abc import Callable, Collection
from typing import TypeVar

from headrace.errors import ErrorCode, KafkaError

T = TypeVar("T")

ATTEMPTS = 100
PAUSE_S = 0.1


def patiently(ask: Callable[[], T], *, final: Collection[ErrorCode] = ()) -> T:
    """What ask returns once it no longer fails in a way that passes; `final` codes do not pass."""
    for _ in range(ATTEMPTS - 1):
        try:
            return ask()
        except KafkaError as error:
            if not error.code.retriable or error.code in final:
                raise
        time.sleep(PAUSE_S)
    return ask()
