"""Logs with a high watermark: what is durable, what may be read, and who waits for either."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from enum import IntEnum
from uuid import UUID

from headrace.broker.flusher import Flusher, Ticket
from headrace.broker.waits import Wait
from headrace.errors import ErrorCode, KafkaError
from headrace.log.origin import Origin
from headrace.log.partition_log import Appended, PartitionLog
from headrace.log.reading import FileSlice
from headrace.log.settings import TopicSettings
from headrace.log.store import Store
from headrace.log.sync_ticket import SyncTicket
from headrace.log.txn_index import AbortedTxn
from headrace.protocol.records import batches

logger = logging.getLogger(__name__)

# So many aborted transactions are told without asking whether the records at hand have them.
FEW_ABORTED = 8

CATCH_UP_S = 5.0
"""How long a question about the end of a log waits for the sync of what is written."""

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

Settled = Callable[[KafkaError | None], None]


class Isolation(IntEnum):
    """Which records a reader may see, as the wire numbers it."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1

    @classmethod
    def of(cls, level: int) -> "Isolation":
        """A level that Kafka does not have shows no more than the stricter one it has."""
        return cls.READ_COMMITTED if level else cls.READ_UNCOMMITTED


class Partition:
    """A log whose readers see only what is below the high watermark.

    The high watermark follows the sync, so nothing a reader saw is taken back by a power cut;
    with `write.caching` it follows the write, and the sync follows within `flush.ms`.
    """

    def __init__(
        self, log: PartitionLog, settings: TopicSettings, flusher: Flusher, topic_id: UUID
    ) -> None:
        topic, _, index = log.name.rpartition("-")
        self.topic = topic
        self.index = int(index)
        self.topic_id = topic_id
        self.internal = topic in INTERNAL_TOPICS
        self.log = log
        self.leader_epoch = 0
        self.waiters: dict[Wait, None] = {}
        self.removed = False
        self._flusher = flusher
        self._appended_bytes = 0
        self._visible_bytes = 0
        self._ticket_bytes = 0
        self._unsettled: deque[tuple[int, Settled]] = deque()
        self._sync_timer: asyncio.TimerHandle | None = None
        self._fenced: KafkaError | None = None
        self._use(settings)
        self.high_watermark = log.log_end_offset if self._write_caching else log.synced_offset
        self.last_stable_offset = self._stable_offset()
        if log.synced_offset < log.log_end_offset:
            flusher.schedule(self)

    def __str__(self) -> str:
        return self.log.name

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    def append(
        self, records: memoryview | bytearray, *, origin: Origin = Origin.CLIENT
    ) -> Appended:
        """Write, and move the high watermark or schedule the sync that will."""
        if self._fenced is not None:
            # Refused even if mended now: whoever writes must look at the log again first.
            refusal = self._fenced
            self._mend()
            raise refusal
        appended = self.log.append(records, origin=origin, leader_epoch=self.leader_epoch)
        if appended.duplicate:
            return appended
        self._appended_bytes += len(records)
        if self._write_caching:
            self._advance(appended.last_offset + 1, self._appended_bytes)
            if appended.last_offset - self.log.synced_offset >= self._flush_messages:
                self._flusher.schedule(self)
            elif self._sync_timer is None:
                self._sync_later()
        else:
            self._flusher.schedule(self)
        return appended

    def durable(self, next_offset: int) -> "asyncio.Future[None] | None":
        """None if everything below is acknowledged already, else a future that says when."""
        if next_offset <= self.high_watermark:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settled(error: KafkaError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self.when_durable(next_offset, settled)
        return future

    def when_durable(self, next_offset: int, settled: Settled) -> None:
        """Call back once everything below the offset is durable, or cannot be made so."""
        if next_offset <= self.high_watermark or self._fenced is not None:
            settled(None if next_offset <= self.high_watermark else self._fenced)
        else:
            self._unsettled.append((next_offset, settled))

    async def wait_durable(self, next_offset: int) -> None:
        future = self.durable(next_offset)
        if future is not None:
            await future

    async def caught_up(self) -> None:
        """Wait for the sync of what is written, so that a client finds what it had acknowledged.

        Under acks=1 the acknowledgement comes before the sync. A disk that takes too long is not
        waited for: the end as readers see it is true as well.
        """
        future = self.durable(self.log.log_end_offset)
        if future is None:
            return
        # A handler's first step is taken outside of any task, where asyncio.timeout refuses.
        patience = future.get_loop().call_later(CATCH_UP_S, _give_up, future)
        try:
            await future
        finally:
            patience.cancel()

    def read_limit(self, isolation: Isolation) -> int:
        """Where a reader of this isolation must stop."""
        if isolation == Isolation.READ_COMMITTED:
            return self.last_stable_offset
        return self.high_watermark

    def read(
        self, offset: int, *, max_bytes: int, isolation: Isolation, min_one: bool
    ) -> tuple[FileSlice | None, list[AbortedTxn]]:
        """Whole batches from the one that holds `offset`; None where there is nothing to read."""
        limit = self.read_limit(isolation)
        log = self.log
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self} holds offsets {log.log_start_offset} to {log.log_end_offset}",
            )
        if offset >= limit:
            return None, []
        found = log.read(offset, max_bytes=max_bytes, end_offset=limit, min_one=min_one)
        if not found.size:
            return None, []
        if isolation != Isolation.READ_COMMITTED:
            return found, []
        return found, self._aborted(found, offset, limit)

    def _aborted(self, found: FileSlice, offset: int, limit: int) -> list[AbortedTxn]:
        """The aborted transactions that this slice has records of."""
        aborted = self.log.aborted(offset, limit)
        if len(aborted) <= FEW_ABORTED:
            return aborted
        # A reader far behind would be told again and again of all that is still before it.
        end = max(batch.next_offset for batch in batches(found.read()))
        return [entry for entry in aborted if entry.first_offset < end]

    def check_leader_epoch(self, epoch: int) -> None:
        """Refuse a client whose metadata is older or newer than this partition; -1 is no claim."""
        if epoch == -1 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{self} is at {self.leader_epoch}")
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{self} is at {self.leader_epoch}")

    def configure(self, settings: TopicSettings) -> None:
        """Take changed topic settings into use, from the next append on."""
        self.log.settings = settings
        was_caching = self._write_caching
        self._use(settings)
        if was_caching != self._write_caching:
            # Readers have seen everything written under caching: it must become durable.
            self._flusher.schedule(self)

    def _use(self, settings: TopicSettings) -> None:
        self.settings = settings
        self._write_caching = settings.write_caching
        self._flush_messages = settings.flush_messages
        # Whether a client's write needs a closer look; most topics never do.
        self.guarded = self.internal or settings.min_insync_replicas > 1

    def log_start_moved(self) -> None:
        """Old records went away: a parked reader below the new start must hear of it."""
        self._wake_waiters()

    def take_ticket(self) -> Ticket | None:
        self._cancel_sync_timer()
        if self.removed:
            return None
        self._flusher.synced_bytes += self._appended_bytes - self._ticket_bytes
        self._ticket_bytes = self._appended_bytes
        ticket = self.log.dirty()
        if ticket is None:
            self._advance(self.log.synced_offset, self._ticket_bytes)
        return ticket

    def settle(self, ticket: Ticket) -> None:
        if self.removed:
            return
        assert isinstance(ticket, SyncTicket)
        self.log.synced(ticket)
        if self.log.synced_offset > self.high_watermark:
            self._advance(self.log.synced_offset, self._ticket_bytes)

    def sync_failed(self, error: OSError) -> None:
        """The kernel may have dropped the pages it could not write, so a retry proves nothing.

        What no reader saw is cut off, so that the producer's retry writes it anew. Under
        `write.caching` readers saw all of it: writing stops until the log is opened again.
        """
        if self.removed:
            # Its files were set aside under the sync, and nobody waits for it any more.
            return
        refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self} could not be synced: {error}")
        self._fenced = refusal
        self._mend()
        self._fail_unsettled(refusal)

    def remove(self) -> None:
        """The topic is gone: nobody may wait for it any longer."""
        self.removed = True
        self._cancel_sync_timer()
        gone = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self} was deleted")
        self._fail_unsettled(gone)
        self._wake_waiters()

    def _advance(self, high_watermark: int, visible_bytes: int) -> None:
        stable_before = self.last_stable_offset
        self.high_watermark = high_watermark
        stable = self.last_stable_offset = self._stable_offset()
        if self.waiters:
            self._count(visible_bytes - self._visible_bytes, stable != stable_before)
        self._visible_bytes = visible_bytes
        unsettled = self._unsettled
        while unsettled and unsettled[0][0] <= high_watermark:
            unsettled.popleft()[1](None)

    def _count(self, visible_bytes: int, stable_moved: bool) -> None:
        all_stable = self.last_stable_offset == self.high_watermark
        for wait in list(self.waiters):
            if not wait.committed_only:
                wait.count(visible_bytes)
            elif stable_moved:
                # How many bytes a closed transaction set free is not known here: look again.
                wait.count(visible_bytes) if all_stable else wait.wake()

    def _stable_offset(self) -> int:
        unstable = self.log.producers.first_unstable_offset
        if unstable is None or unstable > self.high_watermark:
            return self.high_watermark
        return unstable

    def _sync_later(self) -> None:
        loop = asyncio.get_running_loop()
        delay_s = self.settings.flush_ms / 1000
        self._sync_timer = loop.call_later(delay_s, self._flusher.schedule, self)

    def _cancel_sync_timer(self) -> None:
        if self._sync_timer is not None:
            self._sync_timer.cancel()
            self._sync_timer = None

    def _mend(self) -> None:
        """Cut off what was never durable, and write again; a disk that fails still keeps us out."""
        if self._write_caching or self.high_watermark > self.log.synced_offset:
            return
        try:
            self.log.truncate(self.log.synced_offset)
        except OSError as error:
            logger.error("partition stays fenced partition=%s reason=%s", self, error)
            return
        logger.warning("unsynced records cut partition=%s end=%d", self, self.log.log_end_offset)
        self._fenced = None
        self._appended_bytes = self._ticket_bytes = self._visible_bytes

    def _fail_unsettled(self, refusal: KafkaError) -> None:
        unsettled, self._unsettled = self._unsettled, deque()
        for _, settled in unsettled:
            settled(refusal)

    def _wake_waiters(self) -> None:
        for wait in list(self.waiters):
            wait.wake()


