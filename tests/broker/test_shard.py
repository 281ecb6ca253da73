import asyncio
import functools
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.shard import Producer, Shard
from headrace.coordination.machine import Decision
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.records import batches, stamp
from headrace.testing.clock import ManualClock


def looped(test):
    @functools.wraps(test)
    def on_a_loop(*args, **kwargs):
        asyncio.run(test(*args, **kwargs))

    return on_a_loop


STORAGE = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")


@dataclass
class Slice:
    found: bytes

    def read(self) -> bytes:
        return self.found


@dataclass
class MemoryLog:
    """Whole batches in memory, with the offsets a PartitionLog would give them."""

    name: str = "journal-0"
    written: list[bytes] = field(default_factory=list)
    log_start_offset: int = 0
    log_end_offset: int = 0
    damaged: range = range(0)

    def read(self, offset: int, *, max_bytes: int, end_offset: int, min_one: bool) -> Slice:
        if offset in self.damaged:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "damaged")
        for batch in self.written:
            view = next(batches(batch))
            if view.next_offset > offset:
                return Slice(batch)
        return Slice(b"")


@dataclass
class Settings:
    max_message_bytes: int = 1000


@dataclass
class MemoryPartition:
    """A Partition whose appends and syncs fail when told to."""

    log: MemoryLog = field(default_factory=MemoryLog)
    settings: Settings = field(default_factory=Settings)
    fail_appends_after: int = 1 << 30
    fail_sync: bool = False
    waited_for: list[int] = field(default_factory=list)

    def append(self, records: bytearray, *, origin: object) -> None:
        if self.fail_appends_after == 0:
            raise STORAGE
        self.fail_appends_after -= 1
        stamp(records, 0, self.log.log_end_offset, 0)
        self.log.written.append(bytes(records))
        self.log.log_end_offset = next(batches(records)).next_offset

    def durable(self, next_offset: int) -> Coroutine[Any, Any, None]:
        return self._durable(next_offset)

    async def _durable(self, next_offset: int) -> None:
        self.waited_for.append(next_offset)
        await asyncio.sleep(0)
        if self.fail_sync:
            self.log.written.clear()
            self.log.log_end_offset = 0
            raise STORAGE


class Counter:
    """Adds up what it is told; transactions count once they are committed."""

    def __init__(self) -> None:
        self.total = 0
        self.pending: dict[int, int] = {}

    def add(self, *amounts: int) -> Decision[int, int]:
        return Decision(amounts, (self.total + sum(amounts),))

    def replay(self, record: int) -> None:
        self.total += record

    def replay_transactional(self, record: int, producer: Producer) -> None:
        pending = self.pending.get(producer.producer_id, 0)
        self.pending[producer.producer_id] = pending + record

    def replay_marker(self, producer: Producer, *, committed: bool) -> None:
        ended = self.pending.pop(producer.producer_id, 0)
        self.total += ended if committed else 0


class CounterCodec:
    def encode(self, record: int) -> tuple[bytes | None, bytes | None]:
        return b"key", str(record).encode()

    def decode(self, key: bytes | None, value: bytes | None) -> int | None:
        return int(value) if value and value.strip(b"-").isdigit() else None


def shard_over(partition: MemoryPartition) -> Shard[Counter, int]:
    shard = Shard(partition, Counter, CounterCodec(), ManualClock(1_000))
    shard.load()
    return shard


@looped
async def test_effects_come_after_the_records_are_replayed_and_durable():
    partition = MemoryPartition()
    shard = shard_over(partition)
    assert await shard.run(lambda: shard.machine.add(3, 4)) == (7,)
    assert shard.machine.total == 7
    assert partition.waited_for == [2]


@looped
async def test_an_answer_without_records_waits_for_the_records_it_rests_on():
    partition = MemoryPartition()
    shard = shard_over(partition)
    first = asyncio.ensure_future(shard.run(lambda: shard.machine.add(3)))
    await asyncio.sleep(0)
    assert await shard.run(lambda: shard.machine.add()) == (3,)
    assert partition.waited_for == [1, 1]
    await first


