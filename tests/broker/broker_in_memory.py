"""A whole broker without sockets or threads: its disk is in memory, its syncs are on the loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.broker.context import Broker
from headrace.broker.flusher import Flusher, Syncable
from headrace.broker.groups import group_coordinator
from headrace.broker.partitions import Partitions
from headrace.broker.settings import BrokerSettings
from headrace.broker.shares import ShareCoordinator
from headrace.broker.topics import Topics
from headrace.broker.transactions import TransactionCoordinator
from headrace.clock import Clock
from headrace.log.store import Store
from headrace.settings import load
from headrace.testing.filesystems import Keep, MemoryFilesystem

SETTINGS = {
    "log.dirs": "/data",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class InlineFlusher(Flusher):
    """Syncs on the loop, always the partition that was written last: the least kind order."""

    def schedule(self, partition: Syncable) -> None:
        if partition not in self._queued:
            self._queued.add(partition)
            self._dirty.append(partition)
            # Later than what goes on at once, so that there is an order to choose.
            self._loop.call_soon(self._loop.call_soon, self._loop.call_soon, self._sync)

    def _sync(self) -> None:
        partition = self._dirty.pop()
        self._queued.discard(partition)
        ticket = partition.take_ticket()
        if ticket is None:
            return
        try:
            ticket.sync()
        except OSError as error:
            partition.sync_failed(error)
        else:
            partition.settle(ticket)


class RememberedFilesystem(MemoryFilesystem):
    """Keeps what a power cut would have left at each call, just before the call took effect."""

    def __init__(self, keep: Keep) -> None:
        super().__init__()
        self._keep = keep
        self.moments: list[MemoryFilesystem] = []

    def called(self, name: str, path: str) -> None:
        super().called(name, path)
        self.moments.append(self.survivors(self._keep))


@asynccontextmanager
async def running_broker(
    filesystem: MemoryFilesystem, clock: Clock, **settings: str
) -> AsyncIterator[Broker]:
    """A broker that has started; at the end it just stops, as if killed."""
    stated = SETTINGS | {name.replace("_", "."): value for name, value in settings.items()}
    async with asyncio.TaskGroup() as tasks:
        store = Store(filesystem, "/data", clock, node_id=1)
        loop = asyncio.get_running_loop()
        broker = Broker(load(BrokerSettings, stated), clock, store, loop, tasks)
        broker.flusher = InlineFlusher(loop)
        broker.partitions = Partitions(store, broker.flusher)
        await Topics.open(broker)
        broker.groups = group_coordinator(broker)
        broker.shares = ShareCoordinator(broker)
        broker.transactions = TransactionCoordinator(broker)
        broker.groups.start()
        broker.shares.start()
        broker.transactions.start()
        try:
            yield broker
        finally:
            broker.groups.close()
            broker.shares.close()
            broker.cancel_tasks()
