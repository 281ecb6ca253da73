import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.log.checkpoints import (
    read_offsets,
    read_partition_metadata,
    read_properties,
    read_uuid,
    write_offsets,
    write_partition_metadata,
    write_properties,
    write_uuid,
)
from headrace.log.leader_epochs import LeaderEpochs

topics = st.from_regex(r"[a-zA-Z0-9._-]{1,40}", fullmatch=True)
offsets = st.dictionaries(st.tuples(topics, st.integers(0, 10_000)), st.integers(0, 2**62))
appends = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=30)


@given(offsets)
def test_offsets_are_read_back_as_written(found):
    assert read_offsets(write_offsets(found)) == found


@given(offsets.filter(bool), st.data())
def test_a_torn_offset_file_is_refused(found, data):
    content = write_offsets(found)
    with pytest.raises(ValueError, match=r".*"):
        read_offsets(content[: data.draw(st.integers(0, len(content) - 1))])


def test_the_files_are_kafkas_to_the_byte():
    topic_id = uuid.UUID("1f2a87fb-22f0-4e2b-8250-b4584c098f2c")
    assert write_offsets({("kt", 0): 30104, ("kt", 1): 5}) == b"0\n2\nkt 0 30104\nkt 1 5\n"
    assert write_partition_metadata(topic_id) == b"version: 0\ntopic_id: HyqH-yLwTiuCULRYTAmPLA"
    assert read_partition_metadata(write_partition_metadata(topic_id)) == topic_id
    epochs = LeaderEpochs()
    epochs.assign(0, 0)
    assert epochs.encode() == b"0\n1\n0 0\n"
    written = b"#\n#Wed Nov 18 11:22:02 UTC 2026\nnode.id=1\nversion=1\ncluster.id=MkU3OEVBNTc\n"
    expected = {"node.id": "1", "version": "1", "cluster.id": "MkU3OEVBNTc"}
    assert read_properties(written) == expected
    assert read_properties(write_properties(expected)) == expected


@given(st.uuids())
def test_uuids_are_read_back_as_written(value):
    assert read_uuid(write_uuid(value)) == value


@given(appends, st.integers(-1, 40), st.integers(0, 80), st.integers(0, 80))
def test_leader_epochs_answer_as_a_list_of_every_offset_would(steps, asked, start, end):
    epochs, epoch = LeaderEpochs(), 0
    by_offset: list[int] = []
    for raised, count in steps:
        epoch += raised
        epochs.assign(epoch, len(by_offset))
        by_offset += [epoch] * count
    for offset, written in enumerate(by_offset):
        assert epochs.epoch_at(offset) == written
    assert LeaderEpochs.decode(epochs.encode()) == epochs
    assert epochs.end_offset_for(asked, len(by_offset)) == _end_offset(by_offset, asked)
    cut = LeaderEpochs.decode(epochs.encode())
    cut.truncate_end(end)
    for offset, written in enumerate(by_offset[:end]):
        assert cut.epoch_at(offset) == written
    assert all(first < end for _epoch, first in cut.entries())
    cut = LeaderEpochs.decode(epochs.encode())
    if start < len(by_offset):
        cut.truncate_start(start)
        for offset, written in list(enumerate(by_offset))[start:]:
            assert cut.epoch_at(offset) == written
        assert cut.entries()[0][1] == start


def _end_offset(by_offset, asked):
    """Kafka's rule, said over every offset: the largest epoch not above, and where it ended."""
    if asked < 0 or not by_offset or asked > by_offset[-1]:
        return -1, -1
    if asked == by_offset[-1]:
        return asked, len(by_offset)
    below = [epoch for epoch in by_offset if epoch <= asked]
    return (below[-1] if below else asked), len(below)


def test_epochs_never_go_back():
    epochs = LeaderEpochs()
    assert epochs.assign(3, 10)
    assert not epochs.assign(3, 12)
    assert not epochs.assign(2, 12)
    assert epochs.assign(5, 10)
    assert epochs.entries() == [(5, 10)]


@pytest.mark.parametrize(
    "content", [b"", b"0\n1\n", b"0\n2\n3 10\n3 20\n", b"0\n1\n0 0", b"9\n0\n"]
)
def test_a_damaged_epoch_file_is_refused(content):
    with pytest.raises(ValueError, match=r".*"):
        LeaderEpochs.decode(content)
