"""Group commit: one sync per partition, off the loop, settles every append made before it."""

import asyncio
import logging
import threading
from collections import deque
from queue import SimpleQueue
from typing import Protocol

logger = logging.getLogger(__name__)

# Syncs of different files overlap in the kernel and share its journal commits; more threads
# than this add nothing on one disk.
SYNC_THREADS = 16
# Tickets taken for each thread, the one it is in included: it goes on without waiting for the
# loop. With 100 partitions a quarter less CPU a request than with one ticket each; more would
# only take tickets early, so that fewer appends join a sync.
JOBS_AHEAD = 4


class Ticket(Protocol):
    """What must be on stable storage for everything up to now to be so."""

    def sync(self) -> None: ...


class Syncable(Protocol):
    """A partition, as the flusher sees it; every method runs on the loop."""

    def take_ticket(self) -> Ticket | None: ...

    def settle(self, ticket: Ticket) -> None: ...

    def sync_failed(self, error: OSError) -> None: ...


class Flusher:
    """Syncs partitions in a few threads; a partition is in at most one of them.

    Appends that arrive while their partition is being synced join its next sync, so the slower
    the disk, the more requests one sync settles.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, threads: int = SYNC_THREADS) -> None:
        self._loop = loop
        self._free_jobs = threads * JOBS_AHEAD
        self._dirty: deque[Syncable] = deque()
        self._queued: set[Syncable] = set()
        self._syncing: set[Syncable] = set()
        self._jobs: SimpleQueue[tuple[Syncable, Ticket] | None] = SimpleQueue()
        self._done: deque[tuple[Syncable, Ticket, OSError | None]] = deque()
        self._told = False
        self._started = False
        # How much was made durable since the start, counted by the partitions.
        self.synced_bytes = 0
        self._quiet: asyncio.Event = asyncio.Event()
        self._quiet.set()
        self._threads = [
            threading.Thread(target=self._work, name=f"headrace-sync-{number}", daemon=True)
            for number in range(threads)
        ]

    def schedule(self, partition: Syncable) -> None:
        """Sync the partition soon; from the loop thread only."""
        if partition in self._queued:
            return
        self._queued.add(partition)
        if partition not in self._syncing:
            self._enqueue(partition)

    async def drain(self) -> None:
        """Return once nothing is dirty and no sync runs."""
        await self._quiet.wait()

    def stop(self) -> None:
        """End the threads; the syncs they are in finish first."""
        if self._threads[0].is_alive():
            for _ in self._threads:
                self._jobs.put(None)
            for thread in self._threads:
                thread.join()

    def _enqueue(self, partition: Syncable) -> None:
        self._quiet.clear()
        self._dirty.append(partition)
        if not self._started:
            # Not at once: the appends of the rest of this burst join the same sync.
            self._started = True
            self._loop.call_soon(self._start)

    def _start(self) -> None:
        self._started = False
        if not self._threads[0].is_alive() and self._threads[0].ident is None:
            for thread in self._threads:
                thread.start()
        while self._free_jobs and self._dirty:
            partition = self._dirty.popleft()
            self._queued.discard(partition)
            ticket = partition.take_ticket()
            if ticket is not None:
                self._syncing.add(partition)
                self._free_jobs -= 1
                self._jobs.put((partition, ticket))
        if not self._syncing and not self._dirty:
            self._quiet.set()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            partition, ticket = job
            error = None
            try:
                ticket.sync()
            except OSError as failure:
                error = failure
            self._done.append((partition, ticket, error))
            # An idle thread must not keep a file open that is deleted meanwhile.
            del job, partition, ticket
            if self._told:
                continue
            # One call wakes the loop for every sync that ends before it looks: without
            # it every sync costs a system call and a turn of the loop.
            self._told = True
            try:
                self._loop.call_soon_threadsafe(self._settle)
            except RuntimeError:
                # The loop is closed: the broker was torn down without a drain.
                return

    def _settle(self) -> None:
        # Before looking, so that a sync that ends after the look wakes the loop again.
        self._told = False
        while self._done:
            partition, ticket, error = self._done.popleft()
            self._syncing.discard(partition)
            self._free_jobs += 1
            if error is None:
                partition.settle(ticket)
            else:
                logger.error("sync failed partition=%s error=%s", partition, error)
                partition.sync_failed(error)
            if partition in self._queued:
                self._enqueue(partition)
        if not self._started:
            self._start()
