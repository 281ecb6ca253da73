"""What handlers may reach, and who asks."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.broker.fetch_sessions import FetchSessions
from headrace.broker.flusher import Flusher
from headrace.broker.partitions import Partitions
from headrace.broker.settings import BrokerSettings
from headrace.broker.waits import Waits
from headrace.clock import Clock
from headrace.log.store import Store

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from headrace.broker.cleaner import Cleaner
    from headrace.broker.groups import GroupCoordinator
    from headrace.broker.shard import Shard
    from headrace.broker.shares import ShareCoordinator
    from headrace.broker.topics import Topics
    from headrace.broker.transactions import TransactionCoordinator
    from headrace.coordination.catalog import Catalog


class Endpoint(NamedTuple):
    """Where clients are told to connect."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Call:
    """Who asks, and in which version."""

    api_key: int
    api_version: int
    client_id: str | None
    client_host: str
    listener: str
    connection_id: int
    principal: str = "User:ANONYMOUS"


class Broker:
    """The parts of a running broker, put together by `process` and handed to every handler."""

    cleaner: "Cleaner"
    catalog_shard: "Shard[Catalog, Any]"
    topics: "Topics"
    groups: "GroupCoordinator"
    shares: "ShareCoordinator"
    transactions: "TransactionCoordinator"

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.store = store
        self.loop = loop
        self.flusher = Flusher(loop, threads=settings.log_flush_threads)
        self.waits = Waits(loop, limit=settings.max_parked_requests)
        self.partitions = Partitions(store, self.flusher)
        self.fetch_sessions = FetchSessions(
            settings.max_incremental_fetch_session_cache_slots, clock
        )
        self.draining = False
        self._tasks = tasks
        self._running: set[asyncio.Task[None]] = set()
        self._endpoints: Mapping[str, Endpoint] = {}

    @property
    def node_id(self) -> int:
        return self.settings.node_id

    @property
    def cluster_id(self) -> str:
        return self.store.cluster_id

    @property
    def catalog(self) -> "Catalog":
        return self.catalog_shard.machine

    def endpoint(self, listener: str) -> Endpoint:
        """Where clients of this listener reach the broker."""
        return self._endpoints[listener]

    def advertise(self, endpoints: Mapping[str, Endpoint]) -> None:
        self._endpoints = endpoints

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work that outlives the request which caused it, until the broker stops."""
        task = self._tasks.create_task(_survived(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        # A task cancelled before its first step never came to its work.
        task.add_done_callback(lambda _: work.close())

    def cancel_tasks(self) -> None:
        for task in self._running:
            task.cancel()


async def _survived(work: Coroutine[Any, Any, None]) -> None:
    """A task's root: what fails there is said, and ends that task and no other."""
    try:
        await work
    except Exception:
        logger.exception("task failed")
