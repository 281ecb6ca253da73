"""What is written in a transaction must be part of it: added on the way, or refused (KIP-890)."""

from collections.abc import Collection, Iterable
from enum import Enum
from typing import TYPE_CHECKING

from headrace.broker.partitions import Partition
from headrace.coordination.transaction_records import ProducerIdentity, TopicPartition
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.records import HEADER_BYTES, MAGIC, BatchView

if TYPE_CHECKING:
    from headrace.broker.transactions import TransactionCoordinator

# Kafka tells older producers to come again with a code that they retry without new metadata.
_COME_AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)

MAGIC_POSITION = 16


class Admits(Enum):
    """What a client's version of a request lets it be told, and lets it leave to the broker."""

    VERIFIED = "verified"
    ABORTABLE = "told of abortable errors"
    ADDING = "adding partitions by writing to them"

    @classmethod
    def produce(cls, version: int) -> "Admits":
        return cls.ADDING if version >= 12 else cls.ABORTABLE if version >= 11 else cls.VERIFIED

    @classmethod
    def txn_offset_commit(cls, version: int) -> "Admits":
        return cls.ADDING if version >= 5 else cls.ABORTABLE if version >= 4 else cls.VERIFIED


def admit(
    coordinator: "TransactionCoordinator",
    transactional_id: str,
    identity: ProducerIdentity,
    partitions: Collection[TopicPartition],
    admits: Admits,
) -> tuple[Partition | None, frozenset[TopicPartition]]:
    """The log that must be durable before the write is acknowledged, and what is not admitted."""
    try:
        if admits is Admits.ADDING:
            return coordinator.add_now(transactional_id, identity, partitions), frozenset()
        if not coordinator.verifies:
            return None, frozenset()
        missing = coordinator.missing(transactional_id, identity, partitions)
        return coordinator.journal(transactional_id), missing
    except KafkaError as refusal:
        raise _as_told(refusal, admits) from refusal


def not_added(admits: Admits) -> KafkaError:
    if admits is Admits.VERIFIED:
        message = "Partition was not added to the transaction"
        return KafkaError(ErrorCode.INVALID_TXN_STATE, message)
    return KafkaError(ErrorCode.TRANSACTION_ABORTABLE)


def _as_told(refusal: KafkaError, admits: Admits) -> KafkaError:
    code = refusal.code
    if code is ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, refusal.message)
    adding = code is ErrorCode.CONCURRENT_TRANSACTIONS and admits is Admits.ADDING
    if code in _COME_AGAIN and not adding:
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            "Unable to verify the partition has been added to the transaction. "
            f"Underlying error: {code.name}",
        )
    return refusal


class Admission:
    """One Produce inside a transaction: what was admitted, and the log that must be durable."""

    def __init__(
        self,
        coordinator: "TransactionCoordinator",
        transactional_id: str,
        writes: Iterable[tuple[Partition, memoryview]],
        version: int,
    ) -> None:
        self.journal: Partition | None = None
        self._refusals: dict[Partition, KafkaError] = {}
        admits = Admits.produce(version)
        wanted: dict[TopicPartition, Partition] = {}
        producers: set[ProducerIdentity] = set()
        for partition, records in writes:
            if len(records) < HEADER_BYTES or records[MAGIC_POSITION] != MAGIC:
                # No batch of ours: the log refuses it in its own words.
                continue
            batch = BatchView(records)
            if batch.is_transactional:
                wanted[TopicPartition(partition.topic, partition.index)] = partition
                producers.add(ProducerIdentity(batch.producer_id, batch.producer_epoch))
        if not wanted:
            return
        try:
            if len(producers) > 1:
                raise KafkaError(
                    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                    "Transactional records contained more than one producer ID",
                )
            identity = producers.pop()
            self.journal, missing = admit(
                coordinator, transactional_id, identity, wanted.keys(), admits
            )
            self._refusals = {wanted[each]: not_added(admits) for each in missing}
        except KafkaError as refusal:
            self._refusals = dict.fromkeys(wanted.values(), refusal)

    def check(self, partition: Partition) -> None:
        """Raise the refusal of a partition that may not be written to."""
        refusal = self._refusals.get(partition)
        if refusal is not None:
            raise refusal
