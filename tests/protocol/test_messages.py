import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.index import api_key_map

from headrace.errors import ErrorCode
from headrace.protocol import message_reader, schemas
from headrace.protocol.messages import (
    Message,
    read_request,
    read_response,
    write_request,
    write_response,
)
from headrace.protocol.primitives import ZERO_UUID, Malformed
from tests.protocol import kio_schemas
from tests.protocol.kio_oracle import few_examples, kio_bytes, kio_value, random_message

METADATA, FETCH, API_VERSIONS, JOIN_GROUP = 3, 1, 18, 11


def kinds(api_key):
    for version in schemas.versions(api_key):
        yield version, True, write_request, read_request
        yield version, False, write_response, read_response


def listed(value):
    """The same value with lists as tuples, since reading gives the one and kio the other."""
    if isinstance(value, list | tuple):
        return tuple(listed(item) for item in value)
    if isinstance(value, Message):
        return {name: listed(item) for name, item in vars(value).items()}
    return value


def only(value, model):
    """What of ``value`` the version of ``model`` has."""
    if isinstance(value, dict):
        return {name: only(value[name], model[name]) for name in model}
    if isinstance(value, tuple) and value and isinstance(value[0], dict):
        return tuple(only(item, part) for item, part in zip(value, model, strict=True))
    return value


@pytest.mark.parametrize("api_key", sorted(api_key_map), ids=api_key_map.get)
def test_every_message_is_written_and_read_as_kio_does(api_key):
    @few_examples()
    @given(st.integers(0, 2**32))
    def check(seed):
        rng = random.Random(seed)
        for version, is_request, write, read in kinds(api_key):
            entity = kio_schemas.entity(api_key, version, request=is_request)
            message = random_message(entity, rng)
            body = write(api_key, version, message)
            assert body == kio_bytes(entity, message)
            ours = listed(read(api_key, version, memoryview(body)))
            assert only(ours, listed(message)) == listed(message)
            assert only(ours, listed(kio_value(entity, body))) == listed(kio_value(entity, body))
            assert set(ours) == set(schemas.shape_of(api_key, request=is_request).defaults)

    check()


def test_fields_a_version_lacks_have_kafkas_defaults_when_read():
    request = read_request(JOIN_GROUP, 0, write_request(JOIN_GROUP, 0, Message(group_id="g")))
    assert request.rebalance_timeout_ms == -1
    assert request.group_instance_id is None
    assert request.session_timeout_ms == 0
    old = read_request(METADATA, 1, b"\x00\x00\x00\x00")
    assert old.allow_auto_topic_creation is True
    assert old.topics == []
    assert old.include_cluster_authorized_operations is False


def test_fields_a_version_lacks_are_dropped_when_written():
    answer = Message(throttle_time_ms=5, brokers=[], cluster_id="c", controller_id=1, topics=[])
    assert write_response(METADATA, 0, answer) == b"\x00" * 8
    assert read_response(METADATA, 12, write_response(METADATA, 12, answer)).cluster_id == "c"


def test_fields_an_answer_lacks_have_kafkas_defaults():
    partition = Message(partition_index=3, leader_id=1, error_code=ErrorCode.NONE)
    topic = Message(name="t", topic_id=None, partitions=[partition])
    body = write_response(METADATA, 13, Message(topics=[topic]))
    read = read_response(METADATA, 13, body)
    assert read.controller_id == -1
    assert read.topics[0].topic_id == ZERO_UUID
    assert read.topics[0].topic_authorized_operations == -(2**31)
    assert read.topics[0].partitions[0].leader_epoch == -1
    assert read.topics[0].partitions[0].isr_nodes == []


def test_a_name_no_version_knows_is_an_error():
    with pytest.raises(AttributeError, match="throttle_time"):
        write_response(METADATA, 12, Message(throttle_time=5))
    with pytest.raises(AttributeError, match="MetadataResponseBroker has the field hots"):
        write_response(METADATA, 12, Message(brokers=[Message(hots="x")]))
    with pytest.raises(AttributeError, match="no field nonsense"):
        _ = Message(a=1).nonsense


def test_null_becomes_empty_only_where_some_version_knows_null():
    topics = [Message(name=None, error_code=3)]
    assert read_response(METADATA, 12, write_response(METADATA, 12, Message(topics=topics)))
    old = read_response(METADATA, 1, write_response(METADATA, 1, Message(topics=topics)))
    assert old.topics[0].name == ""
    with pytest.raises(ValueError, match="host must not be None"):
        write_response(METADATA, 1, Message(brokers=[Message(host=None)]))


def test_messages_are_equal_by_their_fields():
    assert Message(a=1, b=[Message(c=2)]) == Message(a=1, b=[Message(c=2)])
    assert Message(a=1) != Message(a=2)
    assert Message(a=1) != Message(a=1, b=None)
    assert repr(Message(a=1, b="x")) == "Message(a=1, b='x')"


@pytest.mark.parametrize("length", [2**31 - 1, 10**9, -2, -(2**31)])
def test_an_array_that_claims_too_much_is_refused_at_once(length):
    body = struct.pack(">i", length) + b"\x00\x01a"
    with pytest.raises(Malformed):
        read_request(METADATA, 4, body)


def test_a_compact_array_that_claims_too_much_is_refused_at_once():
    with pytest.raises(Malformed):
        read_request(METADATA, 12, b"\xff\xff\xff\xff\x0f" + bytes(20))
    with pytest.raises(Malformed):
        read_request(METADATA, 12, b"\x80\x80\x80\x80\x80\x01" + bytes(20))


def test_small_frames_cannot_unfold_without_end(monkeypatch):
    monkeypatch.setattr(message_reader, "MAX_ELEMENTS", 1000)
    body = struct.pack(">i", 1001) + b"\x00\x01a" * 1001
    with pytest.raises(Malformed, match="more than 1000"):
        read_request(METADATA, 1, body)
    assert len(read_request(METADATA, 1, struct.pack(">i", 1000) + body[4:]).topics) == 1000


def test_null_where_the_schema_has_none_is_refused():
    with pytest.raises(Malformed):
        read_request(METADATA, 0, b"\xff\xff\xff\xff")
    with pytest.raises(Malformed):
        read_request(METADATA, 1, b"\x00\x00\x00\x01\xff\xff")


def test_text_that_is_not_utf8_is_refused():
    with pytest.raises(Malformed):
        read_request(METADATA, 1, b"\x00\x00\x00\x01\x00\x02\xff\xfe")


def test_unknown_tagged_fields_are_skipped():
    body = write_request(API_VERSIONS, 3, Message(client_software_name="x"))
    assert body[-1] == 0
    with_tag = body[:-1] + b"\x01\x63\x03abc"
    assert read_request(API_VERSIONS, 3, with_tag) == read_request(API_VERSIONS, 3, body)
    with pytest.raises(Malformed):
        read_request(API_VERSIONS, 3, body[:-1] + b"\x01\x63\x04abc")
