"""A few disjoint ranges of positions, kept merged."""

from bisect import bisect_right

MAX_RANGES = 64


class Intervals:
    """Half-open ranges; those that touch are merged. Beyond a limit one is dropped."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def covered_to(self, position: int) -> int:
        """The end of the range that holds the position, or the position itself."""
        at = bisect_right(self._ranges, position, key=lambda item: item[0]) - 1
        return max(position, self._ranges[at][1]) if at >= 0 else position

    def add(self, start: int, end: int) -> None:
        merged = [item for item in self._ranges if item[1] < start or item[0] > end]
        touching = [item for item in self._ranges if not (item[1] < start or item[0] > end)]
        start = min([start, *(item[0] for item in touching)])
        end = max([end, *(item[1] for item in touching)])
        merged.append((start, end))
        merged.sort()
        if len(merged) > MAX_RANGES:
            # What is forgotten is only checked once more. Never the range just added.
            del merged[0 if merged[0] != (start, end) else 1]
        self._ranges = merged
