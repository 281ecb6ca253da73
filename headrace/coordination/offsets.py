"""Committed offsets of every group of one partition, and those pending in transactions.

Invariants, after any history:
- a partition has at most one committed offset per group, that of the latest commit in the log:
  a transaction's commit counts from its record, not from its marker;
- what is pending belongs to a transaction that is still open, and nobody is shown it;
- an aborted transaction leaves no trace; a tombstone ends pending offsets too;
- a group with offsets exists;
- replaying the records and markers gives the same offsets.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from headrace.coordination.classic_group import ClassicGroup, GroupState
from headrace.coordination.group import Committer, Group, GroupLimits, Now
from headrace.coordination.group_records import (
    NO_EXPIRY,
    UNKNOWN_LEADER_EPOCH,
    CommittedOffset,
    GroupRecord,
    OffsetCommit,
)
from headrace.coordination.groups import Groups
from headrace.coordination.machine import Decision
from headrace.coordination.rebalance import Answer
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.primitives import ZERO_UUID

OffsetDecision = Decision[GroupRecord, Answer]

DEFAULT_RETENTION = -1
"""A commit that leaves the retention to the broker, as every client since Kafka 2.1 does."""

_TOUCHED = (GroupState.STABLE, GroupState.PREPARING_REBALANCE)


class OffsetToCommit(NamedTuple):
    """One partition of a commit request."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = UNKNOWN_LEADER_EPOCH
    metadata: str | None = None
    topic_id: UUID = ZERO_UUID


class TopicPartitions(NamedTuple):
    """Partitions of one topic whose offsets are asked for, or are to be deleted."""

    topic: str
    partitions: Sequence[int]
    topic_id: UUID = ZERO_UUID


class FetchedOffset(NamedTuple):
    """What a partition's committed offset is; None: there is none to show."""

    partition: int
    committed: CommittedOffset | None
    error: ErrorCode = ErrorCode.NONE


class FetchedTopic(NamedTuple):
    """The offsets of one topic."""

    topic: str
    partitions: tuple[FetchedOffset, ...]


class Outcome(NamedTuple):
    """The code of every partition asked for, in order, and the decision that makes them true."""

    errors: tuple[ErrorCode, ...]
    decision: OffsetDecision


class _Placed(NamedTuple):
    """A committed offset with its place in the log, by which commits are ordered."""

    place: int
    committed: CommittedOffset


class _Key(NamedTuple):
    group_id: str
    topic: str
    partition: int


