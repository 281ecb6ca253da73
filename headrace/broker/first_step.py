"""Coroutines begun in place: only what comes to wait needs a task, and a turn of the loop."""

from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Begun(Generic[T]):
    """The rest of a coroutine, once its first step came to wait for something.

    The first step is `work.send(None)`: StopIteration holds the result of work that never waits.
    It must not ask for its task, for it has none; whoever awaits the rest gives it one.
    """

    __slots__ = ("_awaited", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], awaited: Any) -> None:
        self._work = work
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, T]:
        work, awaited = self._work, self._awaited
        try:
            while True:
                try:
                    sent = yield awaited
                except GeneratorExit:
                    work.close()
                    raise
                except BaseException as error:  # noqa: BLE001  whatever it is, it is the work's
                    awaited = work.throw(error)
                else:
                    awaited = work.send(sent)
        except StopIteration as done:
            result: T = done.value
            return result
