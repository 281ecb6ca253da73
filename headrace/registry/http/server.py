"""uvicorn with a shortcut: a GET by id is answered from memory before any parser sees it."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from headrace.registry.http.app import Application

# Clients keep connections for reuse; closing them early costs each a reconnect.
KEEP_ALIVE_S = 75
DRAIN_LIMIT_S = 10


class QuickProtocol(H11Protocol):
    """Answers a whole, lone request from memory where the application can, else as uvicorn does."""

    _quick_at = 0.0

    def data_received(self, data: bytes) -> None:
        if self._idle():
            answer = cast(Application, self.config.loaded_app).quick(bytes(data))
            if answer is not None:
                self._quick_at = self.loop.time()
                self.transport.write(answer)
                return
        super().data_received(data)

    def timeout_keep_alive_handler(self) -> None:
        left = self._quick_at + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self.timeout_keep_alive_task = self.loop.call_later(
                left, self.timeout_keep_alive_handler
            )
            return
        super().timeout_keep_alive_handler()

    def _idle(self) -> bool:
        """No request is being read or answered on this connection."""
        cycle = self.cycle
        return (cycle is None or cycle.response_complete) and not self.conn.trailing_data[0]


class Server(uvicorn.Server):
    """Leaves signals to the process it runs in."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        # Set when it accepts connections, or could not.
        self.began = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.began.set()

    def stop(self) -> None:
        self.should_exit = True


def http_server(application: Application, ssl_options: dict[str, Any]) -> Server:
    config = uvicorn.Config(
        cast(Any, application),
        http=QuickProtocol,
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=DRAIN_LIMIT_S,
        **ssl_options,
    )
    return Server(config)
