import asyncio
import errno
import socket
from collections import deque
from typing import Any

import pytest

from headrace.broker.exchange import Pending
from headrace.broker.limits import Limits
from headrace.broker.network_settings import Listener
from headrace.broker.server import ACCEPT_REST_S, STALLED_S, Server
from tests.broker.manual_loop import ManualLoop, ScriptedTransport


class Accepted(ScriptedTransport):
    """A client's socket as accept() gives it."""

    def setblocking(self, flag):
        assert not flag

    def setsockopt(self, *option):
        self.options = [*getattr(self, "options", []), option]

    def recv_into(self, buffer):
        return self.receive_into(buffer)

    def send(self, chunk, flags=0, *, more=False):
        return super().send(chunk, more=bool(flags) or more)


class Listening:
    """A listening socket with clients in its backlog."""

    def __init__(self):
        self.backlog: deque[Any] = deque()
        self.error = None
        self.closed = False

    def fileno(self):
        return 3

    def accept(self):
        if self.error:
            raise self.error
        if not self.backlog:
            raise BlockingIOError
        return self.backlog.popleft()

    def close(self):
        self.closed = True


class Clients:
    """A server whose network is in the test's hand."""

    def __init__(self, **limits):
        self.loop = ManualLoop()
        defaults = {
            "max_frame_bytes": 1 << 20,
            "request_memory_bytes": 1 << 20,
            "max_connections": 100,
            "max_connections_per_ip": 100,
            "max_idle_ms": 10_000,
            "max_unsent_bytes": 1 << 20,
            "max_unanswered": 100,
        }
        self.server = Server(self.loop, Limits(**{**defaults, **limits}))
        self.listening: Any = Listening()
        listening: dict[Any, Listener] = self.server._listening
        listening[self.listening] = Listener("PLAINTEXT", "127.0.0.1", 9092)
        self.pending = []
        self.numbers = 10
        self.server.start(self.dispatch)

    def dispatch(self, connection, buffer, start, end):
        self.pending.append(Pending())
        return b"head", self.pending[-1]

    def connect(self, host="1.1.1.1"):
        self.numbers += 1
        client = Accepted(fd=self.numbers)
        self.listening.backlog.append((client, (host, 1)))
        self.turn()
        return client

    def turn(self):
        """Everything readable is read."""
        for _ in range(10):
            for reader in list(self.loop.readers.values()):
                reader()
            self.loop.run_ready()

    def wait(self, seconds):
        for _ in range(int(seconds)):
            self.loop.advance(1.0)


def test_connections_past_the_limit_wait_until_one_closes():
    clients = Clients(max_connections=2)
    first = clients.connect()
    clients.connect()
    clients.connect()
    assert clients.server.connections == 2
    assert len(clients.listening.backlog) == 1
    first.feed(b"")
    clients.turn()
    assert first.closed
    assert clients.server.connections == 2
    assert not clients.listening.backlog


def test_connections_of_one_address_past_its_limit_are_closed_at_once():
    clients = Clients(max_connections_per_ip=1)
    kept, dropped, other = clients.connect(), clients.connect(), clients.connect("2.2.2.2")
    assert (kept.closed, dropped.closed, other.closed) == (False, True, False)
    kept.feed(b"")
    clients.turn()
    assert not clients.connect().closed


def test_a_silent_connection_is_closed_and_one_that_is_owed_an_answer_is_not():
    clients = Clients(max_idle_ms=10_000)
    silent, owed = clients.connect(), clients.connect()
    owed.feed(b"\0\0\0\4\0\1\0\0")
    clients.turn()
    clients.wait(12)
    assert (silent.closed, owed.closed) == (True, False)
    clients.pending[0].finish((b"answer",))
    clients.turn()
    clients.wait(24)
    assert owed.closed


def test_out_of_descriptors_accepting_rests_and_goes_on():
    clients = Clients()
    clients.listening.error = OSError(errno.EMFILE, "Too many open files")
    clients.connect()
    assert clients.server.connections == 0
    assert clients.listening.fileno() not in clients.loop.readers
    clients.listening.error = None
    clients.loop.advance(ACCEPT_REST_S)
    clients.turn()
    assert clients.server.connections == 1


def test_who_stalls_inside_a_request_makes_room_when_memory_is_short():
    clients = Clients(request_memory_bytes=1 << 16)
    stalled, waiting = clients.connect(), clients.connect()
    size = (1 << 15) + 10
    stalled.feed(size.to_bytes(4, "big") + b"x" * 100)
    clients.turn()
    clients.wait(STALLED_S + 1)
    assert not stalled.closed
    waiting.feed(size.to_bytes(4, "big") + b"\0\1")
    waiting.feed(b"x" * (size - 2))
    clients.turn()
    assert not clients.pending
    clients.wait(2)
    assert stalled.closed
    assert not waiting.closed
    clients.turn()
    assert clients.pending


def test_a_drain_refuses_newcomers_and_ends_when_everyone_is_answered():
    async def scenario():
        clients = Clients()
        owed = clients.connect()
        owed.feed(b"\0\0\0\4\0\1\0\0")
        clients.turn()
        drained = asyncio.ensure_future(clients.server.drain(5))
        await asyncio.sleep(0)
        assert clients.listening.closed
        assert not drained.done()
        clients.pending[0].finish((b"answer",))
        clients.turn()
        clients.loop.advance(1)
        await asyncio.wait_for(drained, 5)
        assert owed.sent.endswith(b"answer")
        clients.server.stop()
        assert owed.closed
        assert clients.server.connections == 0

    asyncio.run(scenario())


def test_a_drain_that_takes_too_long_is_cut_short(caplog):
    async def scenario():
        clients = Clients()
        clients.connect().feed(b"\0\0\0\4\0\1\0\0")
        clients.turn()
        await clients.server.drain(0.01)
        clients.server.stop()
        assert clients.server.connections == 0

    asyncio.run(scenario())
    assert "drain cut short" in caplog.text


@pytest.mark.parametrize("message", ["Address already in use"])
def test_a_port_in_use_refuses_the_start(message):
    from headrace.errors import StartRefused

    loop = ManualLoop()
    taken = Server(loop, Clients().server._limits)
    (bound,) = taken.bind([Listener("PLAINTEXT", "127.0.0.1", 0)])
    try:
        with pytest.raises(StartRefused, match=message):
            Server(loop, taken._limits).bind([bound])
    finally:
        taken.stop()


def test_socket_buffers_are_sized_only_when_that_was_asked_for():
    level = socket.SOL_SOCKET
    sized = Clients(send_buffer_bytes=4096, receive_buffer_bytes=8192).connect()
    assert (level, socket.SO_SNDBUF, 4096) in sized.options
    assert (level, socket.SO_RCVBUF, 8192) in sized.options
    assert not [option for option in Clients().connect().options if option[0] == level]
