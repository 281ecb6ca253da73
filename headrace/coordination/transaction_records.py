"""What `__transaction_state` says of one transactional id, in Kafka's own bytes.

key      type 0 (int16) | transactional id (string)
value    version (int16) | TransactionLogValue of that version; empty: the id was forgotten
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from headrace.protocol.primitives import Malformed, Reader, Writer

TRANSACTION_STATE_TOPIC: Final = "__transaction_state"

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
MAX_EPOCH: Final = 2**15 - 1

TRANSACTION_LOG_KEY: Final = 0
OLDEST_VALUE: Final = 0
NEWEST_VALUE: Final = 1
"""The first flexible version: Kafka writes it since `transaction.version` 1."""

PREVIOUS_PRODUCER_ID: Final = 0
NEXT_PRODUCER_ID: Final = 1
CLIENT_TRANSACTION_VERSION: Final = 2


class TransactionState(IntEnum):
    """Where a transaction stands; the numbers and names are Kafka's."""

    title: str

    def __new__(cls, value: int, title: str) -> "TransactionState":
        state = int.__new__(cls, value)
        state._value_ = value
        state.title = title
        return state

    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"
    DEAD = 6, "Dead"
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"


class TopicPartition(NamedTuple):
    """One partition of a topic, by name."""

    topic: str
    partition: int


class ProducerIdentity(NamedTuple):
    """Who a producer says it is."""

    producer_id: int
    producer_epoch: int


NOBODY: Final = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@dataclass(frozen=True, slots=True)
class Transaction:
    """All that is known of one transactional id; each change of it is one record."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = -1
    updated_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0
    # Kafka's format has no room for it, so a reload forgets it and fences a retry it would allow.
    last_producer_epoch: int = field(default=NO_PRODUCER_EPOCH, compare=False)

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def is_ending(self) -> bool:
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The transactional id expired: whoever comes next with it is new."""

    transactional_id: str


TransactionRecord = Transaction | Forgotten


class TransactionCodec:
    """Transaction records as the keys and values of log records."""

    def encode(self, record: TransactionRecord) -> tuple[bytes | None, bytes | None]:
        key = Writer()
        key.int16(TRANSACTION_LOG_KEY)
        key.string(record.transactional_id)
        if isinstance(record, Forgotten):
            return key.getvalue(), None
        return key.getvalue(), _write_value(record)

    def decode(self, key: bytes | None, value: bytes | None) -> TransactionRecord | None:
        reader = Reader(key or b"")
        if reader.remaining < 2 or reader.int16() != TRANSACTION_LOG_KEY:
            return None
        transactional_id = reader.string()
        if value is None:
            return Forgotten(transactional_id)
        body = Reader(value)
        version = body.int16()
        if not OLDEST_VALUE <= version <= NEWEST_VALUE:
            return None
        return _read_value(transactional_id, body, flexible=version > OLDEST_VALUE)


def _write_value(txn: Transaction) -> bytes:
    writer = Writer()
    writer.int16(NEWEST_VALUE)
    writer.int64(txn.producer_id)
    writer.int16(txn.producer_epoch)
    writer.int32(txn.timeout_ms)
    writer.int8(txn.state)
    if txn.state is TransactionState.EMPTY:
        writer.compact_array(None, lambda _: None)
    else:
        writer.compact_array(
            by_topic(txn.partitions), lambda entry: _write_topic(writer, entry[0], entry[1])
        )
    writer.int64(txn.updated_ms)
    writer.int64(txn.started_ms)
    writer.tagged_fields(_tagged(txn))
    return writer.getvalue()


def _write_topic(writer: Writer, topic: str, indexes: list[int]) -> None:
    writer.compact_string(topic)
    writer.compact_array(indexes, writer.int32)
    writer.tagged_fields()


def _tagged(txn: Transaction) -> Iterable[tuple[int, bytes]]:
    if txn.previous_producer_id != NO_PRODUCER_ID:
        yield PREVIOUS_PRODUCER_ID, txn.previous_producer_id.to_bytes(8, "big", signed=True)
    if txn.next_producer_id != NO_PRODUCER_ID:
        yield NEXT_PRODUCER_ID, txn.next_producer_id.to_bytes(8, "big", signed=True)
    if txn.client_version != 0:
        yield CLIENT_TRANSACTION_VERSION, txn.client_version.to_bytes(2, "big", signed=True)


def _read_value(transactional_id: str, reader: Reader, *, flexible: bool) -> Transaction:
    producer_id, producer_epoch = reader.int64(), reader.int16()
    timeout_ms, status = reader.int32(), reader.int8()
    partitions = _read_partitions(reader, flexible=flexible)
    updated_ms, started_ms = reader.int64(), reader.int64()
    tagged = reader.tagged_fields() if flexible else {}
    try:
        state = TransactionState(status)  # type: ignore[call-arg]  # looked up by number alone
    except ValueError:
        raise Malformed(f"no transaction state has the number {status}") from None
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timeout_ms=timeout_ms,
        state=state,
        partitions=frozenset(partitions),
        started_ms=started_ms,
        updated_ms=updated_ms,
        previous_producer_id=_signed(tagged.get(PREVIOUS_PRODUCER_ID), NO_PRODUCER_ID),
        next_producer_id=_signed(tagged.get(NEXT_PRODUCER_ID), NO_PRODUCER_ID),
        client_version=_signed(tagged.get(CLIENT_TRANSACTION_VERSION), 0),
    )


def _read_partitions(reader: Reader, *, flexible: bool) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    for _ in range((reader.compact_array_length() if flexible else reader.array_length()) or 0):
        topic = reader.compact_string() if flexible else reader.string()
        indexes = (
            reader.compact_array(reader.int32) if flexible else reader.array(reader.int32)
        ) or []
        if flexible:
            reader.tagged_fields()
        found.extend(TopicPartition(topic, index) for index in indexes)
    return found


def _signed(field_bytes: bytes | None, default: int) -> int:
    return default if field_bytes is None else int.from_bytes(field_bytes, "big", signed=True)


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    """Partitions gathered by topic, in a stable order."""
    gathered: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        gathered.setdefault(topic, []).append(partition)
    return list(gathered.items())
