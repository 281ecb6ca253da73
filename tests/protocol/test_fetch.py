import random
import struct
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol import fetch
from headrace.protocol.fetch import (
    FetchRequest,
    PartitionFetched,
    TopicFetched,
    read_fetch,
    write_fetch,
)
from headrace.protocol.messages import Message, read_request, write_request, write_response
from headrace.protocol.primitives import ZERO_UUID, Malformed
from tests.protocol import kio_schemas
from tests.protocol.kio_oracle import few_examples, kio_bytes, random_message

FETCH = 1
VERSIONS = range(4, 19)


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int


class FakeSlice(NamedTuple):
    content: bytes

    @property
    def size(self) -> int:
        return len(self.content)


def same(request: FetchRequest, plain: Message, version: int) -> None:
    assert request.max_wait_ms == plain.max_wait_ms
    assert request.min_bytes == plain.min_bytes
    assert request.max_bytes == plain.max_bytes
    assert request.isolation_level == plain.isolation_level
    assert (request.session_id, request.session_epoch) == (plain.session_id, plain.session_epoch)
    replica_id = plain.replica_state.replica_id if version >= 15 else plain.replica_id
    assert request.replica_id == replica_id
    assert (request.rack_id, request.cluster_id) == (plain.rack_id, plain.cluster_id)
    assert [
        (topic.name, topic.topic_id, [tuple(row) for row in topic.partitions])
        for topic in request.topics
    ] == [
        (
            topic.topic,
            topic.topic_id,
            [
                (
                    row.partition,
                    row.current_leader_epoch,
                    row.fetch_offset,
                    row.last_fetched_epoch,
                    row.log_start_offset,
                    row.partition_max_bytes,
                )
                for row in topic.partitions
            ],
        )
        for topic in plain.topics
    ]
    assert [tuple(topic) for topic in request.forgotten] == [
        (topic.topic, topic.topic_id, list(topic.partitions))
        for topic in plain.forgotten_topics_data
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_read_as_kio_writes_them(version):
    entity = kio_schemas.entity(FETCH, version, request=True)

    @given(st.integers(0, 2**32), st.binary(max_size=9), st.binary(max_size=9))
    def check(seed, before, after):
        body = kio_bytes(entity, random_message(entity, random.Random(seed)))
        buffer = memoryview(before + body + after)
        request = read_fetch(version, buffer, len(before), len(before) + len(body))
        same(request, read_request(FETCH, version, body), version)

    check()


int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
contents = st.none() | st.binary(max_size=300)
answers = st.builds(
    PartitionFetched,
    partition=int32,
    error_code=st.integers(-1, 2**15 - 1),
    high_watermark=int64,
    last_stable_offset=int64,
    log_start_offset=int64,
    aborted=st.none() | st.lists(st.builds(Aborted, int64, int64), max_size=3),
    records=contents | st.builds(FakeSlice, st.binary(max_size=300)),
    preferred_read_replica=int32,
    diverging_epoch=st.none() | st.tuples(st.integers(0, 2**31 - 1), int64),
    current_leader=st.none() | st.tuples(st.integers(0, 2**31 - 1), int32),
)
topics = st.lists(
    st.builds(TopicFetched, st.text(max_size=150), st.uuids(), st.lists(answers, max_size=4)),
    max_size=3,
)


def content(records):
    return records.content if isinstance(records, FakeSlice) else records or b""


def plain_partition(row):
    fields = {
        "partition_index": row.partition,
        "error_code": row.error_code,
        "high_watermark": row.high_watermark,
        "last_stable_offset": row.last_stable_offset,
        "log_start_offset": row.log_start_offset,
        "aborted_transactions": None
        if row.aborted is None
        else [Message(**transaction._asdict()) for transaction in row.aborted],
        "preferred_read_replica": row.preferred_read_replica,
        "records": content(row.records),
    }
    if row.diverging_epoch is not None:
        epoch, end_offset = row.diverging_epoch
        fields["diverging_epoch"] = Message(epoch=epoch, end_offset=end_offset)
    if row.current_leader is not None:
        leader_id, leader_epoch = row.current_leader
        fields["current_leader"] = Message(leader_id=leader_id, leader_epoch=leader_epoch)
    return Message(**fields)


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_are_written_as_the_plain_codec_writes_them(version):
    @given(topics, st.integers(0, 2**31 - 1), int32)
    def check(answers, throttle, session_id):
        parts = write_fetch(
            version, answers, throttle_ms=throttle, error_code=7, session_id=session_id
        )
        ours = b"".join(map(content, parts))
        plain = Message(
            throttle_time_ms=throttle,
            error_code=7,
            session_id=session_id,
            responses=[
                Message(
                    topic=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[plain_partition(row) for row in topic.partitions],
                )
                for topic in answers
            ],
        )
        assert ours == write_response(FETCH, version, plain)

    check()


def test_slices_are_handed_through_untouched_and_in_order():
    first, second = FakeSlice(b"a" * 10), FakeSlice(b"b")
    rows = [
        PartitionFetched(0, records=first),
        PartitionFetched(1, records=None),
        PartitionFetched(2, records=second),
    ]
    parts = write_fetch(12, [TopicFetched("t", ZERO_UUID, rows)])
    assert [part for part in parts if not isinstance(part, bytes)] == [first, second]
    assert parts[1] is first
    assert isinstance(parts[-1], bytes)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_cut_of_a_request_is_refused(version):
    entity = kio_schemas.entity(FETCH, version, request=True)

    @few_examples()
    @given(st.integers(0, 2**32))
    def check(seed):
        body = kio_bytes(entity, random_message(entity, random.Random(seed)))
        for cut in range(0, len(body), 1 + len(body) // 60):
            for buffer in (body[:cut], body):
                with pytest.raises(Malformed):
                    read_fetch(version, memoryview(buffer), 0, cut)

    check()


@given(st.sampled_from(VERSIONS), st.binary(max_size=80))
def test_random_bytes_raise_only_malformed(version, garbage):
    try:
        read_fetch(version, memoryview(garbage), 0, len(garbage))
    except Malformed:
        return


@pytest.mark.parametrize("count", [2**31 - 1, 10**9, -1, -(2**31)])
def test_counts_that_lie_are_refused_at_once(count):
    body = struct.pack(">iiiib", -1, 0, 0, 0, 0) + struct.pack(">i", count) + bytes(50)
    with pytest.raises(Malformed, match=f"array of {count} elements"):
        read_fetch(4, memoryview(body), 0, len(body))


def test_small_frames_cannot_unfold_without_end(monkeypatch):
    monkeypatch.setattr(fetch, "MAX_ELEMENTS", 10)
    topic = Message(topic="t", partitions=[Message()] * 10)
    for version in (4, 12):
        body = write_request(FETCH, version, Message(topics=[topic]))
        with pytest.raises(Malformed, match="more than 10"):
            read_fetch(version, memoryview(body), 0, len(body))


def test_forgotten_partitions_are_bounded(monkeypatch):
    topic = Message(topic="t", partitions=list(range(10)))
    body = write_request(FETCH, 7, Message(forgotten_topics_data=[topic]))
    assert len(read_fetch(7, memoryview(body), 0, len(body)).forgotten[0].partitions) == 10
    with pytest.raises(Malformed, match="10 partitions"):
        read_fetch(7, memoryview(body + bytes(40)), 0, len(body) - 1)
    monkeypatch.setattr(fetch, "MAX_ELEMENTS", 10)
    with pytest.raises(Malformed, match="more than 10"):
        read_fetch(7, memoryview(body), 0, len(body))


def test_a_replica_is_named_by_a_tagged_field_only_from_15_on():
    state = Message(replica_id=5, replica_epoch=9)
    body = write_request(FETCH, 15, Message(replica_state=state, cluster_id="c"))
    request = read_fetch(15, memoryview(body), 0, len(body))
    assert (request.replica_id, request.cluster_id) == (5, "c")
    plain = write_request(FETCH, 14, Message(replica_id=7))
    tagged = plain[:-1] + b"\x01\x01\x0d" + struct.pack(">iqb", 5, 9, 0)
    assert read_fetch(14, memoryview(tagged), 0, len(tagged)).replica_id == 7
