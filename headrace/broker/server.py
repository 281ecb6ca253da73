"""Listeners and their connections: accept within limits, sweep the idle, drain, stop."""

import asyncio
import errno
import logging
import resource
import socket
from collections import Counter
from collections.abc import Callable, Sequence

from headrace.broker.connection import Connection, Dispatch, Shared
from headrace.broker.limits import Limits
from headrace.broker.memory import RequestMemory
from headrace.broker.network_settings import Listener
from headrace.broker.transport import PlainTransport
from headrace.errors import StartRefused

logger = logging.getLogger(__name__)

ACCEPTS_PER_TURN = 64
SWEEP_S = 1.0
# Out of descriptors: accepting rests so long, the listen backlog holds who comes.
ACCEPT_REST_S = 1.0
# With request memory used up, a client silent for so long inside a request makes room.
STALLED_S = 5.0
# Descriptors kept for files when connections are counted against the process's limit.
RESERVED_DESCRIPTORS = 1024


class Server:
    """Everything that holds a socket; lives between start() and stop()."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: Limits) -> None:
        self._loop = loop
        self._limits = limits
        self._memory = RequestMemory(limits.request_memory_bytes)
        self._closed: Callable[[int], None] = lambda _: None
        self._shared: Shared | None = None
        self._listening: dict[socket.socket, Listener] = {}
        self._accepting = False
        self._connections: dict[int, Connection] = {}
        self._per_ip: Counter[str] = Counter()
        self._numbers = 0
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._all_idle: asyncio.Event | None = None

    @property
    def connections(self) -> int:
        return len(self._connections)

    def bind(self, listeners: Sequence[Listener]) -> list[Listener]:
        """Listen without accepting yet; returns the listeners with the ports they got."""
        for listener in listeners:
            self._listening[_listen(listener, self._limits.backlog)] = listener
        return [
            Listener(listener.name, listener.host, opened.getsockname()[1])
            for opened, listener in self._listening.items()
        ]

    def start(self, dispatch: Dispatch, closed: Callable[[int], None] = lambda _: None) -> None:
        """Accept, whoever waited since bind() first, and dispatch what they ask.

        `closed` hears the number of every connection that ends.
        """
        self._closed = closed
        self._shared = Shared(
            self._loop, dispatch, self._memory, self._limits, on_close=self._on_close
        )
        self._accept_again()
        self._sweep_timer = self._loop.call_later(SWEEP_S, self._sweep)

    async def drain(self, timeout_s: float) -> None:
        """Accept nothing, start nothing, and wait until what was started is answered."""
        self._rest_accepting()
        for listening in self._listening:
            listening.close()
        self._listening.clear()
        self._all_idle = asyncio.Event()
        for connection in list(self._connections.values()):
            connection.drain()
        self._notice_idle()
        try:
            async with asyncio.timeout(timeout_s):
                await self._all_idle.wait()
        except TimeoutError:
            logger.warning("drain cut short connections=%d", len(self._connections))

    def stop(self) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for connection in list(self._connections.values()):
            connection.close()
        self._rest_accepting()
        for listening in self._listening:
            listening.close()
        self._listening.clear()

    def _on_acceptable(self, listening: socket.socket) -> None:
        listener = self._listening[listening]
        for _ in range(ACCEPTS_PER_TURN):
            if len(self._connections) >= self._limits.max_connections:
                logger.warning("connection limit reached connections=%d", len(self._connections))
                self._rest_accepting()
                return
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                self._accept_failed(error)
                return
            self._admit(accepted, str(address[0]), listener)

    def _accept_failed(self, error: OSError) -> None:
        if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            logger.warning("accept failed error=%s", error)
            return
        logger.error(
            "accepting rests seconds=%d connections=%d error=%s",
            ACCEPT_REST_S,
            len(self._connections),
            error,
        )
        self._rest_accepting()
        self._loop.call_later(ACCEPT_REST_S, self._accept_again)

    def _admit(self, accepted: socket.socket, host: str, listener: Listener) -> None:
        if self._per_ip[host] >= self._limits.max_connections_per_ip:
            logger.warning("connection refused client=%s reason=too many from there", host)
            accepted.close()
            return
        assert self._shared is not None
        self._size_buffers(accepted)
        self._numbers += 1
        connection = Connection(
            PlainTransport(accepted),
            self._shared,
            number=self._numbers,
            host=host,
            listener=listener.name,
        )
        self._connections[connection.number] = connection
        self._per_ip[host] += 1
        connection.start()

    def _size_buffers(self, accepted: socket.socket) -> None:
        for option, size in (
            (socket.SO_SNDBUF, self._limits.send_buffer_bytes),
            (socket.SO_RCVBUF, self._limits.receive_buffer_bytes),
        ):
            if size > 0:
                accepted.setsockopt(socket.SOL_SOCKET, option, size)

    def _on_close(self, connection: Connection) -> None:
        if self._connections.pop(connection.number, None) is None:
            return
        self._closed(connection.number)
        self._per_ip[connection.host] -= 1
        if not self._per_ip[connection.host]:
            del self._per_ip[connection.host]
        if not self._accepting and self._all_idle is None:
            self._accept_again()

    def _accept_again(self) -> None:
        if self._accepting or self._all_idle is not None:
            return
        self._accepting = True
        for listening in self._listening:
            self._loop.add_reader(listening.fileno(), self._on_acceptable, listening)

    def _rest_accepting(self) -> None:
        if self._accepting:
            self._accepting = False
            for listening in self._listening:
                self._loop.remove_reader(listening.fileno())

    def _sweep(self) -> None:
        """Once a second: close who was silent for too long, and who holds up everyone's memory."""
        self._sweep_timer = self._loop.call_later(SWEEP_S, self._sweep)
        now = self._loop.time()
        idle_since = now - self._limits.max_idle_ms / 1000
        for connection in list(self._connections.values()):
            if connection.active_at < idle_since and not connection.owes_answer:
                logger.info("connection closed client=%s reason=idle", connection)
                connection.close()
        if self._memory.contended:
            self._close_stalled(now - STALLED_S)
        if self._all_idle is not None:
            self._notice_idle()

    def _close_stalled(self, silent_since: float) -> None:
        for connection in list(self._connections.values()):
            if connection.holds_memory and connection.active_at < silent_since:
                logger.warning("connection closed client=%s reason=stalled request", connection)
                connection.close()

    def _notice_idle(self) -> None:
        assert self._all_idle is not None
        if all(connection.idle for connection in self._connections.values()):
            self._all_idle.set()
        else:
            self._loop.call_later(0.005, self._notice_idle)


def _listen(listener: Listener, backlog: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise StartRefused(f"cannot listen on {listener.host}:{listener.port}: {error}") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setblocking(False)
        listening.bind(address)
        listening.listen(backlog)
    except OSError as error:
        listening.close()
        raise StartRefused(
            f"cannot listen on {listener.host}:{listener.port}: {error.strerror}; "
            "stop what uses that port, or choose another with --listen"
        ) from error
    return listening


def raise_descriptor_limit() -> int:
    """Use all the descriptors the system grants; returns how many connections that leaves."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(hard - RESERVED_DESCRIPTORS, hard // 2)
