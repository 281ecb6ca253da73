"""Share groups on a whole broker in memory: handlers, locks, waiting, restarts and power cuts."""

import asyncio
import functools
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from uuid import UUID, uuid4

import pytest

from headrace.broker import share_shard
from headrace.broker.context import Broker, Call, Endpoint
from headrace.coordination.topics import NewTopic
from headrace.errors import ErrorCode, KafkaError
from headrace.log.origin import Origin
from headrace.protocol.apis import APIS
from headrace.protocol.messages import (
    Message,
    read_request,
    read_response,
    write_request,
    write_response,
)
from headrace.protocol.records import Record, batches, control_batch, write_batch
from headrace.testing.filesystems import MemoryFilesystem, everything, nothing
from headrace.testing.virtual_time import VirtualClock, run_virtually
from tests.broker.broker_in_memory import RememberedFilesystem, running_broker

GROUP = "workers"
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
LOCK_S = 30.0
SETTINGS = {"share_coordinator_state_topic_num_partitions": "1"}
KEYS = {api.name: api for api in APIS.values()}


def virtually(test):
    @functools.wraps(test)
    def in_virtual_time(*args, **kwargs):
        run_virtually(lambda: test(*args, **kwargs))

    return in_virtual_time


@dataclass
class Client:
    """A member of the group on a connection of its own; every message goes through its bytes."""

    broker: Broker
    member_id: str = "ann"
    connection_id: int = 1
    epoch: int = 0
    fetched: list[tuple[int, int, int]] = field(default_factory=list)

    async def ask(self, name: str, **fields: Any) -> Message:
        api = KEYS[name]
        handler = import_module(f"headrace.broker.handlers.{name}")
        version = api.max_version
        sent = write_request(api.key, version, Message(**fields))
        call = Call(api.key, version, "me", "127.0.0.1", "PLAINTEXT", self.connection_id)
        answer = await handler.handle(self.broker, call, read_request(api.key, version, sent))
        return read_response(api.key, version, write_response(api.key, version, answer))

    async def beat(self, epoch: int = 0, topics: tuple[str, ...] | None = ("orders",)) -> Message:
        return await self.ask(
            "share_group_heartbeat",
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=epoch,
            rack_id=None,
            subscribed_topic_names=topics,
        )

    async def fetch(
        self,
        *acks: tuple[int, int, list[int]],
        epoch: int | None = None,
        max_wait_ms: int = 0,
        max_records: int = 500,
    ) -> list[tuple[int, int, int]]:
        """Fetch orders-0; what was acquired, as first offset, last offset, delivery count."""
        answer = await self.ask(
            "share_fetch",
            group_id=GROUP,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=max_records,
            batch_size=500,
            share_acquire_mode=1,
            is_renew_ack=False,
            topics=[_topic(self.broker, acks)],
            forgotten_topics_data=[],
        )
        assert answer.error_code == ErrorCode.NONE
        self.epoch += 1
        found = [each for topic in answer.responses for each in topic.partitions]
        for each in found:
            assert (each.error_code, each.acknowledge_error_code) == (0, 0)
            records = [
                record.offset
                for batch in batches(each.records or b"")
                if not batch.is_control
                for record in batch.records()
            ]
            assert all(
                offset in records
                for one in each.acquired_records
                for offset in range(one.first_offset, one.last_offset + 1)
                if offset not in CONTROL
            )
        return [
            (one.first_offset, one.last_offset, one.delivery_count)
            for each in found
            for one in each.acquired_records
        ]

    async def acknowledge(
        self, *acks: tuple[int, int, list[int]], renew: bool = False, epoch: int | None = None
    ) -> ErrorCode:
        answer = await self.ask(
            "share_acknowledge",
            group_id=GROUP,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=renew,
            topics=[_topic(self.broker, acks)],
        )
        self.epoch += 1
        return ErrorCode(answer.responses[0].partitions[0].error_code)


CONTROL: set[int] = set()


@pytest.fixture(autouse=True)
def _no_control_records():
    CONTROL.clear()


def _topic(broker: Broker, acks) -> Message:
    return Message(
        topic_id=broker.catalog.topics["orders"].topic_id,
        partitions=[
            Message(
                partition_index=0,
                acknowledgement_batches=[
                    Message(first_offset=first, last_offset=last, acknowledge_types=types)
                    for first, last, types in acks
                ],
            )
        ],
    )


