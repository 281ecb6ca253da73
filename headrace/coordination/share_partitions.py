"""Every share partition of one partition of __share_group_state, as one machine."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from headrace.coordination.deadlines import Deadlines
from headrace.coordination.group import Now
from headrace.coordination.machine import Decision
from headrace.coordination.share_partition import (
    UNINITIALIZED,
    AcknowledgementBatch,
    AcquiredRecords,
    DeliveryState,
    Lock,
    ShareLimits,
    SharePartition,
    acknowledged,
    released,
)
from headrace.coordination.share_partition_acquire import BatchRange, Wanted, acquirable
from headrace.coordination.share_partition_runs import Run
from headrace.coordination.share_records import (
    SharePartitionKey,
    ShareRecord,
    ShareSnapshot,
    ShareUpdate,
    SnapshotValue,
    StateBatch,
)
from headrace.errors import ErrorCode, KafkaError

ShareDecision = Decision[ShareRecord, SharePartitionKey]
"""Effects name the partitions of which records became available, so that fetches look again."""

UPDATES_PER_SNAPSHOT = 500

_NOTHING: ShareDecision = Decision()


class SharePartitions:
    """Share partitions by key. What the log knows changes by replay alone; locks are soft."""

    def __init__(self, updates_per_snapshot: int = UPDATES_PER_SNAPSHOT) -> None:
        self.deadlines: Deadlines[SharePartitionKey] = Deadlines()
        self._updates_per_snapshot = updates_per_snapshot
        self._partitions: dict[SharePartitionKey, SharePartition] = {}

    def __iter__(self) -> Iterator[SharePartition]:
        return iter(self._partitions.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SharePartitions) and self._partitions == other._partitions

    __hash__ = None  # type: ignore[assignment]  # it changes

    def find(self, key: SharePartitionKey) -> SharePartition | None:
        return self._partitions.get(key)

    # Decisions.

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, now: Now
    ) -> ShareDecision:
        """Begin, or begin again at another offset; an older epoch than the known is refused."""
        known = self._partitions.get(key)
        if known is not None and state_epoch < known.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH, f"it is {known.state_epoch}")
        value = SnapshotValue(
            0 if known is None else known.snapshot_epoch + 1,
            state_epoch,
            0 if known is None else known.leader_epoch,
            start_offset,
            UNINITIALIZED if start_offset == UNINITIALIZED else 0,
            now.wall_ms,
            now.wall_ms,
        )
        return Decision((ShareSnapshot(key, value),), (key,))

    def start_at(self, key: SharePartitionKey, start_offset: int, now: Now) -> ShareDecision:
        """The first fetch says where the group begins."""
        known = self._partitions.get(key)
        if known is None:
            return self.initialize(key, 0, start_offset, now)
        if known.is_initialized:
            return _NOTHING
        value = replace(known.snapshot(now.wall_ms), start_offset=start_offset)
        return Decision((ShareSnapshot(key, value),))

    def acquire(
        self,
        key: SharePartitionKey,
        batches: Sequence[BatchRange],
        wanted: Wanted,
        limits: ShareLimits,
        now: Now,
    ) -> list[AcquiredRecords]:
        """Take and lock records at once: a lock is soft, so there is nothing to write."""
        partition = self._partitions[key]
        found = acquirable(partition, batches, wanted, limits)
        if found:
            partition.lock(found, wanted.member_id, now.monotonic_ms + limits.lock_duration_ms)
            self._watch(partition)
        return found

    def acknowledge(
        self,
        key: SharePartitionKey,
        member_id: str,
        batches: Sequence[AcknowledgementBatch],
        limits: ShareLimits,
        now: Now,
    ) -> ShareDecision:
        partition = self._partitions.get(key)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"nothing was fetched of {key}")
        found = acknowledged(partition, member_id, batches, limits.delivery_count_limit)
        partition.renew(found.renewed, now.monotonic_ms + limits.lock_duration_ms)
        return self._changed(partition, found.batches, now)

    def release(
        self, key: SharePartitionKey, member_id: str, limits: ShareLimits, now: Now
    ) -> ShareDecision:
        """Whatever this member holds is offered again."""
        return self._release(key, lambda partition: partition.held_by(member_id), limits, now)

    def expire(self, key: SharePartitionKey, limits: ShareLimits, now: Now) -> ShareDecision:
        """Whatever was held too long is offered again."""
        return self._release(
            key, lambda partition: partition.overdue(now.monotonic_ms), limits, now
        )

    def archive(
        self, key: SharePartitionKey, ranges: Iterable[BatchRange], now: Now
    ) -> ShareDecision:
        """Nobody shall see these: their transaction was aborted."""
        partition = self._partitions[key]
        batches = [
            StateBatch(run.first_offset, run.last_offset, DeliveryState.ARCHIVED, run.value)
            for each in ranges
            for run in partition.available(*each)
        ]
        return self._changed(partition, batches, now)

    def log_start_moved(
        self, key: SharePartitionKey, log_start_offset: int, now: Now
    ) -> ShareDecision:
        """Records below no longer exist."""
        partition = self._partitions[key]
        if not partition.is_initialized or partition.start_offset >= log_start_offset:
            return _NOTHING
        return self._changed(partition, (), now, start_offset=log_start_offset)

    def delete(self, keys: Iterable[SharePartitionKey]) -> ShareDecision:
        known = [key for key in keys if key in self._partitions]
        return Decision(tuple(ShareSnapshot(key, None) for key in known), tuple(known))

    def delete_topics(self, topic_ids: Iterable[object]) -> ShareDecision:
        gone = frozenset(topic_ids)
        return self.delete([key for key in self._partitions if key.topic_id in gone])

    def snapshots(self, now: Now) -> ShareDecision:
        """All there is, so that what the log had before is not needed any more."""
        return Decision(tuple(ShareSnapshot(each.key, each.snapshot(now.wall_ms)) for each in self))

    # Replay.

    def replay(self, record: ShareRecord) -> None:
        if record.value is None:
            self._partitions.pop(record.key, None)
            self.deadlines.cancel(record.key)
        elif isinstance(record, ShareSnapshot):
            partition = self._partitions.get(record.key)
            if partition is None:
                partition = self._partitions[record.key] = SharePartition(record.key)
            assert isinstance(record.value, SnapshotValue)
            partition.replay_snapshot(record.value)
        else:
            self._replay_update(record)

    def _replay_update(self, record: ShareUpdate) -> None:
        partition = self._partitions.get(record.key)
        # An update without its snapshot says too little to be true of anything.
        if partition is not None and record.value is not None:
            partition.replay_update(record.value)

    # The parts.

    def watch(self, key: SharePartitionKey) -> None:
        """Set the deadline of the lock that ends first."""
        partition = self._partitions.get(key)
        if partition is not None:
            self._watch(partition)

    def _watch(self, partition: SharePartition) -> None:
        next_ms = partition.next_deadline_ms
        if next_ms is not None:
            self.deadlines.set(partition.key, next_ms)

    def _release(
        self,
        key: SharePartitionKey,
        choose: Callable[[SharePartition], list[Run[Lock]]],
        limits: ShareLimits,
        now: Now,
    ) -> ShareDecision:
        partition = self._partitions.get(key)
        if partition is None:
            return _NOTHING
        batches = released(choose(partition), limits.delivery_count_limit)
        return self._changed(partition, batches, now)

    def _changed(
        self,
        partition: SharePartition,
        batches: Sequence[StateBatch],
        now: Now,
        *,
        start_offset: int = UNINITIALIZED,
    ) -> ShareDecision:
        if not batches and start_offset == UNINITIALIZED:
            return _NOTHING
        key = partition.key
        update = ShareUpdate(key, partition.update(batches, start_offset))
        if partition.updates < self._updates_per_snapshot:
            return Decision((update,), (key,))
        after = SharePartition(key)
        after.replay_snapshot(partition.snapshot(now.wall_ms))
        assert update.value is not None
        after.replay_update(update.value)
        snapshot = replace(after.snapshot(now.wall_ms), snapshot_epoch=after.snapshot_epoch)
        return Decision((update, ShareSnapshot(key, snapshot)), (key,))
