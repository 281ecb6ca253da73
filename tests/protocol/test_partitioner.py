import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.partitioner import murmur2, partition_for


@pytest.mark.parametrize(
    ("key", "digest"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_kafkas_own_vectors(key, digest):
    assert murmur2(key) == digest


@pytest.mark.parametrize(
    ("key", "of_three", "of_six"),
    [(b"order-123", 1, 1), (b"user_123", 2, 5), (b"user_42", 1, 4), (b"customer-123", 0, 0)],
)
def test_keys_go_where_the_java_client_sends_them(key, of_three, of_six):
    assert partition_for(key, 3) == of_three
    assert partition_for(key, 6) == of_six


@given(st.binary(max_size=40))
def test_murmur2_agrees_with_aiokafka(key):
    assert murmur2(key) & 0xFFFFFFFF == aiokafka_murmur2(key) & 0xFFFFFFFF
