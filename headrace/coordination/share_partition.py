"""One partition as a share group sees it (KIP-932): which records are taken, by whom, how often.

Invariants, after any history, for every offset from the start offset on:
- a record is available, acquired by one member, acknowledged or archived, and only one of these;
- what is acknowledged or archived is never acquired again;
- only an available record is acquired, and its delivery count grows by one with each acquisition;
- the start offset never falls but by an administrator, and below it nothing is kept;
- an acquisition has a deadline, so that a record whose consumer died is offered again;
- replaying the records gives the same state, but for acquisitions: those are lost with the
  process, as in Kafka, and their records are available again.

A record of which nothing is remembered is available and was never delivered.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from headrace.coordination.share_partition_runs import Run, Runs
from headrace.coordination.share_records import (
    UNKNOWN,
    SharePartitionKey,
    SnapshotValue,
    StateBatch,
    UpdateValue,
)
from headrace.errors import ErrorCode, KafkaError

UNINITIALIZED = UNKNOWN
"""The start offset of a share partition that nobody has read yet."""

MAX_RUNS = 10_000
"""How many ranges of records may differ before the oldest is done with: a snapshot names them all,
and must fit one record of its log."""


class DeliveryState(IntEnum):
    """What a record is to the group, with Kafka's numbers; 1 is acquired and is never stored."""

    AVAILABLE = 0
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class AcknowledgeType(IntEnum):
    """What a consumer says of a record it acquired."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Settled(NamedTuple):
    """What the log knows of a record."""

    state: DeliveryState
    delivery_count: int

    @property
    def is_final(self) -> bool:
        return self.state is not DeliveryState.AVAILABLE


class Lock(NamedTuple):
    """Who holds a record, how often it was delivered with this, and until when it is held."""

    member_id: str
    delivery_count: int
    deadline_ms: int


class AcquiredRecords(NamedTuple):
    """A range of records given to a member, all for the same time."""

    first_offset: int
    last_offset: int
    delivery_count: int


class AcknowledgementBatch(NamedTuple):
    """What a member says of a range: one type for all of it, or one for each offset."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """What the settings of a group allow it."""

    lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2000


@dataclass(slots=True)
class SharePartition:
    """See the module. `settled` is what the log says, `locks` is soft and lies on top of it."""

    key: SharePartitionKey
    state_epoch: int = 0
    snapshot_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = UNINITIALIZED
    created_ms: int = UNKNOWN
    updates: int = 0
    settled: Runs[Settled] = field(default_factory=Runs)
    locks: Runs[Lock] = field(default_factory=Runs, compare=False)

    @property
    def is_initialized(self) -> bool:
        return self.start_offset != UNINITIALIZED

    @property
    def end_offset(self) -> int:
        """The last offset of which anything is known; below the start if there is none."""
        ends = (self.settled.last_offset, self.locks.last_offset)
        return max((end for end in ends if end is not None), default=self.start_offset - 1)

    @property
    def complete_count(self) -> int:
        return _complete_count(self.settled)

    @property
    def in_flight(self) -> int:
        """How many records lie between the start and the end and are not done with."""
        return self.end_offset - self.start_offset + 1 - self.complete_count

    def room(self, max_record_locks: int) -> int:
        """How many records past the end may be given."""
        if len(self.settled) + len(self.locks) >= MAX_RUNS:
            return 0
        return max_record_locks - self.in_flight

    @property
    def next_deadline_ms(self) -> int | None:
        return min((run.value.deadline_ms for run in self.locks), default=None)

    def next_offset(self, offset: int) -> int:
        """The first offset from here on that is available."""
        offset = max(offset, self.start_offset)
        while (last := self._taken_until(offset)) is not None:
            offset = last + 1
        return offset

    def available(self, first_offset: int, last_offset: int) -> Iterator[Run[int]]:
        """The available parts of a range, each with how often it was delivered so far."""
        offset = self.next_offset(first_offset)
        while offset <= last_offset:
            end = last_offset
            for runs in (self.locks, self.settled):
                ahead = runs.overlapping(offset, end)
                if ahead and ahead[0].first_offset > offset:
                    end = ahead[0].first_offset - 1
            known = self.settled.at(offset)
            if known is not None:
                end = min(end, known.last_offset)
            yield Run(offset, end, known.value.delivery_count if known else 0)
            offset = self.next_offset(end + 1)

    def held_by(self, member_id: str) -> list[Run[Lock]]:
        return [run for run in self.locks if run.value.member_id == member_id]

    def overdue(self, now_ms: int) -> list[Run[Lock]]:
        return [run for run in self.locks if run.value.deadline_ms <= now_ms]

    # Soft moves.

    def lock(self, acquired: Iterable[AcquiredRecords], member_id: str, deadline_ms: int) -> None:
        for first, last, count in acquired:
            self.locks.put(first, last, Lock(member_id, count, deadline_ms))

    def renew(self, runs: Iterable[Run[Lock]], deadline_ms: int) -> None:
        for first, last, lock in runs:
            self.locks.put(first, last, lock._replace(deadline_ms=deadline_ms))

    # What is to be written, given what is.

    def snapshot(self, now_ms: int) -> SnapshotValue:
        return SnapshotValue(
            self.snapshot_epoch + 1,
            self.state_epoch,
            self.leader_epoch,
            self.start_offset,
            self.complete_count,
            self.created_ms,
            now_ms,
            _batches(self.settled),
        )

    def update(self, batches: Iterable[StateBatch], start_offset: int = UNKNOWN) -> UpdateValue:
        """The change that settles these batches and moves the start past all that is done."""
        after = self.settled.copy()
        changed: Runs[Settled] = Runs()
        for first, last, state, count in batches:
            for runs in (after, changed):
                runs.put(first, last, Settled(DeliveryState(state), count))
        start = max(self.start_offset, start_offset)
        while (run := after.at(start)) is not None and run.value.is_final:
            start = run.last_offset + 1
        for runs in (after, changed):
            runs.cut_below(start)
        return UpdateValue(
            self.snapshot_epoch, self.leader_epoch, start, _complete_count(after), _batches(changed)
        )

    # Replay.

    def replay_snapshot(self, value: SnapshotValue) -> None:
        if value.state_epoch != self.state_epoch or value.start_offset < self.start_offset:
            # An administrator moved the group: nobody holds anything any longer.
            self.locks = Runs()
        self.state_epoch = value.state_epoch
        self.snapshot_epoch = value.snapshot_epoch
        self.leader_epoch = value.leader_epoch
        self.start_offset = value.start_offset
        self.created_ms = value.create_timestamp_ms
        self.updates = 0
        self.settled = Runs()
        self._settle(value.batches)

    def replay_update(self, value: UpdateValue) -> None:
        if value.leader_epoch != UNKNOWN:
            self.leader_epoch = value.leader_epoch
        if value.start_offset != UNKNOWN:
            self.start_offset = value.start_offset
        self.updates += 1
        for batch in value.batches:
            self.locks.cut(batch.first_offset, batch.last_offset)
        self._settle(value.batches)

    def _settle(self, batches: Iterable[StateBatch]) -> None:
        for first, last, state, count in batches:
            self.settled.put(first, last, Settled(DeliveryState(state), count))
        self.settled.cut_below(self.start_offset)
        self.locks.cut_below(self.start_offset)

    def _taken_until(self, offset: int) -> int | None:
        """Where the acquired or finished run ends that holds an offset."""
        lock = self.locks.at(offset)
        if lock is not None:
            return lock.last_offset
        known = self.settled.at(offset)
        return known.last_offset if known is not None and known.value.is_final else None


def released(runs: Iterable[Run[Lock]], delivery_count_limit: int) -> list[StateBatch]:
    """These records are offered again, but those that were offered often enough."""
    return [
        StateBatch(first, last, _released_state(lock, delivery_count_limit), lock.delivery_count)
        for first, last, lock in runs
    ]


class Acknowledged(NamedTuple):
    """What a member's acknowledgements come to."""

    batches: list[StateBatch]
    renewed: list[Run[Lock]]


