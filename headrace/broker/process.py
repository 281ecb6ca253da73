"""A broker from start to stop: its parts put together, its signals, its drain."""

import asyncio
import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterable

import uvloop

from headrace.broker import maintenance
from headrace.broker.cleaner import Cleaner
from headrace.broker.context import Broker, Endpoint
from headrace.broker.dispatch import Dispatcher
from headrace.broker.groups import group_coordinator
from headrace.broker.limits import Limits
from headrace.broker.network_settings import Listener
from headrace.broker.server import Server, raise_descriptor_limit
from headrace.broker.settings import BrokerSettings
from headrace.broker.shares import ShareCoordinator
from headrace.broker.topics import Topics
from headrace.broker.transactions import TransactionCoordinator
from headrace.clock import Clock, SystemClock
from headrace.log.filesystem import OsFilesystem
from headrace.log.store import Store

logger = logging.getLogger(__name__)

OnReady = Callable[[list[Listener]], None]

# What -1 as queued.max.request.bytes means: enough for every client, short of the machine.
REQUEST_MEMORY_BYTES = 256 << 20
# What was loaded is left out of collections: with 1,000 partitions a full one took 33 ms, and
# takes none of them now. Young objects are looked at after this many more were made than freed.
YOUNG_OBJECTS = 50_000


class Stop:
    """Asks a running broker to stop, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event = asyncio.Event()

    def __call__(self) -> None:
        with self._lock:
            self._asked = True
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self) -> None:
        with self._lock:
            self._loop = asyncio.get_running_loop()
            if self._asked:
                self._event.set()
        await self._event.wait()


def announce(listeners: Iterable[Listener]) -> None:
    """Say to whoever started this process that it serves, with everything loaded set aside."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 100)
    first = next(iter(listeners))
    sys.stdout.write(f"ready {first.host or 'localhost'}:{first.port}\n")
    sys.stdout.flush()


def run_broker(
    settings: BrokerSettings,
    *,
    on_ready: OnReady = announce,
    stop: Stop | None = None,
    clock: Clock | None = None,
) -> None:
    """Serve until told to stop: by `stop`, or by SIGTERM or SIGINT in the main thread."""
    stop = stop or Stop()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, on_ready, stop, clock or SystemClock()))
    except BaseExceptionGroup as group:
        # The broker's tasks have a group; what ended it is what the caller must hear.
        raise group.exceptions[0] from None


async def _serve(settings: BrokerSettings, on_ready: OnReady, stop: Stop, clock: Clock) -> None:
    loop = asyncio.get_running_loop()
    _listen_to_signals(loop, stop)
    for warning in settings.warnings():
        logger.warning("%s", warning)
    server = Server(loop, _limits(settings, raise_descriptor_limit()))
    try:
        # First of all: a port in use refuses the start before any file is touched.
        bound = server.bind(settings.endpoints)
        store = Store(OsFilesystem(), settings.data_dir, clock, node_id=settings.node_id)
        clean = False
        try:
            async with asyncio.TaskGroup() as tasks:
                broker = Broker(settings, clock, store, loop, tasks)
                broker.advertise(_advertised(settings, bound))
                await _load(broker)
                server.start(Dispatcher(broker), broker.shares.connection_closed)
                on_ready(bound)
                await stop.wait()
                await _drain(broker, server)
            clean = True
        finally:
            store.close(clean=clean)
    finally:
        server.stop()


async def _load(broker: Broker) -> None:
    """Everything the log remembers, and the work that goes on by itself."""
    await Topics.open(broker)
    broker.cleaner = Cleaner(broker)
    broker.groups = group_coordinator(broker)
    broker.shares = ShareCoordinator(broker)
    broker.transactions = TransactionCoordinator(broker)
    broker.groups.start()
    broker.shares.start()
    broker.transactions.start()
    broker.spawn(maintenance.keep_checkpoints(broker))
    broker.spawn(maintenance.sweep_deleted(broker))
    broker.spawn(broker.cleaner.keep_retention())
    broker.spawn(broker.cleaner.keep_compacted())


async def _drain(broker: Broker, server: Server) -> None:
    """Answer what is in flight, sync what is written; bounded, because a stop must not hang."""
    timeout_s = broker.settings.shutdown_timeout_ms / 1000
    logger.info("broker stops connections=%d", server.connections)
    broker.draining = True
    broker.waits.wake_all()
    broker.groups.close()
    broker.shares.close()
    await server.drain(timeout_s / 2)
    server.stop()
    broker.cancel_tasks()
    for partition in broker.partitions.all():
        # What closing would sync one by one, several threads do faster.
        broker.flusher.schedule(partition)
    try:
        async with asyncio.timeout(timeout_s / 2):
            await broker.flusher.drain()
    except TimeoutError:
        logger.warning("final sync is slow, closing waits for it")
    broker.flusher.stop()


def _listen_to_signals(loop: asyncio.AbstractEventLoop, stop: Stop) -> None:
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)


def _limits(settings: BrokerSettings, max_connections: int) -> Limits:
    queued_bytes = settings.queued_max_request_bytes
    return Limits(
        max_frame_bytes=settings.socket_request_max_bytes,
        request_memory_bytes=queued_bytes if queued_bytes > 0 else REQUEST_MEMORY_BYTES,
        max_connections=min(settings.max_connections, max_connections),
        max_connections_per_ip=settings.max_connections_per_ip,
        max_idle_ms=settings.connections_max_idle_ms,
        max_unsent_bytes=settings.socket_unsent_max_bytes,
        max_unanswered=settings.max_requests_per_connection,
        **_stated_sizes(settings),
    )


def _stated_sizes(settings: BrokerSettings) -> dict[str, int]:
    """Kafka's defaults of these are from another age: they count only where they are stated."""
    names = {
        "send_buffer_bytes": ("socket.send.buffer.bytes", settings.socket_send_buffer_bytes),
        "receive_buffer_bytes": (
            "socket.receive.buffer.bytes",
            settings.socket_receive_buffer_bytes,
        ),
        "backlog": ("socket.listen.backlog.size", settings.socket_listen_backlog_size),
    }
    return {field: size for field, (name, size) in names.items() if name in settings.stated}


def _advertised(settings: BrokerSettings, bound: Iterable[Listener]) -> dict[str, Endpoint]:
    """Where clients of each listener are sent; a listener on port 0 got one of its own."""
    told = {listener.name: listener for listener in settings.advertised_endpoints}
    endpoints = {}
    for listener in bound:
        stated = told.get(listener.name, listener)
        host = stated.host if stated.host not in ("", "0.0.0.0", "::") else "localhost"
        endpoints[listener.name] = Endpoint(host, stated.port or listener.port)
    return endpoints