@asynccontextmanager
async def broker_on(filesystem: MemoryFilesystem, **settings: str):
    async with running_broker(filesystem, VirtualClock(), **SETTINGS, **settings) as broker:
        broker.advertise({"PLAINTEXT": Endpoint("127.0.0.1", 9092)})
        yield broker


@asynccontextmanager
async def new_broker(filesystem: MemoryFilesystem | None = None, records: int = 0, **settings: str):
    """A broker with the topic orders and a group that begins at its start."""
    async with broker_on(filesystem or MemoryFilesystem(), **settings) as broker:
        await broker.topics.create([NewTopic("orders", uuid4(), 1, 1)])
        await configure(broker, "share.auto.offset.reset", "earliest")
        for _ in range(records):
            await produce(broker)
        yield broker


async def configure(broker: Broker, name: str, value: str) -> None:
    config = Message(name=name, config_operation=0, value=value)
    resource = Message(resource_type=32, resource_name=GROUP, configs=[config])
    answer = await Client(broker).ask(
        "incremental_alter_configs", resources=[resource], validate_only=False
    )
    assert answer.responses[0].error_code == ErrorCode.NONE, answer


async def produce(broker: Broker, count: int = 1, **batch: Any) -> None:
    partition = broker.partitions.get("orders", 0)
    records = [Record(index, 0, b"k", b"v", ()) for index in range(count)]
    partition.append(write_batch(records, **batch))
    await partition.wait_durable(partition.log.log_end_offset)


@virtually
async def test_a_first_heartbeat_brings_partitions():
    async with new_broker() as broker:
        answer = await Client(broker).beat()
        assert [list(each.partitions) for each in answer.assignment.topic_partitions] == [[0]]
        assert answer.heartbeat_interval_ms == 5000


