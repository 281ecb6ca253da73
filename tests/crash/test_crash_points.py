"""Power lost at every single call to the filesystem, in the middle of everything a log does."""

import sys
import uuid
from dataclasses import dataclass, field

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.log.origin import Origin
from headrace.log.partition_log import PartitionLog
from headrace.log.store import Store
from headrace.protocol.records import control_batch
from headrace.testing.clock import ManualClock
from headrace.testing.filesystems import (
    Crash,
    CrashingFilesystem,
    MemoryFilesystem,
    everything,
    nothing,
    some,
)
from headrace.testing.logs import NOW_MS, batch, read_all, small_segments, sync, values

SETTINGS = small_segments(600, index_interval_bytes=150)
ORDERS, FIRST, SECOND, PAYMENTS = (uuid.UUID(int=number) for number in (1, 2, 3, 4))
SEEDS = range(4)

pytestmark = pytest.mark.crash


@dataclass
class Told:
    """What clients were told, and what was tried without an answer."""

    topics: dict[str, uuid.UUID] = field(default_factory=dict)
    written: dict[uuid.UUID, list[bytes]] = field(default_factory=dict)
    acked: dict[uuid.UUID, int] = field(default_factory=dict)
    log_start: dict[uuid.UUID, int] = field(default_factory=dict)
    asked_start: dict[uuid.UUID, int] = field(default_factory=dict)

    def create(self, store: Store, topic: str, topic_id: uuid.UUID) -> PartitionLog:
        # The catalog's record comes first: from here on the topic is to exist.
        self.topics[topic] = topic_id
        return store.create(topic, 0, topic_id, SETTINGS)

    def produce(self, log: PartitionLog, topic_id: uuid.UUID, count: int) -> None:
        for _ in range(count):
            held = self.written.setdefault(topic_id, [])
            value = b"%d of %d" % (len(held), topic_id.int)
            held.append(value)
            log.append(
                batch(value, producer_id=1, producer_epoch=0, base_sequence=len(held) - 1),
                leader_epoch=len(held) // 5,
            )

    def abort(self, log: PartitionLog, producer_id: int) -> None:
        """A transaction of one record, and its marker; neither has a value to be read back."""
        held = self.written.setdefault(PAYMENTS, [])
        header = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
        held.append(b"aborted")
        log.append(batch(b"aborted", transactional=True, **header))
        held.append(b"")
        log.append(
            control_batch(producer_id, 0, commit=False, coordinator_epoch=0, timestamp=NOW_MS),
            origin=Origin.COORDINATOR,
        )

    def sync(self, log: PartitionLog, topic_id: uuid.UUID) -> None:
        sync(log)
        assert log.synced_offset == log.log_end_offset
        self.acked[topic_id] = log.synced_offset


def everything_a_log_does(filesystem: MemoryFilesystem, told: Told) -> None:
    store = Store(filesystem, "/data", ManualClock())
    orders = told.create(store, "orders", ORDERS)
    for _ in range(4):
        told.produce(orders, ORDERS, 3)
        told.sync(orders, ORDERS)
    store.checkpoint()
    told.produce(orders, ORDERS, 4)
    payments = told.create(store, "payments", PAYMENTS)
    for producer_id in range(6):
        told.abort(payments, producer_id)
        if producer_id % 2:
            told.sync(payments, PAYMENTS)
            store.checkpoint()
    brief = told.create(store, "brief", FIRST)
    told.produce(brief, FIRST, 7)
    told.sync(brief, FIRST)
    store.checkpoint()
    told.sync(orders, ORDERS)
    told.asked_start[ORDERS] = 9
    orders.delete_records(9)
    store.checkpoint()
    told.log_start[ORDERS] = 9
    del told.topics["brief"]
    store.delete("brief-0")
    store.sweep()
    brief = told.create(store, "brief", SECOND)
    told.produce(brief, SECOND, 2)
    told.sync(brief, SECOND)
    told.produce(orders, ORDERS, 5)
    store.close()
    told.acked[ORDERS] = len(told.written[ORDERS])
    store = Store(filesystem, "/data", ManualClock())
    orders = store.open("orders", 0, ORDERS, SETTINGS)
    told.produce(orders, ORDERS, 2)
    told.sync(orders, ORDERS)
    store.close()


