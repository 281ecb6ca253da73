"""Retention and compaction of a running broker: when, and off the event loop.

Rewriting segments is work for an interpreter, so a thread of this process would take turns with
the loop that serves clients; a process of its own takes only what is left of the machine. The
loop itself does the two quick ends: the plan, and the exchange of names.
"""

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from headrace.broker.context import Broker
from headrace.broker.maintenance import checkpoint
from headrace.broker.partitions import Partition
from headrace.errors import KafkaError
from headrace.log import compaction_worker as worker
from headrace.log.cleaning import Cleaning
from headrace.log.compaction_plan import Cleanable, Limits, Plan, plan
from headrace.log.compaction_rewrite import Cleaned
from headrace.log.partition_log import PartitionLog
from headrace.log.retention import TrustedTime, drop_expired

logger = logging.getLogger(__name__)

# Looked at before the loop gets its turn: well under a millisecond.
AT_ONCE = 16
# A compaction that fails is tried again after the backoff, then after twice that, up to this.
MAX_RETRY_MS = 3_600_000
MAX_DOUBLINGS = 16
# What the worker yields to everything else on the machine.
NICENESS = 5
REPLY_BYTES = 1 << 20


@dataclass(slots=True)
class CleanerStats:
    """What compaction did since the start; read by whoever shows it."""

    compactions: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    last_duration_s: float = 0.0
    max_duration_s: float = 0.0
    last_key_buffer_used: float = 0.0
    last_run_ms: int = 0


