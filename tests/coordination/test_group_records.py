"""The records of __consumer_offsets against bytes that Apache Kafka 4.3.1 wrote."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordination.group_records import (
    CommittedOffset,
    GroupCodec,
    GroupMetadata,
    OffsetCommit,
    StoredGroup,
    StoredMember,
    _read_offset_commit,
    _read_usual,
)
from headrace.protocol.primitives import Reader, Writer

CODEC = GroupCodec()
TOPIC_ID = UUID("001a73f9-19b7-4f05-b72b-2b9dde739fa5")
MEMBER_ID = "inst-1-0186c25a-7dca-459f-b0d1-45add96e5889"

# Cut from a __consumer_offsets segment of Apache Kafka 4.3.1.
OFFSET_KEY = bytes.fromhex("0001 0002 6731 0002 7431 00000000")
OFFSET_VALUE = bytes.fromhex(
    "0004 0000000000000005 ffffffff 0b6d6574612d6461746100 000001a1ee53646b"
    "01 00 10 001a73f919b74f05b72b2b9dde739fa5"
)
GROUP_KEY = bytes.fromhex("0002 0002 6731")
EMPTY_GROUP_VALUE = bytes.fromhex("0003 0000 00000000 ffff ffff 000001a1ee53638c 00000000")
STABLE_GROUP_VALUE = (
    bytes.fromhex("0003 0008 636f6e73756d6572 00000001 0005 72616e6765 002b")
    + MEMBER_ID.encode()
    + bytes.fromhex("000001a1ee536397 00000001 002b")
    + MEMBER_ID.encode()
    + bytes.fromhex("0006 696e73742d31 0003 636c69 000a 2f3132372e302e302e31 000493e0 0000afc8")
    + bytes.fromhex("00000018 0003 00000001 0002 7431 00000000 00000000 ffffffff 0000")
    + bytes.fromhex("0000001e 0000 00000001 0002 7431 00000003 00000000 00000001 00000002 00000000")
)

OFFSET = OffsetCommit(
    "g1",
    "t1",
    0,
    CommittedOffset(5, -1, "meta-data\0", 1794999805035, topic_id=TOPIC_ID),
)
EMPTY_GROUP = GroupMetadata("g1", StoredGroup("", 0, None, None, 1794999804812, ()))
STABLE_GROUP = GroupMetadata(
    "g1",
    StoredGroup(
        "consumer",
        1,
        "range",
        MEMBER_ID,
        1794999804823,
        (
            StoredMember(
                MEMBER_ID,
                "inst-1",
                "cli",
                "/127.0.0.1",
                300_000,
                45_000,
                bytes.fromhex("0003 00000001 0002 7431 00000000 00000000 ffffffff 0000"),
                bytes.fromhex(
                    "0000 00000001 0002 7431 00000003 00000000 00000001 00000002 00000000"
                ),
            ),
        ),
    ),
)


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (OFFSET, OFFSET_KEY, OFFSET_VALUE),
        (OffsetCommit("g1", "t1", 0, None), OFFSET_KEY, None),
        (EMPTY_GROUP, GROUP_KEY, EMPTY_GROUP_VALUE),
        (STABLE_GROUP, GROUP_KEY, STABLE_GROUP_VALUE),
        (GroupMetadata("g1", None), GROUP_KEY, None),
    ],
)
def test_kafkas_bytes_are_read_and_written(record, key, value):
    assert CODEC.encode(record) == (key, value)
    assert CODEC.decode(key, value) == record


names = st.text(max_size=20)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
committed = st.builds(CommittedOffset, int64s, int32s, names, int64s, st.just(-1), st.uuids())
expiring = st.builds(
    CommittedOffset, int64s, st.just(-1), names, int64s, st.integers(0, 2**62), st.just(UUID(int=0))
)
members = st.builds(
    StoredMember,
    names,
    st.none() | names,
    names,
    names,
    st.integers(0, 2**31 - 1),
    int32s,
    st.binary(max_size=20),
    st.binary(max_size=20),
)
groups = st.builds(
    StoredGroup,
    names,
    int32s,
    st.none() | names,
    st.none() | names,
    int64s,
    st.lists(members, max_size=3).map(tuple),
)
records = st.builds(
    OffsetCommit, names, names, int32s, st.none() | committed | expiring
) | st.builds(GroupMetadata, names, st.none() | groups)


@given(records)
def test_a_record_reads_back_as_it_was(record):
    assert CODEC.decode(*CODEC.encode(record)) == record


@given(committed, names, int32s)
def test_the_packed_offset_commit_is_what_the_plain_writer_gives(value, name, partition):
    key, plain = Writer(), Writer()
    key.int16(1)
    key.string(name)
    key.string(name)
    key.int32(partition)
    plain.int16(4)
    plain.int64(value.offset)
    plain.int32(value.leader_epoch)
    plain.compact_string(value.metadata)
    plain.int64(value.commit_timestamp_ms)
    plain.tagged_fields([(0, value.topic_id.bytes)] if value.topic_id.int else [])
    record = OffsetCommit(name, name, partition, value)
    assert CODEC.encode(record) == (key.getvalue(), plain.getvalue())


@given(committed, names, int32s)
def test_the_short_way_of_reading_gives_what_the_long_way_gives(value, name, partition):
    record = OffsetCommit(name, name, partition, value)
    key, written = CODEC.encode(record)
    usual = len(written or b"") == 42 and _read_usual(key, written or b"")
    plain = _read_offset_commit(Reader(key, 2), Reader(written or b""))
    assert plain == record
    assert usual in (record, None, False)
    if value.metadata == "" and value.topic_id.int:
        assert usual == record


def old_offset_value(version: int) -> bytes:
    writer = Writer()
    writer.int16(version)
    writer.int64(7)
    if version >= 3:
        writer.int32(2)
    writer.string("m")
    writer.int64(100)
    if version == 1:
        writer.int64(200)
    return writer.getvalue()


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_offsets_of_older_brokers_are_read(version):
    record = CODEC.decode(b"\0\0" + OFFSET_KEY[2:], old_offset_value(version))
    epoch = 2 if version == 3 else -1
    expires = 200 if version == 1 else -1
    assert record == OffsetCommit("g1", "t1", 0, CommittedOffset(7, epoch, "m", 100, expires))


def old_group_value(version: int) -> bytes:
    flexible = version == 4
    writer = Writer()
    text = writer.compact_string if flexible else writer.nullable_string
    opaque = writer.compact_bytes if flexible else writer.sized_bytes
    writer.int16(version)
    text("consumer")
    writer.int32(3)
    text("range")
    text("a")
    if version >= 2:
        writer.int64(50)
    if flexible:
        writer.unsigned_varint(2)
    else:
        writer.int32(1)
    text("a")
    if version >= 3:
        text("i")
    text("client")
    text("/host")
    if version >= 1:
        writer.int32(60_000)
    writer.int32(10_000)
    opaque(b"sub")
    opaque(b"assigned")
    if flexible:
        writer.raw(b"\0\0")
    return writer.getvalue()


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_groups_of_other_brokers_are_read(version):
    instance = "i" if version >= 3 else None
    rebalance_ms = 60_000 if version >= 1 else 10_000
    member = StoredMember(
        "a", instance, "client", "/host", rebalance_ms, 10_000, b"sub", b"assigned"
    )
    stored = StoredGroup("consumer", 3, "range", "a", 50 if version >= 2 else -1, (member,))
    assert CODEC.decode(GROUP_KEY, old_group_value(version)) == GroupMetadata("g1", stored)


@given(st.binary(max_size=40), st.none() | st.binary(max_size=60))
def test_bytes_that_nobody_knows_are_skipped_not_fatal(key, value):
    CODEC.decode(key, value)


def test_a_newer_type_or_version_is_skipped():
    assert CODEC.decode(b"\x00\x63\x00\x01x", b"") is None
    assert CODEC.decode(OFFSET_KEY, b"\x00\x05" + OFFSET_VALUE[2:]) is None
    assert CODEC.decode(None, None) is None