def check(filesystem: MemoryFilesystem, told: Told, *, killed: bool) -> Store:
    """Start on what is left: every promise holds, and work goes on."""
    store = Store(filesystem, "/data", ManualClock())
    for topic, topic_id in told.topics.items():
        log = store.open(topic, 0, topic_id, SETTINGS)
        written = told.written.get(topic_id, [])
        start = log.log_start_offset
        assert told.log_start.get(topic_id, 0) <= start <= told.asked_start.get(topic_id, 0)
        assert log.log_end_offset >= told.acked.get(topic_id, 0)
        if killed:
            # The last append may have been interrupted before or after its one write.
            assert log.log_end_offset >= len(written) - 1
        if topic_id == PAYMENTS:
            check_aborted(log)
        else:
            held = list(enumerate(written))[start : log.log_end_offset]
            assert values(read_all(log)) == held
        assert log.producers.snapshot()
        appended = log.append(batch(b"after"))
        assert appended.base_offset == log.log_end_offset - 1
        sync(log)
    store.sweep()
    return store


def check_aborted(log: PartitionLog) -> None:
    """Each marker that is in the log has its entry; a transaction without one is open."""
    whole, open_one = divmod(log.log_end_offset, 2)
    assert [
        (entry.producer_id, entry.first_offset, entry.last_offset)
        for entry in log.aborted(0, log.log_end_offset)
    ] == [(at, 2 * at, 2 * at + 1) for at in range(whole)]
    assert log.producers.first_unstable_offset == (2 * whole if open_one else None)


def crashed_at(call: int) -> tuple[CrashingFilesystem, Told, bool]:
    filesystem, told = CrashingFilesystem(call), Told()
    try:
        everything_a_log_does(filesystem, told)
    except Crash:
        return filesystem, told, True
    return filesystem, told, False


def calls_of_a_life() -> int:
    filesystem, _told, crashed = crashed_at(10**9)
    assert not crashed
    return filesystem.calls


def test_power_lost_at_any_call_takes_back_nothing_that_was_said(capsys):
    total, lives = calls_of_a_life(), 0
    assert total > 200
    for call in range(1, total + 1):
        filesystem, told, crashed = crashed_at(call)
        assert crashed
        for keep in (nothing, *map(some, SEEDS)):
            store = check(filesystem.survivors(keep), told, killed=False)
            store.close()
            lives += 1
    with capsys.disabled():
        sys.stdout.write(f" [{total} crash points, {lives} power cuts] ")


def test_a_kill_at_any_call_loses_nothing_that_was_written():
    for call in range(1, calls_of_a_life() + 1):
        filesystem, told, _crashed = crashed_at(call)
        check(filesystem.survivors(everything), told, killed=True)


def test_a_second_power_cut_during_recovery_changes_nothing():
    cuts = 0
    for call in range(1, calls_of_a_life() + 1, 13):
        filesystem, told, _crashed = crashed_at(call)
        left = filesystem.survivors(some(call))
        for again in range(1, 400):
            recovering = CrashingFilesystem(again, left.survivors(everything).root)
            try:
                check(recovering, told, killed=False).close()
            except Crash:
                survivors = recovering.survivors(some(again))
            else:
                break
            cuts += 1
            store = Store(survivors, "/data", ManualClock())
            for topic, topic_id in told.topics.items():
                log = store.open(topic, 0, topic_id, SETTINGS)
                written = [*told.written.get(topic_id, []), b"after"]
                acked = told.acked.get(topic_id, 0)
                assert log.log_end_offset >= acked
                if topic_id == PAYMENTS:
                    continue
                found = values(read_all(log))
                assert [offset for offset, _value in found] == list(
                    range(log.log_start_offset, log.log_end_offset)
                )
                assert [value for offset, value in found if offset < acked] == written[
                    log.log_start_offset : acked
                ]
    assert cuts > 200


def test_a_full_disk_at_any_point_is_refused_and_then_forgotten():
    filesystem, told = MemoryFilesystem(), Told()
    store = Store(filesystem, "/data", ManualClock())
    log = told.create(store, "orders", ORDERS)
    refused, codes = 0, set()
    for room in range(0, 1500, 11):
        filesystem.capacity_bytes = _used(filesystem) + room
        for _ in range(6):
            end = log.log_end_offset
            try:
                log.append(batch(b"%d" % end + b"." * 100))
            except KafkaError as error:
                codes.add(error.code)
                refused += 1
                assert log.log_end_offset == end
        filesystem.capacity_bytes = None
        end = log.log_end_offset
        assert log.append(batch(b"%d" % end + b"." * 100)).base_offset == end
        sync(log)
    assert refused > 100
    assert codes == {ErrorCode.KAFKA_STORAGE_ERROR}
    expected = [(at, b"%d" % at + b"." * 100) for at in range(log.log_end_offset)]
    assert values(read_all(log)) == expected
    survivors = filesystem.survivors(nothing)
    again = Store(survivors, "/data", ManualClock()).open("orders", 0, ORDERS, SETTINGS)
    assert values(read_all(again)) == expected


def _used(filesystem: MemoryFilesystem) -> int:
    return filesystem._used(filesystem.root)
