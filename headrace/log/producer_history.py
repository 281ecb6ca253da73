"""Producer state of one log as its snapshots and its batches tell it."""

from bisect import bisect_right

from headrace.log.aborted import Aborted
from headrace.log.filesystem import Filesystem
from headrace.log.producers import Producers
from headrace.log.segment import Segment
from headrace.log.snapshots import Snapshots, replay
from headrace.log.txn_index import AbortedTxn
from headrace.protocol.records import HEADER_BYTES, BatchView


class ProducerHistory:
    """Snapshots and aborted transactions of a log, whose list of segments it shares."""

    __slots__ = ("_segments", "aborted", "snapshots")

    def __init__(self, filesystem: Filesystem, directory: str, segments: list[Segment]) -> None:
        self._segments = segments
        self.aborted = Aborted(filesystem, self)
        self.snapshots = Snapshots(filesystem, directory)

    def rebuild(self, known_offset: int, end_offset: int) -> Producers:
        """State at the end of the log; what lies below `known_offset` was synced, all of it."""
        self.snapshots.remove_after(end_offset)
        replay_from, producers = self.snapshots.load(known_offset)
        for segment in self._segments:
            if segment.next_offset > replay_from:
                self.aborted.truncate(segment, replay_from)
        replay(self._segments, replay_from, producers, self.aborted.add)
        return producers

    def header_at(self, offset: int) -> BatchView | None:
        """The header of the batch that holds an offset, or the next one; None if there is none."""
        at = bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1
        found = self._segments[at].locate(offset) if at >= 0 else None
        if found is None:
            return None
        return BatchView(self._segments[at].opened().read_at(found[0], HEADER_BYTES))

    def aborted_in(self, segment: Segment) -> list[AbortedTxn]:
        """Read off the log itself, from its start, because transactions cross segments."""
        found: list[AbortedTxn] = []

        def add(at: Segment, entry: AbortedTxn) -> None:
            if at is segment:
                found.append(entry)

        replay(self._segments[: self._segments.index(segment) + 1], 0, Producers(), add)
        return found
