"""The records of consumer groups against bytes that Apache Kafka 4.3.1 wrote."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordination.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupPartitionMetadata,
    ConsumerGroupRecord,
    ConsumerGroupRegularExpression,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
    ResolvedPattern,
    StoredAssignment,
    StoredClassicMember,
    StoredConsumerMember,
    StoredEpoch,
    StoredTargetEpoch,
    StoredTopic,
)
from headrace.coordination.group_records import GroupCodec

CODEC = GroupCodec()
TOPIC_ID = UUID("938d96b8-962b-4f4b-ade4-bd8f72b4944f")

# Cut from a __consumer_offsets segment of Apache Kafka 4.3.1.
WRITTEN_BY_KAFKA: list[tuple[ConsumerGroupRecord, str, str]] = [
    (
        ConsumerGroupMetadata("g613312", StoredEpoch(2, 3809979115930320557)),
        "0003 000767363133333132",
        "0000 00000002 01 00 08 34dfc3d1deaefead",
    ),
    (
        ConsumerGroupMemberMetadata(
            "c395832",
            "k1",
            StoredConsumerMember(
                client_id="headrace",
                client_host="/127.0.0.1",
                topics=("t395832",),
                rebalance_timeout_ms=30_000,
            ),
        ),
        "0005 000763333935383332 00026b31",
        "0000 00 00 096865616472616365 0b2f3132372e302e302e31 02 0874333935383332 01"
        "00007530 00 01 00 01 00",
    ),
    (
        ConsumerGroupTargetAssignmentMetadata("g613312", StoredTargetEpoch(2, 1795004121996)),
        "0006 000767363133333132",
        "0000 00000002 01 00 08 000001a1ee95438c",
    ),
    (
        ConsumerGroupTargetAssignmentMember("g613312", "m1", {TOPIC_ID: frozenset({0, 1, 2, 3})}),
        "0007 000767363133333132 00026d31",
        "0000 02 938d96b8962b4f4bade4bd8f72b4944f 05 00000000 00000001 00000002 00000003 00 00",
    ),
    (
        ConsumerGroupCurrentMemberAssignment(
            "g613312", "m1", StoredAssignment(2, 1, 0, {TOPIC_ID: {0: 2, 3: 1}}, {})
        ),
        "0008 000767363133333132 00026d31",
        "0000 00000002 00000001 00 02 938d96b8962b4f4bade4bd8f72b4944f 03 00000000 00000003"
        "01 00 09 03 00000002 00000001 01 00",
    ),
    (
        ConsumerGroupRegularExpression(
            "g613312", "t61331.", ResolvedPattern(frozenset({"t613312"}), 2897, 1795004127087)
        ),
        "0010 000767363133333132 00077436313333312e",
        "0000 02 0874363133333132 0000000000000b51 000001a1ee95576f 00",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), WRITTEN_BY_KAFKA)
def test_the_bytes_are_kafkas_own(record: ConsumerGroupRecord, key: str, value: str) -> None:
    encoded = bytes.fromhex(key), bytes.fromhex(value)
    assert CODEC.encode(record) == encoded
    assert CODEC.decode(*encoded) == record


def test_partitions_written_before_epochs_were_take_their_members_epoch() -> None:
    key = bytes.fromhex("0008 000167 00016d")
    old = bytes.fromhex(f"0000 00000007 00000006 00 02 {TOPIC_ID.hex} 02 00000003 00 01 00")
    record = CODEC.decode(key, old)
    assert isinstance(record, ConsumerGroupCurrentMemberAssignment)
    assert record.value == StoredAssignment(7, 6, 0, {TOPIC_ID: {3: 7}}, {})


@pytest.mark.parametrize("key", [row[1] for row in WRITTEN_BY_KAFKA])
def test_a_newer_version_of_a_value_is_left_unread(key: str) -> None:
    assert CODEC.decode(bytes.fromhex(key), bytes.fromhex("0001 00")) is None


names = st.text("abc-é", max_size=4)
ids = st.uuids()
numbers = st.integers(0, 2**31 - 1)
partitions = st.dictionaries(ids, st.frozensets(numbers, min_size=1, max_size=3), max_size=3)
epoched = st.dictionaries(ids, st.dictionaries(numbers, numbers, max_size=3), max_size=2)
times = st.integers(0, 2**62)
classic = st.builds(
    StoredClassicMember,
    numbers,
    st.lists(st.tuples(names, st.binary(max_size=4)), max_size=2).map(tuple),
)
members = st.builds(
    StoredConsumerMember,
    st.none() | names,
    st.none() | names,
    names,
    names,
    st.lists(names, max_size=3).map(tuple),
    st.none() | names,
    st.integers(-1, 100),
    st.none() | names,
    st.none() | classic,
)
topics = st.lists(st.builds(StoredTopic, ids, names, numbers), max_size=2).map(tuple)
records = st.one_of(
    st.builds(
        ConsumerGroupMetadata,
        names,
        st.none() | st.builds(StoredEpoch, numbers, st.integers(-(2**63), 2**63 - 1)),
    ),
    st.builds(ConsumerGroupPartitionMetadata, names, st.none() | topics),
    st.builds(ConsumerGroupMemberMetadata, names, names, st.none() | members),
    st.builds(
        ConsumerGroupTargetAssignmentMetadata,
        names,
        st.none() | st.builds(StoredTargetEpoch, numbers, times),
    ),
    st.builds(ConsumerGroupTargetAssignmentMember, names, names, st.none() | partitions),
    st.builds(
        ConsumerGroupCurrentMemberAssignment,
        names,
        names,
        st.none()
        | st.builds(
            StoredAssignment, numbers, numbers, numbers.map(lambda n: n % 3), epoched, epoched
        ),
    ),
    st.builds(
        ConsumerGroupRegularExpression,
        names,
        names,
        st.none() | st.builds(ResolvedPattern, st.frozensets(names, max_size=3), times, times),
    ),
)


@given(records)
def test_what_is_written_is_read_again(record: ConsumerGroupRecord) -> None:
    assert CODEC.decode(*CODEC.encode(record)) == record