class Offsets:
    """See the module. Replay is the only mutator."""

    def __init__(self, groups: Groups, limits: GroupLimits) -> None:
        self._groups = groups
        self._limits = limits
        self._committed: dict[str, dict[str, dict[int, _Placed]]] = {}
        self._pending: dict[int, dict[_Key, _Placed]] = {}
        self._open: dict[str, set[int]] = {}
        self._place = 0

    # Decisions.

    def commit(
        self,
        committer: Committer,
        offsets: Sequence[OffsetToCommit],
        now: Now,
        *,
        retention_ms: int = DEFAULT_RETENTION,
    ) -> Outcome:
        group = self._checked_group(committer, offsets)
        if isinstance(group, ClassicGroup) and group.state in _TOUCHED:
            self._groups.touch(group, committer.member_id, now.monotonic_ms)
        expires_ms = NO_EXPIRY if retention_ms == DEFAULT_RETENTION else now.wall_ms + retention_ms
        return self._outcome(committer.group_id, offsets, now.wall_ms, expires_ms)

    def commit_transactional(
        self, committer: Committer, offsets: Sequence[OffsetToCommit], now: Now
    ) -> Outcome:
        """The same for TxnOffsetCommit: run its decision with the producer, as one transaction."""
        self._checked_group(committer, offsets)
        return self._outcome(committer.group_id, offsets, now.wall_ms, NO_EXPIRY)

    def delete(self, group_id: str, topics: Iterable[TopicPartitions]) -> Outcome:
        group = self._groups.existing(group_id)
        group.check_offset_delete()
        errors: list[ErrorCode] = []
        records: list[GroupRecord] = []
        for topic, partitions, _ in topics:
            subscribed = group.is_subscribed_to(topic)
            for partition in partitions:
                errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE)
                key = _Key(group_id, topic, partition)
                if not subscribed and (self._find(key) or self._is_pending(key)):
                    records.append(OffsetCommit(group_id, topic, partition, None))
        return Outcome(tuple(errors), Decision(tuple(records)))

    def delete_group(self, group_id: str) -> tuple[GroupRecord, ...]:
        keys = dict.fromkeys(self._keys_of(group_id))
        keys.update(dict.fromkeys(self._pending_keys_of(group_id)))
        return tuple(OffsetCommit(*key, None) for key in keys)

    def delete_topic(self, topic: str) -> tuple[GroupRecord, ...]:
        """Every group forgets a topic that was deleted."""
        keys: dict[_Key, None] = {}
        for group_id, topics in self._committed.items():
            keys.update((_Key(group_id, topic, each), None) for each in topics.get(topic, ()))
        for pending in self._pending.values():
            keys.update((key, None) for key in pending if key.topic == topic)
        return tuple(OffsetCommit(*key, None) for key in keys)

    def expired(self, group: Group, wall_ms: int) -> tuple[tuple[GroupRecord, ...], bool]:
        """Tombstones of what expired in a group, and whether that leaves it with nothing."""
        topics = self._committed.get(group.group_id, {})
        records: list[GroupRecord] = []
        kept = 0
        for topic, partitions in topics.items():
            subscribed = group.is_subscribed_to(topic)
            for partition, placed in partitions.items():
                key = _Key(group.group_id, topic, partition)
                expires = not subscribed and self._has_expired(group, placed.committed, wall_ms)
                if expires and not self._is_pending(key):
                    records.append(OffsetCommit(*key, None))
                else:
                    kept += 1
        return tuple(records), not kept and group.group_id not in self._open

    # Questions.

    def fetch(
        self, group_id: str, topics: Iterable[TopicPartitions], *, require_stable: bool
    ) -> list[FetchedTopic]:
        return [
            FetchedTopic(
                topic,
                tuple(
                    self._fetched(_Key(group_id, topic, each), topic_id, require_stable)
                    for each in partitions
                ),
            )
            for topic, partitions, topic_id in topics
        ]

    def fetch_all(self, group_id: str, *, require_stable: bool) -> list[FetchedTopic]:
        topics = self._committed.get(group_id, {})
        asked = [TopicPartitions(topic, tuple(parts)) for topic, parts in topics.items()]
        return self.fetch(group_id, asked, require_stable=require_stable)

    @property
    def open_producers(self) -> frozenset[int]:
        """Whose transactions hold pending offsets."""
        return frozenset(self._pending)

    def snapshot(self) -> Mapping[str, Mapping[tuple[str, int], CommittedOffset]]:
        """Every committed offset, by group and partition."""
        return {
            group_id: {
                (topic, partition): placed.committed
                for topic, partitions in topics.items()
                for partition, placed in partitions.items()
            }
            for group_id, topics in self._committed.items()
        }

    # Replay.

    def replay(self, record: OffsetCommit) -> None:
        self._place += 1
        key = _Key(record.group_id, record.topic, record.partition)
        if record.value is None:
            self._remove(key)
            for producer_id in self._open.get(record.group_id, ()):
                self._pending[producer_id].pop(key, None)
        else:
            self._groups.ensure(record.group_id)
            self._put(key, _Placed(self._place, record.value))

    def replay_transactional(self, record: OffsetCommit, producer_id: int) -> None:
        if record.value is None:
            self.replay(record)
            return
        self._place += 1
        self._groups.ensure(record.group_id)
        key = _Key(record.group_id, record.topic, record.partition)
        pending = self._pending.setdefault(producer_id, {})
        pending[key] = _Placed(self._place, record.value)
        self._open.setdefault(record.group_id, set()).add(producer_id)

    def complete(self, producer_id: int, *, committed: bool) -> None:
        """A marker was replayed: what was pending becomes true, or never was."""
        pending = self._pending.pop(producer_id, None)
        if pending is None:
            return
        for group_id in [each for each, open_ids in self._open.items() if producer_id in open_ids]:
            self._open[group_id].discard(producer_id)
            if not self._open[group_id]:
                del self._open[group_id]
        if committed:
            for key, placed in pending.items():
                existing = self._find(key)
                # A plain commit made after this one in the log is the newer truth.
                if existing is None or placed.place > existing.place:
                    self._put(key, placed)

    # The parts.

    def _checked_group(
        self, committer: Committer, offsets: Sequence[OffsetToCommit]
    ) -> Group | None:
        group = self._groups.find(committer.group_id)
        if group is not None:
            group.check_commit(committer, offsets)
        elif committer.generation >= 0:
            if committer.knows_group_not_found and not committer.transactional:
                self._groups.existing(committer.group_id)
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"no group {committer.group_id}")
        return group

    def _outcome(
        self, group_id: str, offsets: Sequence[OffsetToCommit], wall_ms: int, expires_ms: int
    ) -> Outcome:
        limit = self._limits.offset_metadata_max_bytes
        errors: list[ErrorCode] = []
        records: list[GroupRecord] = []
        for topic, partition, offset, leader_epoch, metadata, topic_id in offsets:
            if metadata and _java_length(metadata) > limit:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            errors.append(ErrorCode.NONE)
            value = CommittedOffset(
                offset, leader_epoch, metadata or "", wall_ms, expires_ms, topic_id
            )
            records.append(OffsetCommit(group_id, topic, partition, value))
        return Outcome(tuple(errors), Decision(tuple(records)))

    def _fetched(self, key: _Key, topic_id: UUID, require_stable: bool) -> FetchedOffset:
        if require_stable and self._is_pending(key):
            return FetchedOffset(key.partition, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        placed = self._find(key)
        if placed is None or _differ(placed.committed.topic_id, topic_id):
            return FetchedOffset(key.partition, None)
        return FetchedOffset(key.partition, placed.committed)

    def _has_expired(self, group: Group, committed: CommittedOffset, wall_ms: int) -> bool:
        base_ms = group.expiry_base_ms(committed)
        if base_ms is None:
            return False
        if committed.expire_timestamp_ms != NO_EXPIRY:
            return wall_ms >= committed.expire_timestamp_ms
        return wall_ms - base_ms >= self._limits.offsets_retention_ms

    def _find(self, key: _Key) -> _Placed | None:
        return self._committed.get(key.group_id, {}).get(key.topic, {}).get(key.partition)

    def _put(self, key: _Key, placed: _Placed) -> None:
        topics = self._committed.setdefault(key.group_id, {})
        topics.setdefault(key.topic, {})[key.partition] = placed

    def _remove(self, key: _Key) -> None:
        topics = self._committed.get(key.group_id, {})
        partitions = topics.get(key.topic, {})
        partitions.pop(key.partition, None)
        if not partitions:
            topics.pop(key.topic, None)
        if not topics:
            self._committed.pop(key.group_id, None)

    def _is_pending(self, key: _Key) -> bool:
        return any(key in self._pending[each] for each in self._open.get(key.group_id, ()))

    def _keys_of(self, group_id: str) -> Iterator[_Key]:
        for topic, partitions in self._committed.get(group_id, {}).items():
            for partition in partitions:
                yield _Key(group_id, topic, partition)

    def _pending_keys_of(self, group_id: str) -> Iterator[_Key]:
        for producer_id in self._open.get(group_id, ()):
            yield from (key for key in self._pending[producer_id] if key.group_id == group_id)


def _differ(committed: UUID, asked: UUID) -> bool:
    """A topic of the same name that was deleted and made again is another topic."""
    return committed != asked and ZERO_UUID not in (committed, asked)


def _java_length(text: str) -> int:
    """As Java counts, for the limit is Kafka's: in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
