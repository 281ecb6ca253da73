"""Writers of messages, made from schemas once per API and version."""

import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from headrace.protocol import schemas
from headrace.protocol.primitives import ZERO_UUID, Writer
from headrace.protocol.schemas import FIXED, Message, Row, Shape, Struct

Fields = dict[str, Any]
WriteValue = Callable[[Writer, Any], None]
WriteStep = Callable[[Writer, Fields], None]


class Packed(NamedTuple):
    """Elements of an array that are written already, for answers that are long and often given."""

    length: int
    content: bytes


@cache
def element_writer_of(api_key: int, version: int, array: str) -> WriteValue:
    """What writes one element of an array at the top of a response."""
    layout = schemas.struct_of(api_key, version, request=False)
    row = next(row for row in layout.rows if row.name == array)
    return _element_writer(row, layout.is_flexible, schemas.shape_of(api_key, request=False))


@cache
def writer_of(api_key: int, version: int, request: bool) -> WriteValue:
    shape = schemas.shape_of(api_key, request=request)
    return _struct_writer(schemas.struct_of(api_key, version, request=request), shape)


def _struct_writer(layout: Struct, shape: Shape) -> WriteValue:
    rows, flexible = layout.rows, layout.is_flexible
    steps: list[WriteStep] = []
    for fixed, run in schemas.runs(rows):
        if fixed:
            steps.append(_fixed_write_step(run))
        else:
            steps.extend(_write_step(row, flexible, shape) for row in run)
    if flexible:
        tags = {row.tag: row for row in rows if row.tag is not None}
        steps.append(_tags_write_step(tags, shape))
    known = shape.defaults.keys()

    def write(writer: Writer, message: Message) -> None:
        fields = message.__dict__
        if not fields.keys() <= known:
            unknown = ", ".join(sorted(fields.keys() - known))
            raise AttributeError(f"no version of {layout.name} has the field {unknown}")
        for step in steps:
            step(writer, fields)

    return write


def _fixed_write_step(run: list[Row]) -> WriteStep:
    pack = struct.Struct(">" + "".join(FIXED[row.kafka_type] for row in run)).pack
    defaults = tuple((row.name, row.default) for row in run)

    def write(writer: Writer, fields: Fields) -> None:
        get = fields.get
        writer.buffer += pack(*[get(name, default) for name, default in defaults])

    return write


def _write_step(row: Row, flexible: bool, shape: Shape) -> WriteStep:
    name, default = row.name, row.default
    write_value = _value_writer(row, flexible, shape)

    def write(writer: Writer, fields: Fields) -> None:
        write_value(writer, fields.get(name, default))

    return write


def _tags_write_step(tags: Mapping[int, Row], shape: Shape) -> WriteStep:
    if not tags:
        return lambda writer, fields: writer.buffer.append(0)
    encoders = []
    for tag, row in tags.items():
        encode = _encoder(_value_writer(row, True, shape))
        encoders.append((tag, row.name, encode, encode(row.default)))

    def write(writer: Writer, fields: Fields) -> None:
        present = []
        for tag, name, encode, absent in encoders:
            # A default is left out, as Kafka does; names that were not given cost nothing.
            if name in fields and (encoded := encode(fields[name])) != absent:
                present.append((tag, encoded))
        writer.tagged_fields(present)

    return write


def _encoder(write_value: WriteValue) -> Callable[[Any], bytes]:
    def encode(value: Any) -> bytes:
        writer = Writer()
        write_value(writer, value)
        return writer.getvalue()

    return encode


def _value_writer(row: Row, flexible: bool, shape: Shape) -> WriteValue:
    element = _element_writer(row, flexible, shape)
    if not row.is_array:
        if row.struct is not None and row.is_nullable:
            return _nullable_struct_writer(element)
        return element if row.is_nullable else _required(row, element, shape)
    write_length = _write_compact_length if flexible else Writer.int32

    def write(writer: Writer, items: Any) -> None:
        if type(items) is Packed:
            write_length(writer, items.length)
            writer.buffer += items.content
            return
        write_length(writer, len(items))
        for item in items:
            element(writer, item)

    if not row.is_nullable:
        return _required(row, write, shape)

    def write_nullable(writer: Writer, items: Any) -> None:
        if items is None:
            write_length(writer, -1)
        else:
            write(writer, items)

    return write_nullable


def _write_compact_length(writer: Writer, length: int) -> None:
    writer.unsigned_varint(length + 1)


_EMPTY = {"string": "", "bytes": b"", "records": b"", "uuid": ZERO_UUID}


def _required(row: Row, write_value: WriteValue, shape: Shape) -> WriteValue:
    """None is written as empty where only newer versions know null; elsewhere it is an error."""
    if row.struct is not None and not row.is_array:
        return write_value
    empty: Any = () if row.is_array else _EMPTY.get(row.kafka_type)
    lenient = row.name in shape.nullable or row.kafka_type == "uuid"

    def write(writer: Writer, value: Any) -> None:
        if value is None:
            if not lenient:
                raise ValueError(f"{row.name} must not be None")
            value = empty
        write_value(writer, value)

    return write


def _nullable_struct_writer(element: WriteValue) -> WriteValue:
    def write(writer: Writer, value: Any) -> None:
        if value is None:
            writer.int8(-1)
        else:
            writer.int8(1)
            element(writer, value)

    return write


_FIXED_WRITERS: Mapping[str, WriteValue] = {
    "?": Writer.boolean,
    "b": Writer.int8,
    "B": Writer.uint8,
    "h": Writer.int16,
    "H": Writer.uint16,
    "i": Writer.int32,
    "I": Writer.uint32,
    "q": Writer.int64,
    "d": Writer.float64,
}
# by kafka type and flexible
_SIZED_WRITERS: Mapping[tuple[str, bool], WriteValue] = {
    ("string", False): Writer.nullable_string,
    ("string", True): Writer.compact_string,
    ("bytes", False): Writer.sized_bytes,
    ("bytes", True): Writer.compact_bytes,
}


def _element_writer(row: Row, flexible: bool, shape: Shape) -> WriteValue:
    if row.struct is not None:
        return _struct_writer(row.struct, shape.nested[row.name])
    if row.kafka_type == "uuid":
        return Writer.uuid
    if row.kafka_type in FIXED:
        return _FIXED_WRITERS[FIXED[row.kafka_type]]
    kind = "bytes" if row.kafka_type == "records" else row.kafka_type
    return _SIZED_WRITERS[kind, flexible]
