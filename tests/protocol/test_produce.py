import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol import produce
from headrace.protocol.messages import Message, read_response, write_request, write_response
from headrace.protocol.packing import UNREADABLE
from headrace.protocol.primitives import ZERO_UUID, Malformed
from headrace.protocol.produce import (
    PartitionProduced,
    ProduceRequest,
    RecordError,
    TopicProduced,
    read_legacy,
    read_produce,
    write_produce,
    write_produced,
)
from tests.protocol import kio_schemas
from tests.protocol.kio_oracle import few_examples, kio_bytes, random_message

PRODUCE = 0
VERSIONS = range(3, 14)


def as_message(request: ProduceRequest, version: int) -> Message:
    """The request as the plain codec would give it, of the fields this version has."""
    topics = []
    for topic in request.topics:
        partitions = [
            Message(index=index, records=None if records is None else bytes(records))
            for index, records in topic.partitions
        ]
        if version >= 13:
            topics.append(Message(topic_id=topic.topic_id, partition_data=partitions))
        else:
            topics.append(Message(name=topic.name, partition_data=partitions))
    return Message(
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic_data=topics,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_read_as_kio_writes_them(version):
    entity = kio_schemas.entity(PRODUCE, version, request=True)

    @given(st.integers(0, 2**32), st.binary(max_size=9), st.binary(max_size=9))
    def check(seed, before, after):
        message = random_message(entity, random.Random(seed))
        body = kio_bytes(entity, message)
        buffer = memoryview(before + body + after)
        end = len(before) + len(body)
        assert as_message(read_produce(version, buffer, len(before), end), version) == message

    check()


def test_records_are_not_copied():
    message = Message(topic_data=[Message(name="t", partition_data=[Message(records=b"abc")])])
    buffer = bytearray(write_request(PRODUCE, 9, message))
    request = read_produce(9, memoryview(buffer), 0, len(buffer))
    records = request.topics[0].partitions[0][1]
    assert records is not None
    buffer[buffer.index(b"abc")] = ord("X")
    assert bytes(records) == b"Xbc"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_versions_kafka_refuses_can_still_be_read_and_answered(version):
    body = struct.pack(">hii", -1, 500, 1) + b"\x00\x01t" + struct.pack(">iii", 1, 7, 3) + b"abc"
    request = read_produce(version, memoryview(body), 0, len(body))
    assert (request.transactional_id, request.acks, request.timeout_ms) == (None, -1, 500)
    assert [(index, bytes(records or b"")) for index, records in request.topics[0].partitions] == [
        (7, b"abc")
    ]
    answer = write_produce(version, [TopicProduced("t", ZERO_UUID, [PartitionProduced(7, 35)])])
    expected = struct.pack(">i", 1) + b"\x00\x01t" + struct.pack(">iihq", 1, 7, 35, -1)
    expected += struct.pack(">q", -1) if version == 2 else b""
    expected += struct.pack(">i", 0) if version else b""
    assert answer == expected


int16 = st.integers(-1, 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
answers = st.builds(
    PartitionProduced,
    partition=int32,
    error_code=int16,
    base_offset=int64,
    log_append_time_ms=int64,
    log_start_offset=int64,
    record_errors=st.lists(
        st.builds(RecordError, int32, st.none() | st.text(max_size=9)), max_size=3
    ),
    error_message=st.none() | st.text(max_size=200),
    current_leader=st.none() | st.tuples(int32, int32),
)
topics = st.lists(
    st.builds(TopicProduced, st.text(max_size=200), st.uuids(), st.lists(answers, max_size=3)),
    max_size=3,
)


def produced_message(answers, version):
    topics = []
    for topic in answers:
        partitions = []
        for row in topic.partitions:
            fields = {
                "index": row.partition,
                "error_code": row.error_code,
                "base_offset": row.base_offset,
                "log_append_time_ms": row.log_append_time_ms,
                "log_start_offset": row.log_start_offset,
                "record_errors": [
                    Message(batch_index=error.batch_index, batch_index_error_message=error.message)
                    for error in row.record_errors
                ],
                "error_message": row.error_message,
            }
            if row.current_leader is not None:
                leader, epoch = row.current_leader
                fields["current_leader"] = Message(leader_id=leader, leader_epoch=epoch)
            partitions.append(Message(**fields))
        topics.append(
            Message(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions)
        )
    return topics


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_are_written_as_the_plain_codec_writes_them(version):
    @given(topics, st.integers(0, 2**31 - 1))
    def check(answers, throttle):
        ours = write_produce(version, answers, throttle)
        plain = Message(responses=produced_message(answers, version), throttle_time_ms=throttle)
        if not any(row.current_leader == (-1, -1) for topic in answers for row in topic.partitions):
            assert ours == write_response(PRODUCE, version, plain)
        assert read_response(PRODUCE, version, ours).throttle_time_ms == throttle

    check()


@given(
    st.integers(3, 8),
    st.none() | st.text(max_size=9),
    st.lists(st.lists(st.none() | st.binary(max_size=99), max_size=2), max_size=2),
    st.data(),
)
def test_one_batch_is_read_as_any_number_of_them(version, transactional_id, batches, data):
    topics = [
        Message(name="t" * len(rows), partition_data=[Message(index=3, records=r) for r in rows])
        for rows in batches
    ]
    message = Message(transactional_id=transactional_id, acks=1, topic_data=topics)
    body = write_request(PRODUCE, version, message)
    end = data.draw(st.sampled_from([len(body), max(len(body) - 1, 0), len(body) // 2]))
    outcomes: list[object] = []
    for read in (read_produce, read_legacy):
        try:
            outcomes.append(read(version, memoryview(body), 0, end))
        except (Malformed, *UNREADABLE):
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]


@given(st.integers(2, 13), st.text(max_size=200), st.uuids(), answers)
def test_one_answer_is_written_as_any_number_of_them(version, name, topic_id, answer):
    for each in (answer, PartitionProduced(*answer[:5])):
        topics = [TopicProduced(name, topic_id, [each])]
        assert write_produce(version, topics) == write_produced(version, topics)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_cut_of_a_request_is_refused(version):
    entity = kio_schemas.entity(PRODUCE, version, request=True)

    @few_examples()
    @given(st.integers(0, 2**32))
    def check(seed):
        body = kio_bytes(entity, random_message(entity, random.Random(seed)))
        for cut in range(0, len(body), 1 + len(body) // 60):
            # What follows a frame in the buffer is the next one's.
            for buffer in (body[:cut], body):
                with pytest.raises(Malformed):
                    read_produce(version, memoryview(buffer), 0, cut)

    check()


@given(st.integers(0, 13), st.binary(max_size=60))
def test_random_bytes_raise_only_malformed(version, garbage):
    try:
        read_produce(version, memoryview(garbage), 0, len(garbage))
    except Malformed:
        return


@pytest.mark.parametrize("count", [2**31 - 1, 10**9, -1, -(2**31)])
def test_counts_that_lie_are_refused_at_once(count):
    head = b"\xff\xff" + struct.pack(">hi", 1, 0)
    body = head + struct.pack(">i", count) + bytes(50)
    with pytest.raises(Malformed, match=f"array of {count} elements"):
        read_produce(3, memoryview(body), 0, len(body))
    body = head + struct.pack(">i", 1) + b"\x00\x01t" + struct.pack(">i", count) + bytes(50)
    with pytest.raises(Malformed, match=f"array of {count} elements"):
        read_produce(3, memoryview(body), 0, len(body))


def test_small_frames_cannot_unfold_without_end(monkeypatch):
    monkeypatch.setattr(produce, "MAX_ELEMENTS", 10)
    topic = Message(name="t", partition_data=[Message()] * 10)
    for version in (8, 12):
        body = write_request(PRODUCE, version, Message(topic_data=[topic]))
        with pytest.raises(Malformed, match="more than 10"):
            read_produce(version, memoryview(body), 0, len(body))


@pytest.mark.parametrize("version", [8, 9])
def test_nothing_is_taken_from_the_frame_that_follows(version):
    topic = Message(name="topic", partition_data=[Message(records=b"r" * 20)])
    body = write_request(PRODUCE, version, Message(transactional_id="mine", topic_data=[topic]))
    buffer = memoryview(body + bytes(100))
    for inside, reason in (
        (b"mine", "string of 4"),
        (b"topic", "string of 5"),
        (b"rrr", "records"),
    ):
        with pytest.raises(Malformed, match=reason):
            read_produce(version, buffer, 0, body.index(inside) + 1)


def test_tagged_fields_are_skipped_and_bounded():
    body = write_request(PRODUCE, 9, Message(topic_data=[]))
    assert body.endswith(b"\x00")
    tagged = body[:-1] + b"\x01\x05\x03abc"
    assert read_produce(9, memoryview(tagged), 0, len(tagged)).topics == []
    with pytest.raises(Malformed, match="tagged field of 3 bytes"):
        read_produce(9, memoryview(tagged + bytes(9)), 0, len(tagged) - 1)
