"""A client with no cost of its own: prebuilt Produce requests and Fetch by offset on a socket.

It packs its bytes by itself, so that neither side is measured through Headrace's own codecs.
"""

import socket
import struct
import time
from collections.abc import Sequence

from crc32c import crc32c

from headrace.protocol.compression import CODEC_IDS, compress

ANSWER_LIMIT_S = 60.0
_BATCH_HEAD = struct.Struct(">qiibI")
_BATCH_BODY = struct.Struct(">hiqqqhii")


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def batch(values: Sequence[bytes], codec: str = "none") -> bytes:
    """One record batch v2 of records without keys."""
    records = bytearray()
    for delta, value in enumerate(values):
        body = b"\0\0" + _varint(delta) + b"\1" + _varint(len(value)) + value + b"\0"
        records += _varint(len(body)) + body
    payload = compress(CODEC_IDS[codec], records)
    now_ms = time.time_ns() // 1_000_000
    count = len(values)
    body = (
        _BATCH_BODY.pack(CODEC_IDS[codec], count - 1, now_ms, now_ms, -1, -1, -1, count) + payload
    )
    return _BATCH_HEAD.pack(0, 9 + len(body), -1, 2, crc32c(body)) + body


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw


class RawClient:
    """One connection; requests may be sent ahead of their answers."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=ANSWER_LIMIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb", 1 << 20)

    def close(self) -> None:
        self._answers.close()
        self._socket.close()

    def send(self, frames: bytes) -> None:
        self._socket.sendall(frames)

    def receive(self, size: int) -> bytes:
        """So many bytes of answers, as they come."""
        answers: bytes = self._answers.read(size)
        if len(answers) < size:
            raise ConnectionError("the broker closed the connection")
        return answers

    def answer(self) -> bytes:
        head = self._answers.read(4)
        if len(head) < 4:
            raise ConnectionError("the broker closed the connection")
        body: bytes = self._answers.read(int.from_bytes(head))
        return body

    def ensure_topic(self, topic: str) -> None:
        """Metadata with automatic creation, until the topic has a leader."""
        body = struct.pack(">i", 1) + _text(topic) + b"\1"
        deadline = time.monotonic() + ANSWER_LIMIT_S
        while time.monotonic() < deadline:
            self.send(_frame(3, 4, body))
            answer = self.answer()
            at = answer.find(_text(topic), 8)
            if at > 0 and answer[at - 2 : at] == b"\0\0":
                return
            time.sleep(0.01)
        raise TimeoutError(f"topic {topic} got no leader")


def produce_frame(topic: str, batches: dict[int, bytes], *, acks: int = -1) -> bytes:
    """A Produce v3 request with one batch for each of these partitions."""
    body = struct.pack(">hhi", -1, acks, 30_000) + struct.pack(">i", 1) + _text(topic)
    body += struct.pack(">i", len(batches))
    for partition, data in batches.items():
        body += struct.pack(">ii", partition, len(data)) + data
    return _frame(0, 3, body)


def produce_error(answer: bytes, topic: str) -> int:
    """The first partition's error code in a Produce v3 answer."""
    error: int = struct.unpack_from(">h", answer, error_position(topic))[0]
    return error


def error_position(topic: str) -> int:
    return 4 + 4 + 2 + len(topic) + 4 + 4


def fetch_frame(
    topic: str, offsets: dict[int, int], *, max_bytes: int, wait_ms: int = 500
) -> bytes:
    """A Fetch v4 request without a session."""
    body = struct.pack(">iiiib", -1, wait_ms, 1, 50 << 20, 0) + struct.pack(">i", 1) + _text(topic)
    body += struct.pack(">i", len(offsets))
    for partition, offset in offsets.items():
        body += struct.pack(">iqi", partition, offset, max_bytes)
    return _frame(1, 4, body)


def fetched(answer: bytes, topic: str) -> dict[int, tuple[int, int]]:
    """Bytes and next offset by partition, from a Fetch v4 answer; cut batches do not count."""
    at = 4 + 4 + 4 + 2 + len(topic)
    (count,) = struct.unpack_from(">i", answer, at)
    at += 4
    result: dict[int, tuple[int, int]] = {}
    for _ in range(count):
        partition, error = struct.unpack_from(">ih", answer, at)
        if error:
            raise RuntimeError(f"partition {partition} answered error {error}")
        (aborted,) = struct.unpack_from(">i", answer, at + 22)
        at += 26 + max(aborted, 0) * 16
        (size,) = struct.unpack_from(">i", answer, at)
        at += 4
        result[partition] = (size, _next_offset(answer, at, at + size))
        at += size
    return result


def _next_offset(answer: bytes, start: int, end: int) -> int:
    following = -1
    while end - start >= 61:
        base, length = struct.unpack_from(">qi", answer, start)
        if start + 12 + length > end:
            break
        following = base + struct.unpack_from(">i", answer, start + 23)[0] + 1
        start += 12 + length
    return following


def _frame(api_key: int, version: int, body: bytes) -> bytes:
    request = struct.pack(">hhih", api_key, version, 1, -1) + body
    return struct.pack(">i", len(request)) + request
