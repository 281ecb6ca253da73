import asyncio
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.exchange import Pending
from headrace.errors import ErrorCode
from headrace.protocol.messages import Message
from headrace.protocol.records import batches
from tests.broker.harness import batch, finished, run

VERSION = 12


def fetch(positions, *, topic="t", wait_ms=0, min_bytes=1, max_bytes=1 << 20, **facts):
    """positions: (partition, offset) or (partition, offset, max bytes)."""
    partitions = [
        Message(
            partition=at[0],
            fetch_offset=at[1],
            partition_max_bytes=at[2] if len(at) > 2 else 1 << 20,
        )
        for at in positions
    ]
    topics = [Message(topic=topic, topic_id=facts.pop("topic_id", None), partitions=partitions)]
    return Message(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=topics if positions else [],
        **facts,
    )


def told(answer):
    """(partition, error, record values) for each partition in the answer, in order."""
    return [
        (at.partition_index, ErrorCode(at.error_code), values(at.records))
        for topic in answer.responses
        for at in topic.partitions
    ]


def values(records):
    return [record.value for view in batches(records or b"") for record in view.records()]


async def caught_up(harness, topic="t"):
    partition = harness.partition(topic)
    await partition.wait_durable(partition.log.log_end_offset)


def test_a_fetch_returns_whole_batches_from_the_one_that_holds_the_offset():
    async def scenario(harness):
        await harness.create("t", write_caching="true")
        harness.partition("t").append(batch(b"a", b"b"))
        harness.partition("t").append(batch(b"c"))
        answer = await harness.call("fetch", VERSION, fetch([(0, 1)]))
        assert told(answer) == [(0, ErrorCode.NONE, [b"a", b"b", b"c"])]
        (at,) = answer.responses[0].partitions
        assert (at.high_watermark, at.last_stable_offset, at.log_start_offset) == (3, 3, 0)

    run(scenario)


def test_the_first_batch_is_returned_whatever_the_limits_and_only_the_first():
    async def scenario(harness):
        await harness.create("t", partitions=2, write_caching="true")
        for index in (0, 1):
            harness.partition("t", index).append(batch(b"x" * 100))
            harness.partition("t", index).append(batch(b"y" * 100))
        answer = await harness.call("fetch", VERSION, fetch([(0, 0), (1, 0)], max_bytes=1))
        assert told(answer) == [(0, ErrorCode.NONE, [b"x" * 100]), (1, ErrorCode.NONE, [])]
        answer = await harness.call("fetch", VERSION, fetch([(0, 0, 1), (1, 0, 1)]))
        assert told(answer) == [(0, ErrorCode.NONE, [b"x" * 100]), (1, ErrorCode.NONE, [])]

    run(scenario)


def test_a_fetch_with_too_little_data_waits_until_there_is_enough():
    async def scenario(harness):
        await harness.create("t", partitions=2, write_caching="true")
        size = len(batch(b"a"))
        request = fetch([(0, 0), (1, 0)], wait_ms=60_000, min_bytes=2 * size)
        pending = harness.begin("fetch", VERSION, request)
        assert isinstance(pending, Pending)
        harness.partition("t", 0).append(batch(b"a"))
        await asyncio.sleep(0)
        assert pending.answer is None
        harness.partition("t", 1).append(batch(b"b"))
        answer = harness.read("fetch", VERSION, await finished(pending))
        assert told(answer) == [(0, ErrorCode.NONE, [b"a"]), (1, ErrorCode.NONE, [b"b"])]
        assert not harness.broker.waits.parked

    run(scenario)


def test_a_fetch_that_waited_long_enough_is_answered_with_what_there_is():
    async def scenario(harness):
        await harness.create("t", write_caching="true")
        harness.partition("t").append(batch(b"a"))
        answer = await harness.call("fetch", VERSION, fetch([(0, 0)], wait_ms=5, min_bytes=10_000))
        assert told(answer) == [(0, ErrorCode.NONE, [b"a"])]

    run(scenario)


def test_a_client_that_leaves_is_not_waited_for():
    async def scenario(harness):
        await harness.create("t", write_caching="true")
        pending = harness.begin("fetch", VERSION, fetch([(0, 0)], wait_ms=60_000))
        assert harness.broker.waits.parked
        pending.abandon()
        assert not harness.broker.waits.parked
        assert not harness.partition("t").waiters

    run(scenario)


def test_a_waiting_fetch_hears_that_its_topic_is_gone():
    async def scenario(harness):
        topic_id = await harness.create("t", write_caching="true")
        pending = harness.begin("fetch", VERSION, fetch([(0, 0)], wait_ms=60_000))
        await harness.broker.topics.delete([topic_id])
        answer = harness.read("fetch", VERSION, await finished(pending))
        assert told(answer) == [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])]

    run(scenario)


