"""Topics survive whatever happens between the catalog's record and the partition's directory."""

import asyncio
from uuid import UUID, uuid4

import pytest

from headrace.broker import metadata_log
from headrace.broker.context import Broker
from headrace.coordination.catalog import Refused
from headrace.coordination.metadata_records import TOPIC_RESOURCE
from headrace.coordination.topics import NewTopic
from headrace.errors import ErrorCode, KafkaError
from headrace.log.checkpoints import read_partition_metadata, write_partition_metadata
from headrace.log.filesystem import join
from headrace.log.partition_log import PartitionLog
from headrace.protocol.records import Record, write_batch
from headrace.testing.clock import ManualClock
from headrace.testing.filesystems import MemoryFilesystem, everything, nothing, some
from tests.broker.broker_in_memory import RememberedFilesystem, running_broker

METADATA_DIR = "/data/__cluster_metadata-0"


def on_broker(scenario, filesystem=None, **settings):
    """Run a scenario on a broker; it ends without a clean stop. Returns what the scenario did."""
    filesystem = filesystem or MemoryFilesystem()

    async def main():
        async with running_broker(filesystem, ManualClock(), **settings) as broker:
            return await asyncio.wait_for(scenario(broker), 20)

    return asyncio.run(main())


def after_kill(filesystem: MemoryFilesystem) -> MemoryFilesystem:
    return filesystem.survivors(everything)


async def create(broker, name, partitions=1, **configs):
    texts = {key.replace("_", "."): text for key, text in configs.items()}
    wanted = NewTopic(name, uuid4(), partitions, 1, configs=texts)
    (effect,) = await broker.topics.create([wanted])
    if isinstance(effect, Refused):
        raise effect.error
    return effect.topic


def served(broker: Broker) -> dict[tuple[str, int], UUID]:
    return {(each.topic, each.index): each.topic_id for each in broker.partitions.all()}


def cataloged(broker: Broker) -> dict[tuple[str, int], UUID]:
    return {
        (topic.name, index): topic.topic_id
        for topic in broker.catalog.topics.values()
        for index in range(topic.partitions)
    }


def directories(broker: Broker) -> set[str]:
    return {f"{topic}-{index}" for topic, index in broker.store.found()} - {"__cluster_metadata-0"}


def assert_in_line(broker: Broker) -> None:
    assert served(broker) == cataloged(broker)
    assert directories(broker) == {f"{topic}-{index}" for topic, index in cataloged(broker)}
    for (topic, index), topic_id in cataloged(broker).items():
        path = f"/data/{topic}-{index}/partition.metadata"
        assert read_partition_metadata(broker.store.filesystem.read(path)) == topic_id


def test_a_topic_is_there_with_all_its_directories_when_it_is_answered():
    async def scenario(broker):
        await create(broker, "orders", 3, retention_ms="5000")
        assert_in_line(broker)
        assert broker.partitions.get("orders", 2).settings.retention_ms == 5000

    on_broker(scenario)


def test_a_restart_finds_topics_settings_and_ids_and_reuses_no_producer_id():
    filesystem = MemoryFilesystem()

    async def before(broker):
        topic = await create(broker, "orders", 2, retention_ms="5000")
        await broker.topics.add_partitions([("orders", 3, None)])
        return topic.topic_id, {await broker.topics.next_producer_id() for _ in range(3)}

    async def after(broker):
        topic = broker.catalog.topic("orders")
        assert_in_line(broker)
        assert (topic.partitions, topic.configs) == (3, {"retention.ms": "5000"})
        assert broker.partitions.get("orders", 2).settings.retention_ms == 5000
        return topic.topic_id, {await broker.topics.next_producer_id() for _ in range(3)}

    topic_id, ids = on_broker(before, filesystem)
    found_id, later_ids = on_broker(after, after_kill(filesystem))
    assert found_id == topic_id
    assert not ids & later_ids


