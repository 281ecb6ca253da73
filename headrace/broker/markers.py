"""Markers: how the end of a transaction reaches each of its partitions, once and durably."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from headrace.broker.first_step import Begun
from headrace.broker.partitions import Partition
from headrace.broker.shard import Producer
from headrace.coordination.transaction_moves import TRANSACTIONS_V2
from headrace.coordination.transaction_records import (
    MAX_EPOCH,
    ProducerIdentity,
    TopicPartition,
    Transaction,
)
from headrace.coordination.transactions import WriteMarkers
from headrace.errors import ErrorCode, KafkaError
from headrace.log.origin import Origin
from headrace.protocol.records import control_batch

if TYPE_CHECKING:
    from headrace.broker.context import Broker

logger = logging.getLogger(__name__)

Open = tuple[int, TopicPartition]
"""Where a producer id has a transaction open."""

OFFSETS_TOPIC = "__consumer_offsets"
COORDINATOR_EPOCH = 0
"""One node never hands its coordinators on, so their epoch never rises."""


class Markers:
    """Writes markers; writing the same end twice leaves one marker on each partition."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    async def write(self, write: WriteMarkers) -> None:
        """End a transaction everywhere; returns when every marker is durable."""
        await _all(
            self._end(partition, write) for partition in sorted(write.transaction.partitions)
        )

    async def _end(self, partition: TopicPartition, write: WriteMarkers) -> None:
        """End the transaction on one partition, unless that is done or the partition deleted."""
        try:
            found = self._broker.partitions.get(*partition)
        except KafkaError as refusal:
            if refusal.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return
            raise
        if is_ended(found, write.transaction):
            # The marker may have been written by a process that was killed before it synced.
            await found.wait_durable(found.log.log_end_offset)
        else:
            await self.append(found, write.transaction.identity, committed=write.committed)

    def append(
        self,
        partition: Partition,
        identity: ProducerIdentity,
        *,
        committed: bool,
        coordinator_epoch: int = COORDINATOR_EPOCH,
    ) -> Awaitable[None]:
        """Write the marker in any case; where offsets end with it, their group hears of it."""
        if partition.topic == OFFSETS_TOPIC:
            return self._broker.groups.write_marker(
                partition.index,
                Producer(*identity),
                committed=committed,
                coordinator_epoch=coordinator_epoch,
            )
        marker = control_batch(
            *identity,
            commit=committed,
            coordinator_epoch=coordinator_epoch,
            timestamp=self._broker.clock.now_ms(),
        )
        appended = partition.append(marker, origin=Origin.COORDINATOR)
        return partition.wait_durable(appended.last_offset + 1)

    async def abort_hanging(self, known: Callable[[], Collection[Open]]) -> None:
        """Abort what is open on a partition and in no machine.

        A power cut may keep a batch and lose the record that added its partition: both were
        written together, and neither was answered. The raised epoch keeps a retry of that batch
        from being taken for a duplicate of one that is there to stay.
        """
        for partition, producer_id in self._hanging(known()):
            # Since the last one was awaited, the producer may have come back.
            if (producer_id, _place(partition)) in known():
                continue
            producer = partition.log.producers.find(producer_id)
            if producer is None or not producer.in_transaction:
                continue
            logger.warning(
                "hanging transaction aborted partition=%s producer_id=%d", partition, producer_id
            )
            raised = ProducerIdentity(producer_id, min(producer.epoch + 1, MAX_EPOCH))
            await self.append(partition, raised, committed=False)

    def _hanging(self, known: Collection[Open]) -> list[tuple[Partition, int]]:
        return [
            (partition, producer_id)
            for partition in self._broker.partitions.all()
            for _, producer_id, _ in partition.log.producers.open_transactions()
            if (producer_id, _place(partition)) not in known
        ]


def _place(partition: Partition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.index)


async def _all(ends: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Await every one, even if one fails: a retry then begins with nothing under way.

    All are written in one pass; a task is made only where a disk must be waited for.
    """
    outcomes: list[BaseException | None] = []
    waiting: list[Begun[None]] = []
    for end in ends:
        try:
            waiting.append(Begun(end, end.send(None)))
        except StopIteration:
            continue
        except KafkaError as refusal:
            outcomes.append(refusal)
    if waiting:
        outcomes += await asyncio.gather(*waiting, return_exceptions=True)
    for outcome in outcomes:
        if outcome is not None:
            raise outcome


def is_ended(partition: Partition, txn: Transaction) -> bool:
    """Whether the marker of this end stands already.

    Where the epoch was raised for it, records with that epoch are of the next transaction: a power
    cut may keep them and lose the record that says this one is complete.
    """
    producer = partition.log.producers.find(txn.producer_id)
    if producer is None or producer.epoch < txn.producer_epoch:
        return False
    return txn.client_version >= TRANSACTIONS_V2 or not producer.in_transaction
