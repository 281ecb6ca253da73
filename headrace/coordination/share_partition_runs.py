"""Ranges of offsets with a value each: how a share partition remembers what differs per record."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar

V = TypeVar("V")


class Run(NamedTuple, Generic[V]):
    """Offsets from first to last, both included, and what holds for all of them."""

    first_offset: int
    last_offset: int
    value: V


_first = itemgetter(0)


class Runs(Generic[V]):
    """Runs in order that do not overlap; neighbours with one value are one run."""

    __slots__ = ("_runs",)

    def __init__(self, runs: Iterable[Run[V]] = ()) -> None:
        self._runs: list[Run[V]] = list(runs)

    def __iter__(self) -> Iterator[Run[V]]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Runs) and self._runs == other._runs

    __hash__ = None  # type: ignore[assignment]  # runs change

    def __repr__(self) -> str:
        return f"Runs({self._runs})"

    def copy(self) -> "Runs[V]":
        return Runs(self._runs)

    @property
    def last_offset(self) -> int | None:
        return self._runs[-1].last_offset if self._runs else None

    def at(self, offset: int) -> Run[V] | None:
        """The run that holds an offset."""
        index = bisect_right(self._runs, offset, key=_first) - 1
        if index >= 0 and self._runs[index].last_offset >= offset:
            return self._runs[index]
        return None

    def overlapping(self, first_offset: int, last_offset: int) -> list[Run[V]]:
        """The parts of runs that lie inside a range."""
        low, high = self._span(first_offset, last_offset)
        return [
            Run(max(first, first_offset), min(last, last_offset), value)
            for first, last, value in self._runs[low:high]
        ]

    def put(self, first_offset: int, last_offset: int, value: V) -> None:
        """Let a value hold for a range, in place of whatever held there."""
        self._replace(first_offset, last_offset, [Run(first_offset, last_offset, value)])

    def cut(self, first_offset: int, last_offset: int) -> None:
        """Forget what holds for a range."""
        self._replace(first_offset, last_offset, [])

    def cut_below(self, offset: int) -> None:
        if self._runs and self._runs[0].first_offset < offset:
            self.cut(self._runs[0].first_offset, offset - 1)

    def _span(self, first_offset: int, last_offset: int) -> tuple[int, int]:
        """Which runs have a part in a range."""
        low = bisect_right(self._runs, first_offset, key=_first)
        if low and self._runs[low - 1].last_offset >= first_offset:
            low -= 1
        return low, bisect_right(self._runs, last_offset, low, key=_first)

    def _replace(self, first_offset: int, last_offset: int, middle: list[Run[V]]) -> None:
        low, high = self._span(first_offset, last_offset)
        # With a neighbour on each side, because it may go on with the same value.
        low, high = max(low - 1, 0), min(high + 1, len(self._runs))
        before: list[Run[V]] = []
        after: list[Run[V]] = []
        for first, last, value in self._runs[low:high]:
            if first < first_offset:
                before.append(Run(first, min(last, first_offset - 1), value))
            if last > last_offset:
                after.append(Run(max(first, last_offset + 1), last, value))
        self._runs[low:high] = _merged([*before, *middle, *after])


def _merged(runs: Iterable[Run[V]]) -> list[Run[V]]:
    merged: list[Run[V]] = []
    for run in runs:
        last = merged[-1] if merged else None
        if last and last.last_offset + 1 == run.first_offset and last.value == run.value:
            merged[-1] = Run(last.first_offset, run.last_offset, run.value)
        else:
            merged.append(run)
    return merged
