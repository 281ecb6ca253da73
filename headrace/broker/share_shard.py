"""One partition of __share_group_state at work: its share partitions and their locks."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from headrace.broker.shard import Journal, Shard
from headrace.broker.waits import Wait
from headrace.clock import Clock
from headrace.coordination.group import Now
from headrace.coordination.machine import Decision
from headrace.coordination.share_partition import ShareLimits
from headrace.coordination.share_partitions import ShareDecision, SharePartitions
from headrace.coordination.share_records import ShareCodec, SharePartitionKey, ShareRecord
from headrace.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

LOAD_STEP_BYTES = 64 << 10
"""How much of a long log is replayed before others on the loop have their turn: a few ms."""

RETRY_MS = 1000
"""A lock whose end could not be written is tried again after this long."""

PRUNED_ABOVE = 2000
"""A log with fewer records than this is not worth writing anew."""

T = TypeVar("T")
Decide = Callable[[SharePartitions], ShareDecision]
Spawn = Callable[[Coroutine[Any, Any, None]], None]
LimitsOf = Callable[[str], ShareLimits]

_NOTHING: ShareDecision = Decision()


class Watch:
    """Who waits for records of one share partition to become available."""

    __slots__ = ("waiters",)

    def __init__(self) -> None:
        self.waiters: dict[Wait, None] = {}


class ShareShard:
    """One shard with its alarm. Fetches that wait are woken when records are offered again."""

    def __init__(
        self, journal: Journal, limits_of: LimitsOf, clock: Clock, *, updates_per_snapshot: int
    ) -> None:
        self._journal = journal
        self._limits_of = limits_of
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._watches: dict[SharePartitionKey, Watch] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = 0
        self._shard: Shard[SharePartitions, ShareRecord] = Shard(
            journal, lambda: SharePartitions(updates_per_snapshot), ShareCodec(), clock
        )
        self.loaded = asyncio.Event()

    @property
    def length(self) -> int:
        """How many records there are to load, about."""
        return self._journal.log.log_end_offset - self._journal.log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self._journal.log.log_end_offset

    def load(self) -> None:
        self._shard.load()
        self.loaded.set()

    async def load_in_steps(self) -> None:
        """Load while the broker serves: until this is done, clients are told to come again."""
        for _ in self._shard.load_steps(LOAD_STEP_BYTES):
            await asyncio.sleep(0)
        self.loaded.set()

    def now(self) -> Now:
        return Now(self._clock.now_ms(), self._clock.monotonic_ms())

    def apply(self, decide: Decide) -> None:
        """Decide and replay; nothing may be said of it before `durable` returned."""
        if not self.loaded.is_set():
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "its log is being read")
        try:
            offered = self._shard.apply(lambda: decide(self._shard.machine))
        finally:
            self._set_alarm()
        for key in offered:
            self.wake(key)

    async def run(self, decide: Decide) -> None:
        self.apply(decide)
        await self.durable()

    async def durable(self) -> None:
        await self._shard.durable()

    def peek(self, question: Callable[[SharePartitions], T]) -> T:
        """An answer from memory, or a move of what only memory knows."""
        found: list[T] = []

        def ask(machine: SharePartitions) -> ShareDecision:
            found.append(question(machine))
            return _NOTHING

        self.apply(ask)
        return found[0]

    async def look(self, question: Callable[[SharePartitions], T]) -> T:
        """An answer that rests on nothing a power cut could take back."""
        found = self.peek(question)
        await self.durable()
        return found

    async def prune(self) -> int | None:
        """Write all states anew if the log has grown; below the returned offset nothing counts."""
        if not self.loaded.is_set() or self.length <= PRUNED_ABOVE:
            return None
        before = self.end_offset
        await self.run(lambda machine: machine.snapshots(self.now()))
        return before

    def watch(self, key: SharePartitionKey) -> Watch:
        return self._watches.setdefault(key, Watch())

    def unwatch(self, key: SharePartitionKey) -> None:
        """Forget a watch that nobody waits on."""
        watch = self._watches.get(key)
        if watch is not None and not watch.waiters:
            del self._watches[key]

    def wake(self, key: SharePartitionKey) -> None:
        watch = self._watches.get(key)
        if watch is not None:
            for wait in list(watch.waiters):
                wait.wake()

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    def _set_alarm(self) -> None:
        next_ms = self._shard.machine.deadlines.next_ms()
        if next_ms is None or (self._alarm is not None and self._alarm_ms <= next_ms):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        delay_ms = max(next_ms - self._clock.monotonic_ms(), 0)
        self._alarm_ms = next_ms
        self._alarm = self._loop.call_later(delay_ms / 1000, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        now = self.now()
        for key in self._shard.machine.deadlines.due(now.monotonic_ms):
            self._expire(key, now)
        self._set_alarm()

    def _expire(self, key: SharePartitionKey, now: Now) -> None:
        try:
            self.apply(lambda machine: machine.expire(key, self._limits_of(key.group_id), now))
            self._shard.machine.watch(key)
        except KafkaError as error:
            logger.warning("record locks kept for now key=%s error=%s", key, error)
            self._shard.machine.deadlines.set(key, now.monotonic_ms + RETRY_MS)
