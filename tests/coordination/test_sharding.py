import pytest

from headrace.coordination.sharding import java_hash, partition_of


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("transfer-1", -1727369521),
        ("polygenelubricants", -(2**31)),
        ("\N{GRINNING FACE}", 1772899),
    ],
)
def test_hashes_are_javas(text, hashed):
    assert java_hash(text) == hashed


def test_the_smallest_integer_is_partition_zero():
    assert partition_of("polygenelubricants", 50) == 0


def test_a_negative_hash_counts_by_its_size():
    assert partition_of("transfer-1", 50) == 21
