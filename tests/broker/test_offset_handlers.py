import pytest

from headrace.broker import partitions
from headrace.errors import ErrorCode
from headrace.protocol.messages import Message
from headrace.protocol.records import Record, control_batch, write_batch
from tests.broker.harness import NOW_MS, batch, run

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)


def timed(*timestamps):
    return write_batch([Record(at, ms, b"k", b"v", ()) for at, ms in enumerate(timestamps)])


async def list_offset(harness, timestamp, *, version=11, isolation=0, replica_id=-1):
    request = Message(
        replica_id=replica_id,
        isolation_level=isolation,
        topics=[Message(name="t", partitions=[Message(partition_index=0, timestamp=timestamp)])],
    )
    answer = await harness.call("list_offsets", version, request)
    (at,) = answer.topics[0].partitions
    return ErrorCode(at.error_code), at.offset, at.timestamp, at.leader_epoch


def test_list_offsets_finds_the_ends_times_and_the_largest_timestamp():
    async def scenario(harness):
        await harness.create("t", write_caching="true")
        start = NOW_MS - 100_000
        harness.partition("t").append(timed(start, start + 5000, start + 1000))
        harness.partition("t").append(timed(start + 2000))
        expected = {
            LATEST: (4, -1, 0),
            EARLIEST: (0, -1, 0),
            EARLIEST_LOCAL: (0, -1, 0),
            MAX_TIMESTAMP: (1, start + 5000, 0),
            LATEST_TIERED: (-1, -1, -1),
            PENDING_UPLOAD: (-1, -1, -1),
            start + 1: (1, start + 5000, 0),
            start: (0, start, 0),
            start + 5001: (-1, -1, -1),
        }
        for timestamp, found in expected.items():
            assert await list_offset(harness, timestamp) == (ErrorCode.NONE, *found)

    run(scenario)


def test_list_offsets_ends_where_the_reader_must_stop():
    async def scenario(harness):
        await harness.create("t", write_caching="true")
        partition = harness.partition("t")
        partition.append(batch(b"a"))
        partition.append(
            batch(b"b", producer_id=4, producer_epoch=0, base_sequence=0, transactional=True)
        )
        assert (await list_offset(harness, LATEST))[1] == 2
        assert (await list_offset(harness, LATEST, isolation=1))[1] == 1
        assert (await list_offset(harness, NOW_MS + 1, isolation=1))[1] == -1

    run(scenario)


def test_only_a_consumer_is_held_to_the_high_watermark(monkeypatch):
    async def scenario(harness):
        await harness.create("t")
        partition = harness.partition("t")
        # A disk that never ends its sync.
        monkeypatch.setattr(harness.broker.flusher, "schedule", lambda partition: None)
        monkeypatch.setattr(partitions, "CATCH_UP_S", 0.01)
        partition.append(batch(b"a"))
        assert (await list_offset(harness, LATEST))[1] == 0
        assert (await list_offset(harness, LATEST, replica_id=-2))[1] == 1

    run(scenario)


def test_whoever_had_a_record_acknowledged_before_its_sync_finds_it_below_the_end():
    async def scenario(harness):
        await harness.create("t")
        partition = harness.partition("t")
        partition.append(batch(b"a"))
        assert partition.high_watermark == 0
        assert (await list_offset(harness, LATEST))[1] == 1
        partition.append(timed(NOW_MS + 7))
        assert (await list_offset(harness, NOW_MS + 7))[1] == 1
        partition.append(batch(b"a"))
        assert await delete(harness, 3) == (ErrorCode.NONE, 3)

    run(scenario)


@pytest.mark.parametrize(
    ("timestamp", "since"),
    [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (PENDING_UPLOAD, 11)],
)
def test_a_special_time_is_refused_below_its_version(timestamp, since):
    async def scenario(harness):
        await harness.create("t", write_caching="true")
        before = await list_offset(harness, timestamp, version=since - 1)
        assert before[0] is ErrorCode.UNSUPPORTED_VERSION
        assert (await list_offset(harness, timestamp, version=since))[0] is ErrorCode.NONE
        assert (await list_offset(harness, -7, version=11))[0] is ErrorCode.UNSUPPORTED_VERSION

    run(scenario)


def test_offset_for_leader_epoch_tells_where_an_epoch_ended():
    async def scenario(harness):
        await harness.create("t", write_caching="true")
        partition = harness.partition("t")
        partition.append(batch(b"a"))
        partition.leader_epoch = 3
        partition.append(batch(b"b"))

        async def ended(epoch, current=-1):
            asked = Message(partition=0, current_leader_epoch=current, leader_epoch=epoch)
            request = Message(replica_id=-1, topics=[Message(topic="t", partitions=[asked])])
            answer = await harness.call("offset_for_leader_epoch", 4, request)
            (at,) = answer.topics[0].partitions
            return ErrorCode(at.error_code), at.leader_epoch, at.end_offset

        assert await ended(0) == (ErrorCode.NONE, 0, 1)
        assert await ended(3) == (ErrorCode.NONE, 3, 2)
        assert await ended(4) == (ErrorCode.NONE, -1, -1)
        assert await ended(0, current=2) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
        assert await ended(0, current=5) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)

    run(scenario)


async def delete(harness, offset, *, topic="t", index=0):
    asked = Message(partition_index=index, offset=offset)
    request = Message(topics=[Message(name=topic, partitions=[asked])], timeout_ms=1000)
    answer = await harness.call("delete_records", 2, request)
    (at,) = answer.topics[0].partitions
    return ErrorCode(at.error_code), at.low_watermark


def test_delete_records_moves_the_start_for_good():
    async def scenario(harness):
        await harness.create("t", write_caching="true")
        for _ in range(4):
            harness.partition("t").append(batch(b"a"))
        assert await delete(harness, 2) == (ErrorCode.NONE, 2)
        assert await delete(harness, 1) == (ErrorCode.NONE, 2)
        assert await delete(harness, 9) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await delete(harness, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await delete(harness, -1) == (ErrorCode.NONE, 4)
        written = harness.filesystem.survivors().read("/data/log-start-offset-checkpoint")
        assert b"t 0 4" in written

    run(scenario)


def test_records_that_go_by_compaction_cannot_be_deleted():
    async def scenario(harness):
        await harness.create("t", cleanup_policy="compact")
        await harness.create("both", cleanup_policy="compact,delete")
        assert await delete(harness, 0) == (ErrorCode.POLICY_VIOLATION, -1)
        assert await delete(harness, 0, topic="both") == (ErrorCode.NONE, 0)
        unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert await delete(harness, 0, topic="none") == unknown

    run(scenario)


def test_a_marker_counts_as_an_offset_for_the_latest():
    async def scenario(harness):
        from headrace.log.origin import Origin

        await harness.create("t", write_caching="true")
        partition = harness.partition("t")
        partition.append(
            batch(b"b", producer_id=4, producer_epoch=0, base_sequence=0, transactional=True)
        )
        marker = control_batch(4, 0, commit=True, coordinator_epoch=0, timestamp=NOW_MS)
        partition.append(marker, origin=Origin.COORDINATOR)
        assert (await list_offset(harness, LATEST, isolation=1))[1] == 2

    run(scenario)
