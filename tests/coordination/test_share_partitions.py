"""Share partitions: random histories against a model with one entry per record."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordination import share_partition
from headrace.coordination.group import Now
from headrace.coordination.share_partition import (
    AcknowledgementBatch,
    AcknowledgeType,
    AcquiredRecords,
    ShareLimits,
)
from headrace.coordination.share_partition_acquire import BatchRange, Wanted
from headrace.coordination.share_partition_runs import Run, Runs
from headrace.coordination.share_partitions import SharePartitions
from headrace.coordination.share_records import ShareCodec, SharePartitionKey
from headrace.errors import ErrorCode, KafkaError

KEY = SharePartitionKey("workers", UUID(int=7), 0)
LIMITS = ShareLimits(lock_duration_ms=1000, delivery_count_limit=3, max_record_locks=12)
END = 40
ACCEPT, RELEASE, REJECT, GAP, RENEW = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.GAP,
    AcknowledgeType.RENEW,
)


def now(ms: int) -> Now:
    return Now(1_000_000 + ms, ms)


class Group:
    """A machine with its log, and what each record must be by the rules said in plain words."""

    def __init__(self, *, updates_per_snapshot: int = 4, limits: ShareLimits = LIMITS) -> None:
        self.updates_per_snapshot = updates_per_snapshot
        self.limits = limits
        self.machine = SharePartitions(updates_per_snapshot)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.time_ms = 0
        self.state = dict.fromkeys(range(END), "available")
        self.count = dict.fromkeys(range(END), 0)
        self.holder: dict[int, tuple[str, int]] = {}
        self.refused: set[ErrorCode] = set()
        self.apply(self.machine.initialize(KEY, 1, 0, self.now))

    @property
    def now(self) -> Now:
        return now(self.time_ms)

    @property
    def partition(self):
        return self.machine.find(KEY)

    def apply(self, decision) -> None:
        for record in decision.records:
            self.log.append(ShareCodec().encode(record))
            self.machine.replay(record)

    def replayed(self) -> SharePartitions:
        machine = SharePartitions(self.updates_per_snapshot)
        for key, value in self.log:
            record = ShareCodec().decode(key, value)
            assert record is not None
            machine.replay(record)
        return machine

    def acquire(self, member: str, batches, wanted: Wanted) -> list[AcquiredRecords]:
        found = self.machine.acquire(KEY, batches, wanted, self.limits, self.now)
        for first, last, delivery_count in found:
            for offset in range(first, last + 1):
                assert self.state[offset] == "available", offset
                self.count[offset] += 1
                assert self.count[offset] == delivery_count
                self.state[offset] = "acquired"
                self.holder[offset] = (member, self.time_ms + self.limits.lock_duration_ms)
        return found

    def acknowledge(self, member: str, first: int, last: int, types: list[int]) -> None:
        offsets = [each for each in range(first, last + 1) if each >= self.partition.start_offset]
        legal = last <= self.partition.end_offset and all(
            self.state[each] == "acquired" and self.holder[each][0] == member for each in offsets
        )
        batch = AcknowledgementBatch(first, last, types)
        try:
            decision = self.machine.acknowledge(KEY, member, [batch], self.limits, self.now)
        except KafkaError as error:
            assert offsets
            assert not legal
            self.refused.add(error.code)
            return
        assert legal or not offsets
        self.apply(decision)
        for offset in offsets:
            kind = types[0] if len(types) == 1 else types[offset - first]
            if kind == RENEW:
                self.holder[offset] = (member, self.time_ms + self.limits.lock_duration_ms)
            else:
                self.settle(offset, kind)

    def release(self, member: str) -> None:
        self.apply(self.machine.release(KEY, member, self.limits, self.now))
        for offset in [each for each, (holder, _) in self.holder.items() if holder == member]:
            self.settle(offset, RELEASE)

    def tick(self, ms: int) -> None:
        self.time_ms += ms
        self.apply(self.machine.expire(KEY, self.limits, self.now))
        for offset in [each for each, (_, at) in self.holder.items() if at <= self.time_ms]:
            self.settle(offset, RELEASE)

    def restart(self) -> None:
        self.machine = self.replayed()
        for offset in self.holder:
            # The acquisition is forgotten, and that it happened is too.
            self.state[offset] = "available"
            self.count[offset] -= 1
        self.holder.clear()

    def settle(self, offset: int, kind: int) -> None:
        del self.holder[offset]
        given_up = kind == RELEASE and self.count[offset] >= self.limits.delivery_count_limit
        settled: dict[int, str] = {ACCEPT: "acknowledged", RELEASE: "available"}
        self.state[offset] = settled.get(kind, "archived")
        if given_up:
            self.state[offset] = "archived"

    def check(self) -> None:
        partition = self.partition
        for offset, state in self.state.items():
            if offset < partition.start_offset:
                assert state in ("acknowledged", "archived")
                continue
            lock, settled = partition.locks.at(offset), partition.settled.at(offset)
            if state == "acquired":
                assert lock.value.member_id == self.holder[offset][0]
                assert lock.value.delivery_count == self.count[offset]
                assert lock.value.deadline_ms == self.holder[offset][1]
            else:
                assert lock is None
                found = settled.value.state.name.lower() if settled else "available"
                assert found == state
                assert (settled.value.delivery_count if settled else 0) == self.count[offset]
        if partition.start_offset in self.state:
            assert self.state[partition.start_offset] in ("available", "acquired")
        assert partition.in_flight <= self.limits.max_record_locks
        assert self.replayed() == self.machine
        assert self.refused <= {ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST}


BATCHES = st.lists(st.integers(1, 6), min_size=1, max_size=12)
MEMBERS = st.sampled_from(["ann", "bob"])
STEPS = st.one_of(
    st.tuples(st.just("acquire"), MEMBERS, st.integers(1, 8), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("acknowledge"), MEMBERS, st.integers(0, 30), st.integers(1, 4), st.data()),
    st.tuples(st.just("acknowledge held"), MEMBERS, st.sampled_from(list(AcknowledgeType))),
    st.tuples(st.just("release"), MEMBERS),
    st.tuples(st.just("tick"), st.sampled_from([10, 400, 1000])),
    st.tuples(st.just("restart")),
)


def ranges(sizes: list[int]) -> list[BatchRange]:
    found, first = [], 0
    for size in sizes:
        if first + size <= END:
            found.append(BatchRange(first, first + size - 1))
        first += size
    return found


def take(group: Group, step, batches: list[BatchRange]) -> None:
    match step:
        case ("acquire", member, most, batch_size, strict):
            found = group.acquire(member, batches, Wanted(member, most, batch_size, strict))
            total = sum(last - first + 1 for first, last, _ in found)
            assert not strict or total <= most
        case ("acknowledge", member, first, size, data):
            types = data.draw(st.lists(st.sampled_from(range(5)), min_size=size, max_size=size))
            one = data.draw(st.booleans())
            group.acknowledge(member, first, first + size - 1, types[:1] if one else types)
        case ("acknowledge held", member, kind):
            for run in group.partition.held_by(member):
                group.acknowledge(member, run.first_offset, run.last_offset, [kind])
        case ("release", member):
            group.release(member)
        case ("tick", ms):
            group.tick(ms)
        case ("restart",):
            group.restart()


@given(BATCHES, st.lists(STEPS, max_size=30))
def test_every_record_is_in_one_state_and_replay_rebuilds_it(sizes, steps):
    group = Group()
    batches = ranges(sizes)
    for step in steps:
        take(group, step, batches)
        group.check()


@given(BATCHES, st.lists(STEPS, max_size=20))
def test_whatever_happened_every_record_is_delivered_or_given_up_in_the_end(sizes, steps):
    group = Group()
    batches = ranges(sizes)
    for step in steps:
        take(group, step, batches)
    group.tick(group.limits.lock_duration_ms)
    for _ in range(END * 2):
        if not group.acquire("ann", batches, Wanted("ann", 5)):
            break
        for run in group.partition.held_by("ann"):
            group.acknowledge("ann", run.first_offset, run.last_offset, [ACCEPT])
    end = batches[-1].last_offset + 1 if batches else 0
    assert group.partition.start_offset == end
    assert not len(group.partition.settled)


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 8), st.one_of(st.none(), st.integers(0, 2)))
    )
)
def test_runs_are_what_a_dictionary_would_be(edits):
    runs: Runs[int] = Runs()
    model: dict[int, int] = {}
    for first, length, value in edits:
        last = first + length
        for offset in range(first, last + 1):
            model.pop(offset, None)
            if value is not None:
                model[offset] = value
        runs.cut(first, last) if value is None else runs.put(first, last, value)
    assert {at: run.value for run in runs for at in range(run[0], run[1] + 1)} == model
    for offset in range(40):
        assert (found := runs.at(offset)) is None or found.value == model[offset]
    neighbours = list(zip(runs, list(runs)[1:], strict=False))
    assert all(
        a.last_offset + 1 < b.first_offset
        or (a.last_offset < b.first_offset and a.value != b.value)
        for a, b in neighbours
    )


def test_whole_batches_are_given_even_past_the_records_asked_for():
    group = Group()
    batches = [BatchRange(0, 3), BatchRange(4, 6), BatchRange(7, 9)]
    assert group.acquire("ann", batches, Wanted("ann", 5)) == [AcquiredRecords(0, 6, 1)]


def test_a_strict_limit_cuts_a_batch():
    group = Group()
    wanted = Wanted("ann", 5, strict=True)
    batches = [BatchRange(0, 3), BatchRange(4, 6)]
    assert group.acquire("ann", batches, wanted) == [AcquiredRecords(0, 4, 1)]
    assert group.acquire("bob", batches, Wanted("bob", 5)) == [AcquiredRecords(5, 6, 1)]


def test_ranges_end_with_a_batch_once_they_are_long_enough():
    group = Group()
    batches = [BatchRange(0, 1), BatchRange(2, 4), BatchRange(5, 6), BatchRange(7, 8)]
    found = group.acquire("ann", batches, Wanted("ann", 100, batch_size=3))
    assert found == [AcquiredRecords(0, 4, 1), AcquiredRecords(5, 8, 1)]


def test_no_more_records_are_in_flight_than_the_group_may_lock():
    group = Group()
    batches = [BatchRange(0, 39)]
    assert group.acquire("ann", batches, Wanted("ann", 100)) == [AcquiredRecords(0, 11, 1)]
    assert group.acquire("bob", batches, Wanted("bob", 100)) == []
    group.acknowledge("ann", 0, 3, [ACCEPT])
    assert group.acquire("bob", batches, Wanted("bob", 100)) == [AcquiredRecords(12, 15, 1)]


def test_a_group_stuck_at_one_record_is_given_only_so_many_others(monkeypatch):
    monkeypatch.setattr(share_partition, "MAX_RUNS", 6)
    group = Group()
    batches = [BatchRange(each, each) for each in range(END)]
    for offset in range(END):
        if not group.acquire("ann", batches, Wanted("ann", 1)):
            break
        if offset:
            group.acknowledge("ann", offset, offset, [ACCEPT if offset % 2 else REJECT])
    assert offset == 6
    group.acknowledge("ann", 0, 0, [ACCEPT])
    assert group.acquire("ann", batches, Wanted("ann", 1)) == [AcquiredRecords(6, 6, 1)]


def test_a_record_on_its_last_delivery_comes_alone():
    group = Group()
    batches = [BatchRange(0, 3)]
    for _ in range(2):
        group.acquire("ann", batches, Wanted("ann", 10))
        group.release("ann")
    assert group.acquire("ann", batches, Wanted("ann", 10)) == [AcquiredRecords(0, 0, 3)]


def test_a_record_delivered_too_often_is_archived():
    group = Group()
    batches = [BatchRange(0, 0)]
    for _ in range(3):
        assert group.acquire("ann", batches, Wanted("ann", 1))
        group.tick(1000)
    assert group.partition.start_offset == 1
    assert group.acquire("ann", batches, Wanted("ann", 1)) == []


def test_another_members_records_cannot_be_acknowledged():
    group = Group()
    group.acquire("ann", [BatchRange(0, 3)], Wanted("ann", 10))
    batch = AcknowledgementBatch(0, 3, [ACCEPT])
    with pytest.raises(KafkaError) as refused:
        group.machine.acknowledge(KEY, "bob", [batch], LIMITS, group.now)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
    assert group.partition.held_by("ann")[0][:2] == Run(0, 3, None)[:2]


def test_one_bad_batch_refuses_all_of_an_acknowledgement():
    group = Group()
    group.acquire("ann", [BatchRange(0, 3)], Wanted("ann", 10))
    group.acquire("bob", [BatchRange(4, 7)], Wanted("bob", 10))
    batches = [AcknowledgementBatch(0, 3, [ACCEPT]), AcknowledgementBatch(4, 7, [ACCEPT])]
    with pytest.raises(KafkaError):
        group.machine.acknowledge(KEY, "ann", batches, LIMITS, group.now)
    group.check()


def test_renewing_keeps_a_record_past_its_first_deadline():
    group = Group()
    group.acquire("ann", [BatchRange(0, 3)], Wanted("ann", 10))
    group.tick(900)
    group.acknowledge("ann", 0, 1, [RENEW])
    group.tick(200)
    assert [run[:2] for run in group.partition.held_by("ann")] == [(0, 1)]


def test_an_older_state_epoch_is_fenced():
    group = Group()
    group.apply(group.machine.initialize(KEY, 5, 0, group.now))
    with pytest.raises(KafkaError) as refused:
        group.machine.initialize(KEY, 4, 0, group.now)
    assert refused.value.code is ErrorCode.FENCED_STATE_EPOCH


def test_moving_a_group_back_makes_done_records_available_again():
    group = Group()
    group.acquire("ann", [BatchRange(0, 3)], Wanted("ann", 10))
    group.acknowledge("ann", 0, 3, [ACCEPT])
    group.apply(group.machine.initialize(KEY, 2, 0, group.now))
    found = group.machine.acquire(KEY, [BatchRange(0, 3)], Wanted("bob", 10), LIMITS, group.now)
    assert found == [AcquiredRecords(0, 3, 1)]


def test_old_records_that_were_deleted_are_not_waited_for():
    group = Group()
    group.acquire("ann", [BatchRange(0, 3)], Wanted("ann", 10))
    group.apply(group.machine.log_start_moved(KEY, 2, group.now))
    assert group.partition.start_offset == 2
    group.apply(group.machine.log_start_moved(KEY, 6, group.now))
    assert group.partition.start_offset == 6
    assert not group.partition.held_by("ann")
    # What the member says of them now is late but no mistake.
    decision = group.machine.acknowledge(
        KEY, "ann", [AcknowledgementBatch(0, 3, [ACCEPT])], LIMITS, group.now
    )
    assert decision.records == ()


def test_aborted_records_are_archived_before_anyone_sees_them():
    group = Group()
    group.apply(group.machine.archive(KEY, [BatchRange(0, 3)], group.now))
    assert group.partition.start_offset == 4
