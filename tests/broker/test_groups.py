"""The group coordinator over journals in memory, in virtual time."""

import asyncio
import functools
from collections.abc import Coroutine
from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Any

import pytest

from headrace.broker.groups import GroupCoordinator
from headrace.broker.shard import Producer
from headrace.coordination.classic_group import ClassicGroup
from headrace.coordination.group import Committer, GroupLimits
from headrace.coordination.leave import Leaver
from headrace.coordination.offsets import OffsetToCommit, TopicPartitions
from headrace.coordination.rebalance import JoinAnswer, SyncAnswer
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.records import batches, stamp
from headrace.testing.group_log import JOIN, SYNC
from headrace.testing.virtual_time import VirtualClock, run_virtually

STORAGE = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")


def virtually(test):
    @functools.wraps(test)
    def in_virtual_time(*args, **kwargs):
        run_virtually(lambda: test(*args, **kwargs))

    return in_virtual_time


@dataclass
class Slice:
    found: bytes

    def read(self) -> bytes:
        return self.found


@dataclass
class MemoryLog:
    name: str
    written: list[bytes] = field(default_factory=list)
    log_start_offset: int = 0
    log_end_offset: int = 0

    def read(self, offset: int, *, max_bytes: int, end_offset: int, min_one: bool) -> Slice:
        for batch in self.written:
            if next(batches(batch)).next_offset > offset:
                return Slice(batch)
        return Slice(b"")


@dataclass
class Settings:
    max_message_bytes: int = 1_000_000


@dataclass
class MemoryJournal:
    """A partition whose disk takes `sync_s`, and fails when told to."""

    log: MemoryLog
    settings: Settings = field(default_factory=Settings)
    sync_s: float = 0.005
    fail_append: bool = False
    fail_sync: bool = False
    synced: int = 0

    def append(self, records: bytearray, *, origin: object) -> None:
        if self.fail_append:
            raise STORAGE
        stamp(records, 0, self.log.log_end_offset, 0)
        self.log.written.append(bytes(records))
        self.log.log_end_offset = next(batches(records)).next_offset

    def durable(self, next_offset: int) -> Coroutine[Any, Any, None]:
        return self._durable(next_offset)

    async def _durable(self, next_offset: int) -> None:
        if next_offset <= self.synced:
            return
        await asyncio.sleep(self.sync_s)
        if self.fail_sync:
            self.log.written.clear()
            self.log.log_end_offset = 0
            raise STORAGE
        self.synced = max(self.synced, next_offset)


class MemoryTopic:
    def __init__(self, partitions: int = 3) -> None:
        self.journals = [MemoryJournal(MemoryLog(f"offsets-{n}")) for n in range(partitions)]
        self.created = 0

    def existing(self):
        return self.journals if self.created else []

    async def create(self):
        self.created += 1
        await asyncio.sleep(0.01)
        return self.journals


class World:
    """A coordinator with the tasks it spawned."""

    def __init__(self, topic: MemoryTopic | None = None, **limits: Any) -> None:
        self.topic = topic or MemoryTopic()
        self.tasks: set[asyncio.Task[None]] = set()
        self.groups = GroupCoordinator(
            self.topic,
            GroupLimits(**{"initial_rebalance_delay_ms": 0, **limits}),
            VirtualClock(),
            lambda work: self.tasks.add(asyncio.ensure_future(work)),
            expiry_interval_ms=60_000,
        )
        self.groups.start()

    async def member(self, group_id: str = "g", assignment: bytes = b"A") -> str:
        """Join alone and sync; returns the member id."""
        joined = await self.join(group_id)
        assert joined.error is ErrorCode.NONE
        synced = await self.sync(
            joined.member_id, joined.generation_id, {joined.member_id: assignment}, group_id
        )
        assert synced.assignment == assignment
        return joined.member_id

    def join(
        self, group_id: str = "g", member_id: str = "", new_id: str = "new"
    ) -> Coroutine[Any, Any, JoinAnswer]:
        request = changed(JOIN, group_id=group_id, member_id=member_id, new_member_id=new_id)
        return self.groups.join(request)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        group_id: str = "g",
    ) -> Coroutine[Any, Any, SyncAnswer]:
        request = changed(
            SYNC,
            group_id=group_id,
            member_id=member_id,
            generation_id=generation,
            assignments=assignments or {},
        )
        return self.groups.sync(request)

    async def commit(
        self, offset: int, group_id: str = "g", **committer: Any
    ) -> tuple[ErrorCode, ...]:
        return await self.groups.commit(
            Committer(group_id, **committer), [OffsetToCommit("t", 0, offset)], -1
        )

    async def state(self) -> str:
        group = await self.groups.find("g")
        return group.state_name if group else "none"

    async def fetched(
        self, group_id: str = "g", *, require_stable: bool = False
    ) -> ErrorCode | int | None:
        asked = [TopicPartitions("t", [0])]
        ((_, (found,)),) = await self.groups.fetch_offsets(
            group_id, asked, require_stable=require_stable
        )
        return found.error or (found.committed and found.committed.offset)