def test_a_topic_deleted_and_created_anew_is_another_and_empty():
    filesystem = MemoryFilesystem()

    async def scenario(broker):
        old = await create(broker, "orders")
        partition = broker.partitions.get("orders", 0)
        partition.append(write_batch([Record(0, 1, None, b"old", ())]))
        await broker.topics.delete([old.topic_id])
        with pytest.raises(KafkaError):
            broker.partitions.get("orders", 0)
        new = await create(broker, "orders")
        assert new.topic_id != old.topic_id
        assert broker.partitions.get("orders", 0).log.log_end_offset == 0

    async def after(broker):
        assert_in_line(broker)
        assert broker.partitions.get("orders", 0).log.log_end_offset == 0

    on_broker(scenario, filesystem)
    on_broker(after, after_kill(filesystem))


@pytest.mark.parametrize("keep", [nothing, everything, some(1), some(2)])
@pytest.mark.parametrize("between_snapshots", [4, 10_000])
def test_power_lost_at_any_call_keeps_what_was_answered_and_halves_nothing(
    keep, between_snapshots, monkeypatch
):
    monkeypatch.setattr(metadata_log, "RECORDS_BETWEEN_SNAPSHOTS", between_snapshots)
    filesystem = RememberedFilesystem(keep)
    # What was answered, by the number of calls made until then.
    answered: list[tuple[int, str, str, int]] = []

    async def scenario(broker):
        def tell(deed: str, name: str, partitions: int = 0) -> None:
            answered.append((len(filesystem.moments), deed, name, partitions))

        for name in ("a", "b"):
            topic = await create(broker, name, 2)
            tell("there", name, 2)
        await broker.topics.delete([topic.topic_id])
        tell("gone", "b")
        await broker.topics.add_partitions([("a", 3, None)])
        tell("there", "a", 3)

    on_broker(scenario, filesystem)

    async def after(broker):
        assert_in_line(broker)
        return {topic.name: topic.partitions for topic in broker.catalog.topics.values()}

    for at, moment in enumerate(filesystem.moments):
        found = on_broker(after, moment)
        expected = {name: (deed, count) for calls, deed, name, count in answered if calls <= at}
        for name, (deed, count) in expected.items():
            # What is being done without an answer may or may not have come to pass.
            under_way = any(calls > at and of == name for calls, _, of, _ in answered)
            if deed == "there":
                assert found.get(name, 0) >= count or under_way
            else:
                assert name not in found
        assert set(found.values()) <= {2, 3}


def test_a_directory_that_another_broker_wrote_is_adopted(caplog):
    filesystem = MemoryFilesystem()
    filesystem.mkdir("/data")
    topic_id = uuid4()
    path = "/data/from.kafka-1"
    filesystem.mkdir(path)
    for name, content in (
        ("partition.metadata", write_partition_metadata(topic_id)),
        (
            "00000000000000000000.log",
            write_batch([Record(0, 1, None, b"kept", ())], leader_epoch=5),
        ),
        ("leader-epoch-checkpoint", b"0\n1\n5 0\n"),
    ):
        filesystem.write_atomic(join(path, name), content)

    async def scenario(broker):
        topic = broker.catalog.topic("from.kafka")
        assert (topic.topic_id, topic.partitions) == (topic_id, 2)
        assert_in_line(broker)
        partition = broker.partitions.get("from.kafka", 1)
        assert partition.log.log_end_offset == 1
        # What we append must not go back behind the epoch it was left at.
        assert partition.leader_epoch == 5
        await broker.topics.delete([topic_id])

    caplog.set_level("INFO")
    on_broker(scenario, filesystem)
    assert "topic adopted topic=from.kafka" in caplog.text


