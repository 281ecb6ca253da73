import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.compression import CODECS
from headrace.protocol.records import (
    HEADER_BYTES,
    BatchView,
    CorruptBatch,
    EndMarker,
    Record,
    UnsupportedMagic,
    batches,
    control_batch,
    end_marker,
    stamp,
    write_batch,
    write_one,
)

fields = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=8), fields), max_size=3).map(tuple)
records = st.builds(
    Record,
    offset=st.just(-1),
    timestamp=st.integers(0, 2**41),
    key=fields,
    value=fields,
    headers=headers,
)
codecs = st.sampled_from(sorted(CODECS))


def numbered(rows, base_offset=0):
    return [row._replace(offset=base_offset + index) for index, row in enumerate(rows)]


@given(st.lists(records, min_size=1, max_size=20), codecs, st.integers(0, 2**40))
def test_what_is_written_is_read_back(rows, codec, base_offset):
    batch = write_batch(rows, base_offset=base_offset, compression=codec)
    view = BatchView(batch)
    assert view.crc_valid()
    assert view.size == len(batch)
    assert view.compression == codec
    assert view.record_count == len(rows)
    assert view.next_offset == base_offset + len(rows)
    assert view.max_timestamp == max(row.timestamp for row in rows)
    assert list(view.records()) == numbered(rows, base_offset)


@given(st.lists(records, min_size=1, max_size=8), codecs)
def test_aiokafka_reads_what_we_write(rows, codec):
    theirs = DefaultRecordBatch(bytes(write_batch(rows, base_offset=7, compression=codec)))
    assert theirs.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == [
        tuple(row) for row in numbered(rows, 7)
    ]


@given(st.lists(records, min_size=1, max_size=8))
def test_our_bytes_are_aiokafkas_bytes(rows):
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for index, row in enumerate(rows):
        builder.append(index, row.timestamp, row.key, row.value, list(row.headers))
    theirs = bytearray(builder.build())
    stamp(theirs, 0, 0, -1)
    assert write_batch(rows) == theirs


@given(
    st.integers(0, 2**62),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**15 - 1),
    st.integers(0, 2**31 - 1),
)
def test_header_fields_are_read_where_they_lie(offset, epoch, producer_epoch, sequence):
    batch = write_batch(
        [Record(timestamp=5), Record(timestamp=9)],
        base_offset=offset,
        producer_id=offset,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        transactional=True,
        leader_epoch=epoch,
    )
    view = BatchView(b"xyz" + batch, 3)
    assert (view.base_offset, view.last_offset) == (offset, offset + 1)
    assert (view.producer_id, view.producer_epoch) == (offset, producer_epoch)
    assert (view.base_sequence, view.partition_leader_epoch) == (sequence, epoch)
    assert (view.base_timestamp, view.max_timestamp) == (5, 9)
    assert view.is_transactional
    assert not view.is_control
    assert not view.is_log_append_time
    assert not view.has_delete_horizon
    assert bytes(view.raw()) == bytes(batch)


def test_sequences_wrap_after_the_largest_int():
    batch = write_batch([Record()] * 3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert BatchView(batch).last_sequence == 0
    assert BatchView(write_batch([Record()])).last_sequence == -1


def test_stamping_leaves_the_crc_valid():
    batch = write_batch([Record(value=b"x")])
    view = BatchView(batch)
    view.stamp(1234, 5)
    again = BatchView(batch)
    assert (again.base_offset, again.partition_leader_epoch) == (1234, 5)
    assert (view.base_offset, view.partition_leader_epoch) == (1234, 5)
    assert again.crc_valid()


def test_append_time_becomes_the_time_of_every_record():
    batch = write_batch([Record(timestamp=1), Record(timestamp=2)])
    BatchView(batch).stamp_append_time(77)
    view = BatchView(batch)
    assert view.crc_valid()
    assert view.is_log_append_time
    assert [record.timestamp for record in view.records()] == [77, 77]


@given(st.booleans(), st.integers(0, 2**31 - 1))
def test_a_marker_says_how_its_transaction_ended(commit, coordinator_epoch):
    batch = control_batch(9, 3, commit=commit, coordinator_epoch=coordinator_epoch, timestamp=1000)
    view = BatchView(batch)
    assert view.is_control
    assert view.is_transactional
    assert (view.producer_id, view.producer_epoch, view.base_sequence) == (9, 3, -1)
    assert end_marker(view) == EndMarker(commit, coordinator_epoch)


def test_compacted_batches_keep_offsets_range_and_horizon():
    rows = [Record(12, 500, b"a"), Record(17, 400, b"b")]
    batch = write_batch(rows, base_offset=10, last_offset=20, delete_horizon_ms=9000)
    view = BatchView(batch)
    assert view.has_delete_horizon
    assert view.base_timestamp == 9000
    assert view.next_offset == 21
    assert list(view.records()) == rows
    empty = BatchView(write_batch([], base_offset=10, last_offset=20, compression=4))
    assert empty.next_offset == 21
    assert list(empty.records()) == []


@given(st.lists(st.lists(records, min_size=1, max_size=3), max_size=5))
def test_batches_walks_every_batch_and_refuses_every_cut(groups):
    written = [write_batch(group) for group in groups]
    log = b"".join(written)
    views = list(batches(log))
    assert [bytes(view.raw()) for view in views] == [bytes(batch) for batch in written]
    ends = {view.position + view.size for view in views} | {0}
    for cut in range(len(log) + 1):
        if cut in ends:
            list(batches(log, 0, cut))
        else:
            with pytest.raises(CorruptBatch):
                list(batches(log, 0, cut))


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 2**31 - 1])
def test_a_senseless_batch_length_is_refused(length):
    batch = write_batch([Record()])
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(CorruptBatch):
        list(batches(batch))
    assert not BatchView(batch).crc_valid()


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_other_magics_are_named(magic):
    batch = write_batch([Record(value=b"x")])
    struct.pack_into(">b", batch, 16, magic)
    for buffer in (batch, batch[: HEADER_BYTES - 20]):
        with pytest.raises(UnsupportedMagic):
            list(batches(buffer))