class Cleaner:
    """Drops what retention no longer keeps, and compacts one log at a time, the dirtiest first."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._cleaning = Cleaning(broker.store)
        self._time = TrustedTime(broker.clock)
        self._under_way: PartitionLog | None = None
        # Of logs whose compaction failed: how often in a row, and when to try again.
        self._failures: dict[str, tuple[int, int]] = {}
        self.stats = CleanerStats(last_run_ms=broker.clock.monotonic_ms())

    @property
    def max_dirty_ratio(self) -> float:
        return self._cleaning.max_dirty_ratio

    @property
    def uncleanable(self) -> frozenset[str]:
        """Partitions whose compaction was given up until the next start."""
        return frozenset(self._cleaning.uncleanable)

    # Retention

    async def keep_retention(self) -> None:
        settings = self._broker.settings
        await asyncio.sleep(settings.log_initial_task_delay_ms / 1000)
        while True:
            await self.retain()
            await asyncio.sleep(self._broker.settings.log_retention_check_interval_ms / 1000)

    async def retain(self) -> int:
        """Look at every partition once; how many lost segments."""
        now_ms = self._time.now_ms()
        dropped = 0
        for number, partition in enumerate(list(self._broker.partitions.all())):
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
            if partition.removed or partition.log is self._under_way:
                continue
            dropped += self._retain(partition, now_ms)
        if dropped:
            await checkpoint(self._broker)
        return dropped

    def _retain(self, partition: Partition, now_ms: int) -> bool:
        log = partition.log
        try:
            if log.settings.compacted:
                # So that what must be compacted leaves the active segment of an idle log too.
                log.roll_if_due(now_ms)
            if drop_expired(log, high_watermark=partition.high_watermark, now_ms=now_ms):
                partition.log_start_moved()
                return True
        except (KafkaError, OSError) as error:
            logger.error("retention failed partition=%s reason=%s", partition, error)
        return False

    # Compaction

    async def keep_compacted(self) -> None:
        await asyncio.sleep(self._broker.settings.log_initial_task_delay_ms / 1000)
        while True:
            if self._broker.settings.log_cleaner_enable:
                await self.compact_all()
            await asyncio.sleep(self._broker.settings.log_cleaner_backoff_ms / 1000)

    async def compact_all(self) -> int:
        """Compact until no log is due; how many compactions that took."""
        done = 0
        self.stats.last_run_ms = self._broker.clock.monotonic_ms()
        if self._dirtiest(synced=True) is None:
            return done
        # A start must believe what is rewritten, or it would look for what was dropped.
        await checkpoint(self._broker)
        async with _Worker() as process:
            while (found := self._dirtiest()) is not None:
                await self._compact(found, process)
                done += 1
        return done

    def _dirtiest(self, *, synced: bool = False) -> Cleanable | None:
        steady_ms = self._broker.clock.monotonic_ms()
        partitions = {
            partition.log.name: partition
            for partition in self._broker.partitions.all()
            if partition.settings.compacted
            and self._failures.get(partition.log.name, (0, 0))[1] <= steady_ms
        }

        def stable_offset(log: PartitionLog) -> int:
            partition = partitions[log.name]
            stable = min(partition.last_stable_offset, log.synced_offset)
            if synced:
                return stable
            return min(stable, self._broker.store.recovery_point(partition.topic, partition.index))

        logs = [partition.log for partition in partitions.values()]
        return self._cleaning.dirtiest(logs, stable_offset, self._broker.clock.now_ms())

    async def _compact(self, found: Cleanable, process: "_Worker") -> None:
        log = self._under_way = found.log
        started = self._broker.loop.time()
        made = plan(found, now_ms=self._broker.clock.now_ms(), limits=self._limits())
        end: tuple[str, Any] = (worker.FAILED, "the plan was not carried out")
        try:
            async for word, what in process.carry_out(made):
                if word == worker.CLEANED:
                    await self._take_over(log, Cleaned(tuple(what[0]), what[1]))
                end = (word, what)
            if end[0] == worker.DONE:
                content = self._cleaning.note(log, end[1]["end_offset"])
                await asyncio.to_thread(self._cleaning.save, log.directory, content)
                self._failures.pop(log.name, None)
                self._count(log, end[1], self._broker.loop.time() - started)
        except OSError as error:
            end = (worker.FAILED, str(error))
        finally:
            self._under_way = None
        if end[0] != worker.DONE:
            await self._give_up(log, made, *end)

    async def _take_over(self, log: PartitionLog, cleaned: Cleaned) -> None:
        await asyncio.to_thread(self._cleaning.commit, log, cleaned)
        self._cleaning.exchange(log, cleaned)

    async def _give_up(self, log: PartitionLog, made: Plan, word: str, reason: object) -> None:
        for source in made.sources:
            await asyncio.to_thread(self._cleaning.abandon, log.directory, source.base_offset)
        if word == worker.DAMAGED:
            self._cleaning.uncleanable.add(log.name)
            logger.error(
                "compaction given up until the next start partition=%s reason=%s", log.name, reason
            )
            return
        failures = self._failures.get(log.name, (0, 0))[0] + 1
        backoff_ms = self._broker.settings.log_cleaner_backoff_ms
        wait_ms = min(backoff_ms << min(failures - 1, MAX_DOUBLINGS), MAX_RETRY_MS)
        self._failures[log.name] = failures, self._broker.clock.monotonic_ms() + wait_ms
        if word == worker.GONE:
            logger.info("compaction overtaken by a deletion partition=%s", log.name)
        else:
            logger.warning(
                "compaction failed partition=%s retry_ms=%d reason=%s", log.name, wait_ms, reason
            )

    def _limits(self) -> Limits:
        settings = self._broker.settings
        return Limits(
            settings.log_cleaner_dedupe_buffer_size,
            max(settings.log_cleaner_io_buffer_size, 1),
            settings.log_cleaner_io_max_bytes_per_second,
        )

    def _count(self, log: PartitionLog, progress: dict[str, Any], duration_s: float) -> None:
        stats = self.stats
        stats.compactions += 1
        stats.read_bytes += progress["read_bytes"]
        stats.written_bytes += progress["written_bytes"]
        stats.last_key_buffer_used = progress["key_buffer_used"]
        stats.last_duration_s = duration_s
        stats.max_duration_s = max(stats.max_duration_s, duration_s)
        logger.info(
            "compacted partition=%s end_offset=%d keys=%d read_bytes=%d written_bytes=%d s=%.2f",
            log.name,
            progress["end_offset"],
            progress["keys"],
            progress["read_bytes"],
            progress["written_bytes"],
            duration_s,
        )


class _Worker:
    """The process that rewrites segments, for as long as there is something to rewrite."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> "_Worker":
        return self

    async def __aexit__(self, *_reason: object) -> None:
        await self._stop()

    async def carry_out(self, made: Plan) -> AsyncIterator[tuple[str, Any]]:
        """What the worker says of one plan, up to the word that ends it."""
        process = self._process or await self._start()
        if process.stdin is None or process.stdout is None:
            raise OSError("the worker has no pipes")
        process.stdin.write(made.encode().encode() + b"\n")
        await process.stdin.drain()
        word = worker.CLEANED
        while word == worker.CLEANED:
            line = await process.stdout.readline()
            if not line:
                await self._stop()
                raise OSError("the worker ended in the midst of it")
            word, what = json.loads(line)
            yield word, what

    async def _start(self) -> asyncio.subprocess.Process:
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            worker.__name__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=REPLY_BYTES,
        )
        os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
        return process

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.kill()
        except ProcessLookupError:
            return
        # Reaped even if this task is being cancelled: a killed process ends at once.
        await asyncio.shield(process.wait())
