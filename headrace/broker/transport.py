"""Bytes in and out of one client's socket; what an encrypted connection would do differently."""

import os
import socket
from typing import Protocol

# How much of a slice the copying twin reads at once: about what a socket takes.
COPY_BYTES = 256 << 10


class Slice(Protocol):
    """A range of a file that is sent without being read into this process."""

    @property
    def size(self) -> int: ...
    @property
    def position(self) -> int: ...

    def fileno(self) -> int: ...

    def read(self) -> bytes: ...


class Transport(Protocol):
    """A non-blocking byte stream; every call raises BlockingIOError when it would wait."""

    def fileno(self) -> int: ...

    def receive_into(self, buffer: memoryview) -> int:
        """How many bytes came; 0 when the client has left."""
        ...

    def send(self, chunk: bytes | memoryview, *, more: bool) -> int:
        """How many bytes were taken; `more` says that the rest of the answer follows at once."""
        ...

    def send_slice(self, source: Slice, sent: int) -> int:
        """Send from the slice past its first `sent` bytes; 0 if the file has become too short."""
        ...

    def close(self) -> None: ...


class PlainTransport:
    """TCP as it is: file slices leave through sendfile, never entering this process."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._fileno = connected.fileno()
        self.receive_into = connected.recv_into

    def fileno(self) -> int:
        return self._fileno

    def send(self, chunk: bytes | memoryview, *, more: bool) -> int:
        return self._socket.send(chunk, socket.MSG_MORE if more else 0)

    def send_slice(self, source: Slice, sent: int) -> int:
        return os.sendfile(
            self._fileno, source.fileno(), source.position + sent, source.size - sent
        )

    def close(self) -> None:
        self._socket.close()


class CopyingTransport(PlainTransport):
    """The plain twin of sendfile: reads each slice, then sends it; what encryption must do."""

    def send_slice(self, source: Slice, sent: int) -> int:
        size = min(source.size - sent, COPY_BYTES)
        chunk = os.pread(source.fileno(), size, source.position + sent)
        return self._socket.send(chunk) if chunk else 0
