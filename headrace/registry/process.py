"""A registry from start to stop: its parts put together, its signals."""

import asyncio
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from headrace.client.librdkafka import check_reachable
from headrace.errors import StartRefused
from headrace.registry.http.access import Users, read_users
from headrace.registry.http.app import Application
from headrace.registry.http.server import Server, http_server
from headrace.registry.language import Language
from headrace.registry.languages import LANGUAGES
from headrace.registry.leader import Election, Identity
from headrace.registry.leadership import Group
from headrace.registry.registry import Registry
from headrace.registry.storage import Reader, TopicLog, Writer, ensure_topic

logger = logging.getLogger(__name__)

LOAD_LIMIT_S = 120.0
# A schema may come this many times as large as the record it becomes: with white space.
PRETTY_PRINTED = 4
DEFAULT_TOPIC = "_schemas"
DEFAULT_GROUP = "schema-registry"
WILDCARD_HOSTS = ("", "0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """What a registry needs to know to run."""

    bootstrap: str
    host: str
    port: int
    topic: str = DEFAULT_TOPIC
    group_id: str = DEFAULT_GROUP
    advertised_host: str | None = None
    users: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None

    @property
    def scheme(self) -> str:
        return "https" if self.certificate else "http"

    @property
    def ssl_options(self) -> dict[str, Any]:
        if not self.certificate:
            return {}
        return {"ssl_certfile": str(self.certificate), "ssl_keyfile": self.key and str(self.key)}


class Stop:
    """Asks a running registry to stop, from any thread."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._server: Server | None = None

    def __call__(self) -> None:
        self._asked.set()
        if self._server is not None:
            self._server.stop()

    def attach(self, server: Server) -> None:
        self._server = server
        if self._asked.is_set():
            server.stop()


OnReady = Callable[[str, int], None]


def announce(host: str, port: int) -> None:
    """Say to whoever started this process that it serves."""
    sys.stdout.write(f"ready {host or 'localhost'}:{port}\n")
    sys.stdout.flush()


def run_registry(
    settings: RegistrySettings,
    *,
    on_ready: OnReady = announce,
    stop: Stop | None = None,
    languages: Mapping[str, Language] = LANGUAGES,
) -> None:
    """Serve until told to stop: by `stop`, or by SIGTERM or SIGINT in the main thread."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, on_ready, stop or Stop(), languages))
    except BaseExceptionGroup as group:
        # The server runs in a group of tasks; what ended it is what the caller must hear.
        raise group.exceptions[0] from None


async def _serve(
    settings: RegistrySettings, on_ready: OnReady, stop: Stop, languages: Mapping[str, Language]
) -> None:
    with _bind(settings) as listener:
        users = Users(None) if settings.users is None else read_users(settings.users)
        check_reachable(settings.bootstrap)
        found = await asyncio.to_thread(ensure_topic, settings.bootstrap, settings.topic)
        registry = Registry(
            languages, group_id=settings.group_id, kafka_cluster_id=found.cluster_id
        )
        registry.max_schema_bytes = found.max_record_bytes * PRETTY_PRINTED
        reader = Reader(settings.bootstrap, settings.topic, registry.replay)
        writer = Writer(settings.bootstrap, settings.topic, f"headrace-{settings.group_id}")
        log = TopicLog(reader, writer)
        registry.log = log
        port = listener.getsockname()[1]
        group = Group(_identity(settings, port), log, log.unsettle, settings.authority)
        server = http_server(Application(registry, users, group), settings.ssl_options)
        reader.start()
        try:
            await _load(reader, settings.topic)
            stop.attach(server)
            _listen_to_signals(stop)
            await _answer(settings, group, server, listener, on_ready)
        finally:
            await asyncio.to_thread(log.close)


async def _load(reader: Reader, topic: str) -> None:
    try:
        await reader.loaded(LOAD_LIMIT_S)
    except TimeoutError:
        raise StartRefused(f"{topic} could not be read within {LOAD_LIMIT_S:g} s") from None
    logger.info("schemas topic read position=%d", reader.position)


async def _answer(
    settings: RegistrySettings,
    group: Group,
    server: Server,
    listener: socket.socket,
    on_ready: OnReady,
) -> None:
    port = listener.getsockname()[1]
    election = Election(
        settings.bootstrap, settings.group_id, _identity(settings, port), group.leader_is
    )
    election.start()
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve(sockets=[listener]))
            await server.began.wait()
            on_ready(settings.host, port)
    finally:
        await asyncio.to_thread(election.stop)


def _bind(settings: RegistrySettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        where = f"{settings.host}:{settings.port}"
        raise StartRefused(f"cannot listen on {where}: {error.strerror}") from error
    return listener


def _identity(settings: RegistrySettings, port: int) -> Identity:
    host = settings.advertised_host or settings.host
    if host in WILDCARD_HOSTS:
        host = socket.gethostname()
    return Identity(host, port, settings.scheme)


def _listen_to_signals(stop: Stop) -> None:
    if threading.current_thread() is threading.main_thread():
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
