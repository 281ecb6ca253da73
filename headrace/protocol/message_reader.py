"""Readers of messages, made from schemas once per API and version."""

import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from headrace.protocol import schemas
from headrace.protocol.primitives import MAX_ELEMENTS, Buffer, Malformed, Reader
from headrace.protocol.schemas import FIXED, Message, Row, Shape, Struct

Fields = dict[str, Any]
ReadValue = Callable[["MessageReader"], Any]
ReadStep = Callable[["MessageReader", Fields], None]


class MessageReader(Reader):
    """A reader that also counts array elements, so that a small frame cannot unfold without end."""

    __slots__ = ("elements",)

    def __init__(self, buffer: Buffer, position: int = 0, end: int | None = None) -> None:
        super().__init__(buffer, position, end)
        self.elements = MAX_ELEMENTS

    def spend(self, elements: int) -> None:
        self.elements -= elements
        if self.elements < 0:
            raise Malformed(f"more than {MAX_ELEMENTS} array elements in one message")


@cache
def reader_of(api_key: int, version: int, request: bool) -> ReadValue:
    shape = schemas.shape_of(api_key, request=request)
    return _struct_reader(schemas.struct_of(api_key, version, request=request), shape)


def _struct_reader(layout: Struct, shape: Shape) -> ReadValue:
    rows, flexible = layout.rows, layout.is_flexible
    steps: list[ReadStep] = []
    for fixed, run in schemas.runs(rows):
        if fixed:
            steps.append(_fixed_read_step(run))
        else:
            steps.extend(_read_step(row, flexible, shape) for row in run)
    if flexible:
        tags = {row.tag: row for row in rows if row.tag is not None}
        steps.append(_tags_read_step(tags, shape))
    defaults = dict(shape.defaults)

    def read(reader: MessageReader) -> Message:
        fields = defaults.copy()
        for step in steps:
            step(reader, fields)
        message = Message()
        message.__dict__ = fields
        return message

    return read


def _fixed_read_step(run: list[Row]) -> ReadStep:
    packed = struct.Struct(">" + "".join(FIXED[row.kafka_type] for row in run))
    names = tuple(row.name for row in run)
    size, unpack_from = packed.size, packed.unpack_from

    def read(reader: MessageReader, fields: Fields) -> None:
        fields.update(zip(names, unpack_from(reader.buffer, reader.advance(size)), strict=True))

    return read


def _read_step(row: Row, flexible: bool, shape: Shape) -> ReadStep:
    name, read_value = row.name, _value_reader(row, flexible, shape)

    def read(reader: MessageReader, fields: Fields) -> None:
        fields[name] = read_value(reader)

    return read


def _tags_read_step(tags: Mapping[int, Row], shape: Shape) -> ReadStep:
    readers = {tag: (row.name, _value_reader(row, True, shape)) for tag, row in tags.items()}

    def read(reader: MessageReader, fields: Fields) -> None:
        count = reader.unsigned_varint()
        if not count:
            return
        reader.spend(count)
        for _ in range(count):
            tag = reader.unsigned_varint()
            size = reader.unsigned_varint()
            start = reader.advance(size)
            if tag in readers:
                name, read_value = readers[tag]
                reader.position = start
                fields[name] = read_value(reader)
                if reader.position != start + size:
                    raise Malformed(f"tagged field {name} is not {size} bytes long")

    return read


def _value_reader(row: Row, flexible: bool, shape: Shape) -> ReadValue:
    element = _element_reader(row, flexible, shape)
    if not row.is_array:
        if row.struct is not None and row.is_nullable:
            return _nullable_struct_reader(element)
        return element
    nullable = row.is_nullable
    length_of = Reader.compact_array_length if flexible else Reader.array_length

    def read(reader: MessageReader) -> Any:
        length = length_of(reader)
        if length is None:
            if nullable:
                return None
            raise Malformed(f"array {row.name} is null")
        reader.spend(length)
        return [element(reader) for _ in range(length)]

    return read


def _nullable_struct_reader(element: ReadValue) -> ReadValue:
    # KIP-893: a byte before the struct, negative for null.
    return lambda reader: element(reader) if reader.int8() >= 0 else None


_FIXED_READERS: Mapping[str, ReadValue] = {
    "?": Reader.boolean,
    "b": Reader.int8,
    "B": Reader.uint8,
    "h": Reader.int16,
    "H": Reader.uint16,
    "i": Reader.int32,
    "I": Reader.uint32,
    "q": Reader.int64,
    "d": Reader.float64,
}
# by kafka type, flexible, nullable
_SIZED_READERS: Mapping[tuple[str, bool, bool], ReadValue] = {
    ("string", False, False): Reader.string,
    ("string", False, True): Reader.nullable_string,
    ("string", True, False): Reader.compact_string,
    ("string", True, True): Reader.compact_nullable_string,
    ("bytes", False, False): Reader.sized_bytes,
    ("bytes", False, True): Reader.nullable_bytes,
    ("bytes", True, False): Reader.compact_bytes,
    ("bytes", True, True): Reader.compact_nullable_bytes,
}


def _element_reader(row: Row, flexible: bool, shape: Shape) -> ReadValue:
    if row.struct is not None:
        return _struct_reader(row.struct, shape.nested[row.name])
    if row.kafka_type == "uuid":
        return Reader.uuid
    if row.kafka_type in FIXED:
        return _FIXED_READERS[FIXED[row.kafka_type]]
    kind = "bytes" if row.kafka_type == "records" else row.kafka_type
    return _SIZED_READERS[kind, flexible, row.is_nullable and not row.is_array]
