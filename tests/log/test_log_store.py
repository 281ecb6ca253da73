import json
import uuid

import pytest

from headrace.errors import ErrorCode, KafkaError, StartRefused
from headrace.log.filesystem import OsFilesystem
from headrace.log.settings import TopicSettings
from headrace.log.store import Store
from headrace.testing.clock import ManualClock
from headrace.testing.filesystems import MemoryFilesystem, everything, nothing
from headrace.testing.logs import batch, read_all, small_segments, sync, values

ID, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)
SETTINGS = TopicSettings()


def opened(filesystem, **identity):
    return Store(filesystem, "/data", ManualClock(), **identity)


def test_a_clean_stop_is_marked_and_the_mark_is_gone_for_good_once_started():
    filesystem = MemoryFilesystem()
    store = opened(filesystem)
    assert not store.clean
    log = store.create("orders", 0, ID, SETTINGS)
    log.append(batch(b"a"))
    store.close()
    assert json.loads(filesystem.read("/data/.kafka_cleanshutdown")) == {
        "version": 0,
        "brokerEpoch": -1,
    }
    after_power_cut = filesystem.survivors(nothing)
    store = opened(after_power_cut)
    assert store.clean
    assert store.found() == [("orders", 0)]
    log = store.open("orders", 0, ID, SETTINGS)
    assert log.synced_offset == 1
    assert values(read_all(log)) == [(0, b"a")]
    assert not after_power_cut.survivors(nothing).exists("/data/.kafka_cleanshutdown")


def test_identity_is_written_once_and_kept():
    filesystem = MemoryFilesystem()
    first = opened(filesystem, node_id=7)
    first.close()
    again = opened(filesystem, node_id=7)
    assert again.cluster_id == first.cluster_id
    assert again.directory_id == first.directory_id
    assert len(again.cluster_id) == len(again.directory_id) == 22
    again.close()
    assert opened(filesystem, node_id=7, cluster_id=first.cluster_id).node_id == 7


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        ("version=2\ncluster.id=c\nnode.id=1\n", "version 2"),
        ("something else entirely\n", "version None"),
        ("version=1\ncluster.id=c\nnode.id=4\n", "node.id=4"),
        ("version=1\nnode.id=1\n", "cluster.id"),
    ],
)
def test_a_directory_that_is_not_ours_is_refused_and_not_touched(meta, reason):
    filesystem = MemoryFilesystem()
    filesystem.mkdir("/data")
    filesystem.open("/data/meta.properties", create=True).write_at(0, meta.encode())
    calls = filesystem.calls
    with pytest.raises(StartRefused, match=reason):
        opened(filesystem)
    assert filesystem.calls == calls
    assert filesystem.listdir("/data") == ["meta.properties"]


def test_an_empty_identity_file_does_not_stop_the_start():
    filesystem = MemoryFilesystem()
    filesystem.mkdir("/data")
    filesystem.open("/data/meta.properties", create=True).write_at(0, b"\0\0\0")
    assert opened(filesystem).cluster_id


def test_two_brokers_cannot_share_a_directory(tmp_path):
    store = Store(OsFilesystem(), str(tmp_path / "d"), ManualClock())
    with pytest.raises(StartRefused, match=r"in use by process \d+: stop that broker"):
        Store(OsFilesystem(), str(tmp_path / "d"), ManualClock())
    store.close()
    Store(OsFilesystem(), str(tmp_path / "d"), ManualClock()).close()


def test_a_deleted_partition_is_gone_at_once_and_its_files_with_the_sweep():
    filesystem = MemoryFilesystem()
    store = opened(filesystem)
    long = "t" * 249
    for topic in ("orders", long):
        log = store.create(topic, 0, ID, SETTINGS)
        log.append(batch(b"a"))
        with pytest.raises(KafkaError) as refused:
            store.create(topic, 0, ID, SETTINGS)
        assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
        slice_being_sent = log.read(0, max_bytes=100, end_offset=1, min_one=True)
        content = slice_being_sent.read()
        store.delete(f"{topic}-0")
        assert store.found() == []
        assert slice_being_sent.read() == content
    deleted = [name for name in filesystem.listdir("/data") if name.endswith("-delete")]
    assert len(deleted) == 2
    assert all(len(name) <= 255 for name in deleted)
    assert store.sweep() == 2
    assert not [name for name in filesystem.listdir("/data") if "-0" in name]
    again = store.create("orders", 0, OTHER, SETTINGS)
    assert (again.log_end_offset, again.topic_id) == (0, OTHER)


def test_files_of_a_topic_that_was_deleted_are_never_taken_for_the_new_one():
    filesystem = MemoryFilesystem()
    store = opened(filesystem)
    log = store.create("orders", 0, ID, SETTINGS)
    log.append(batch(b"old"))
    store.close()
    store = opened(filesystem)
    log = store.open("orders", 0, OTHER, SETTINGS)
    assert (log.log_end_offset, log.topic_id) == (0, OTHER)
    assert values(read_all(log)) == []
    # The id in the file may have been damaged: nothing is thrown away on its word.
    store.sweep()
    (stray,) = [name for name in filesystem.listdir("/data") if name.endswith("-stray")]
    assert filesystem.size(f"/data/{stray}/{0:020d}.log") > 0


def test_a_partition_without_a_legible_topic_id_is_adopted():
    filesystem = MemoryFilesystem()
    store = opened(filesystem)
    store.create("orders", 0, ID, SETTINGS).append(batch(b"kept"))
    store.close()
    filesystem.open("/data/orders-0/partition.metadata").truncate(3)
    log = opened(filesystem).open("orders", 0, OTHER, SETTINGS)
    assert log.topic_id == OTHER
    assert values(read_all(log)) == [(0, b"kept")]


