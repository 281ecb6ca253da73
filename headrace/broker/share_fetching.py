"""One ShareFetch being served: look, take and lock, or wait until there is something."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.broker.group_settings import READ_COMMITTED
from headrace.broker.partitions import Isolation, Partition
from headrace.broker.share_reading import Appetite, Offer, look
from headrace.broker.share_sessions import ShareSession, TopicPartition
from headrace.broker.share_shard import ShareShard
from headrace.coordination.share_partition import AcquiredRecords
from headrace.coordination.share_partition_acquire import Wanted
from headrace.coordination.share_records import SharePartitionKey
from headrace.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.broker.context import Broker

MAX_WAIT_MS = 600_000
"""A wait is bounded even if a client does not bound it."""

_NOT_THERE = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """What one ShareFetch asks for, over all its partitions."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    strict: bool


@dataclass(slots=True)
class Fetched:
    """What one partition gives."""

    records: bytes = b""
    acquired: Sequence[AcquiredRecords] = ()
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class _Source:
    """A partition that is fetched from, with its share state."""

    at: TopicPartition
    key: SharePartitionKey
    log: Partition
    shard: ShareShard


class ShareFetching:
    """Serves a session once. Nothing is taken for a session that has ended meanwhile."""

    def __init__(self, broker: "Broker", session: ShareSession, limits: FetchLimits) -> None:
        self._broker = broker
        self._session = session
        self._limits = limits
        group_id = session.key.group_id
        committed = broker.shares.settings_of(group_id).share_isolation_level == READ_COMMITTED
        self._isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
        self._share_limits = broker.shares.limits_of(group_id)
        self._sources: list[_Source] = []
        self._answers: dict[TopicPartition, Fetched] = {}

    async def fetch(self) -> dict[TopicPartition, Fetched]:
        """What there is, as soon as it is enough or the wait is over."""
        deadline = self._broker.loop.time() + min(self._limits.max_wait_ms, MAX_WAIT_MS) / 1000
        await self._open()
        while not self._session.closed:
            offers = self._look()
            is_late = self._broker.draining or self._broker.loop.time() >= deadline
            enough = sum(offer.size for _, offer in offers) >= max(self._limits.min_bytes, 1)
            if enough or is_late or self._answers:
                self._take(offers)
            if self._answers or is_late:
                break
            await self._park(deadline - self._broker.loop.time())
        return self._answers

    async def _open(self) -> None:
        group_id = self._session.key.group_id
        for at in list(self._session.partitions):
            key = SharePartitionKey(group_id, *at)
            try:
                log = self._broker.partitions.by_id(*at)
                shard = await self._broker.shares.begin(key, log)
                self._sources.append(_Source(at, key, log, shard))
            except KafkaError as error:
                self._answers[at] = Fetched(error=_told(error))

    def _look(self) -> list[tuple[_Source, Offer]]:
        found: list[tuple[_Source, Offer]] = []
        left_bytes, left_records = self._limits.max_bytes, self._limits.max_records
        for source in self._sources:
            if left_bytes <= 0 or left_records <= 0:
                break
            appetite = Appetite(
                left_records, left_bytes, self._isolation, self._share_limits.max_record_locks
            )
            try:
                offer = self._offer(source, appetite, min_one=not found)
            except KafkaError as error:
                self._answers[source.at] = Fetched(error=_told(error))
                continue
            if offer.ranges:
                found.append((source, offer))
                left_bytes -= offer.size
                left_records -= sum(last - first + 1 for first, last in offer.ranges)
        return found

    def _offer(self, source: _Source, appetite: Appetite, *, min_one: bool) -> Offer:
        if source.log.removed:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"{source.log} was deleted")
        shard, key = source.shard, source.key
        share = shard.peek(lambda machine: machine.find(key))
        if share is None or not share.is_initialized:
            # Deleted, or moved by an administrator, since the fetch began: the next one begins it.
            return Offer()
        offer = look(source.log, share, appetite, min_one=min_one)
        if offer.aborted:
            shard.apply(lambda machine: machine.archive(key, offer.aborted, shard.now()))
        return offer

    def _take(self, offers: Sequence[tuple[_Source, Offer]]) -> None:
        left_records = self._limits.max_records
        for source, offer in offers:
            if left_records <= 0:
                return
            acquired = self._acquire(source, offer, left_records)
            if acquired:
                self._answers[source.at] = Fetched(offer.holding(acquired), acquired)
                self._session.serve_last(source.at)
                left_records -= sum(last - first + 1 for first, last, _ in acquired)

    def _acquire(
        self, source: _Source, offer: Offer, max_records: int
    ) -> Sequence[AcquiredRecords]:
        wanted = Wanted(
            self._session.key.member_id, max_records, self._limits.batch_size, self._limits.strict
        )
        shard, key = source.shard, source.key
        return shard.peek(
            lambda machine: machine.acquire(
                key, offer.ranges, wanted, self._share_limits, shard.now()
            )
        )

    async def _park(self, delay_s: float) -> None:
        """Until bytes become visible, records are offered again, or the time is over."""
        ready: asyncio.Future[None] = self._broker.loop.create_future()
        watched = [source.log for source in self._sources]
        watches = [source.shard.watch(source.key) for source in self._sources]
        wait = self._broker.waits.park(
            [*watched, *watches],
            missing_bytes=1,
            committed_only=self._isolation is Isolation.READ_COMMITTED,
            delay_s=max(delay_s, 0),
            resume=lambda: None if ready.done() else ready.set_result(None),
        )
        try:
            await ready
        finally:
            wait.cancel()
            for source in self._sources:
                source.shard.unwatch(source.key)


def _told(error: KafkaError) -> KafkaError:
    """A consumer asks again after these; it knows nothing of the coordinator of share states."""
    if error.code in _NOT_THERE:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, error.message)
    return error
