import asyncio
from dataclasses import replace

import pytest

from headrace.broker.partitions import Isolation, Partition
from headrace.errors import ErrorCode, KafkaError
from headrace.log.origin import Origin
from headrace.protocol.records import batches, control_batch
from headrace.testing.filesystems import MemoryFilesystem
from tests.broker.harness import NOW_MS, batch, run


async def eventually(holds):
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110  what is waited for has no event of its own
            await asyncio.sleep(0)


def values(partition, isolation=Isolation.READ_UNCOMMITTED):
    found, _ = partition.read(
        partition.log_start_offset, max_bytes=1 << 20, isolation=isolation, min_one=True
    )
    if found is None:
        return []
    return [record.value for view in batches(found.read()) for record in view.records()]


def test_readers_see_a_record_only_once_it_is_durable():
    async def scenario(harness):
        await harness.create("t")
        partition = harness.partition("t")
        partition.append(batch(b"a"))
        assert partition.high_watermark == 0
        assert values(partition) == []
        durable = partition.durable(1)
        assert durable is not None
        await durable
        assert partition.log.synced_offset == partition.high_watermark == 1
        assert values(partition) == [b"a"]
        assert partition.durable(1) is None

    run(scenario)


def test_under_write_caching_readers_see_a_record_at_once_and_the_sync_follows():
    async def scenario(harness):
        await harness.create("t", write_caching="true", flush_ms="1")
        partition = harness.partition("t")
        partition.append(batch(b"a"))
        assert partition.durable(1) is None
        assert values(partition) == [b"a"]
        assert partition.log.synced_offset == 0
        await eventually(lambda: partition.log.synced_offset == 1)

    run(scenario)


def test_a_failed_sync_takes_back_what_nobody_saw_and_the_retry_gets_its_offset():
    filesystem = MemoryFilesystem()

    async def scenario(harness):
        await harness.create("t")
        partition = harness.partition("t")
        partition.append(batch(b"a"))
        await partition.wait_durable(1)
        filesystem.failing["sync"] = OSError(5, "Input/output error")
        partition.append(batch(b"lost"))
        with pytest.raises(KafkaError) as caught:
            await partition.wait_durable(2)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(KafkaError):
            partition.append(batch(b"refused, the disk still fails"))
        filesystem.failing.clear()
        with pytest.raises(KafkaError):
            partition.append(batch(b"refused, the log was cut just now"))
        assert partition.append(batch(b"b")).base_offset == 1
        await partition.wait_durable(2)
        assert values(partition) == [b"a", b"b"]

    run(scenario, filesystem=filesystem)


def test_a_failed_sync_of_what_readers_saw_stops_the_writing(caplog):
    filesystem = MemoryFilesystem()

    async def scenario(harness):
        await harness.create("t", write_caching="true", flush_ms="0")
        partition = harness.partition("t")
        filesystem.failing["sync"] = OSError(5, "Input/output error")
        partition.append(batch(b"a"))
        await eventually(lambda: caplog.records)
        with pytest.raises(KafkaError) as caught:
            partition.append(batch(b"more"))
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert values(partition)[0] == b"a"

    run(scenario, filesystem=filesystem)


def test_committed_readers_stop_at_an_open_transaction_and_wake_when_it_ends():
    async def scenario(harness):
        await harness.create("t", write_caching="true")
        partition = harness.partition("t")
        partition.append(batch(b"plain"))
        open_batch = batch(
            b"txn", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True
        )
        partition.append(open_batch)
        assert (partition.last_stable_offset, partition.high_watermark) == (1, 2)
        assert values(partition, Isolation.READ_COMMITTED) == [b"plain"]
        assert values(partition) == [b"plain", b"txn"]
        woken = asyncio.Event()
        harness.broker.waits.park(
            [partition], missing_bytes=1, committed_only=True, delay_s=10, resume=woken.set
        )
        partition.append(batch(b"later"))
        await asyncio.sleep(0)
        assert not woken.is_set()
        marker = control_batch(9, 0, commit=False, coordinator_epoch=0, timestamp=NOW_MS)
        partition.append(marker, origin=Origin.COORDINATOR)
        await woken.wait()
        assert partition.last_stable_offset == partition.high_watermark == 4
        _, aborted = partition.read(
            0, max_bytes=1 << 20, isolation=Isolation.READ_COMMITTED, min_one=True
        )
        assert [(entry.producer_id, entry.first_offset) for entry in aborted] == [(9, 1)]

    run(scenario)


