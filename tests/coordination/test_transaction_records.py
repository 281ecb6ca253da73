"""Transaction records against Kafka's format, byte by byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordination.transaction_records import (
    Forgotten,
    TopicPartition,
    Transaction,
    TransactionCodec,
    TransactionState,
)

codec = TransactionCodec()
int16 = st.integers(-(2**15), 2**15 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
topics = st.text("abcdefgh.-_", min_size=1, max_size=249)
partitions = st.frozensets(st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1)), max_size=8)


@st.composite
def transactions(draw):
    state = draw(st.sampled_from(TransactionState))
    return Transaction(
        transactional_id=draw(st.text(max_size=60)),
        producer_id=draw(int64),
        producer_epoch=draw(int16),
        timeout_ms=draw(st.integers(0, 2**31 - 1)),
        state=state,
        partitions=frozenset() if state is TransactionState.EMPTY else draw(partitions),
        started_ms=draw(int64),
        updated_ms=draw(int64),
        previous_producer_id=draw(int64),
        next_producer_id=draw(int64),
        client_version=draw(int16),
    )


@given(transactions())
def test_what_is_written_is_read_back(txn):
    assert codec.decode(*codec.encode(txn)) == txn


def test_an_ongoing_transaction_has_kafkas_bytes():
    key, value = codec.encode(
        Transaction(
            transactional_id="abc",
            producer_id=2000,
            producer_epoch=3,
            timeout_ms=60_000,
            state=TransactionState.ONGOING,
            partitions=frozenset({TopicPartition("b", 1), TopicPartition("b", 0)}),
            started_ms=8,
            updated_ms=9,
            previous_producer_id=2000,
            client_version=2,
        )
    )
    assert key == bytes.fromhex("0000 0003") + b"abc"
    assert value == (
        bytes.fromhex("0001 00000000000007d0 0003 0000ea60 01")
        + bytes.fromhex("02 02")
        + b"b"
        + bytes.fromhex("03 00000000 00000001 00")
        + bytes.fromhex("0000000000000009 0000000000000008")
        + bytes.fromhex("02 00 08 00000000000007d0 02 02 0002")
    )


def test_an_empty_transaction_has_no_partition_list_and_no_default_tags():
    _, value = codec.encode(Transaction("a", 1, 0, 10, TransactionState.EMPTY))
    assert value == bytes.fromhex(
        "0001 0000000000000001 0000 0000000a 00 00 ffffffffffffffff ffffffffffffffff 00"
    )


def test_a_forgotten_transactional_id_is_a_tombstone():
    key, value = codec.encode(Forgotten("abc"))
    assert (key, value) == (bytes.fromhex("0000 0003") + b"abc", None)
    assert codec.decode(key, value) == Forgotten("abc")


def test_version_0_of_older_brokers_is_read():
    value = (
        bytes.fromhex("0000 0000000000000007 0001 0000000a 04 00000001 0001")
        + b"t"
        + bytes.fromhex("00000001 00000005 0000000000000009 0000000000000008")
    )
    assert codec.decode(bytes.fromhex("0000 0001") + b"x", value) == Transaction(
        transactional_id="x",
        producer_id=7,
        producer_epoch=1,
        timeout_ms=10,
        state=TransactionState.COMPLETE_COMMIT,
        partitions=frozenset({TopicPartition("t", 5)}),
        started_ms=8,
        updated_ms=9,
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"", b""),
        (bytes.fromhex("0001 0001") + b"x", b""),
        (bytes.fromhex("0000 0001") + b"x", bytes.fromhex("0002")),
    ],
)
def test_a_record_of_an_unknown_kind_is_left_alone(key, value):
    assert codec.decode(key, value) is None


def test_a_state_that_does_not_exist_is_damage():
    key, value = codec.encode(Transaction("a", 1, 0, 10, TransactionState.EMPTY))
    assert value is not None
    damaged = value[:16] + b"\x63" + value[17:]
    with pytest.raises(ValueError, match="99"):
        codec.decode(key, damaged)