@given(st.lists(st.lists(st.integers(-99, 99), max_size=60), max_size=6))
def test_loading_rebuilds_what_ran_and_no_batch_is_too_large(decisions):
    partition = MemoryPartition()
    shard = shard_over(partition)

    async def run_all() -> None:
        for amounts in decisions:
            await shard.run(functools.partial(shard.machine.add, *amounts))

    asyncio.run(run_all())
    assert shard_over(partition).machine.total == shard.machine.total == sum(map(sum, decisions))
    assert all(
        len(batch) <= partition.settings.max_message_bytes for batch in partition.log.written
    )


@looped
async def test_a_refused_append_changes_nothing_and_may_be_retried():
    partition = MemoryPartition(fail_appends_after=0)
    shard = shard_over(partition)
    machine = shard.machine
    with pytest.raises(KafkaError) as refused:
        await shard.run(lambda: shard.machine.add(5))
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert shard.machine is machine
    assert machine.total == 0
    partition.fail_appends_after = 10
    assert await shard.run(lambda: shard.machine.add(5)) == (5,)


@looped
async def test_an_append_that_failed_half_way_reloads_the_machine_from_the_log():
    partition = MemoryPartition(fail_appends_after=1)
    shard = shard_over(partition)
    with pytest.raises(KafkaError):
        await shard.run(lambda: shard.machine.add(*[1] * 100))
    partition.fail_appends_after = 10
    await shard.run(lambda: shard.machine.add())
    assert shard.machine.total == partition.log.log_end_offset > 0


@looped
async def test_a_failed_sync_takes_back_what_was_replayed():
    partition = MemoryPartition(fail_sync=True)
    shard = shard_over(partition)
    with pytest.raises(KafkaError) as refused:
        await shard.run(lambda: shard.machine.add(5))
    assert refused.value.code.retriable
    partition.fail_sync = False
    assert await shard.run(lambda: shard.machine.add(1)) == (1,)


@looped
async def test_a_log_that_was_cut_is_noticed_before_anything_is_decided():
    partition = MemoryPartition()
    shard = shard_over(partition)
    await shard.run(lambda: shard.machine.add(5))
    partition.log.written.clear()
    partition.log.log_end_offset = 0
    assert await shard.run(lambda: shard.machine.add(1)) == (1,)


@looped
async def test_transactional_records_count_when_their_marker_says_so():
    partition = MemoryPartition()
    shard = shard_over(partition)
    committed, aborted, still_open = Producer(7, 0), Producer(8, 0), Producer(9, 0)
    for producer in (committed, aborted, still_open):
        await shard.run(lambda: shard.machine.add(10), producer=producer)
    assert shard.machine.total == 0
    # KIP-890: the marker may carry the next epoch.
    await shard.write_marker(Producer(7, 1), committed=True, coordinator_epoch=0)
    await shard.write_marker(aborted, committed=False, coordinator_epoch=0)
    for machine in (shard.machine, shard_over(partition).machine):
        assert machine.total == 10
        assert machine.pending == {9: 10}


@looped
async def test_records_nobody_understands_are_skipped_and_said(caplog):
    partition = MemoryPartition()
    shard = shard_over(partition)
    await shard.run(lambda: shard.machine.add(1))

    class Newer(CounterCodec):
        def encode(self, record: int) -> tuple[bytes | None, bytes | None]:
            return b"key", b"a newer record"

    newer = Shard(partition, Counter, Newer(), ManualClock(1_000))
    newer.load()
    await newer.run(lambda: newer.machine.add(1))
    assert shard_over(partition).machine.total == 1
    assert "unknown=1" in caplog.text


@looped
async def test_loading_goes_on_where_the_snapshot_ends():
    partition = MemoryPartition()
    shard = shard_over(partition)
    await shard.run(lambda: shard.machine.add(1, 2, 4))

    def restore(machine: Counter) -> int:
        machine.total = 100
        return 2

    restored = Shard(partition, Counter, CounterCodec(), ManualClock(1_000), restore=restore)
    restored.load()
    assert restored.machine.total == 104


@looped
async def test_a_damaged_range_is_left_out_and_said_and_the_rest_is_replayed(caplog):
    partition = MemoryPartition()
    shard = shard_over(partition)
    for amounts in ((1, 2), (4, 8), (16,)):
        await shard.run(functools.partial(shard.machine.add, *amounts))
    partition.log.damaged = range(2, 4)
    assert shard_over(partition).machine.total == 1 + 2 + 16
    assert "offsets=2" in caplog.text
