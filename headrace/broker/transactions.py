"""The transaction coordinator: its machines over `__transaction_state`, markers and timers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.first_step import Begun
from headrace.broker.markers import OFFSETS_TOPIC, Markers
from headrace.broker.shard import Shard
from headrace.coordination.sharding import partition_of
from headrace.coordination.transaction_moves import TRANSACTIONS_V2, ProducerIdNeeded
from headrace.coordination.transaction_records import (
    TRANSACTION_STATE_TOPIC,
    ProducerIdentity,
    TopicPartition,
    Transaction,
    TransactionCodec,
    TransactionRecord,
)
from headrace.coordination.transactions import (
    Answer,
    TransactionDecision,
    Transactions,
    WriteMarkers,
)
from headrace.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.broker.context import Broker
    from headrace.broker.partitions import Partition

logger = logging.getLogger(__name__)

TransactionShard = Shard[Transactions, TransactionRecord]
Decide = Callable[[int | None], TransactionDecision]

SETTLE_S = 1.0
"""How long a request waits for the end of the last transaction before it is told to come again."""

RETRY_S = 0.1
MAX_RETRY_S = 5.0
"""Markers that cannot be written are tried again, ever more seldom, until they are: the end of the
transaction is decided, and only they make it true."""

INIT_ATTEMPTS = 3
"""The first finds an ongoing transaction and aborts it, the second starts; one more for a rival."""


class TransactionCoordinator:
    """Every transactional id of this broker.

    What may be lost is kept here: who waits for the end of a transaction, and which ends are
    being carried out. All else is in the machines, and so in the log.
    """

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.markers = Markers(broker)
        self._shards: dict[int, TransactionShard] = {}
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._finishing: set[str] = set()
        self._creation = asyncio.Lock()

    def start(self) -> None:
        """Load every shard, finish what was ending, and look at timeouts from now on."""
        for index in range(self._partition_count()):
            self._shard(index)
        self._broker.spawn(_once(self.recover))
        settings = self._broker.settings
        abort_ms = settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        expire_ms = settings.transaction_remove_expired_transaction_cleanup_interval_ms
        self._broker.spawn(_every(abort_ms, self.abort_timed_out))
        self._broker.spawn(_every(expire_ms, self.expire))

    # Decisions

    async def init(
        self, transactional_id: str, *, timeout_ms: int, expected: ProducerIdentity | None
    ) -> ProducerIdentity:
        """Who a starting or recovering producer is; an ongoing transaction is aborted first."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        await self._ensure_topic()
        shard = self._shard_of(transactional_id)

        def decide(fresh_id: int | None) -> TransactionDecision:
            return shard.machine.init(
                transactional_id,
                timeout_ms=timeout_ms,
                expected=expected,
                fresh_id=fresh_id,
                now_ms=self._now_ms,
            )

        for _ in range(INIT_ATTEMPTS):
            await self.settled(transactional_id)
            answer = await self._carry_out(shard, decide)
            if answer.error is ErrorCode.NONE:
                return answer.identity
        raise KafkaError(answer.error, f"another transaction of {transactional_id} is ending")

    async def add_partitions(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        partitions: Collection[TopicPartition],
        *,
        client_version: int,
    ) -> None:
        """Add partitions; what is then written to them is acknowledged when this is durable too.

        So only what lies before it must be: the end of the last transaction, whose records an
        older client's next ones could not be told from after a power cut.
        """
        await self.settled(transactional_id)
        before = self.journal(transactional_id).log.log_end_offset
        self.add_now(transactional_id, identity, partitions, client_version=client_version)
        await self._shard_of(transactional_id).durable(before)

    def add_now(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        partitions: Collection[TopicPartition],
        *,
        client_version: int = TRANSACTIONS_V2,
    ) -> "Partition":
        """Add partitions without waiting; what follows counts once the returned log is durable."""
        shard = self._shard_of(transactional_id)
        shard.apply(
            lambda: shard.machine.add_partitions(
                transactional_id,
                identity,
                frozenset(partitions),
                client_version=client_version,
                now_ms=self._now_ms,
            )
        )
        return self.journal(transactional_id)

    def journal(self, transactional_id: str) -> "Partition":
        """The log that says which partitions are part of this transaction."""
        return self._partition(self._index_of(transactional_id))

    def missing(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        partitions: Collection[TopicPartition],
    ) -> frozenset[TopicPartition]:
        """Which of these are not part of this producer's transaction."""
        machine = self._shard_of(transactional_id).machine
        return machine.missing(transactional_id, identity, partitions)

    async def end(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        *,
        committed: bool,
        client_version: int,
    ) -> ProducerIdentity:
        """Decide how the transaction ends; returns who the producer is in the next one."""
        await self.settled(transactional_id)
        shard = self._shard_of(transactional_id)
        answer = await self._carry_out(
            shard,
            lambda fresh_id: shard.machine.end(
                transactional_id,
                identity,
                committed=committed,
                client_version=client_version,
                fresh_id=fresh_id,
                now_ms=self._now_ms,
            ),
        )
        if client_version >= TRANSACTIONS_V2:
            # Such a client begins the next transaction with a Produce, which cannot wait for the
            # end of this one as AddPartitionsToTxn does: so its answer waits.
            await self.settled(transactional_id)
        return answer.identity

    async def abort_timed_out(self) -> None:
        """Abort transactions that took too long; retry ends that nobody carries out."""
        for shard in list(self._shards.values()):
            for transactional_id in shard.machine.timed_out(self._now_ms):
                logger.info("transaction timed out transactional_id=%s", transactional_id)
                try:
                    await self._carry_out(shard, partial(self._abort, shard, transactional_id))
                except KafkaError as refusal:
                    logger.warning(
                        "timed out transaction not aborted yet transactional_id=%s reason=%s",
                        transactional_id,
                        refusal,
                    )
        await self.recover()

    async def expire(self) -> None:
        """Forget transactional ids unused for longer than `transactional.id.expiration.ms`."""
        expiration_ms = self._broker.settings.transactional_id_expiration_ms
        for shard in list(self._shards.values()):
            await shard.run(
                partial(shard.machine.expire, expiration_ms=expiration_ms, now_ms=self._now_ms)
            )

    async def recover(self) -> None:
        """Carry out the ends that the log decided, then abort what no machine knows of.

        In this order: a transaction that is ending hides what hangs on the same partitions.
        """
        for shard in list(self._shards.values()):
            unfinished = shard.machine.unfinished()
            if unfinished:
                # What is decided may not be durable yet, and no marker may precede its decision.
                await shard.durable()
            for write in unfinished:
                self._finish_soon(shard, write)
        for transactional_id in tuple(self._finishing):
            await self.settled(transactional_id)
        await self.abort_hanging()

    async def abort_hanging(self) -> None:
        """Abort what is open on a partition and in no machine, so that no reader waits for it."""
        if not self.verifies:
            return
        await self.markers.abort_hanging(
            lambda: frozenset(
                (txn.producer_id, partition) for txn in self.all() for partition in txn.partitions
            )
        )

    # Questions

    @property
    def verifies(self) -> bool:
        """Whether what an older client writes must be part of its transaction."""
        return self._broker.settings.transaction_partition_verification_enable

    def find(self, transactional_id: str) -> Transaction | None:
        if not self._partition_count():
            return None
        return self._shard_of(transactional_id).machine.find(transactional_id)

    def all(self) -> Iterator[Transaction]:
        for shard in self._shards.values():
            yield from shard.machine

    async def offsets_partition(self, group_id: str) -> TopicPartition:
        """Where this group's offsets are: a partition like any other to a transaction."""
        await self._broker.groups.shard_of(group_id)
        topic = self._broker.catalog.topics[OFFSETS_TOPIC]
        return TopicPartition(OFFSETS_TOPIC, partition_of(group_id, topic.partitions))

    async def settled(self, transactional_id: str) -> None:
        """Wait while the last transaction is ending, but not for long."""
        txn = self.find(transactional_id)
        if txn is None or not txn.is_ending:
            return
        waiting = self._waiting.get(transactional_id)
        if waiting is None:
            waiting = self._waiting[transactional_id] = self._broker.loop.create_future()
        await asyncio.wait({waiting}, timeout=SETTLE_S)

    # The parts

    @property
    def _now_ms(self) -> int:
        return self._broker.clock.now_ms()

    def _partition_count(self) -> int:
        topic = self._broker.catalog.topics.get(TRANSACTION_STATE_TOPIC)
        return 0 if topic is None else topic.partitions

    async def _ensure_topic(self) -> None:
        """The topic comes with the first transactional id."""
        async with self._creation:
            await self._broker.topics.ensure_internal(TRANSACTION_STATE_TOPIC)

    def _index_of(self, transactional_id: str) -> int:
        count = self._partition_count()
        if not count:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"transactional id {transactional_id} has no producer id",
            )
        return partition_of(transactional_id, count)

    def _shard_of(self, transactional_id: str) -> TransactionShard:
        return self._shard(self._index_of(transactional_id))

    def _partition(self, index: int) -> "Partition":
        return self._broker.partitions.get(TRANSACTION_STATE_TOPIC, index)

    def _shard(self, index: int) -> TransactionShard:
        shard = self._shards.get(index)
        if shard is None:
            max_timeout_ms = self._broker.settings.transaction_max_timeout_ms
            shard = Shard(
                self._partition(index),
                partial(Transactions, max_timeout_ms=max_timeout_ms),
                TransactionCodec(),
                self._broker.clock,
            )
            shard.load()
            self._shards[index] = shard
        return shard

    def _abort(
        self, shard: TransactionShard, transactional_id: str, fresh_id: int | None
    ) -> TransactionDecision:
        return shard.machine.abort_timed_out(
            transactional_id, fresh_id=fresh_id, now_ms=self._now_ms
        )

    async def _carry_out(self, shard: TransactionShard, decide: Decide) -> Answer:
        try:
            effects = await shard.run(partial(decide, None))
        except ProducerIdNeeded:
            fresh_id = await self._broker.topics.next_producer_id()
            effects = await shard.run(partial(decide, fresh_id))
        answer = Answer()
        for effect in effects:
            if isinstance(effect, WriteMarkers):
                self._finish_soon(shard, effect)
            else:
                answer = effect
        return answer

    def _finish_soon(self, shard: TransactionShard, write: WriteMarkers) -> None:
        transactional_id = write.transaction.transactional_id
        if transactional_id not in self._finishing:
            self._finishing.add(transactional_id)
            finishing = self._finish(shard, write)
            # In place: where no disk is waited for, the next transaction finds this one ended.
            with suppress(StopIteration):
                self._broker.spawn(_rest(Begun(finishing, finishing.send(None))))

    async def _finish(self, shard: TransactionShard, write: WriteMarkers) -> None:
        transactional_id = write.transaction.transactional_id
        try:
            await self._write_and_complete(shard, write)
            # The next transaction need not wait for this record: its own lies behind it.
            self._finishing.discard(transactional_id)
            waiting = self._waiting.pop(transactional_id, None)
            if waiting is not None:
                waiting.set_result(None)
            await shard.durable()
        except Exception:
            logger.exception("end not carried out yet transactional_id=%s", transactional_id)
        finally:
            self._finishing.discard(transactional_id)

    async def _write_and_complete(self, shard: TransactionShard, write: WriteMarkers) -> None:
        delay_s = RETRY_S
        while True:
            try:
                await self.markers.write(write)
                shard.apply(
                    lambda: shard.machine.markers_written(write.transaction, now_ms=self._now_ms)
                )
                return
            except KafkaError as refusal:
                logger.warning(
                    "transaction cannot end yet id=%s reason=%s",
                    write.transaction.transactional_id,
                    refusal,
                )
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, MAX_RETRY_S)


async def _rest(finishing: Begun[None]) -> None:
    await finishing


async def _every(interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(interval_ms / 1000)
        await _once(work)


async def _once(work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except Exception:
        logger.exception("transaction upkeep failed, and is tried again in its turn")