def test_directories_of_a_deleted_topic_are_removed_and_strangers_set_aside():
    filesystem = MemoryFilesystem()

    async def before(broker):
        gone = await create(broker, "gone")
        await create(broker, "kept")
        await broker.topics.delete([gone.topic_id])
        return gone.topic_id

    def put(name: str, topic_id: UUID) -> None:
        left.mkdir(f"/data/{name}")
        left.write_atomic(f"/data/{name}/partition.metadata", write_partition_metadata(topic_id))

    async def after(broker):
        assert_in_line(broker)
        assert set(broker.catalog.topics) == {"kept"}
        return set(broker.store.filesystem.listdir("/data"))

    gone_id = on_broker(before, filesystem)
    left = after_kill(filesystem)
    put("gone-0", gone_id)
    left.remove_tree("/data/kept-0")
    put("kept-0", uuid4())
    left.mkdir("/data/nameless-0")
    names = on_broker(after_and_nameless(after), left)
    assert {name.rpartition("-")[2] for name in names if name.startswith("gone")} == {"delete"}
    assert any(name.startswith("kept-0.") and name.endswith("-stray") for name in names)


def after_and_nameless(after):
    async def scenario(broker):
        # A directory without an id belongs to no topic we could name: it is left where it is.
        broker.store.filesystem.remove_tree("/data/nameless-0")
        return await after(broker)

    return scenario


def test_snapshots_shorten_the_replay_and_damaged_ones_are_passed_over(monkeypatch, caplog):
    monkeypatch.setattr(metadata_log, "RECORDS_BETWEEN_SNAPSHOTS", 10)
    filesystem = MemoryFilesystem()

    async def before(broker):
        for number in range(12):
            topic = await create(broker, f"t{number}", 3, retention_ms=str(1000 + number))
            if number % 4 == 3:
                await broker.topics.delete([topic.topic_id])
        await broker.topics.next_producer_id()
        return broker.catalog.snapshot(), set(broker.catalog.topics)

    async def after(broker):
        assert_in_line(broker)
        return set(broker.catalog.topics), broker.catalog.next_producer_id

    _, topics = on_broker(before, filesystem)
    left = after_kill(filesystem)
    snapshots = sorted(n for n in left.listdir(METADATA_DIR) if n.endswith(".checkpoint"))
    assert len(snapshots) == 2
    assert on_broker(after, after_kill(left)) == (topics, 1000)

    damages = {
        "empty snapshot": lambda fs: fs.write_atomic(join(METADATA_DIR, snapshots[1]), b""),
        "torn snapshot": lambda fs: fs.write_atomic(
            join(METADATA_DIR, snapshots[1]), fs.read(join(METADATA_DIR, snapshots[1]))[:-30]
        ),
        "flipped bit": lambda fs: fs.write_atomic(
            join(METADATA_DIR, snapshots[1]), flipped(fs.read(join(METADATA_DIR, snapshots[1])))
        ),
        "no snapshot": lambda fs: fs.remove(join(METADATA_DIR, snapshots[1])),
    }
    for name, damage in damages.items():
        damaged = after_kill(left)
        damage(damaged)
        caplog.clear()
        assert on_broker(after, damaged) == (topics, 1000), name
        assert ("snapshot ignored" in caplog.text) == (name != "no snapshot"), name


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def test_a_metadata_log_that_lost_everything_after_its_snapshot_goes_on(monkeypatch, caplog):
    monkeypatch.setattr(metadata_log, "RECORDS_BETWEEN_SNAPSHOTS", 10)
    filesystem = MemoryFilesystem()

    async def before(broker):
        for number in range(6):
            await create(broker, f"t{number}", 4)

    async def after(broker):
        assert_in_line(broker)
        await create(broker, "later", retention_ms="5000")

    async def at_last(broker):
        assert_in_line(broker)
        assert broker.catalog.topic("later").configs == {"retention.ms": "5000"}
        return set(broker.catalog.topics)

    on_broker(before, filesystem)
    left = after_kill(filesystem)
    left.open(f"{METADATA_DIR}/00000000000000000000.log").truncate(0)
    on_broker(after, left)
    assert "metadata log is shorter than its snapshot" in caplog.text
    # Topics that the lost records created are taken up again from their directories.
    assert on_broker(at_last, after_kill(left)) == {*(f"t{n}" for n in range(6)), "later"}


