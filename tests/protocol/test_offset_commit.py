import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol import offset_commit
from headrace.protocol.messages import Message, read_request, write_request, write_response
from headrace.protocol.offset_commit import (
    OffsetCommitRequest,
    read_offset_commit,
    write_offset_commit,
)
from headrace.protocol.primitives import Malformed
from tests.protocol import kio_schemas
from tests.protocol.kio_oracle import kio_bytes, random_message

OFFSET_COMMIT = 8
VERSIONS = range(2, 11)


def as_message(request: OffsetCommitRequest) -> Message:
    """The request as the plain codec gives it."""
    topics = [
        Message(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                Message(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=epoch,
                    committed_metadata=metadata,
                )
                for partition, offset, epoch, metadata in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return Message(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_time_ms=request.retention_ms,
        topics=topics,
    )


def commit(version: int, *names: str) -> bytes:
    partition = Message(partition_index=1, committed_offset=7, committed_metadata="m")
    topics = [Message(name=name, partitions=[partition]) for name in names]
    return write_request(OFFSET_COMMIT, version, Message(group_id="g", topics=topics))


@pytest.mark.parametrize("version", VERSIONS)
def test_commits_are_read_and_answered_as_the_plain_codec_does(version):
    entity = kio_schemas.entity(OFFSET_COMMIT, version, request=True)

    @given(st.integers(0, 2**32), st.integers(-1, 120))
    def check(seed, code):
        body = kio_bytes(entity, random_message(entity, random.Random(seed)))
        request = read_offset_commit(version, body)
        assert as_message(request) == read_request(OFFSET_COMMIT, version, body)
        codes = [code + at for topic in request.topics for at, _ in enumerate(topic.partitions)]
        left = iter(codes)
        topics = [
            Message(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    Message(partition_index=each.partition, error_code=next(left))
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        plain = write_response(OFFSET_COMMIT, version, Message(topics=topics))
        assert write_offset_commit(version, request.topics, codes) == plain

    check()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_cut_of_a_commit_is_refused(version):
    body = commit(version, "one", "two")
    for end in range(len(body)):
        with pytest.raises(Malformed):
            read_offset_commit(version, body[:end])


@given(st.sampled_from(VERSIONS), st.binary(max_size=60), st.integers(0, 60))
def test_bytes_are_refused_where_the_plain_codec_refuses_them(version, garbage, at):
    body = commit(version, "one", "two")
    for junk in (garbage, body[:at] + garbage + body[at + len(garbage) :]):
        try:
            plain = read_request(OFFSET_COMMIT, version, junk)
        except ValueError:
            with pytest.raises(Malformed):
                read_offset_commit(version, junk)
        else:
            assert as_message(read_offset_commit(version, junk)) == plain


def test_small_frames_cannot_unfold_without_end(monkeypatch):
    monkeypatch.setattr(offset_commit, "MAX_ELEMENTS", 3)
    with pytest.raises(Malformed, match="more than 3"):
        read_offset_commit(9, commit(9, "one", "two"))
