"""Which leader epoch began at which offset, as Kafka's leader-epoch-checkpoint keeps it."""

from bisect import bisect_right

from headrace.log.checkpoints import read_rows, write_rows

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """Epochs and their start offsets, both strictly ascending."""

    __slots__ = ("_epochs", "_starts")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LeaderEpochs):
            return NotImplemented
        return self.entries() == other.entries()

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"LeaderEpochs({self.entries()})"

    @property
    def latest(self) -> int:
        return self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> bool:
        """An epoch writes from this offset on; says whether that was new."""
        if epoch <= self.latest:
            return False
        # A later epoch that starts no later leaves nothing of the earlier one.
        while self._starts and self._starts[-1] >= start_offset:
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        return True

    def epoch_at(self, offset: int) -> int | None:
        at = bisect_right(self._starts, offset) - 1
        return self._epochs[at] if at >= 0 else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch at or below the one asked for, and where it ended."""
        if epoch == UNDEFINED_EPOCH or epoch > self.latest:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        following = bisect_right(self._epochs, epoch)
        known = self._epochs[following - 1] if following else epoch
        return known, self._starts[following]

    def truncate_end(self, offset: int) -> bool:
        """Forget epochs that start at or past the offset."""
        before = len(self._starts)
        while self._starts and self._starts[-1] >= offset:
            self._epochs.pop()
            self._starts.pop()
        return len(self._starts) != before

    def truncate_start(self, offset: int) -> bool:
        """Forget epochs that ended before the offset; the one in force starts there."""
        at = bisect_right(self._starts, offset) - 1
        if at < 0 or (at == 0 and self._starts[0] == offset):
            return False
        del self._epochs[:at], self._starts[:at]
        self._starts[0] = offset
        return True

    def encode(self) -> bytes:
        return write_rows(f"{epoch} {start}" for epoch, start in self.entries())

    @classmethod
    def decode(cls, content: bytes) -> "LeaderEpochs":
        """Raises ValueError when the file is torn or is no such file."""
        epochs = cls()
        for row in read_rows(content):
            epoch, start = row.split(" ")
            if not epochs.assign(int(epoch), int(start)):
                raise ValueError(f"epoch {epoch} after {epochs.latest}")
        return epochs
