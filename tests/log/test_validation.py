import struct

import cramjam
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ErrorCode, KafkaError
from headrace.log.origin import Origin
from headrace.log.settings import DEFAULTS, TopicSettings, validate_overrides
from headrace.log.validation import MAX_RECORD_ERRORS, InvalidRecords, validate
from headrace.protocol.produce import RecordError
from headrace.protocol.records import BatchView, Record, control_batch, write_batch

NOW = 1_700_000_000_000
LENGTH, MAGIC, CRC, ATTRIBUTES, DELTA, MAX_TIMESTAMP, COUNT = 8, 16, 17, 21, 23, 35, 57


def batch(count=2, *, key=b"k", timestamp=NOW, **fields):
    return write_batch(
        [Record(timestamp=timestamp, key=key, value=b"value%d" % n) for n in range(count)], **fields
    )


def put(content, layout, position, value, *, fix=True):
    """A copy with one field changed, and the checksum made right again unless told not to."""
    changed = bytearray(content)
    struct.pack_into(layout, changed, position, value)
    if fix:
        struct.pack_into(">I", changed, CRC, crc32c(bytes(changed[ATTRIBUTES:])))
    return changed


def check(content, origin=Origin.CLIENT, **overrides):
    settings = validate_overrides(
        {name.replace("_", "."): text for name, text in overrides.items()}
    )
    return validate(memoryview(content), settings=settings, now_ms=NOW, origin=origin)


def refusal(content, **overrides):
    before = bytes(content)
    with pytest.raises(KafkaError) as error:
        check(content, **overrides)
    assert bytes(content) == before, "a refused batch was changed"
    return error.value.code


INVALID = ErrorCode.INVALID_RECORD
CORRUPT = ErrorCode.CORRUPT_MESSAGE