def acknowledged(
    partition: SharePartition,
    member_id: str,
    batches: Iterable[AcknowledgementBatch],
    delivery_count_limit: int,
) -> Acknowledged:
    """All of it, or a refusal and nothing: a member may settle only what it holds."""
    found = Acknowledged([], [])
    previous = UNKNOWN
    for batch in batches:
        if batch.first_offset <= previous:
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "A record is acknowledged twice.")
        previous = batch.last_offset
        if batch.last_offset < partition.start_offset:
            # Done with already, by the deletion of old records or by an administrator.
            continue
        if batch.last_offset > partition.end_offset:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Batch record not found. The last offset in request is past acquired records.",
            )
        for first, last, kind in _by_type(batch):
            held = _held(partition, member_id, max(first, partition.start_offset), last)
            if kind is AcknowledgeType.RENEW:
                found.renewed.extend(held)
            elif kind is AcknowledgeType.RELEASE:
                found.batches.extend(released(held, delivery_count_limit))
            else:
                accepted = kind is AcknowledgeType.ACCEPT
                state = DeliveryState.ACKNOWLEDGED if accepted else DeliveryState.ARCHIVED
                found.batches.extend(
                    StateBatch(run.first_offset, run.last_offset, state, run.value.delivery_count)
                    for run in held
                )
    return found


def _by_type(batch: AcknowledgementBatch) -> Iterator[tuple[int, int, AcknowledgeType]]:
    types = batch.types
    if len(types) == 1:
        yield batch.first_offset, batch.last_offset, AcknowledgeType(types[0])
        return
    first = 0
    for index in range(1, len(types) + 1):
        if index == len(types) or types[index] != types[first]:
            start = batch.first_offset
            yield start + first, start + index - 1, AcknowledgeType(types[first])
            first = index


def _held(partition: SharePartition, member_id: str, first: int, last: int) -> list[Run[Lock]]:
    held = partition.locks.overlapping(first, last)
    if sum(run.last_offset - run.first_offset + 1 for run in held) < last - first + 1:
        raise KafkaError(
            ErrorCode.INVALID_RECORD_STATE,
            "The batch cannot be acknowledged. The batch is not in the acquired state.",
        )
    if any(run.value.member_id != member_id for run in held):
        raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of batch record")
    return held


def _released_state(lock: Lock, delivery_count_limit: int) -> DeliveryState:
    if lock.delivery_count >= delivery_count_limit:
        return DeliveryState.ARCHIVED
    return DeliveryState.AVAILABLE


def _batches(settled: Runs[Settled]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(first, last, value.state, value.delivery_count) for first, last, value in settled
    )


def _complete_count(settled: Runs[Settled]) -> int:
    return sum(last - first + 1 for first, last, value in settled if value.is_final)
