import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.record_input import JsonLines, TextLines, header
from headrace.cli.record_output import json_line, plain, template
from headrace.client.consumer import Received
from headrace.client.producer import NewRecord

contents = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
header_names = st.text(st.characters(codec="utf-8"), max_size=8)
received = st.builds(
    Received,
    topic=st.sampled_from(["orders", "t.1"]),
    partition=st.integers(0, 1_000),
    offset=st.integers(0, 2**62),
    timestamp_ms=st.integers(0, 2**50),
    timestamp_type=st.sampled_from(["create", "append"]),
    key=contents,
    value=contents,
    headers=st.lists(st.tuples(header_names, contents), max_size=3).map(tuple),
)
RECORD = Received(
    "orders", 2, 17, 1_705_276_800_000, "create", b"k", b"v", (("a", b"1"), ("b", None))
)


@given(received)
def test_json_written_by_consume_is_read_by_produce_as_the_same_record(record: Received) -> None:
    line = json_line(record)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert JsonLines()(line) == NewRecord(
        record.value, record.key, record.headers, record.partition, record.timestamp_ms
    )


@given(st.binary(max_size=10), st.binary(max_size=10))
def test_a_text_line_is_split_at_the_first_separator(key: bytes, value: bytes) -> None:
    record = TextLines(key_separator=b"=>")(key.replace(b"=>", b"") + b"=>" + value)
    joined = (record.key or b"") + b"=>" + (record.value or b"")
    assert joined == key.replace(b"=>", b"") + b"=>" + value
    assert b"=>" not in (record.key or b"")


def test_a_line_without_the_separator_is_refused() -> None:
    with pytest.raises(ValueError, match="no key separator ':'"):
        TextLines(key_separator=b":")(b"plain")


def test_without_a_separator_the_line_is_the_value() -> None:
    assert TextLines()(b"a:b") == NewRecord(b"a:b")


def test_the_null_marker_makes_a_tombstone() -> None:
    record = TextLines(key_separator=b":", null_marker=b"NULL")(b"user:NULL")
    assert (record.key, record.value) == (b"user", None)


def test_json_values_that_are_not_text_are_written_as_json() -> None:
    record = JsonLines()(b'{"key": 42, "value": {"amount": 1.5, "name": "\xc3\xa9"}}')
    assert record.key == b"42"
    assert json.loads(record.value or b"") == {"amount": 1.5, "name": "é"}


def test_a_json_record_names_its_partition_time_and_headers() -> None:
    record = JsonLines(headers=(("source", b"cli"),))(
        b'{"value": "v", "partition": 3, "timestamp": "2024-01-15T00:00:00Z", '
        b'"headers": {"a": "b"}}'
    )
    expected = (("source", b"cli"), ("a", b"b"))
    assert record == NewRecord(b"v", None, expected, 3, 1_705_276_800_000)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"vlaue": 1}', "unknown field 'vlaue'"),
        (b'{"value": "a", "value_base64": "YQ=="}', "both value and value_base64"),
        (b'{"value_base64": "*"}', "is not base64"),
        (b'{"partition": -1}', "not a whole number"),
        (b'{"partition": true}', "not a whole number"),
        (b'{"timestamp": "soon"}', "is not a time"),
        (b'{"timestamp": 1.5}', "neither milliseconds"),
        (b'{"headers": 1}', "neither an object nor a list"),
        (b'{"headers": [["a"]]}', "is not \\[name, value\\]"),
    ],
)
def test_a_bad_json_line_says_what_is_wrong(line: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        JsonLines()(line)


def test_a_header_option_is_a_name_with_or_without_a_value() -> None:
    assert header("a=b=c") == ("a", b"b=c")
    assert header("a=") == ("a", b"")
    assert header("a") == ("a", None)
    with pytest.raises(ValueError, match="is not name=value"):
        header("=b")


def test_the_plain_form_is_that_of_kafkas_console_consumer() -> None:
    everything = plain(("timestamp", "partition", "offset", "headers", "key"))
    assert (
        everything(RECORD)
        == b"CreateTime:1705276800000\tPartition:2\tOffset:17\ta:1,b:null\tk\tv\n"
    )
    bare = RECORD._replace(headers=(), key=None, value=None)
    assert plain(("headers", "key"))(bare) == b"NO_HEADERS\tnull\tnull\n"
    assert plain(())(RECORD) == b"v\n"


def test_a_template_fills_in_fields_and_escapes() -> None:
    form = template(r"{topic}-{partition}@{offset}\t{time} {key}={value} \{x} {headers}\n")
    expected = b"orders-2@17\t2024-01-15T00:00:00.000Z k=v {x} a:1,b:null\n"
    assert form(RECORD) == expected


@pytest.mark.parametrize("text", ["{vlaue}", "{}", "{"])
def test_a_template_with_an_unknown_field_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="unknown field"):
        template(text)