def _give_up(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class Partitions:
    """Every partition that clients can name, by topic name and by topic id."""

    def __init__(self, store: Store, flusher: Flusher) -> None:
        self._store = store
        self._flusher = flusher
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[UUID, int], Partition] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, topic: str, index: int) -> Partition:
        partition = self._by_name.get((topic, index))
        if partition is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no partition {topic}-{index} here"
            )
        return partition

    def by_id(self, topic_id: UUID, index: int) -> Partition:
        partition = self._by_id.get((topic_id, index))
        if partition is None:
            known = (topic_id, 0) in self._by_id
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known else ErrorCode.UNKNOWN_TOPIC_ID,
                f"no partition {index} of topic id {topic_id} here",
            )
        return partition

    def all(self) -> Iterator[Partition]:
        return iter(self._by_name.values())

    def create(self, topic: str, index: int, topic_id: UUID, settings: TopicSettings) -> Partition:
        """A new partition, empty; what a deleted topic left under the name is dropped."""
        return self._add(self._store.create(topic, index, topic_id, settings), settings, topic_id)

    def open(self, topic: str, index: int, topic_id: UUID, settings: TopicSettings) -> Partition:
        """The partition as its files say, or new if there are none of this topic id."""
        return self._add(self._store.open(topic, index, topic_id, settings), settings, topic_id)

    def remove(self, topic: str, index: int) -> None:
        """Release everyone who waits for the partition, and set its files aside."""
        partition = self.get(topic, index)
        del self._by_name[topic, index]
        del self._by_id[partition.topic_id, index]
        partition.remove()
        self._store.delete(partition.log.name)

    def _add(self, log: PartitionLog, settings: TopicSettings, topic_id: UUID) -> Partition:
        partition = Partition(log, settings, self._flusher, topic_id)
        self._by_name[partition.topic, partition.index] = partition
        self._by_id[topic_id, partition.index] = partition
        return partition