@virtually
async def test_the_topic_is_created_once_for_all_who_come_first():
    world = World()
    assert await world.groups.groups() == []
    assert world.topic.created == 0
    await asyncio.gather(world.commit(1, "a"), world.commit(2, "b"), world.commit(3, "c"))
    assert world.topic.created == 1
    assert {group.group_id for group in await world.groups.groups()} == {"a", "b", "c"}


@virtually
async def test_a_group_lives_through_a_restart():
    world = World()
    member_id = await world.member()
    await world.commit(5, member_id=member_id, generation=1)
    again = World(world.topic)
    assert await again.groups.heartbeat("g", member_id, None, 1) is ErrorCode.NONE
    assert await again.fetched() == 5


@virtually
async def test_a_long_log_is_loaded_while_the_broker_serves(monkeypatch):
    monkeypatch.setattr("headrace.broker.groups.LOADED_AT_ONCE", 0)
    monkeypatch.setattr("headrace.broker.group_shard.LOAD_STEP_BYTES", 1)
    world = World(MemoryTopic(1))
    member_id = await world.member()
    for offset in range(5):
        await world.commit(offset, member_id=member_id, generation=1)
    again = World(world.topic)
    assert await again.groups.heartbeat("g", member_id, None, 1) is ErrorCode.NONE
    for early in (again.commit(9), again.fetched(), again.groups.groups(), again.join()):
        with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            await early
    (refused,) = await again.groups.delete(["g"])
    assert refused.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await again.groups.topics_deleted(["other"])
    await asyncio.gather(*again.tasks)
    assert await again.fetched() == 4
    assert await again.groups.heartbeat("g", member_id, None, 1) is ErrorCode.NONE