def test_a_bad_position_is_told_at_once_with_kafkas_code():
    async def scenario(harness):
        topic_id = await harness.create("t", write_caching="true")
        harness.partition("t").append(batch(b"a"))
        expected = [
            (fetch([(0, 5)], wait_ms=60_000), ErrorCode.OFFSET_OUT_OF_RANGE),
            (fetch([(0, -1)], wait_ms=60_000), ErrorCode.OFFSET_OUT_OF_RANGE),
            (fetch([(3, 0)], wait_ms=60_000), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (fetch([(0, 0)], topic="none", wait_ms=9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        for request, code in expected:
            answer = await harness.call("fetch", VERSION, request)
            assert [error for _, error, _ in told(answer)] == [code]
        by_id = fetch([(0, 0)], topic_id=UUID(int=99), wait_ms=60_000)
        answer = await harness.call("fetch", 13, by_id)
        assert [error for _, error, _ in told(answer)] == [ErrorCode.UNKNOWN_TOPIC_ID]
        answer = await harness.call("fetch", 13, fetch([(0, 0)], topic_id=topic_id))
        assert told(answer) == [(0, ErrorCode.NONE, [b"a"])]

    run(scenario)


def test_a_reader_ahead_of_the_high_watermark_waits_and_is_not_refused():
    async def scenario(harness):
        await harness.create("t")
        partition = harness.partition("t")
        partition.append(batch(b"a"))
        answer = await harness.call("fetch", VERSION, fetch([(0, 1)]))
        assert told(answer) == [(0, ErrorCode.NONE, [])]
        await caught_up(harness)

    run(scenario)


def test_a_stale_or_unknown_leader_epoch_is_refused():
    async def scenario(harness):
        await harness.create("t")
        request = fetch([(0, 0)])
        request.topics[0].partitions[0].current_leader_epoch = 9
        answer = await harness.call("fetch", VERSION, request)
        assert [error for _, error, _ in told(answer)] == [ErrorCode.UNKNOWN_LEADER_EPOCH]
        harness.partition("t").leader_epoch = 10
        answer = await harness.call("fetch", VERSION, request)
        assert [error for _, error, _ in told(answer)] == [ErrorCode.FENCED_LEADER_EPOCH]

    run(scenario)


def test_an_incremental_fetch_tells_only_news_and_rotates():
    async def scenario(harness):
        await harness.create("t", partitions=3, write_caching="true")
        full = await harness.call(
            "fetch", VERSION, fetch([(0, 0), (1, 0), (2, 0)], session_epoch=0)
        )
        assert [index for index, _, _ in told(full)] == [0, 1, 2]
        session = full.session_id
        assert session

        async def next_fetch(epoch, positions=()):
            request = fetch(list(positions), session_id=session, session_epoch=epoch)
            answer = await harness.call("fetch", VERSION, request)
            assert answer.session_id == session
            return told(answer)

        assert await next_fetch(1) == []
        for index in (0, 1, 2):
            harness.partition("t", index).append(batch(b"%d" % index))
        expected = [(index, ErrorCode.NONE, [b"%d" % index]) for index in (0, 1, 2)]
        assert await next_fetch(2) == expected
        harness.partition("t", 0).append(batch(b"more"))
        # Partition 0 moved on; 1 and 2 are still asked from 0 and now go before it.
        assert [index for index, _, _ in await next_fetch(3, [(0, 1)])] == [0, 1, 2]
        assert [index for index, _, _ in await next_fetch(4, [(0, 2), (1, 1)])] == [2]
        assert await next_fetch(5, [(2, 1)]) == []

    run(scenario)


def test_session_errors_are_told_at_the_top():
    async def scenario(harness):
        await harness.create("t")
        lost = await harness.call("fetch", VERSION, fetch([], session_id=77, session_epoch=3))
        assert (lost.error_code, lost.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
        full = await harness.call("fetch", VERSION, fetch([(0, 0)], session_epoch=0))
        wrong = fetch([], session_id=full.session_id, session_epoch=2)
        answer = await harness.call("fetch", VERSION, wrong)
        assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        closing = fetch([], session_id=full.session_id, session_epoch=-1)
        await harness.call("fetch", VERSION, closing)
        assert len(harness.broker.fetch_sessions) == 0

    run(scenario)


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=8),
    st.integers(1, 600),
    st.integers(1, 1200),
)
def test_reading_on_and_on_gives_every_record_once_and_in_order(sizes, partition_max, total_max):
    async def scenario(harness):
        await harness.create("t", write_caching="true")
        written = []
        for number, size in enumerate(sizes):
            fresh = [b"%d.%d" % (number, at) for at in range(size)]
            harness.partition("t").append(batch(*fresh))
            written += fresh
        got, offset = [], 0
        while offset < len(written):
            request = fetch([(0, offset, partition_max)], max_bytes=total_max)
            ((_, error, found),) = told(await harness.call("fetch", VERSION, request))
            assert error is ErrorCode.NONE
            assert found
            got += found
            offset += len(found)
        assert got == written

    run(scenario)


def test_partitions_of_a_session_take_turns_when_not_all_fit():
    async def scenario(harness):
        await harness.create("t", partitions=3, write_caching="true")
        for index in (0, 1, 2):
            harness.partition("t", index).append(batch(b"%d" % index))
        opening = fetch([(0, 1), (1, 1), (2, 1)], session_epoch=0)
        session = (await harness.call("fetch", VERSION, opening)).session_id
        behind = [(0, 0), (1, 0), (2, 0)]
        served = []
        for epoch in range(1, 7):
            request = fetch(
                behind if epoch == 1 else [],
                session_id=session,
                session_epoch=epoch,
                max_bytes=1,
            )
            answer = told(await harness.call("fetch", VERSION, request))
            served += [index for index, _, found in answer if found]
        assert served == [0, 1, 2, 0, 1, 2]

    run(scenario)
