"""Frames of a byte stream, and the headers of requests and responses."""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from headrace.protocol.apis import is_flexible
from headrace.protocol.primitives import Buffer, Malformed, Reader

# Kafka's default of socket.request.max.bytes.
MAX_FRAME: Final = 100 * 1024 * 1024
API_VERSIONS: Final = 18

_SIZE = struct.Struct(">i")
# api_key, api_version, correlation_id, length of client_id
_REQUEST_HEADER = struct.Struct(">hhih")
_CORRELATION_ID = struct.Struct(">i")
_FLEXIBLE_RESPONSE_HEADER = struct.Struct(">ib")

# A peer's bytes do not say what they must; its connection has no future.
MalformedRequest = Malformed


class RequestHeader(NamedTuple):
    """Who asks for what; the body begins at ``body_position``."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_header(buffer: Buffer, start: int, end: int) -> RequestHeader:
    """The header of the request in ``buffer[start:end]``.

    The header of an API that has no row is read without its tagged fields: its body is not read.
    """
    position = start + _REQUEST_HEADER.size
    if position > end:
        raise Malformed(f"{end - start} bytes cannot hold a request header")
    api_key, api_version, correlation_id, length = _REQUEST_HEADER.unpack_from(buffer, start)
    if length == -1:
        client_id = None
    else:
        body = position + length
        if length < 0 or body > end:
            raise Malformed(f"client id of {length} bytes, {end - position} are left")
        try:
            client_id = str(buffer[position:body], "utf-8")
        except UnicodeDecodeError as error:
            raise Malformed("the client id is not UTF-8") from error
        position = body
    if is_flexible(api_key, api_version):
        # Nobody sends tagged fields here; one zero byte is the rule.
        if position < end and buffer[position] == 0:
            position += 1
        else:
            reader = Reader(buffer, position, end)
            reader.tagged_fields()
            position = reader.position
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def request_header(
    api_key: int, version: int, correlation_id: int, client_id: str | None, *, flexible: bool
) -> bytes:
    """What a client puts before the body of a request."""
    encoded = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(encoded)
    header = _REQUEST_HEADER.pack(api_key, version, correlation_id, length) + encoded
    return header + b"\x00" if flexible else header


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    # A client that speaks no version of ours must still read the answer to ApiVersions (KIP-511).
    if api_key != API_VERSIONS and is_flexible(api_key, version):
        return _FLEXIBLE_RESPONSE_HEADER.pack(correlation_id, 0)
    return _CORRELATION_ID.pack(correlation_id)


def framed(*parts: Buffer) -> bytes:
    """The parts as one frame, its size before them."""
    return b"".join((_SIZE.pack(sum(map(len, parts))), *parts))


def frames(
    buffer: Buffer, start: int, end: int, *, max_frame: int = MAX_FRAME
) -> Iterator[tuple[int, int]]:
    """Where each whole frame of ``buffer[start:end]`` begins and ends, sizes left out.

    The rest of an unfinished frame begins where the last one ended; a senseless size raises.
    """
    while end - start >= _SIZE.size:
        size = _SIZE.unpack_from(buffer, start)[0]
        if not 0 <= size <= max_frame:
            raise Malformed(f"frame of {size} bytes, allowed are 0 to {max_frame}")
        start += _SIZE.size
        if size > end - start:
            return
        yield start, start + size
        start += size


class Framer:
    """Bytes in as they come, whole frames out; holds at most one unfinished frame."""

    __slots__ = ("_max_frame", "_pending")

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._max_frame = max_frame
        self._pending = bytearray()

    def feed(self, received: Buffer) -> list[bytes]:
        pending = self._pending
        pending += received
        whole: list[bytes] = []
        rest = 0
        for start, end in frames(pending, 0, len(pending), max_frame=self._max_frame):
            whole.append(bytes(pending[start:end]))
            rest = end
        del pending[:rest]
        return whole