@virtually
async def test_everyone_who_waits_is_answered_when_the_last_one_joins():
    world = World()
    leader = await world.member()
    second = asyncio.ensure_future(world.join(new_id="second"))
    await asyncio.sleep(1)
    assert not second.done()
    assert await world.groups.heartbeat("g", leader, None, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    first = await world.join(member_id=leader)
    assert (first.generation_id, (await second).generation_id) == (2, 2)
    waiting = asyncio.ensure_future(world.sync("second", 2))
    await asyncio.sleep(1)
    assert not waiting.done()
    await world.sync(leader, 2, {"second": b"S"})
    assert (await waiting).assignment == b"S"


@virtually
async def test_silent_members_are_removed_in_time_and_heartbeats_keep_them():
    world = World()
    member_id = await world.member()
    for _ in range(5):
        await asyncio.sleep(9)
        assert await world.groups.heartbeat("g", member_id, None, 1) is ErrorCode.NONE
    await asyncio.sleep(9.9)
    assert await world.state() == "Stable"
    await asyncio.sleep(0.2)
    assert await world.state() == "Empty"


@virtually
async def test_members_found_in_the_log_must_show_themselves():
    world = World()
    await world.member()
    world.groups.close()
    again = World(world.topic)
    await asyncio.sleep(9.9)
    assert await again.state() == "Stable"
    await asyncio.sleep(0.2)
    assert await again.state() == "Empty"


@virtually
async def test_nothing_is_said_before_it_is_durable():
    world = World()
    await world.commit(1)
    for journal in world.topic.journals:
        journal.sync_s = 3.0
    committing = asyncio.ensure_future(world.commit(2))
    await asyncio.sleep(1)
    reading = asyncio.ensure_future(world.fetched())
    await asyncio.sleep(1)
    assert not committing.done()
    assert not reading.done()
    assert await reading == 2
    assert committing.done()


@virtually
async def test_a_full_disk_refuses_and_changes_nothing():
    world = World()
    member_id = await world.member()
    before = await world.groups.find("g")
    for journal in world.topic.journals:
        journal.fail_append = True
    with pytest.raises(KafkaError) as refusal:
        await world.commit(5, member_id=member_id, generation=1)
    assert refusal.value.code.retriable
    await asyncio.sleep(9.5)
    assert await world.groups.find("g") == before
    await asyncio.sleep(5)
    group = await world.groups.find("g")
    assert isinstance(group, ClassicGroup)
    assert group.members, "the end of the group could not be written yet"
    for journal in world.topic.journals:
        journal.fail_append = False
    await asyncio.sleep(2)
    assert await world.state() == "Empty"
    assert await world.fetched() is None


@virtually
async def test_after_a_failed_sync_waiting_members_are_sent_to_find_their_coordinator():
    world = World(MemoryTopic(1))
    (journal,) = world.topic.journals
    await world.member()
    parked = asyncio.ensure_future(world.join(new_id="second"))
    await asyncio.sleep(1)
    journal.fail_sync = True
    with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
        await world.commit(1, "other")
    journal.fail_sync = False
    await world.commit(1, "other")
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        await parked


@virtually
async def test_what_a_failed_sync_lost_is_not_shown():
    world = World(MemoryTopic(1))
    (journal,) = world.topic.journals
    member_id = await world.member()
    journal.fail_sync = True
    with pytest.raises(KafkaError):
        await world.commit(9, "other")
    assert await world.fetched("other") is None
    assert await world.groups.heartbeat("g", member_id, None, 1) is ErrorCode.UNKNOWN_MEMBER_ID


@virtually
async def test_a_client_that_goes_away_while_it_waits_is_forgotten():
    world = World()
    leader = await world.member()
    gone = asyncio.ensure_future(world.join(new_id="gone"))
    await asyncio.sleep(1)
    gone.cancel()
    answer = await world.join(member_id=leader)
    assert {each.member_id for each in answer.members} == {leader, "gone"}


@virtually
async def test_a_stopping_broker_turns_away_those_who_wait():
    world = World()
    await world.member()
    parked = asyncio.ensure_future(world.join(new_id="second"))
    await asyncio.sleep(1)
    world.groups.close()
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        await parked
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        await world.join(new_id="third")


@virtually
async def test_offsets_in_a_transaction_count_from_its_marker_on():
    world = World(MemoryTopic(1))
    producer = Producer(7, 0)
    committer = Committer("g", transactional=True)
    await world.groups.commit_transactional(committer, [OffsetToCommit("t", 0, 9)], producer)
    assert await world.fetched() is None
    assert await world.fetched(require_stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert await World(world.topic).fetched(require_stable=True) is (
        ErrorCode.UNSTABLE_OFFSET_COMMIT
    )
    await world.groups.write_marker(0, producer, committed=True, coordinator_epoch=0)
    assert await world.fetched(require_stable=True) == 9
    assert await World(world.topic).fetched(require_stable=True) == 9


@virtually
async def test_offsets_expire_and_groups_with_nothing_left_go():
    world = World(offsets_retention_ms=100_000)
    await world.commit(5)
    await asyncio.sleep(59)
    assert await world.fetched() == 5
    await asyncio.sleep(70)
    assert await world.groups.find("g") is None
    assert await World(world.topic).groups.groups() == []


@virtually
async def test_groups_and_offsets_are_deleted_across_shards():
    world = World()
    for name in "abc":
        await world.commit(1, name)
    member_id = await world.member("busy")
    deleted = await world.groups.delete(["a", "busy", "nobody"])
    assert {each.group_id: each.error.name for each in deleted} == {
        "a": "NONE",
        "busy": "NON_EMPTY_GROUP",
        "nobody": "GROUP_ID_NOT_FOUND",
    }
    await world.groups.topics_deleted(["t"])
    assert [await world.fetched(name) for name in "abc"] == [None, None, None]
    (left,) = await world.groups.leave("busy", [Leaver(member_id)])
    assert left.error is ErrorCode.NONE


@virtually
async def test_the_number_of_waiting_clients_is_bounded(monkeypatch):
    monkeypatch.setattr("headrace.broker.group_shard.MAX_PARKED", 1)
    world = World(MemoryTopic(1), initial_rebalance_delay_ms=1000)
    first = asyncio.ensure_future(world.join(new_id="first"))
    await asyncio.sleep(0.5)
    with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
        await world.join(new_id="second")
    assert (await first).error is ErrorCode.NONE