def test_directories_that_are_no_partitions_are_left_alone():
    filesystem = MemoryFilesystem()
    store = opened(filesystem)
    for name in ("lost+found", "orders", f"orders-0.{'a' * 32}-future", f"x-1.{'b' * 32}-stray"):
        filesystem.mkdir(f"/data/{name}")
    store.create("a-b.c_d", 11, ID, SETTINGS)
    assert store.found() == [("a-b.c_d", 11)]
    store.sweep()
    assert filesystem.exists(f"/data/orders-0.{'a' * 32}-future")


def test_open_all_opens_every_partition_with_its_topics_settings():
    filesystem = MemoryFilesystem()
    store = opened(filesystem)
    for index in range(3):
        store.create("orders", index, ID, SETTINGS).append(batch(b"%d" % index))
    store.close()
    other = small_segments(1000)
    store = opened(filesystem)
    store.open_all(lambda topic: {"orders": other}[topic])
    assert {name: values(read_all(log)) for name, log in store.logs.items()} == {
        f"orders-{index}": [(0, b"%d" % index)] for index in range(3)
    }
    assert all(log.settings is other for log in store.logs.values())


def test_a_checkpoint_notes_what_is_synced_and_only_writes_when_that_moved():
    filesystem = MemoryFilesystem()
    store = opened(filesystem)
    log = store.create("orders", 0, ID, SETTINGS)
    log.append(batch(b"a", b"b"))
    store.checkpoint()
    assert filesystem.read("/data/recovery-point-offset-checkpoint") == b"0\n1\norders 0 0\n"
    sync(log)
    store.checkpoint()
    assert filesystem.read("/data/recovery-point-offset-checkpoint") == b"0\n1\norders 0 2\n"
    calls = filesystem.calls
    store.checkpoint()
    assert filesystem.calls == calls


def test_deleted_records_stay_deleted_after_a_kill_and_their_segments_go():
    filesystem = MemoryFilesystem()
    store = opened(filesystem)
    settings = small_segments(300)
    log = store.create("orders", 0, ID, settings)
    for at in range(10):
        log.append(batch(b"%d" % at + b"." * 60))
    sync(log)
    log.delete_records(5)
    assert len(log.segments) == 5
    store.checkpoint()
    assert log.segments[0].base_offset == 4
    assert filesystem.read("/data/log-start-offset-checkpoint") == b"0\n1\norders 0 5\n"
    again = opened(filesystem.survivors(nothing)).open("orders", 0, ID, settings)
    assert again.log_start_offset == 5
    assert [offset for offset, _value in values(read_all(again)) if offset >= 5] == list(
        range(5, 10)
    )


@pytest.mark.parametrize("content", [b"", b"0\n", b"0\n2\norders 0 1\n", b"1\n0\n", b"\xff\0"])
def test_a_damaged_checkpoint_costs_a_scan_and_nothing_else(content):
    filesystem = MemoryFilesystem()
    store = opened(filesystem)
    log = store.create("orders", 0, ID, SETTINGS)
    log.append(batch(b"a"))
    store.close()
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        file = filesystem.open(f"/data/{name}")
        file.truncate(0)
        file.write_at(0, content)
    copy = filesystem.survivors(everything)
    copy.remove("/data/.kafka_cleanshutdown")
    for left in (filesystem, copy):
        log = opened(left).open("orders", 0, ID, SETTINGS)
        assert values(read_all(log)) == [(0, b"a")]


def test_a_full_disk_refuses_a_new_partition_and_lets_the_broker_stop():
    filesystem = MemoryFilesystem()
    store = opened(filesystem)
    log = store.create("orders", 0, ID, SETTINGS)
    log.append(batch(b"a"))
    filesystem.capacity_bytes = 0
    with pytest.raises(KafkaError) as refused:
        store.create("more", 0, OTHER, SETTINGS)
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    store.delete("orders-0")
    assert store.sweep() == 1
    store.close()
    filesystem.capacity_bytes = None
    store = opened(filesystem)
    assert not store.clean
    assert store.create("more", 0, OTHER, SETTINGS).log_end_offset == 0


def test_a_checkpoint_begun_earlier_never_overwrites_a_later_one():
    filesystem = MemoryFilesystem()
    store = opened(filesystem)
    log = store.create("orders", 0, ID, SETTINGS)
    log.append(batch(b"a", b"b"))
    sync(log)
    early = store.begin_checkpoint()
    assert early is not None
    log.delete_records(2)
    store.checkpoint()
    early.write()
    store.finish_checkpoint(early)
    assert filesystem.read("/data/log-start-offset-checkpoint") == b"0\n1\norders 0 2\n"


def test_on_a_full_disk_deleting_records_still_makes_room():
    filesystem = MemoryFilesystem()
    store = opened(filesystem)
    log = store.create("orders", 0, ID, small_segments(20_000))
    for _ in range(100):
        log.append(batch(b"x" * 1000))
    sync(log)
    store.checkpoint()
    filesystem.capacity_bytes = filesystem._used(filesystem.root)
    with pytest.raises(KafkaError):
        log.append(batch(b"x" * 1000))
    log.delete_records(60)
    store.checkpoint()
    assert filesystem.free_bytes("/data") > 30_000
    assert filesystem.read("/data/log-start-offset-checkpoint") == b"0\n1\norders 0 60\n"
    assert log.append(batch(b"x" * 1000)).base_offset == 100
