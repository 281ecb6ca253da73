"""The few moves that the hand-packed codecs share: varints, texts and tagged fields at a position.

The codecs read without asking whether each field still lies in the frame. They bound every count,
compare the position with the frame's end before they use a slice, and once more at the end; a read
past the buffer itself raises IndexError or struct.error, which the codecs turn into Malformed.
"""

import struct
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from headrace.protocol.primitives import MAX_ELEMENTS, Buffer, Malformed, unsigned_varint

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")

# What a read past the buffer raises, and text that is no text.
UNREADABLE: Final = (IndexError, struct.error, UnicodeDecodeError)


def more_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """An unsigned varint of up to five bytes: its value, and where the next field begins."""
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFF, position
        shift += 7
        if shift == 35:
            raise Malformed(f"a varint at {position} is longer than 5 bytes")


def count_at(buffer: Buffer, position: int, end: int, *, flexible: bool) -> tuple[int, int]:
    """The length of an array that must not be null."""
    if flexible:
        count = buffer[position]
        if count < 0x80:
            position += 1
        else:
            count, position = more_varint(buffer, position)
        count -= 1
    else:
        (count,) = INT32.unpack_from(buffer, position)
        position += 4
    if count < 0 or count > end - position or count > MAX_ELEMENTS:
        raise Malformed(f"array of {count} elements, {end - position} bytes are left")
    return count, position


def text_at(buffer: Buffer, position: int, end: int, *, flexible: bool) -> tuple[str | None, int]:
    """A string, or None for null."""
    if flexible:
        length, position = more_varint(buffer, position)
        length -= 1
    else:
        (length,) = INT16.unpack_from(buffer, position)
        position += 2
    if length == -1:
        return None, position
    stop = position + length
    if length < 0 or stop > end:
        raise Malformed(f"string of {length} bytes, {end - position} are left")
    return str(buffer[position:stop], "utf-8"), stop


def name_at(buffer: Buffer, position: int, end: int, *, flexible: bool) -> tuple[str, int]:
    """A string that must not be null."""
    text, position = text_at(buffer, position, end, flexible=flexible)
    if text is None:
        raise Malformed(f"null at {position}, where a name must be")
    return text, position


def uuid_at(buffer: Buffer, position: int, end: int) -> tuple[UUID, int]:
    stop = position + 16
    if stop > end:
        raise Malformed(f"a uuid at {position}, {end - position} bytes are left")
    return UUID(bytes=bytes(buffer[position:stop])), stop


def skip_tags(buffer: Buffer, position: int, end: int) -> int:
    """Where the next field begins after a section of tagged fields nobody here knows."""
    if buffer[position] == 0:
        return position + 1
    for _, _, stop in tags_at(buffer, position, end):
        position = stop
    return position


def tags_at(buffer: Buffer, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Each tagged field as its tag and where its value begins and ends.

    An empty section yields nothing: whoever needs to know its end looks for the zero byte first.
    """
    count, position = more_varint(buffer, position)
    if count > end - position:
        raise Malformed(f"{count} tagged fields, {end - position} bytes are left")
    for _ in range(count):
        tag, position = more_varint(buffer, position)
        size, position = more_varint(buffer, position)
        if size > end - position:
            raise Malformed(f"tagged field of {size} bytes, {end - position} are left")
        yield tag, position, position + size
        position += size


def pack_count(count: int, *, flexible: bool) -> bytes:
    return unsigned_varint(count + 1) if flexible else INT32.pack(count)


def pack_text(text: str | None, *, flexible: bool) -> bytes:
    if text is None:
        return b"\x00" if flexible else b"\xff\xff"
    encoded = text.encode()
    size = len(encoded)
    return (unsigned_varint(size + 1) if flexible else INT16.pack(size)) + encoded


def pack_tags(*fields: tuple[int, bytes]) -> bytes:
    """A section of tagged fields, given in the order of their tags."""
    out = bytearray(unsigned_varint(len(fields)))
    for tag, value in fields:
        out += unsigned_varint(tag)
        out += unsigned_varint(len(value))
        out += value
    return bytes(out)