@virtually
async def test_more_members_than_partitions_share_the_records():
    async with new_broker(records=10) as broker:
        ann, bob = Client(broker), Client(broker, "bob", 2)
        for client in (ann, bob):
            answer = await client.beat()
            assert list(answer.assignment.topic_partitions[0].partitions) == [0]
        assert await ann.fetch(max_records=4) == [(0, 3, 1)]
        assert await bob.fetch(max_records=4) == [(4, 7, 1)]
        assert await ann.acknowledge((4, 7, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
        assert await bob.acknowledge((4, 7, [ACCEPT])) == ErrorCode.NONE
        assert await ann.fetch((0, 3, [ACCEPT])) == [(8, 9, 1)]


@virtually
async def test_a_silent_member_is_removed():
    async with new_broker() as broker:
        await Client(broker).beat()
        await asyncio.sleep(44)
        assert (await described(broker)).members
        await asyncio.sleep(2)
        assert not (await described(broker)).members


async def described(broker: Broker) -> Message:
    answer = await Client(broker).ask(
        "share_group_describe", group_ids=[GROUP], include_authorized_operations=False
    )
    return answer.groups[0]


@virtually
async def test_a_record_that_is_held_too_long_is_offered_again():
    async with new_broker(records=2) as broker:
        ann, bob = Client(broker), Client(broker, "bob", 2)
        assert await ann.fetch(max_records=1) == [(0, 0, 1)]
        started = asyncio.get_running_loop().time()
        assert await bob.fetch() == [(1, 1, 1)]
        # A fetch that waits is woken by the end of the lock, not by its own deadline.
        assert await bob.fetch((1, 1, [ACCEPT]), max_wait_ms=500_000) == [(0, 0, 2)]
        assert asyncio.get_running_loop().time() - started == pytest.approx(LOCK_S)
        assert await ann.acknowledge((0, 0, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE


@virtually
async def test_a_renewed_lock_lasts_longer():
    async with new_broker(records=1) as broker:
        ann = Client(broker)
        await ann.fetch()
        await asyncio.sleep(20)
        assert await ann.acknowledge((0, 0, [RENEW]), renew=True) == ErrorCode.NONE
        await asyncio.sleep(20)
        assert await ann.acknowledge((0, 0, [ACCEPT])) == ErrorCode.NONE


@virtually
async def test_a_group_can_set_how_long_records_are_held():
    async with new_broker(records=1) as broker:
        await configure(broker, "share.record.lock.duration.ms", "15000")
        await Client(broker).fetch()
        await asyncio.sleep(15.1)
        assert await Client(broker, "bob", 2).fetch() == [(0, 0, 2)]


@virtually
async def test_a_record_is_given_up_after_so_many_deliveries():
    async with new_broker(records=2) as broker:
        await configure(broker, "share.delivery.count.limit", "2")
        ann = Client(broker)
        assert await ann.fetch(max_records=1) == [(0, 0, 1)]
        assert await ann.acknowledge((0, 0, [RELEASE])) == ErrorCode.NONE
        assert await ann.fetch(max_records=1) == [(0, 0, 2)]
        assert await ann.fetch((0, 0, [RELEASE])) == [(1, 1, 1)]


@virtually
async def test_no_more_records_are_in_flight_than_the_group_may_lock():
    async with new_broker() as broker:
        await produce(broker, 300)
        await configure(broker, "share.partition.max.record.locks", "100")
        ann = Client(broker)
        assert await ann.fetch(max_records=500) == [(0, 99, 1)]
        assert await ann.fetch(max_records=500) == []
        assert await ann.fetch((0, 9, [ACCEPT]), max_records=500) == [(100, 109, 1)]


@virtually
async def test_a_closed_connection_gives_back_what_it_held():
    async with new_broker(records=1) as broker:
        await Client(broker, connection_id=7).fetch()
        bob = Client(broker, "bob", 2)
        waiting = asyncio.create_task(bob.fetch(max_wait_ms=10_000))
        await asyncio.sleep(1)
        broker.shares.connection_closed(7)
        assert await waiting == [(0, 0, 2)]
        assert asyncio.get_running_loop().time() < LOCK_S


@virtually
async def test_nothing_is_taken_for_a_connection_that_closed_while_it_waited():
    async with new_broker() as broker:
        waiting = asyncio.create_task(Client(broker, connection_id=7).fetch(max_wait_ms=10_000))
        await asyncio.sleep(1)
        broker.shares.connection_closed(7)
        await asyncio.sleep(1)
        await produce(broker)
        assert await waiting == []
        assert await Client(broker, "bob", 2).fetch() == [(0, 0, 1)]


@virtually
async def test_a_waiting_fetch_is_woken_by_a_new_record():
    async with new_broker() as broker:
        ann = Client(broker)
        waiting = asyncio.create_task(ann.fetch(max_wait_ms=60_000))
        await asyncio.sleep(2)
        await produce(broker)
        assert await waiting == [(0, 0, 1)]
        assert asyncio.get_running_loop().time() < 3


@virtually
async def test_the_last_epoch_ends_a_session_and_gives_back_its_records():
    async with new_broker(records=3) as broker:
        ann = Client(broker)
        await ann.fetch()
        assert await ann.acknowledge((0, 0, [ACCEPT]), epoch=-1) == ErrorCode.NONE
        assert await Client(broker, "bob", 2).fetch() == [(1, 2, 2)]
        with pytest.raises(KafkaError) as refused:
            await ann.fetch(epoch=1)
        assert refused.value.code is ErrorCode.SHARE_SESSION_NOT_FOUND


@virtually
async def test_there_are_only_so_many_sessions():
    async with new_broker(group_share_max_share_sessions="1") as broker:
        await Client(broker).fetch()
        with pytest.raises(KafkaError) as refused:
            await Client(broker, "bob", 2).fetch()
        assert refused.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
        await Client(broker).fetch()


@pytest.mark.parametrize(
    ("reset", "first"),
    [("latest", 3), ("earliest", 0), ("by_duration:PT1H", 3), ("by_duration:P1D", 2)],
)
def test_a_new_group_begins_where_it_says(reset, first):
    @virtually
    async def scenario():
        async with new_broker() as broker:
            partition = broker.partitions.get("orders", 0)
            now_ms = broker.clock.now_ms()
            for age_ms in (200 * 3_600_000, 100 * 3_600_000, 2 * 3_600_000):
                partition.append(write_batch([Record(0, now_ms - age_ms, b"k", b"v", ())]))
            await partition.wait_durable(3)
            await configure(broker, "share.auto.offset.reset", reset)
            ann = Client(broker)
            await ann.fetch()
            await produce(broker)
            await ann.acknowledge((first, 2, [RELEASE])) if first < 3 else None
            assert (await ann.fetch())[0][0] == first

    scenario()


@virtually
async def test_aborted_records_are_not_delivered_to_a_group_that_reads_committed():
    async with new_broker(records=1) as broker:
        await configure(broker, "share.isolation.level", "read_committed")
        partition = broker.partitions.get("orders", 0)
        batch = write_batch(
            [Record(0, 0, b"k", b"v", ())],
            producer_id=5,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        partition.append(batch, origin=Origin.COORDINATOR)
        await partition.wait_durable(2)
        ann = Client(broker)
        assert await ann.fetch() == [(0, 0, 1)]
        assert await ann.fetch() == []
        partition.append(
            control_batch(5, 0, commit=False, coordinator_epoch=0, timestamp=0),
            origin=Origin.COORDINATOR,
        )
        CONTROL.add(2)
        await produce(broker)
        assert await ann.fetch((0, 0, [ACCEPT])) == [(2, 3, 1)]


@virtually
async def test_what_was_said_of_records_survives_a_restart():
    filesystem = MemoryFilesystem()
    async with new_broker(filesystem, records=5) as broker:
        ann = Client(broker)
        await ann.beat()
        assert await ann.fetch() == [(0, 4, 1)]
        await ann.acknowledge((1, 1, [ACCEPT]), (2, 2, [REJECT]), (3, 3, [RELEASE]))
    async with broker_on(filesystem.survivors(nothing)) as broker:
        assert (await described(broker)).members[0].member_id == "ann"
        # The release counts as a delivery; what was only held does not, and is offered again.
        found = await Client(broker).fetch(max_wait_ms=1000)
        assert found == [(0, 0, 1), (3, 3, 2), (4, 4, 1)]


@pytest.mark.parametrize("keep", [nothing, everything])
def test_no_power_cut_brings_back_an_acknowledged_record(keep):
    filesystem = RememberedFilesystem(keep)
    promised: list[tuple[int, int]] = []

    @virtually
    async def story():
        async with new_broker(filesystem, records=6) as broker:
            ann = Client(broker)
            await ann.fetch()
            for offset in (1, 0, 3, 5, 2):
                assert await ann.acknowledge((offset, offset, [ACCEPT])) == ErrorCode.NONE
                promised.append((filesystem.calls, offset))

    story()
    first = promised[0][0] - 3
    for moment in range(max(first, 0), len(filesystem.moments)):
        done = {offset for calls, offset in promised if calls <= moment}

        @virtually
        async def afterwards(files=filesystem.moments[moment], done=done):
            async with broker_on(files) as broker:
                found = await Client(broker).fetch(max_wait_ms=1000)
                again = {each for low, high, _ in found for each in range(low, high + 1)}
                assert not again & done
                assert again | done | {1, 0, 3, 5, 2} >= set(range(6))

        afterwards()


@virtually
async def test_a_long_history_is_written_anew_and_the_old_records_go(monkeypatch):
    monkeypatch.setattr(share_shard, "PRUNED_ABOVE", 10)
    filesystem = MemoryFilesystem()
    async with new_broker(filesystem, records=40) as broker:
        ann = Client(broker)
        await ann.fetch(max_records=40)
        for offset in range(1, 40, 2):
            await ann.acknowledge((offset, offset, [ACCEPT]))
        log = broker.partitions.get("__share_group_state", 0).log
        before = log.log_start_offset
        await broker.shares.prune()
        assert log.log_start_offset > before + 10
        assert set(log.settings.cleanup_policy) == {"delete"}
    async with broker_on(filesystem.survivors(nothing)) as broker:
        found = await Client(broker).fetch(max_wait_ms=1000)
        assert [low for low, _, _ in found] == list(range(0, 40, 2))


@virtually
async def test_offsets_of_an_empty_group_can_be_described_moved_and_deleted():
    async with new_broker(records=5) as broker:
        ann = Client(broker)
        await ann.beat()
        await ann.fetch()
        await ann.acknowledge((0, 1, [ACCEPT]), (3, 3, [ACCEPT]))
        assert await offsets(broker) == [(2, 2)]
        with pytest.raises(KafkaError) as refused:
            await alter(broker, 1)
        assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
        await ann.fetch(epoch=-1)
        await ann.beat(-1)
        assert await alter(broker, 1) == ErrorCode.NONE
        assert await offsets(broker) == [(1, 4)]
        assert await Client(broker, "bob", 2).fetch() == [(1, 4, 1)]
        answer = await ann.ask(
            "delete_share_group_offsets", group_id=GROUP, topics=[Message(topic_name="orders")]
        )
        assert answer.responses[0].error_code == ErrorCode.NONE
        assert await offsets(broker) == []


async def offsets(broker: Broker) -> list[tuple[int, int]]:
    asked = Message(group_id=GROUP, topics=None)
    answer = await Client(broker).ask("describe_share_group_offsets", groups=[asked])
    return [
        (each.start_offset, each.lag)
        for topic in answer.groups[0].topics
        for each in topic.partitions
    ]


async def alter(broker: Broker, offset: int) -> int:
    partition = Message(partition_index=0, start_offset=offset)
    answer = await Client(broker).ask(
        "alter_share_group_offsets",
        group_id=GROUP,
        topics=[Message(topic_name="orders", partitions=[partition])],
    )
    code: int = answer.responses[0].partitions[0].error_code
    return code


@virtually
async def test_a_deleted_group_leaves_nothing_to_the_next_of_its_name():
    async with new_broker(records=3) as broker:
        ann = Client(broker)
        await ann.beat()
        await ann.fetch()
        await ann.acknowledge((0, 2, [ACCEPT]), epoch=-1)
        answer = await ann.ask("delete_groups", groups_names=[GROUP])
        assert answer.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
        await ann.beat(-1)
        answer = await ann.ask("delete_groups", groups_names=[GROUP])
        assert answer.results[0].error_code == ErrorCode.NONE
        bob = Client(broker, "bob", 2)
        await bob.beat()
        assert await bob.fetch() == [(0, 2, 1)]


@virtually
async def test_a_deleted_topic_is_forgotten():
    async with new_broker(records=3) as broker:
        ann = Client(broker)
        await ann.beat()
        await ann.fetch()
        await ann.acknowledge((0, 0, [ACCEPT]))
        topic = Message(name="orders", topic_id=UUID(int=0))
        await ann.ask("delete_topics", topics=[topic], topic_names=[], timeout_ms=1000)
        assert await offsets(broker) == []
        await broker.topics.create([NewTopic("orders", uuid4(), 1, 1)])
        await produce(broker)
        again = Client(broker, "bob", 2)
        await again.beat()
        assert await again.fetch() == [(0, 0, 1)]


@virtually
async def test_records_deleted_from_the_log_are_not_waited_for():
    async with new_broker(records=5) as broker:
        ann = Client(broker)
        await ann.fetch(max_records=2)
        broker.partitions.get("orders", 0).log.delete_records(3)
        assert await ann.fetch() == [(3, 4, 1)]


@virtually
async def test_without_the_topic_of_states_groups_begin_again():
    async with new_broker(records=2) as broker:
        ann = Client(broker)
        await ann.fetch()
        await ann.acknowledge((0, 0, [ACCEPT]))
        topic = Message(name="__share_group_state", topic_id=UUID(int=0))
        await ann.ask("delete_topics", topics=[topic], topic_names=[], timeout_ms=1000)
        assert await Client(broker, "bob", 2).fetch() == [(0, 1, 1)]


@virtually
async def test_an_acknowledgement_that_cannot_be_written_changes_nothing():
    async with new_broker(records=2) as broker:
        ann = Client(broker)
        await ann.fetch()
        journal = broker.partitions.get("__share_group_state", 0)
        written, journal.log.append = journal.log.append, _full
        try:
            code = await ann.acknowledge((0, 0, [ACCEPT]))
        finally:
            journal.log.append = written
        assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await ann.acknowledge((0, 1, [ACCEPT])) == ErrorCode.NONE


def _full(*_: object, **__: object) -> None:
    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")
