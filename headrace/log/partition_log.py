"""The segments of one partition as one log: append, read, roll, its offsets."""

import logging
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from headrace.clock import Clock
from headrace.errors import ErrorCode, KafkaError
from headrace.log import compaction_swap, timestamps
from headrace.log.filesystem import join
from headrace.log.leader_epochs import FILE_NAME
from headrace.log.open_files import OpenFiles
from headrace.log.origin import Origin
from headrace.log.producer_history import ProducerHistory
from headrace.log.producers import Duplicate
from headrace.log.reading import EMPTY, FileSlice, read_segment
from headrace.log.recovery import Known, open_segments
from headrace.log.rolling import RollRule
from headrace.log.segment import Segment
from headrace.log.settings import TopicSettings
from headrace.log.sync_ticket import Document, SyncTicket, Unsynced
from headrace.log.topic_ids import load_topic_id, save_topic_id
from headrace.log.txn_index import AbortedTxn
from headrace.log.validation import validate
from headrace.protocol.records import BatchView

__all__ = ["NEW", "Appended", "FileSlice", "PartitionLog", "SyncTicket"]

logger = logging.getLogger(__name__)

NEW = Known()
# A checkpoint leaves a snapshot behind once this much would have to be replayed.
SNAPSHOT_BYTES = 64 << 10


