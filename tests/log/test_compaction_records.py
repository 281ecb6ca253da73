import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.log.compaction_keys import BYTES_PER_KEY, LastOffsets
from headrace.log.compaction_records import (
    Keys,
    body_of,
    emptied,
    keys_of,
    only,
    with_delete_horizon,
)
from headrace.protocol.records import BatchView, CorruptBatch, Record, write_batch
from headrace.testing.logs import NOW_MS

BASE = 1 << 40
HORIZON_MS = NOW_MS + 86_400_000

byte_strings = st.none() | st.binary(max_size=200)
rows = st.lists(
    st.tuples(
        st.integers(1, 500),
        st.integers(NOW_MS - (1 << 40), NOW_MS + (1 << 40)),
        byte_strings,
        byte_strings,
        st.lists(st.tuples(st.text(max_size=5), byte_strings), max_size=2),
    ),
    min_size=1,
    max_size=40,
)


@st.composite
def batch_views(draw):
    """Batches of every kind that compaction meets: gaps, codecs, append time, a horizon."""
    offset, records = BASE - 1, []
    for gap, timestamp, key, value, headers in draw(rows):
        offset += gap if draw(st.booleans()) else 1
        records.append(Record(offset, timestamp, key, value, tuple(headers)))
    written = write_batch(
        records,
        base_offset=BASE,
        compression=draw(st.integers(0, 4)),
        producer_id=7,
        producer_epoch=1,
        base_sequence=5,
        transactional=draw(st.booleans()),
        log_append_time=draw(st.none() | st.just(NOW_MS)),
        last_offset=offset + draw(st.integers(0, 3)),
        delete_horizon_ms=draw(st.none() | st.just(HORIZON_MS)),
        leader_epoch=3,
    )
    return BatchView(b"before" + written, 6)


def same_header(one: BatchView, other: BatchView, *but: str) -> None:
    fields = set(BatchView.__slots__) - {"buffer", "position", "crc", "batch_length", *but}
    assert {name: getattr(one, name) for name in fields} == {
        name: getattr(other, name) for name in fields
    }


@given(batch_views())
def test_keys_are_those_of_the_plain_reader(view):
    found = keys_of(view, body_of(view))
    records = list(view.records())
    assert found.tombstones == [record.offset for record in records if record.value is None]
    assert found.keyless == [record.offset for record in records if record.key is None]
    keyed = [record for record in records if record.key is not None]
    assert list(found.offsets) == [record.offset for record in keyed]
    short = [
        (key, record.key)
        for key, record in zip(found.keys, keyed, strict=True)
        if len(record.key) < 64
    ]
    assert all(one == other for one, other in short)
    assert all(
        len(key) == 64
        for key, record in zip(found.keys, keyed, strict=True)
        if len(record.key) >= 64
    )
    assert len(set(found.keys)) == len({record.key for record in keyed})


@given(batch_views(), st.data())
def test_what_is_left_of_a_batch_is_as_it_was(view, data):
    records = list(view.records())
    kept = data.draw(st.lists(st.sampled_from(records), min_size=1, unique_by=lambda r: r.offset))
    kept.sort(key=lambda record: record.offset)
    left = BatchView(only(view, body_of(view), [record.offset for record in kept]))
    assert left.crc_valid()
    assert list(left.records()) == kept
    same_header(left, view, "record_count", "max_timestamp")
    assert left.max_timestamp == max(record.timestamp for record in left.records())


@given(batch_views(), st.data())
def test_a_delete_horizon_changes_no_record(view, data):
    records = list(view.records())
    kept = data.draw(st.lists(st.sampled_from(records), min_size=1, unique_by=lambda r: r.offset))
    offsets = sorted(record.offset for record in kept)
    marked = BatchView(with_delete_horizon(view, body_of(view), offsets, HORIZON_MS + 5))
    assert marked.crc_valid()
    assert marked.has_delete_horizon
    assert marked.base_timestamp == HORIZON_MS + 5
    assert list(marked.records()) == sorted(kept, key=lambda record: record.offset)
    same_header(marked, view, "record_count", "max_timestamp", "base_timestamp", "attributes")


@given(batch_views())
def test_an_emptied_batch_keeps_the_offsets_and_sequences_of_its_producer(view):
    left = BatchView(emptied(view))
    assert left.crc_valid()
    assert list(left.records()) == []
    assert left.size == 61
    assert left.last_sequence == view.last_sequence
    assert not left.has_delete_horizon
    same_header(left, view, "record_count", "base_timestamp", "attributes")


@given(batch_views(), st.data())
def test_damaged_records_are_refused_or_read_but_never_crash(view, data):
    body = bytearray(body_of(view))
    body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    for read in (keys_of, lambda v, b: only(v, b, [v.base_offset])):
        try:
            read(view, bytes(body))
        except (CorruptBatch, ValueError):
            continue


@pytest.mark.parametrize("size", [1, 16, 63, 500])
def test_the_map_of_keys_takes_no_more_memory_than_it_was_given(size):
    buffer_bytes = 4 << 20
    tracemalloc.start()
    keys = LastOffsets(buffer_bytes)
    offset = BASE
    while not keys.full:
        names = [f"{offset + at:0{size}d}".encode()[-size:] for at in range(100)]
        view = BatchView(write_batch([Record(-1, NOW_MS, name) for name in names]))
        found = keys_of(view, body_of(view))
        keys.note(Keys(found.keys, range(offset, offset + 100), [], []), BASE)
        offset += 100
        if size == 1 and offset > BASE + 10_000:
            break
    keys.seal()
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < buffer_bytes
    assert size == 1 or len(keys) >= buffer_bytes // BYTES_PER_KEY
