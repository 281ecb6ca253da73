import io
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import writers

from headrace.protocol.primitives import (
    ZERO_UUID,
    Malformed,
    Reader,
    Writer,
    unsigned_varint,
    varint,
    varlong,
)


def signed(bits):
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


VALUES = {
    "int8": signed(8),
    "uint8": st.integers(0, 255),
    "boolean": st.booleans(),
    "int16": signed(16),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": signed(32),
    "uint32": st.integers(0, 2**32 - 1),
    "int64": signed(64),
    "float64": st.floats(allow_nan=False),
    "unsigned_varint": st.integers(0, 2**32 - 1),
    "varint": signed(32),
    "varlong": signed(64),
    "uuid": st.uuids() | st.just(ZERO_UUID),
    "string": st.text(max_size=300),
    "nullable_string": st.none() | st.text(max_size=300),
    "compact_string": st.text(max_size=300),
    "sized_bytes": st.binary(max_size=300),
    "compact_bytes": st.binary(max_size=300),
}
KIO: dict[str, Any] = {
    "int8": writers.write_int8,
    "int16": writers.write_int16,
    "uint16": writers.write_uint16,
    "int32": writers.write_int32,
    "uint32": writers.write_uint32,
    "int64": writers.write_int64,
    "float64": writers.write_float64,
    "boolean": writers.write_boolean,
    "unsigned_varint": writers.write_unsigned_varint,
    "uuid": writers.write_uuid,
    "string": writers.write_legacy_string,
    "nullable_string": writers.write_nullable_legacy_string,
    "compact_string": writers.write_compact_string,
    "sized_bytes": writers.write_legacy_bytes,
}


@given(st.data())
def test_primitives_written_one_after_the_other_are_read_back(data):
    kinds = data.draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=8))
    values = [data.draw(VALUES[kind]) for kind in kinds]
    writer = Writer()
    for kind, value in zip(kinds, values, strict=True):
        getattr(writer, kind)(value)
    reader = Reader(memoryview(writer.getvalue()))
    assert [getattr(reader, kind)() for kind in kinds] == values
    assert reader.remaining == 0


@pytest.mark.parametrize("kind", sorted(KIO))
def test_primitives_are_kios_bytes(kind):
    @given(VALUES[kind])
    def check(value):
        out = io.BytesIO()
        KIO[kind](out, value)
        writer = Writer()
        getattr(writer, kind)(value)
        assert writer.getvalue() == out.getvalue()

    check()


@pytest.mark.parametrize("kind", sorted(VALUES))
def test_a_cut_value_is_refused(kind):
    @given(VALUES[kind])
    def check(value):
        writer = Writer()
        getattr(writer, kind)(value)
        body = writer.getvalue()
        for cut in range(len(body)):
            with pytest.raises(Malformed):
                getattr(Reader(body, 0, cut), kind)()

    check()


def test_nulls_are_told_from_empty_values():
    writer = Writer()
    writer.sized_bytes(None)
    writer.sized_bytes(b"")
    writer.compact_bytes(None)
    writer.compact_bytes(b"")
    writer.compact_string(None)
    writer.compact_string("")
    writer.array(None, writer.int8)
    writer.array([], writer.int8)
    writer.compact_array(None, writer.int8)
    writer.compact_array([], writer.int8)
    reader = Reader(writer.getvalue())
    read = [
        reader.nullable_bytes(),
        reader.nullable_bytes(),
        reader.compact_nullable_bytes(),
        reader.compact_nullable_bytes(),
        reader.compact_nullable_string(),
        reader.compact_nullable_string(),
        reader.array(reader.int8),
        reader.array(reader.int8),
        reader.compact_array(reader.int8),
        reader.compact_array(reader.int8),
    ]
    assert read == [None, b"", None, b"", None, "", None, [], None, []]


@given(st.lists(signed(16), max_size=200))
def test_arrays_are_read_back(values):
    writer = Writer()
    writer.array(values, writer.int16)
    writer.compact_array(values, writer.int16)
    reader = Reader(writer.getvalue())
    assert reader.array(reader.int16) == values
    assert reader.compact_array(reader.int16) == values


@given(st.dictionaries(st.integers(0, 300), st.binary(max_size=200), max_size=5))
def test_tagged_fields_are_written_in_order_and_read_back(fields):
    writer = Writer()
    writer.tagged_fields(fields.items())
    read = Reader(writer.getvalue()).tagged_fields()
    assert read == fields
    assert list(read) == sorted(fields)


@pytest.mark.parametrize("length", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x80\x00\x00\x00"])
def test_lengths_that_lie_are_refused(length):
    for read in (Reader.sized_bytes, Reader.nullable_bytes, Reader.array_length):
        with pytest.raises(Malformed):
            read(Reader(length + bytes(20)))


def test_null_where_none_may_be_is_refused():
    for read, body in (
        (Reader.string, b"\xff\xff"),
        (Reader.sized_bytes, b"\xff\xff\xff\xff"),
        (Reader.compact_string, b"\x00"),
        (Reader.compact_bytes, b"\x00"),
    ):
        with pytest.raises(Malformed):
            read(Reader(body))


def test_varints_without_end_are_refused():
    for read in (Reader.unsigned_varint, Reader.varint, Reader.varlong):
        with pytest.raises(Malformed):
            read(Reader(b"\x80" * 30))


@pytest.mark.parametrize(
    ("write", "value"),
    [(unsigned_varint, -1), (varint, 2**31), (varint, -(2**31) - 1), (varlong, 2**63)],
)
def test_values_too_large_are_not_written(write, value):
    with pytest.raises(ValueError, match="does not fit"):
        write(value)


def test_a_uuid_of_none_is_zero():
    writer = Writer()
    writer.uuid(None)
    assert Reader(writer.getvalue()).uuid() == UUID(int=0)