class Appended(NamedTuple):
    """Where records came to lie, or where they already lay."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


class PartitionLog:
    """Offsets from `log_start_offset` up to `log_end_offset`, in segments, oldest first.

    What lies below `synced_offset` survives a power cut; what lies below `log_end_offset`
    survives a kill of the process. A failed call leaves the log as it was.
    """

    def __init__(
        self, files: OpenFiles, directory: str, settings: TopicSettings, clock: Clock, known: Known
    ) -> None:
        self.name = directory.rpartition("/")[2]
        self.directory = directory
        self._topic_id: uuid.UUID | None = None
        self._files = files
        self._clock = clock
        found = open_segments(
            files,
            directory,
            known,
            contiguous=not settings.compacted,
            interval_bytes=settings.index_interval_bytes,
        )
        self.segments = found.segments
        self._bases = [segment.base_offset for segment in found.segments]
        self._active = found.segments[-1]
        self.settings = settings
        self.leader_epochs = found.leader_epochs
        self.log_end_offset = found.next_offset
        self.log_start_offset = found.log_start_offset
        # Whether by sync or by the kernel: what survived is synced with the first ticket.
        self.synced_offset = (
            self.log_end_offset if known.clean else min(known.recovery_point, self.log_end_offset)
        )
        self._history = ProducerHistory(files.filesystem, directory, self.segments)
        self.producers = self._history.rebuild(
            self.log_end_offset if known.clean else self.synced_offset, self.log_end_offset
        )
        self._unsnapshotted_bytes = 0
        self._unsynced = Unsynced(files.filesystem, directory, known=known.clean)
        self._unsynced.paths += [
            segment.path
            for segment in self.segments[:-1]
            if segment.next_offset > self.synced_offset
        ]
        self._epochs_changed = found.epochs_changed
        self._tail_torn = False

    @classmethod
    def open(
        cls,
        files: OpenFiles,
        directory: str,
        settings: TopicSettings,
        clock: Clock,
        known: Known = NEW,
    ) -> "PartitionLog":
        """Open the log in a directory that exists; `known` is what the checkpoints say of it."""
        return cls(files, directory, settings, clock, known)

    @property
    def settings(self) -> TopicSettings:
        """The topic's settings; set anew they hold from the next append on."""
        return self._settings

    @settings.setter
    def settings(self, settings: TopicSettings) -> None:
        self._settings = settings
        self._roll_rule = RollRule(settings)
        self._active.indexes.interval_bytes = settings.index_interval_bytes

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    # Appending

    def append(
        self,
        records: memoryview | bytearray,
        *,
        origin: Origin = Origin.CLIENT,
        leader_epoch: int = 0,
    ) -> Appended:
        """Write batches at the end, or find that they are there already.

        Raises KafkaError, KAFKA_STORAGE_ERROR if the disk refuses, and then nothing is written.
        """
        now_ms = self._clock.now_ms()
        validated = validate(records, settings=self._settings, now_ms=now_ms, origin=origin)
        batches = validated.batches
        producers = self.producers
        latest_epoch = self.leader_epochs.latest
        # Epochs never go back, whatever a damaged or a foreign log taught us.
        leader_epoch = max(leader_epoch, latest_epoch)
        next_offset = base_offset = self.log_end_offset
        for batch in batches:
            if batch.producer_id >= 0:
                duplicate = producers.check(batch, origin=origin)
                if duplicate is not None:
                    return self._duplicate(duplicate)
            batch.stamp(next_offset, leader_epoch)
            next_offset += batch.last_offset_delta + 1
        self._write(validated.buffer, batches, now_ms)
        for batch in batches:
            if batch.producer_id >= 0:
                aborted = producers.update(batch)
                if aborted is not None:
                    self._history.aborted.add(self._active, aborted)
        if leader_epoch > latest_epoch:
            self._epochs_changed |= self.leader_epochs.assign(leader_epoch, base_offset)
        self.log_end_offset = next_offset
        append_time = validated.log_append_time_ms
        return Appended(base_offset, next_offset - 1, append_time, self.log_start_offset, False)

    def _duplicate(self, duplicate: Duplicate) -> Appended:
        return Appended(
            duplicate.base_offset,
            duplicate.last_offset,
            duplicate.timestamp,
            self.log_start_offset,
            True,
        )

    def _write(
        self, content: memoryview | bytearray, batches: list[BatchView], now_ms: int
    ) -> None:
        size = len(content)
        try:
            if self._tail_torn:
                self._mend_tail()
            if self._roll_rule.due(self._active, size, batches[-1], now_ms):
                self._roll(now_ms)
            self._active.append(content, batches)
        except OSError as error:
            self._tail_torn = True
            self._mend_quietly()
            raise self._storage_error("write", error) from error
        self._unsnapshotted_bytes += size

    def roll_if_due(self, now_ms: int) -> bool:
        """Start a new segment when the first record of this one is older than segment.ms."""
        if not self._roll_rule.aged(self._active, now_ms):
            return False
        self.roll(now_ms)
        return True

    def roll(self, now_ms: int) -> None:
        """Start a new segment, whatever this one holds."""
        try:
            self._roll(now_ms)
        except OSError as error:
            raise self._storage_error("write", error) from error

    def _roll(self, now_ms: int) -> None:
        old = self._active
        old.indexes.seal()
        self._write_snapshot()
        segment = Segment.create(self._files, self.directory, self.log_end_offset)
        segment.indexes.interval_bytes = self._settings.index_interval_bytes
        segment.epoch_at = self.leader_epochs.epoch_at
        segment.created_ms = now_ms
        if self.synced_offset < self.log_end_offset:
            self._unsynced.paths.append(old.path)
        self._unsynced.changed()
        self.segments.append(segment)
        self._bases.append(segment.base_offset)
        self._active = segment
        logger.info("segment rolled partition=%s base_offset=%d", self.name, segment.base_offset)

    def _write_snapshot(self) -> None:
        path = self._history.snapshots.write(self.log_end_offset, self.producers)
        if path is not None:
            self._unsynced.created(path)
        self._unsnapshotted_bytes = 0

    def _mend_tail(self) -> None:
        self._active.opened().truncate(self._active.size)
        self._tail_torn = False

    def _mend_quietly(self) -> None:
        try:
            self._mend_tail()
        except OSError as error:
            # The next append tries again before it writes.
            logger.warning("half a write left behind partition=%s reason=%s", self.name, error)

    def _storage_error(self, call: str, error: OSError) -> KafkaError:
        logger.error("%s failed partition=%s reason=%s", call, self.name, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name}: {error.strerror}")

    # Reading

    def read(self, offset: int, *, max_bytes: int, end_offset: int, min_one: bool) -> FileSlice:
        """Whole batches from the one that holds the offset, none that reaches `end_offset`."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} has offsets {self.log_start_offset} to {self.log_end_offset}, "
                f"not {offset}",
            )
        first = bisect_right(self._bases, offset) - 1
        try:
            for segment in islice(self.segments, first, None):
                found = read_segment(
                    segment, offset, max_bytes=max_bytes, end_offset=end_offset, min_one=min_one
                )
                if found is not None:
                    return found
        except OSError as error:
            raise self._storage_error("read", error) from error
        return EMPTY

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """The aborted transactions a reader of [start, end) must leave out."""
        at = max(bisect_right(self._bases, start_offset) - 1, 0)
        return self._history.aborted.between(self.segments[at:], start_offset, end_offset)

    def offset_for_time(self, timestamp_ms: int) -> timestamps.TimedOffset | None:
        """The first record at or past a time."""
        try:
            return timestamps.first_at_or_after(self.segments, timestamp_ms, self.log_start_offset)
        except OSError as error:
            raise self._storage_error("read", error) from error

    def max_timestamp(self) -> timestamps.TimedOffset | None:
        """The first record with the largest timestamp."""
        try:
            return timestamps.latest(self.segments)
        except OSError as error:
            raise self._storage_error("read", error) from error

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # Syncing

    def dirty(self) -> SyncTicket | None:
        """What must be synced for everything written so far to be safe; None if it is."""
        writes = self._history.aborted.unwritten()
        unsynced = self.log_end_offset > self.synced_offset
        # Snapshots and the topic's id alone can wait: without records nothing rests on them.
        if not (unsynced or writes or self._epochs_changed):
            return None
        documents: tuple[Document, ...] = ()
        if self._epochs_changed:
            documents = (Document(join(self.directory, FILE_NAME), self.leader_epochs.encode()),)
        active = self._active.opened() if unsynced and self._active.size else None
        return self._unsynced.ticket(self.log_end_offset, active, writes, documents)

    def synced(self, ticket: SyncTicket) -> None:
        """The ticket's sync succeeded."""
        self.synced_offset = max(self.synced_offset, min(ticket.next_offset, self.log_end_offset))
        self._unsynced.settle(ticket)
        self._history.aborted.written(len(ticket.writes))
        for document in ticket.documents:
            self._epochs_changed = document.content != self.leader_epochs.encode()

    def modified_ms(self, segment: Segment) -> int:
        """When a segment was last written, by the clock of the filesystem."""
        return self._files.filesystem.modified_ms(segment.path)

    # Whose it is

    @property
    def topic_id(self) -> uuid.UUID | None:
        """The topic this directory belongs to; None if it does not say, or not legibly."""
        if self._topic_id is None:
            self._topic_id = load_topic_id(self._files.filesystem, self.directory)
        return self._topic_id

    def belong_to(self, topic_id: uuid.UUID) -> None:
        """Write down whose directory this is; on stable storage with the first sync."""
        self._unsynced.created(save_topic_id(self._files.filesystem, self.directory, topic_id))
        self._topic_id = topic_id

    # Deleting and closing

    def delete_records(self, before_offset: int) -> int:
        """Move the log's start; segments below it go with the next checkpoint. The new start."""
        if before_offset > self.log_end_offset or before_offset < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} ends at {self.log_end_offset}, not at {before_offset}",
            )
        if before_offset > self.log_start_offset:
            self.log_start_offset = before_offset
            self._epochs_changed |= self.leader_epochs.truncate_start(before_offset)
        return self.log_start_offset

    def truncate(self, offset: int) -> None:
        """Cut the log back to an offset, or to the start of the batch that holds it."""
        if offset >= self.log_end_offset:
            return
        while len(self.segments) > 1 and self._bases[-1] >= offset:
            segment = self.segments.pop()
            self._bases.pop()
            self._history.aborted.remove(segment)
            segment.remove()
        self._active = self.segments[-1]
        found = self._active.locate(offset)
        if found is not None:
            self._active.truncate(found[0], max(found[1], self._bases[-1]))
        self._active.opened().sync()
        self._files.filesystem.sync_dir(self.directory)
        self.log_end_offset = self._active.next_offset
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
        self.synced_offset = min(self.synced_offset, self.log_end_offset)
        self._epochs_changed |= self.leader_epochs.truncate_end(self.log_end_offset)
        self.producers = self._history.rebuild(self.log_end_offset, self.log_end_offset)

    def remove_segments_below(self, offset: int) -> list[str]:
        """Drop whole segments below an offset that is the log's start on stable storage.

        Their files have other names now; the paths returned are still to be removed.
        """
        moved: list[str] = []
        while len(self.segments) > 1 and self._bases[1] <= offset:
            segment = self.segments[0]
            moved += compaction_swap.set_aside(
                self._files.filesystem, self.directory, segment.base_offset
            )
            self._history.aborted.forget(segment)
            _release(segment)
            del self.segments[0], self._bases[0]
        return moved

    def replace_segments(self, bases: Sequence[int], size: int) -> list[str] | None:
        """Put the one segment that compaction committed in the place of neighbouring ones.

        Returns the paths still to be removed; None, and nothing done, if they are not all there.
        """
        at = bisect_left(self._bases, bases[0])
        end = at + len(bases)
        if self._bases[at:end] != list(bases) or end >= len(self._bases):
            return None
        old = self.segments[at:end]
        moved = compaction_swap.exchange(self._files.filesystem, self.directory, bases)
        segment = Segment(self._files, self.directory, bases[0], size)
        segment.next_offset = old[-1].next_offset
        # Every batch was checked when it was copied.
        segment.trusted_from = 0
        segment.indexes.interval_bytes = self._settings.index_interval_bytes
        segment.epoch_at = self.leader_epochs.epoch_at
        self.segments[at:end], self._bases[at:end] = [segment], [bases[0]]
        for replaced in old:
            self._history.aborted.forget(replaced)
            _release(replaced)
        return moved

    def checkpoint(self) -> None:
        """Leave a snapshot and index entries behind, so that the next start reads little."""
        if self._unsnapshotted_bytes >= SNAPSHOT_BYTES:
            try:
                self._write_snapshot()
                self._active.indexes.flush()
            except OSError as error:
                # Older snapshots serve, and a full disk must not keep checkpoints from deleting.
                logger.warning("snapshot failed partition=%s reason=%s", self.name, error)

    def close(self, *, clean: bool = True) -> None:
        """Bring everything to disk, if `clean`, and give up the files."""
        if clean:
            if self._active.size:
                self._active.indexes.seal()
            if self.log_end_offset > max(self._history.snapshots.latest, 0):
                self._write_snapshot()
            ticket = self.dirty()
            if ticket is not None:
                ticket.sync()
                self.synced(ticket)
        for segment in self.segments:
            _release(segment)


def _release(segment: Segment) -> None:
    """Hold none of its files open: a removed file takes up the disk for as long as one does."""
    for holder in (segment, segment.indexes.by_offset, segment.indexes.by_time):
        holder.give_up()
