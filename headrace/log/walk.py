"""What offset is due next while the batches of a segment are walked."""

from headrace.log.damage import Fence
from headrace.protocol.records import BatchView


class Walk:
    """Which offset comes next while batches are walked, and which came before the last one."""

    __slots__ = ("before", "began", "expected", "known", "previous")

    def __init__(self, base_offset: int, position: int) -> None:
        self.expected = base_offset
        # Whether `expected` is more than a lower bound.
        self.known = position == 0
        self.before = base_offset
        self.previous = -1
        # The position of the first batch, if it is not the segment's first.
        self.began = position or -2

    def step(self, position: int, batch: BatchView) -> bool:
        """Go past a batch; False if it starts before the one before it ends."""
        base_offset = batch.base_offset
        if base_offset < self.expected:
            return False
        self.before = self.expected
        self.previous = position
        self.expected = base_offset + batch.last_offset_delta + 1
        self.known = True
        return True

    def take_back(self) -> None:
        self.known = self.previous != self.began
        self.expected, self.previous = self.before, -1

    def hop(self, fence: Fence) -> None:
        self.expected = max(self.expected, fence.first_offset)
        self.previous = -1
