"""Aborted transactions of one partition: a list per segment, kept in its .txnindex file."""

import logging
from typing import Protocol

from headrace.log.filesystem import Filesystem
from headrace.log.segment import Segment
from headrace.log.sync_ticket import Write
from headrace.log.txn_index import ENTRY_BYTES, AbortedTxn, decode, encode
from headrace.protocol.records import BatchView

logger = logging.getLogger(__name__)


class Log(Protocol):
    """The log itself, to hold the files to and to make them anew from."""

    def header_at(self, offset: int) -> BatchView | None: ...

    def aborted_in(self, segment: Segment) -> list[AbortedTxn]: ...


class Aborted:
    """Entries in the order their transactions ended, each in the segment of its marker.

    New ones wait in memory for the next sync, which writes them. A file that does not agree
    with the log is made anew from it.
    """

    __slots__ = ("_entries", "_filesystem", "_log", "_unwritten")

    def __init__(self, filesystem: Filesystem, log: Log) -> None:
        self._filesystem = filesystem
        self._log = log
        self._entries: dict[int, list[AbortedTxn]] = {}
        self._unwritten: list[tuple[Segment, int, AbortedTxn]] = []

    def add(self, segment: Segment, entry: AbortedTxn) -> None:
        entries = self._of(segment)
        self._unwritten.append((segment, len(entries), entry))
        entries.append(entry)

    def unwritten(self) -> list[Write]:
        """What a sync must write before anything up to the end of the log counts as synced."""
        return [
            Write(_path(segment), slot * ENTRY_BYTES, encode(entry))
            for segment, slot, entry in self._unwritten
        ]

    def written(self, count: int) -> None:
        """The first of the unwritten ones are on disk."""
        del self._unwritten[:count]

    def truncate(self, segment: Segment, offset: int) -> None:
        """Forget transactions that ended at or past the offset."""
        entries = self._of(segment)
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) != len(entries):
            file = self._filesystem.open(_path(segment), create=True)
            file.truncate(len(kept) * ENTRY_BYTES)
            self._entries[segment.base_offset] = kept
            self._unwritten = [
                item for item in self._unwritten if item[0] is not segment or item[1] < len(kept)
            ]

    def forget(self, segment: Segment) -> None:
        """The segment's file is another now, or it is gone."""
        self._entries.pop(segment.base_offset, None)
        self._unwritten = [item for item in self._unwritten if item[0] is not segment]

    def remove(self, segment: Segment) -> None:
        self.forget(segment)
        if self._filesystem.exists(_path(segment)):
            self._filesystem.remove(_path(segment))

    def between(
        self, segments: list[Segment], start_offset: int, end_offset: int
    ) -> list[AbortedTxn]:
        """Those a reader of [start, end) must leave out; `segments` starts at the start."""
        found = []
        for segment in segments:
            for entry in self._of(segment):
                if entry.last_offset >= start_offset and entry.first_offset < end_offset:
                    found.append(entry)
                if entry.last_stable_offset >= end_offset:
                    # Every transaction open at the end of the range has been seen.
                    return found
        return found

    def _of(self, segment: Segment) -> list[AbortedTxn]:
        entries = self._entries.get(segment.base_offset)
        if entries is None:
            entries = self._entries[segment.base_offset] = self._load(segment)
        return entries

    def _load(self, segment: Segment) -> list[AbortedTxn]:
        path = _path(segment)
        if not self._filesystem.exists(path):
            return []
        try:
            entries = list(decode(self._filesystem.read(path)))
            for entry in entries:
                self._check(segment, entry)
        except ValueError as error:
            logger.warning("aborted transactions read off the log file=%s reason=%s", path, error)
            entries = self._log.aborted_in(segment)
            self._unwritten += [(segment, slot, entry) for slot, entry in enumerate(entries)]
            self._filesystem.open(path).truncate(0)
        return entries

    def _check(self, segment: Segment, entry: AbortedTxn) -> None:
        """The file has no checksum: what it says must show in the batches it speaks of."""
        if not segment.base_offset <= entry.last_offset < segment.next_offset:
            raise ValueError(f"a marker at {entry.last_offset}, outside the segment")
        for offset in (entry.first_offset, entry.last_offset):
            batch = self._log.header_at(offset)
            if batch is None or batch.base_offset > offset:
                # Deleted or compacted since.
                continue
            if batch.base_offset != offset or batch.producer_id != entry.producer_id:
                raise ValueError(f"producer {entry.producer_id} began nothing at {offset}")


def _path(segment: Segment) -> str:
    return segment.path.removesuffix(".log") + ".txnindex"