@pytest.mark.parametrize("cut", range(1, 80, 13))
def test_a_torn_tail_of_the_metadata_log_does_not_stop_the_start(cut):
    filesystem = MemoryFilesystem()

    async def before(broker):
        await create(broker, "orders", 2)

    async def after(broker):
        assert_in_line(broker)
        assert set(broker.catalog.topics) == {"orders"}

    on_broker(before, filesystem)
    left = after_kill(filesystem)
    journal = left.open(f"{METADATA_DIR}/00000000000000000000.log")
    journal.truncate(journal.size() - cut)
    on_broker(after, left)


@pytest.mark.parametrize("at", range(0, 560, 31))
def test_a_flipped_bit_in_the_metadata_log_does_not_stop_the_start(at):
    filesystem = MemoryFilesystem()

    async def before(broker):
        for name in ("a", "b"):
            await create(broker, name, 2)

    async def after(broker):
        assert_in_line(broker)
        # What the log lost, the directories still say.
        assert set(broker.catalog.topics) == {"a", "b"}

    on_broker(before, filesystem)
    left = after_kill(filesystem)
    journal = left.open(f"{METADATA_DIR}/00000000000000000000.log")
    assert journal.size() > at
    journal.write_at(at, bytes([journal.read_at(at, 1)[0] ^ 4]))
    on_broker(after, left)


def test_what_is_not_durable_is_not_told():
    async def scenario(broker):
        broker.topics.shard.apply(
            lambda: broker.catalog.alter_configs(TOPIC_RESOURCE, "orders", {"retention.ms": "1"})
        )
        before = metadata_partition(broker).synced_offset
        await broker.topics.settled()
        log = metadata_partition(broker)
        assert before < log.synced_offset == log.log_end_offset

    async def with_topic(broker):
        await create(broker, "orders")
        await scenario(broker)

    on_broker(with_topic)


def metadata_partition(broker: Broker) -> PartitionLog:
    return broker.store.logs["__cluster_metadata-0"]


def test_changed_settings_are_in_force_on_live_partitions_at_once():
    async def scenario(broker):
        await create(broker, "orders", 2)
        settings = {"retention.ms": "7000", "write.caching": "true"}
        await broker.topics.alter_configs(
            lambda: broker.catalog.alter_configs(TOPIC_RESOURCE, "orders", settings)
        )
        for index in range(2):
            assert broker.partitions.get("orders", index).settings.retention_ms == 7000
            assert broker.partitions.get("orders", index).settings.write_caching

    on_broker(scenario)


def test_a_full_disk_refuses_creation_and_recovers_alone():
    filesystem = MemoryFilesystem()

    async def scenario(broker):
        filesystem.capacity_bytes = filesystem._used(filesystem.root)
        with pytest.raises(KafkaError) as refused:
            await create(broker, "orders")
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        filesystem.capacity_bytes = None
        await create(broker, "orders")
        assert_in_line(broker)

    on_broker(scenario, filesystem)


def test_a_topic_deleted_while_it_is_being_created_leaves_nothing_behind():
    async def scenario(broker):
        wanted = NewTopic("orders", uuid4(), 500, 1)
        creating = asyncio.ensure_future(broker.topics.create([wanted]))
        while len(broker.partitions) == 0:  # noqa: ASYNC110 - each step of the loop is looked at
            await asyncio.sleep(0)
        assert len(broker.partitions) < 500
        await broker.topics.delete([wanted.topic_id])
        await creating
        assert len(broker.partitions) == 0
        await create(broker, "orders", 2)
        assert_in_line(broker)

    on_broker(scenario)


def test_internal_topics_are_created_as_their_coordinators_need_them():
    async def scenario(broker):
        topic = await broker.topics.ensure_internal("__transaction_state")
        again = await broker.topics.ensure_internal("__transaction_state")
        assert topic == again
        assert topic.internal
        assert broker.partitions.get("__transaction_state", 0).settings.compacted

    on_broker(scenario)
