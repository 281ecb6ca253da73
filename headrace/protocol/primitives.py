"""Kafka's primitive types, read from and written to plain buffers.

Fixed-width integers are big-endian. A varint holds seven bits a byte, low bits first; signed ones
are zigzag-encoded (record fields), unsigned ones are not (compact lengths). "Compact" types store
length + 1, so that 0 can mean null.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar
from uuid import UUID

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview

ZERO_UUID = UUID(int=0)

# Array elements of one message: a bound on what a frame of a few megabytes may unfold to.
MAX_ELEMENTS: Final = 500_000

_INT16 = struct.Struct(">h")
_UINT16 = struct.Struct(">H")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT64 = struct.Struct(">q")
_FLOAT64 = struct.Struct(">d")

# Most compact lengths fit one byte; a table spares the loop.
_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


class Malformed(ValueError):
    """The bytes are not what their schema says; nothing was allocated on their word."""


def unsigned_varint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    if not 0 <= value < 1 << 64:
        raise ValueError(f"{value} does not fit an unsigned varint")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """A zigzag varint of 32 bits."""
    if not -(1 << 31) <= value < 1 << 31:
        raise ValueError(f"{value} does not fit 32 bits")
    return unsigned_varint((value << 1) ^ (value >> 31))


def varlong(value: int) -> bytes:
    """A zigzag varint of 64 bits."""
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{value} does not fit 64 bits")
    return unsigned_varint((value << 1) ^ (value >> 63))


class Writer:
    """Appends primitives to one growing buffer; every method returns nothing."""

    __slots__ = ("buffer",)

    def __init__(self, buffer: bytearray | None = None) -> None:
        self.buffer = bytearray() if buffer is None else buffer

    def getvalue(self) -> bytes:
        return bytes(self.buffer)

    def int8(self, value: int) -> None:
        self.buffer += value.to_bytes(1, "big", signed=True)

    def uint8(self, value: int) -> None:
        self.buffer.append(value)

    def boolean(self, value: bool) -> None:
        self.buffer.append(1 if value else 0)

    def int16(self, value: int) -> None:
        self.buffer += _INT16.pack(value)

    def uint16(self, value: int) -> None:
        self.buffer += _UINT16.pack(value)

    def int32(self, value: int) -> None:
        self.buffer += _INT32.pack(value)

    def uint32(self, value: int) -> None:
        self.buffer += _UINT32.pack(value)

    def int64(self, value: int) -> None:
        self.buffer += _INT64.pack(value)

    def float64(self, value: float) -> None:
        self.buffer += _FLOAT64.pack(value)

    def unsigned_varint(self, value: int) -> None:
        self.buffer += unsigned_varint(value)

    def varint(self, value: int) -> None:
        self.buffer += varint(value)

    def varlong(self, value: int) -> None:
        self.buffer += varlong(value)

    def uuid(self, value: UUID | None) -> None:
        self.buffer += (value or ZERO_UUID).bytes

    def raw(self, value: Buffer) -> None:
        self.buffer += value

    def string(self, value: str) -> None:
        self.nullable_string(value)

    def nullable_string(self, value: str | None) -> None:
        if value is None:
            self.buffer += b"\xff\xff"
            return
        encoded = value.encode()
        self.buffer += _INT16.pack(len(encoded))
        self.buffer += encoded

    def compact_string(self, value: str | None) -> None:
        self.compact_bytes(None if value is None else value.encode())

    def sized_bytes(self, value: Buffer | None) -> None:
        if value is None:
            self.buffer += b"\xff\xff\xff\xff"
            return
        self.buffer += _INT32.pack(len(value))
        self.buffer += value

    def compact_bytes(self, value: Buffer | None) -> None:
        if value is None:
            self.buffer.append(0)
            return
        self.buffer += unsigned_varint(len(value) + 1)
        self.buffer += value

    def array(self, items: Sequence[T] | None, write: Callable[[T], None]) -> None:
        """``write`` is called with each item, and is usually a method of this writer."""
        if items is None:
            self.int32(-1)
            return
        self.int32(len(items))
        for item in items:
            write(item)

    def compact_array(self, items: Sequence[T] | None, write: Callable[[T], None]) -> None:
        if items is None:
            self.buffer.append(0)
            return
        self.unsigned_varint(len(items) + 1)
        for item in items:
            write(item)

    def tagged_fields(self, fields: Iterable[tuple[int, Buffer]] = ()) -> None:
        ordered = sorted(fields, key=lambda field: field[0])
        self.unsigned_varint(len(ordered))
        for tag, value in ordered:
            self.unsigned_varint(tag)
            self.unsigned_varint(len(value))
            self.buffer += value


class Reader:
    """Reads primitives from ``buffer[position:end]``; whatever does not fit raises Malformed."""

    __slots__ = ("buffer", "end", "position")

    def __init__(self, buffer: Buffer, position: int = 0, end: int | None = None) -> None:
        self.buffer = buffer
        self.position = position
        self.end = len(buffer) if end is None else end

    @property
    def remaining(self) -> int:
        return self.end - self.position

    def advance(self, size: int) -> int:
        start = self.position
        if size < 0 or size > self.end - start:
            raise Malformed(f"{size} bytes wanted at {start}, {self.end - start} are left")
        self.position = start + size
        return start

    def _length(self, length: int, *, nullable: bool) -> int | None:
        if length == -1 and nullable:
            return None
        # Every element takes at least one byte, so a count above the rest of the frame is a lie.
        if length < 0 or length > self.end - self.position:
            raise Malformed(
                f"length {length} at {self.position}, {self.end - self.position} bytes are left"
            )
        return length

    def int8(self) -> int:
        value = self.buffer[self.advance(1)]
        return value - 256 if value > 127 else value

    def uint8(self) -> int:
        return self.buffer[self.advance(1)]

    def boolean(self) -> bool:
        return self.buffer[self.advance(1)] != 0

    def int16(self) -> int:
        value: int = _INT16.unpack_from(self.buffer, self.advance(2))[0]
        return value

    def uint16(self) -> int:
        value: int = _UINT16.unpack_from(self.buffer, self.advance(2))[0]
        return value

    def int32(self) -> int:
        value: int = _INT32.unpack_from(self.buffer, self.advance(4))[0]
        return value

    def uint32(self) -> int:
        value: int = _UINT32.unpack_from(self.buffer, self.advance(4))[0]
        return value

    def int64(self) -> int:
        value: int = _INT64.unpack_from(self.buffer, self.advance(8))[0]
        return value

    def float64(self) -> float:
        value: float = _FLOAT64.unpack_from(self.buffer, self.advance(8))[0]
        return value

    def unsigned_varint(self) -> int:
        """At most 32 bits in five bytes."""
        position = self.position
        if position < self.end and (byte := self.buffer[position]) < 0x80:
            self.position = position + 1
            return byte
        return self._long_varint(5) & 0xFFFFFFFF

    def _long_varint(self, max_bytes: int) -> int:
        value = 0
        for shift in range(0, 7 * max_bytes, 7):
            byte = self.buffer[self.advance(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise Malformed(f"a varint at {self.position} is longer than {max_bytes} bytes")

    def varint(self) -> int:
        value = self.unsigned_varint()
        return (value >> 1) ^ -(value & 1)

    def varlong(self) -> int:
        value = self._long_varint(10) & 0xFFFFFFFFFFFFFFFF
        return (value >> 1) ^ -(value & 1)

    def uuid(self) -> UUID:
        start = self.advance(16)
        return UUID(bytes=bytes(self.buffer[start : start + 16]))

    def raw(self, size: int) -> bytes:
        start = self.advance(size)
        return bytes(self.buffer[start : start + size])

    def _text(self, size: int) -> str:
        start = self.advance(size)
        try:
            return str(self.buffer[start : start + size], "utf-8")
        except UnicodeDecodeError as error:
            raise Malformed(f"a string at {start} is not UTF-8") from error

    def string(self) -> str:
        return self._text(self.int16())

    def nullable_string(self) -> str | None:
        length = self._length(self.int16(), nullable=True)
        return None if length is None else self._text(length)

    def compact_string(self) -> str:
        return self._text(self.unsigned_varint() - 1)

    def compact_nullable_string(self) -> str | None:
        length = self.unsigned_varint()
        return self._text(length - 1) if length else None

    def sized_bytes(self) -> bytes:
        return self.raw(self.int32())

    def nullable_bytes(self) -> bytes | None:
        length = self._length(self.int32(), nullable=True)
        return None if length is None else self.raw(length)

    def compact_bytes(self) -> bytes:
        return self.raw(self.unsigned_varint() - 1)

    def compact_nullable_bytes(self) -> bytes | None:
        length = self.unsigned_varint()
        return self.raw(length - 1) if length else None

    def array_length(self) -> int | None:
        return self._length(self.int32(), nullable=True)

    def compact_array_length(self) -> int | None:
        return self._length(self.unsigned_varint() - 1, nullable=True)

    def array(self, read: Callable[[], T]) -> list[T] | None:
        length = self.array_length()
        return None if length is None else [read() for _ in range(length)]

    def compact_array(self, read: Callable[[], T]) -> list[T] | None:
        length = self.compact_array_length()
        return None if length is None else [read() for _ in range(length)]

    def tagged_fields(self) -> dict[int, bytes]:
        """The raw value of each tag; most callers throw them away."""
        count = self.unsigned_varint()
        if not count:
            return {}
        fields: dict[int, bytes] = {}
        for _ in range(self._length(count, nullable=False) or 0):
            tag = self.unsigned_varint()
            fields[tag] = self.raw(self.unsigned_varint())
        return fields