@given(st.lists(records, min_size=1, max_size=3), st.data())
def test_a_flipped_bit_is_seen_by_the_crc(rows, data):
    batch = write_batch(rows)
    position = data.draw(st.integers(17, len(batch) - 1))
    batch[position] ^= 1 << data.draw(st.integers(0, 7))
    assert not BatchView(batch).crc_valid()


@pytest.mark.parametrize("change", [-1, 1, 2**31 - 3, -5])
def test_a_wrong_record_count_is_refused(change):
    batch = write_batch([Record(value=b"v")] * 2)
    struct.pack_into(">i", batch, 57, 2 + change)
    with pytest.raises(CorruptBatch):
        list(BatchView(batch).records())


def test_offsets_that_do_not_increase_are_refused():
    batch = write_batch([Record(), Record()])
    batch[-4] = 0  # the second record's offset delta
    assert BatchView(batch).last_offset_delta == 1
    with pytest.raises(CorruptBatch, match="offset delta 0 after 0"):
        list(BatchView(batch).records())
    with pytest.raises(ValueError, match="at least 6"):
        write_batch([Record(5), Record(5)], base_offset=5)


def test_header_names_that_are_not_utf8_survive():
    name = b"\xff\xfe".decode("utf-8", "surrogateescape")
    batch = write_batch([Record(headers=((name, b"1"),))])
    (record,) = BatchView(batch).records()
    assert write_batch([record]) == batch


@given(st.binary(max_size=200), st.integers(0, 2**31 - 1), st.integers(0, 7))
def test_random_bytes_as_records_raise_only_corrupt_batch(body, count, attributes):
    batch = write_batch([]) + body
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, attributes)
    struct.pack_into(">i", batch, 57, count)
    try:
        list(BatchView(batch).records())
    except CorruptBatch:
        return
    assert not body or count


def test_a_decompression_bomb_is_refused():
    for codec in (1, 2, 3, 4):
        batch = write_batch([Record(value=bytes(1 << 20))], compression=codec)
        with pytest.raises(CorruptBatch):
            list(BatchView(batch).records(max_bytes=1 << 19))
        assert len(list(BatchView(batch).records(max_bytes=1 << 21))) == 1


@given(st.lists(records, min_size=1, max_size=8), codecs)
def test_we_read_what_aiokafka_writes(rows, codec):
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 20)
    for index, row in enumerate(rows):
        builder.append(index, row.timestamp, row.key, row.value, list(row.headers))
    view = BatchView(bytes(builder.build()))
    assert view.crc_valid()
    assert list(view.records()) == numbered(rows)


def test_varints_without_end_are_refused():
    batch = write_batch([]) + b"\xff" * 20
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 57, 1)
    with pytest.raises(CorruptBatch, match="has no end"):
        list(BatchView(batch).records())


def changed(rows, position, value):
    batch = write_batch(rows)
    batch[position] = value
    return BatchView(batch)


@pytest.mark.parametrize("change", [-2, 2])
def test_a_record_length_that_does_not_fit_its_fields_is_refused(change):
    batch = write_batch([Record(value=b"v")] * 2)
    with pytest.raises(CorruptBatch, match="bytes off"):
        list(
            changed([Record(value=b"v")] * 2, HEADER_BYTES, batch[HEADER_BYTES] + change).records()
        )


def test_a_record_longer_than_the_batch_is_refused():
    with pytest.raises(CorruptBatch, match="record of 60 bytes, 7 are left"):
        list(changed([Record(value=b"v")], HEADER_BYTES, 120).records())


@pytest.mark.parametrize("count", [1, 3])
def test_negative_header_counts_and_field_lengths_are_refused(count):
    # The last byte is the header count, zigzag: 1 is -1, 3 is -2.
    with pytest.raises(CorruptBatch, match="headers"):
        list(changed([Record()], -1, count).records())
    with pytest.raises(CorruptBatch, match="field of -2"):
        list(changed([Record()], -2, 3).records())


def test_a_header_without_a_name_is_refused():
    batch = write_batch([Record(headers=(("", b""),))])
    batch[-2] = 1
    with pytest.raises(CorruptBatch, match="no name"):
        list(BatchView(batch).records())


_FIELD = st.none() | st.binary(max_size=200)


@given(_FIELD, _FIELD, st.integers(-1, 2**62), st.none() | st.just((7, 3)))
def test_one_record_is_written_as_a_batch_of_one(key, value, timestamp, transaction):
    producer_id, epoch = transaction or (-1, -1)
    plain = write_batch(
        [Record(0, timestamp, key, value)],
        producer_id=producer_id,
        producer_epoch=epoch,
        transactional=transaction is not None,
    )
    assert write_one(key, value, timestamp, transaction) == plain
