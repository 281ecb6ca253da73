import os
import socket
import tempfile
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.outbox import SENDFILE_MIN_BYTES, TURN_BYTES, Outbox, ShortFile
from headrace.broker.transport import CopyingTransport, PlainTransport
from tests.broker.manual_loop import ScriptedTransport


@dataclass(frozen=True)
class Piece:
    """A slice of an open file."""

    descriptor: int
    position: int
    size: int

    def fileno(self):
        return self.descriptor

    def read(self):
        return os.pread(self.descriptor, self.size, self.position)


def received(transport_of, parts):
    """What the far end of a socket gets when the outbox sends the parts through it."""
    near, far = socket.socketpair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    far.setblocking(False)
    try:
        outbox = Outbox(transport_of(near))
        for part in parts:
            outbox.put(part)
        got = bytearray()
        while not outbox.send():
            got += _drained(far)
        assert outbox.unsent_bytes == 0
        return bytes(got + _drained(far))
    finally:
        near.close()
        far.close()


def _drained(far):
    got = bytearray()
    try:
        while chunk := far.recv(1 << 16):
            got += chunk
    except BlockingIOError:
        pass
    return got


class UnixTransport(PlainTransport):
    """A socket pair is no TCP; all else is as it is."""

    def __init__(self, connected):
        _without_tcp_options(super().__init__, connected)


class CopyingUnixTransport(CopyingTransport):
    def __init__(self, connected):
        _without_tcp_options(super().__init__, connected)


def _without_tcp_options(init, connected):
    class Quiet:
        def __getattr__(self, name):
            return getattr(connected, name)

        def setsockopt(self, *option):
            pass

    init(Quiet())


@pytest.fixture(scope="module")
def content():
    with tempfile.TemporaryFile() as file:
        file.write(os.urandom(SENDFILE_MIN_BYTES * 8))
        file.flush()
        yield file.fileno()


@given(
    pieces=st.lists(
        st.one_of(
            st.binary(min_size=1, max_size=20_000),
            st.tuples(
                st.integers(0, SENDFILE_MIN_BYTES),
                st.integers(1, SENDFILE_MIN_BYTES * 4),
            ),
        ),
        max_size=6,
    )
)
def test_sendfile_and_its_copying_twin_send_the_same_bytes(content, pieces):
    parts = [part if isinstance(part, bytes) else Piece(content, *part) for part in pieces]
    expected = b"".join(part if isinstance(part, bytes) else part.read() for part in parts)
    assert received(UnixTransport, parts) == expected
    assert received(CopyingUnixTransport, parts) == expected


@pytest.mark.parametrize("size", [SENDFILE_MIN_BYTES // 2, SENDFILE_MIN_BYTES * 9])
@pytest.mark.parametrize("transport", [UnixTransport, CopyingUnixTransport])
def test_a_file_cut_short_is_an_error_and_never_a_shorter_answer(content, transport, size):
    end = SENDFILE_MIN_BYTES * 8
    beyond = Piece(content, end - size // 2, size)
    with pytest.raises(ShortFile):
        received(transport, [b"head", beyond])


def test_a_fast_reader_gives_the_others_a_turn():
    class Endless(ScriptedTransport):
        def send_slice(self, source, sent):
            return min(1 << 18, source.size - sent)

    outbox = Outbox(Endless())
    outbox.put(Piece(0, 0, TURN_BYTES * 3))
    turns = 1
    while not outbox.send():
        turns += 1
    assert turns == 3
    assert outbox.unsent_bytes == 0