def test_a_removed_partition_releases_everyone_who_waits_for_it():
    async def scenario(harness):
        topic_id = await harness.create("t")
        partition = harness.partition("t")
        partition.append(batch(b"a"))
        durable = partition.durable(1)
        woken = asyncio.Event()
        harness.broker.waits.park(
            [partition], missing_bytes=1, committed_only=False, delay_s=10, resume=woken.set
        )
        harness.broker.partitions.remove("t", 0)
        await woken.wait()
        with pytest.raises(KafkaError) as caught:
            await durable
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for find in (
            lambda: harness.broker.partitions.get("t", 0),
            lambda: harness.broker.partitions.by_id(topic_id, 0),
        ):
            with pytest.raises(KafkaError):
                find()

    run(scenario)


def test_an_unknown_partition_of_a_known_topic_id_is_told_from_an_unknown_id():
    async def scenario(harness):
        topic_id = await harness.create("t")
        with pytest.raises(KafkaError) as caught:
            harness.broker.partitions.by_id(topic_id, 5)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(scenario)


def test_a_reader_is_told_only_of_aborted_transactions_in_what_it_reads():
    async def scenario(harness):
        await harness.create("t", write_caching="true")
        partition = harness.partition("t")
        for producer_id in range(20):
            partition.append(
                batch(
                    b"x" * 100,
                    producer_id=producer_id,
                    producer_epoch=0,
                    base_sequence=0,
                    transactional=True,
                )
            )
            marker = control_batch(
                producer_id, 0, commit=False, coordinator_epoch=0, timestamp=NOW_MS
            )
            partition.append(marker, origin=Origin.COORDINATOR)
        told = {}
        for offset in (0, 10, 30):
            found, aborted = partition.read(
                offset, max_bytes=600, isolation=Isolation.READ_COMMITTED, min_one=True
            )
            read = [view for view in batches(found.read()) if not view.is_control]
            told[offset] = {entry.producer_id for entry in aborted}
            assert {view.producer_id for view in read} <= told[offset]
        assert len(told[0]) < 5
        assert len(told[10]) < 5

    run(scenario)


def test_what_was_found_unsynced_is_shown_only_once_it_is_synced():
    async def scenario(harness):
        topic_id = await harness.create("t")
        log = harness.partition("t").log
        log.append(batch(b"survived a kill"))
        reopened = Partition(log, log.settings, harness.broker.flusher, topic_id)
        assert reopened.high_watermark == 0
        await reopened.wait_durable(1)
        assert values(reopened) == [b"survived a kill"]

    run(scenario)


def test_a_sync_that_fails_because_its_partition_is_gone_is_nobodys_error():
    async def scenario(harness):
        await harness.create("t")
        partition = harness.partition("t")
        partition.append(batch(b"a"))
        harness.broker.partitions.remove("t", 0)
        before = partition.log.log_end_offset
        partition.sync_failed(OSError(2, "No such file or directory"))
        assert partition.log.log_end_offset == before

    run(scenario)


def test_what_readers_saw_under_write_caching_is_never_cut_off(caplog):
    filesystem = MemoryFilesystem()

    async def scenario(harness):
        await harness.create("t", write_caching="true", flush_ms="100000")
        partition = harness.partition("t")
        partition.append(batch(b"seen"))
        filesystem.failing["sync"] = OSError(5, "Input/output error")
        partition.configure(replace(partition.settings, write_caching=False))
        await eventually(lambda: caplog.records)
        with pytest.raises(KafkaError):
            partition.append(batch(b"more"))
        assert values(partition) == [b"seen"]

    run(scenario, filesystem=filesystem)


def test_a_task_that_fails_ends_alone_and_says_so(caplog):
    async def scenario(harness):
        async def fails():
            raise RuntimeError("as told")

        done = asyncio.Event()

        async def goes_on():
            await asyncio.sleep(0)
            done.set()

        harness.broker.spawn(fails())
        harness.broker.spawn(goes_on())
        await done.wait()

    run(scenario)
    assert "task failed" in caplog.text
