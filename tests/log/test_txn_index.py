import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.log.txn_index import ENTRY_BYTES, AbortedTxn, decode, encode


@st.composite
def histories(draw):
    entries, last = [], 0
    for _ in range(draw(st.integers(0, 5))):
        first = draw(st.integers(0, last + 10))
        last = max(first, last) + draw(st.integers(1, 10))
        entries.append(AbortedTxn(draw(st.integers(0, 2**63 - 1)), first, last, last + 1))
    return entries


def test_an_entry_has_kafkas_bytes():
    content = struct.pack(">hqqqq", 0, 7, 10, 20, 15)
    assert encode(AbortedTxn(7, 10, 20, 15)) == content
    assert len(content) == ENTRY_BYTES == 34


@given(histories(), st.integers(0, ENTRY_BYTES - 1))
def test_entries_survive_and_a_torn_tail_is_left_out(entries, torn):
    content = b"".join(map(encode, entries))
    assert list(decode(content)) == entries
    assert list(decode(content + b"\x01" * torn)) == entries
    assert list(decode(content + bytes(ENTRY_BYTES * 2))) == entries


@pytest.mark.parametrize(
    "bad",
    [
        struct.pack(">hqqqq", 1, 7, 10, 20, 15),
        encode(AbortedTxn(7, 10, 5, 6)),
        encode(AbortedTxn(-1, 10, 12, 13)),
        encode(AbortedTxn(7, 1, 2, 3)),
    ],
)
def test_what_cannot_be_right_is_said_so(bad):
    with pytest.raises(ValueError, match="aborted transaction"):
        list(decode(encode(AbortedTxn(1, 3, 8, 9)) + bad))