# The codes that Apache Kafka 4.3.1 answers to each of these.
REFUSED_BY_KAFKA = {
    "nothing": (b"", INVALID),
    "magic 0": (put(batch(), ">b", MAGIC, 0), INVALID),
    "magic 1": (put(batch(), ">b", MAGIC, 1), INVALID),
    "magic 3": (put(batch(), ">b", MAGIC, 3), CORRUPT),
    "magic -1": (put(batch(), ">b", MAGIC, -1), CORRUPT),
    "a wrong checksum": (put(batch(), ">I", CRC, 5, fix=False), CORRUPT),
    "base offset 5": (put(batch(), ">q", 0, 5, fix=False), INVALID),
    "delta 5, count 2": (put(batch(), ">i", DELTA, 5), INVALID),
    "delta -1": (put(batch(), ">i", DELTA, -1), INVALID),
    "count 0": (put(batch(), ">i", COUNT, 0), INVALID),
    "count -1, delta -2": (put(put(batch(), ">i", COUNT, -1), ">i", DELTA, -2), INVALID),
    "two records said to be one": (put(put(batch(), ">i", COUNT, 1), ">i", DELTA, 0), INVALID),
    "a control batch": (put(batch(), ">h", ATTRIBUTES, 0x20), INVALID),
    "two batches": (batch() + batch(), INVALID),
    "a cut batch": (batch()[:-3], INVALID),
    "half a header": (batch()[:30], INVALID),
    "length -1": (put(batch(), ">i", LENGTH, -1, fix=False), CORRUPT),
    "length 10": (put(batch(), ">i", LENGTH, 10, fix=False), CORRUPT),
    "a producer without a sequence": (
        batch(producer_id=5, producer_epoch=0, base_sequence=-1),
        INVALID,
    ),
}
# Here Kafka says UNKNOWN_SERVER_ERROR, after an exception of its own; we say what is wrong.
REFUSED_MORE_CLEARLY = {
    "codec 5": (put(batch(), ">h", ATTRIBUTES, 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "codec 7": (put(batch(), ">h", ATTRIBUTES, 7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "no gzip": (put(batch(), ">h", ATTRIBUTES, 1), INVALID),
    "no snappy": (put(batch(9), ">h", ATTRIBUTES, 2), INVALID),
    "no lz4": (put(batch(), ">h", ATTRIBUTES, 3), INVALID),
    "no zstd": (put(batch(), ">h", ATTRIBUTES, 4), INVALID),
    "length 2^31-1": (put(batch(), ">i", LENGTH, 2**31 - 1, fix=False), INVALID),
    "a header that ends early": (put(batch()[:50], ">i", LENGTH, 38, fix=False), CORRUPT),
    "bytes after the batch": (batch() + b"xxxxx", INVALID),
    "more records than bytes": (put(put(batch(), ">i", COUNT, 9), ">i", DELTA, 8), INVALID),
    "a first record longer than the batch": (put(batch(), ">B", 61, 0x7E), INVALID),
    "a first record of negative length": (put(batch(), ">B", 61, 0x01), INVALID),
}


@pytest.mark.parametrize("case", sorted(REFUSED_BY_KAFKA | REFUSED_MORE_CLEARLY))
def test_what_is_no_proper_batch_is_refused(case):
    content, code = (REFUSED_BY_KAFKA | REFUSED_MORE_CLEARLY)[case]
    assert refusal(content) is code


@given(st.data())
def test_random_bytes_and_cut_or_flipped_batches_are_refused_and_nothing_else_happens(data):
    content = bytearray(batch(3, compression=data.draw(st.sampled_from([0, 1, 2, 3, 4]))))
    how = data.draw(st.sampled_from(["random", "cut", "flip"]))
    if how == "random":
        content = bytearray(data.draw(st.binary(max_size=200)))
    elif how == "cut":
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        # The leader epoch is the broker's to write: whatever a client puts there is no matter.
        at = data.draw(st.integers(0, len(content) - 1).filter(lambda at: not 12 <= at < 16))
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    refusal(content)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("count", [1, 2, 50])
def test_a_good_batch_is_the_same_memory(codec, count):
    content = batch(count, compression=codec)
    before = bytes(content)
    validated = check(content)
    assert validated.buffer.obj is content
    assert bytes(content) == before
    assert [it.record_count for it in validated.batches] == [count]
    assert validated.log_append_time_ms == -1


def test_the_usual_batch_is_not_decoded(monkeypatch):
    monkeypatch.setattr(BatchView, "records", None)
    for codec in range(5):
        check(batch(3, compression=codec))
        check(batch(3, compression=codec), message_timestamp_type="LogAppendTime")


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=20), st.integers(1, 200))
def test_snappy_without_a_frame_is_taken_as_kafka_takes_it(values, repeat):
    plain = write_batch([Record(timestamp=NOW, value=it * repeat) for it in values])
    content = bytearray(plain[:61] + bytes(cramjam.snappy.compress_raw(bytes(plain[61:]))))
    content = put(content, ">i", LENGTH, len(content) - 12)
    content = put(content, ">h", ATTRIBUTES, 2)
    [view] = check(content, max_message_bytes="10000000").batches
    assert [row.value for row in view.records()] == [it * repeat for it in values]


def test_one_long_record_needs_a_longer_varint():
    for size in (50, 70, 9000, 2_000_000):
        content = write_batch([Record(timestamp=NOW, value=b"v" * size)])
        check(content, max_message_bytes="10000000")
        torn = put(put(content, ">i", COUNT, 2), ">i", DELTA, 1)
        assert refusal(torn, max_message_bytes="10000000") is INVALID


def test_size_counts_as_stored_and_before_the_checksum():
    content = put(batch(50), ">I", CRC, 5, fix=False)
    assert refusal(content, max_message_bytes="300") is ErrorCode.MESSAGE_TOO_LARGE
    packed = write_batch([Record(timestamp=NOW, value=b"v" * 2000)], compression=1)
    check(packed, max_message_bytes="300")
    code = refusal(packed, max_message_bytes="300", compression_type="uncompressed")
    assert code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_larger_than_a_segment_is_refused():
    code = refusal(batch(50), internal_segment_bytes="300")
    assert code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_compacted_topics_need_keys_and_each_record_without_one_is_named():
    rows = [Record(timestamp=NOW, key=key, value=b"v") for key in (b"k", None, b"", None)]
    with pytest.raises(InvalidRecords) as error:
        check(write_batch(rows), cleanup_policy="compact")
    assert error.value.code is INVALID
    assert [it.batch_index for it in error.value.record_errors] == [1, 3]
    check(write_batch(rows))
    check(batch(3), cleanup_policy="compact,delete")


def test_a_compacted_topic_finds_records_that_lie_about_their_place():
    content = put(put(batch(3), ">i", COUNT, 2), ">i", DELTA, 1)
    assert refusal(content, cleanup_policy="compact") is INVALID
    wrong = write_batch([Record(5, NOW, b"k", b"v")], base_offset=0)
    wrong = put(put(wrong, ">i", COUNT, 1), ">i", DELTA, 0)
    assert refusal(wrong, cleanup_policy="compact") is INVALID


def test_refused_records_are_named_up_to_a_limit():
    with pytest.raises(InvalidRecords) as error:
        check(batch(MAX_RECORD_ERRORS + 5, key=None), cleanup_policy="compact")
    assert len(error.value.record_errors) == MAX_RECORD_ERRORS


@pytest.mark.parametrize(
    ("timestamp", "overrides", "taken"),
    [
        (NOW + 3_600_000, {}, True),
        (NOW + 3_600_001, {}, False),
        (-1, {"message_timestamp_before_max_ms": "1000"}, True),
        (NOW - 1000, {"message_timestamp_before_max_ms": "1000"}, True),
        (NOW - 1001, {"message_timestamp_before_max_ms": "1000"}, False),
        (0, {}, True),
        (NOW + 9_000_000, {"message_timestamp_type": "LogAppendTime"}, True),
    ],
)
def test_timestamps_keep_their_bounds(timestamp, overrides, taken):
    content = batch(timestamp=timestamp)
    if taken:
        check(content, **overrides)
        return
    with pytest.raises(InvalidRecords) as error:
        check(content, **overrides)
    assert error.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [it.batch_index for it in error.value.record_errors] == [0, 1]


def test_only_the_record_out_of_bounds_is_named():
    rows = [Record(timestamp=NOW + skew, value=b"v") for skew in (0, 9_000_000)]
    with pytest.raises(InvalidRecords) as error:
        check(write_batch(rows))
    [fault] = error.value.record_errors
    assert isinstance(fault, RecordError)
    assert fault.batch_index == 1
    assert str(NOW + 9_000_000) in (fault.message or "")


def test_a_header_that_claims_a_far_future_is_set_right_by_its_records():
    content = put(batch(), ">q", MAX_TIMESTAMP, NOW + 10**9)
    [view] = check(content).batches
    assert view.max_timestamp == NOW
    assert view.crc_valid()
    assert [row.value for row in view.records()] == [b"value0", b"value1"]


def test_append_time_is_stamped_under_a_right_checksum():
    content = batch(compression=3, producer_id=7, producer_epoch=1, base_sequence=4)
    validated = check(content, message_timestamp_type="LogAppendTime")
    [view] = validated.batches
    assert validated.log_append_time_ms == NOW
    assert view.crc_valid()
    assert BatchView(content).is_log_append_time
    assert {row.timestamp for row in BatchView(content).records()} == {NOW}
    assert (view.producer_id, view.base_sequence) == (7, 4)


def test_memory_that_cannot_be_written_is_copied_to_be_stamped():
    content = bytes(batch())
    validated = check(content, message_timestamp_type="LogAppendTime")
    assert bytes(validated.buffer) != content
    assert validated.batches[0].crc_valid()


def test_a_client_may_not_stamp_append_times_itself():
    content = put(batch(), ">h", ATTRIBUTES, 0x08)
    with pytest.raises(InvalidRecords) as error:
        check(content, message_timestamp_type="LogAppendTime")
    assert error.value.code is ErrorCode.INVALID_TIMESTAMP
    [view] = check(content).batches
    assert not view.is_log_append_time
    assert view.crc_valid()


CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@given(
    st.sampled_from(range(5)),
    st.sampled_from(sorted(CODECS)),
    st.lists(
        st.tuples(
            st.integers(0, NOW),
            st.none() | st.binary(max_size=9),
            st.none() | st.binary(max_size=99),
            st.lists(st.tuples(st.text("ab", max_size=3), st.none() | st.binary(max_size=3))),
        ),
        min_size=1,
        max_size=20,
    ),
    st.booleans(),
    st.booleans(),
)
def test_a_topics_codec_changes_the_bytes_and_nothing_else(
    codec, kind, rows, transactional, append_time
):
    sent = [Record(-1, ts, key, value, tuple(headers)) for ts, key, value, headers in rows]
    content = write_batch(
        sent,
        compression=codec,
        producer_id=9,
        producer_epoch=2,
        base_sequence=30,
        transactional=transactional,
    )
    time = "LogAppendTime" if append_time else "CreateTime"
    validated = check(content, compression_type=kind, message_timestamp_type=time)
    [view] = validated.batches
    assert view.compression == CODECS[kind]
    assert view.crc_valid()
    assert len(validated.buffer) == view.size
    assert (view.producer_id, view.producer_epoch, view.base_sequence) == (9, 2, 30)
    assert view.is_transactional == transactional
    assert view.is_log_append_time == append_time
    written = list(view.records())
    assert [row[2:] for row in written] == [row[2:] for row in sent]
    assert [row.offset for row in written] == list(range(len(sent)))
    times = [NOW] * len(sent) if append_time else [row.timestamp for row in sent]
    assert [row.timestamp for row in written] == times
    assert view.max_timestamp == max(times)


def test_a_decompression_bomb_is_refused_where_it_would_be_opened(monkeypatch):
    content = write_batch([Record(timestamp=NOW, key=b"k", value=bytes(4_000_000))], compression=4)
    monkeypatch.setattr(
        BatchView.records, "__kwdefaults__", {"max_bytes": 1_000_000}, raising=False
    )
    assert refusal(content, cleanup_policy="compact") is INVALID


def test_a_coordinators_markers_and_several_batches_are_taken_as_they_are():
    content = control_batch(1, 0, commit=True, coordinator_epoch=0, timestamp=NOW) + batch()
    validated = check(content, Origin.COORDINATOR, cleanup_policy="compact")
    assert [it.is_control for it in validated.batches] == [True, False]
    assert validated.buffer.obj is content


def test_a_coordinators_batches_still_have_a_size_and_a_checksum():
    with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
        check(batch(50), Origin.COORDINATOR, max_message_bytes="300")
    for content in (put(batch(), ">I", CRC, 5, fix=False), batch()[:-1]):
        with pytest.raises(KafkaError, match="CORRUPT_MESSAGE"):
            check(content, Origin.COORDINATOR)


def test_the_defaults_leave_the_hot_path_open():
    assert not DEFAULTS.compacted
    assert not DEFAULTS.append_time
    assert TopicSettings(cleanup_policy=("compact",)).compacted
