import asyncio
import threading

import pytest

from headrace.broker.exchange import SILENCE, ClientRefused, Pending
from headrace.errors import ErrorCode
from headrace.protocol.messages import Message
from headrace.testing.filesystems import MemoryFilesystem
from tests.broker.harness import batch, finished, run

VERSION = 9


class HeldSync(MemoryFilesystem):
    """A disk whose syncs of record files wait until they are let go."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()

    def called(self, name, path):
        super().called(name, path)
        if name == "sync" and path.endswith(".log") and "/t-" in path:
            assert self.gate.wait(10)


def produce(records, *, topic="t", index=0, acks=-1, timeout_ms=10_000, transactional_id=None):
    return Message(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            Message(name=topic, partition_data=[Message(index=index, records=bytes(records))])
        ],
    )


def outcome(answer):
    (topic,) = answer.responses
    (partition,) = topic.partition_responses
    return ErrorCode(partition.error_code), partition.base_offset


async def code_of(harness, request, **caller):
    return outcome(await harness.call("produce", VERSION, request, **caller))[0]


def test_acks_all_is_answered_after_the_sync_and_acks_1_before_it():
    filesystem = HeldSync()

    async def scenario(harness):
        await harness.create("t")
        filesystem.gate.clear()
        leader = harness.begin("produce", VERSION, produce(batch(b"a"), acks=1))
        assert outcome(harness.read("produce", VERSION, leader)) == (ErrorCode.NONE, 0)
        every = harness.begin("produce", VERSION, produce(batch(b"b")))
        assert isinstance(every, Pending)
        assert every.answer is None
        filesystem.gate.set()
        answer = harness.read("produce", VERSION, await finished(every))
        assert outcome(answer) == (ErrorCode.NONE, 1)
        assert harness.partition("t").log.synced_offset == 2

    run(scenario, filesystem=filesystem)


def test_a_sync_slower_than_the_timeout_is_told_so():
    filesystem = HeldSync()

    async def scenario(harness):
        await harness.create("t")
        filesystem.gate.clear()
        late = harness.begin("produce", VERSION, produce(batch(b"a"), timeout_ms=1))
        answer = harness.read("produce", VERSION, await finished(late))
        assert outcome(answer) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        filesystem.gate.set()
        await harness.partition("t").wait_durable(1)

    run(scenario, filesystem=filesystem)


def test_a_failed_sync_is_a_storage_error_for_every_request_that_waits():
    filesystem = HeldSync()

    async def scenario(harness):
        await harness.create("t")
        filesystem.gate.clear()
        waiting = [harness.begin("produce", VERSION, produce(batch(b"a"))) for _ in range(3)]
        await asyncio.sleep(0)
        filesystem.failing["sync"] = OSError(5, "Input/output error")
        filesystem.gate.set()
        harness.broker.flusher.schedule(harness.partition("t"))
        codes = [
            outcome(harness.read("produce", VERSION, await finished(pending)))[0]
            for pending in waiting
        ]
        assert set(codes) <= {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE}
        assert codes[-1] is ErrorCode.KAFKA_STORAGE_ERROR

    run(scenario, filesystem=filesystem)


def test_under_write_caching_acks_all_is_answered_at_once():
    async def scenario(harness):
        await harness.create("t", write_caching="true")
        answer = harness.begin("produce", VERSION, produce(batch(b"a")))
        assert outcome(harness.read("produce", VERSION, answer)) == (ErrorCode.NONE, 0)

    run(scenario)


def test_acks_0_is_silent_and_an_error_with_it_closes_the_connection():
    async def scenario(harness):
        await harness.create("t")
        assert harness.begin("produce", VERSION, produce(batch(b"a"), acks=0)) is SILENCE
        assert harness.partition("t").log.log_end_offset == 1
        with pytest.raises(ClientRefused, match="UNKNOWN_TOPIC_OR_PARTITION"):
            harness.begin("produce", VERSION, produce(batch(b"a"), topic="none", acks=0))

    run(scenario)


@pytest.mark.parametrize("acks", [-2, 2, 1000])
def test_other_acks_are_refused_and_nothing_is_written(acks):
    async def scenario(harness):
        await harness.create("t")
        code = await code_of(harness, produce(batch(b"a"), acks=acks))
        assert code is ErrorCode.INVALID_REQUIRED_ACKS
        assert harness.partition("t").log.log_end_offset == 0

    run(scenario)


def test_what_cannot_be_written_is_refused_with_kafkas_code():
    async def scenario(harness):
        await harness.create("t")
        await harness.create("few", min_insync_replicas="2")
        await harness.create("__consumer_offsets")
        internal = produce(batch(b"a"), topic="__consumer_offsets")
        transactional = batch(
            b"a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
        )
        expected = [
            (produce(batch(b"a"), topic="none"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (produce(batch(b"a"), index=7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (produce(b""), ErrorCode.INVALID_RECORD),
            (produce(transactional), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
            (produce(batch(b"a"), topic="few"), ErrorCode.NOT_ENOUGH_REPLICAS),
            (produce(batch(b"a"), topic="few", acks=1), ErrorCode.NONE),
            (internal, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ]
        for request, code in expected:
            assert await code_of(harness, request) is code
        assert await code_of(harness, internal, client_id="__admin_client") is ErrorCode.NONE
        assert harness.partition("t").log.log_end_offset == 0

    run(scenario)


def test_one_refused_partition_does_not_hold_up_the_others():
    async def scenario(harness):
        topic_id = await harness.create("t", partitions=2)
        records = bytes(batch(b"a"))
        request = Message(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                Message(
                    topic_id=topic_id,
                    partition_data=[Message(index=at, records=records) for at in (0, 5, 1)],
                )
            ],
        )
        answer = await harness.call("produce", 13, request)
        (topic,) = answer.responses
        assert topic.topic_id == topic_id
        assert [(each.index, each.error_code) for each in topic.partition_responses] == [
            (0, ErrorCode.NONE),
            (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (1, ErrorCode.NONE),
        ]

    run(scenario)


def test_a_client_that_leaves_takes_its_timer_along():
    filesystem = HeldSync()

    async def scenario(harness):
        await harness.create("t")
        filesystem.gate.clear()
        pending = harness.begin("produce", VERSION, produce(batch(b"a")))
        finishes = []
        pending.on_finish = lambda: finishes.append(1)
        pending.abandon()
        filesystem.gate.set()
        await harness.partition("t").wait_durable(1)
        assert finishes == []

    run(scenario, filesystem=filesystem)
