"""The records of __share_group_state, in Kafka's own bytes.

A key begins with its type and a value with its version, two bytes each:

    0  ShareSnapshot   group, topic id, partition -> all that is known of a share partition
    1  ShareUpdate     group, topic id, partition -> what changed since its last snapshot

A null value is a tombstone. Updates build on one another, so this topic is not compacted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from headrace.protocol.primitives import Malformed, Reader, Writer

SNAPSHOT_TYPE, UPDATE_TYPE = 0, 1
UNKNOWN = -1
"""An offset, an epoch or a count that nobody has stated yet."""

_COMPLETE_COUNT_TAG = 0


class SharePartitionKey(NamedTuple):
    """A partition of a topic as one share group sees it."""

    group_id: str
    topic_id: UUID
    partition: int


class StateBatch(NamedTuple):
    """What became of a range of records: 0 available, 2 acknowledged, 4 archived."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class SnapshotValue:
    """A share partition whole. The start offset is unknown until its first records are read."""

    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = UNKNOWN
    delivery_complete_count: int = UNKNOWN
    create_timestamp_ms: int = UNKNOWN
    write_timestamp_ms: int = UNKNOWN
    batches: tuple[StateBatch, ...] = ()


@dataclass(frozen=True, slots=True)
class UpdateValue:
    """What changed. A field that is unknown stays as it was."""

    snapshot_epoch: int = 0
    leader_epoch: int = UNKNOWN
    start_offset: int = UNKNOWN
    delivery_complete_count: int = UNKNOWN
    batches: tuple[StateBatch, ...] = ()


@dataclass(frozen=True, slots=True)
class ShareSnapshot:
    """The state of a share partition, or with no value its end."""

    key: SharePartitionKey
    value: SnapshotValue | None


@dataclass(frozen=True, slots=True)
class ShareUpdate:
    """A change of the state of a share partition."""

    key: SharePartitionKey
    value: UpdateValue | None


ShareRecord = ShareSnapshot | ShareUpdate


class ShareCodec:
    """The codec of both record types."""

    def encode(self, record: ShareRecord) -> tuple[bytes, bytes | None]:
        snapshot = isinstance(record, ShareSnapshot)
        key = Writer()
        key.int16(SNAPSHOT_TYPE if snapshot else UPDATE_TYPE)
        key.string(record.key.group_id)
        key.uuid(record.key.topic_id)
        key.int32(record.key.partition)
        if record.value is None:
            return key.getvalue(), None
        value = Writer()
        value.int16(0)
        if isinstance(record.value, SnapshotValue):
            _write_snapshot(value, record.value)
        else:
            _write_update(value, record.value)
        return key.getvalue(), value.getvalue()

    def decode(self, key: bytes | None, value: bytes | None) -> ShareRecord | None:
        """None for a type, a version or bytes that nobody here knows."""
        try:
            reader = Reader(key or b"")
            kind = reader.int16()
            found = SharePartitionKey(reader.string(), reader.uuid(), reader.int32())
            body = None if value is None else _versioned(value)
            if kind == SNAPSHOT_TYPE:
                return ShareSnapshot(found, _read_snapshot(body) if body else None)
            if kind == UPDATE_TYPE:
                return ShareUpdate(found, _read_update(body) if body else None)
        except ValueError:
            pass
        return None


def _versioned(value: bytes) -> Reader:
    reader = Reader(value)
    version = reader.int16()
    if version != 0:
        raise Malformed(f"value version {version} is not 0")
    return reader


def _write_snapshot(value: Writer, snapshot: SnapshotValue) -> None:
    value.int32(snapshot.snapshot_epoch)
    value.int32(snapshot.state_epoch)
    value.int32(snapshot.leader_epoch)
    value.int64(snapshot.start_offset)
    value.int64(snapshot.create_timestamp_ms)
    value.int64(snapshot.write_timestamp_ms)
    _write_batches(value, snapshot.batches)
    _write_complete_count(value, snapshot.delivery_complete_count)


def _read_snapshot(value: Reader) -> SnapshotValue:
    epochs = value.int32(), value.int32(), value.int32()
    start_offset = value.int64()
    created_ms, written_ms = value.int64(), value.int64()
    batches = _read_batches(value)
    complete = _read_complete_count(value)
    return SnapshotValue(*epochs, start_offset, complete, created_ms, written_ms, batches)


def _write_update(value: Writer, update: UpdateValue) -> None:
    value.int32(update.snapshot_epoch)
    value.int32(update.leader_epoch)
    value.int64(update.start_offset)
    _write_batches(value, update.batches)
    _write_complete_count(value, update.delivery_complete_count)


def _read_update(value: Reader) -> UpdateValue:
    epochs = value.int32(), value.int32()
    start_offset = value.int64()
    batches = _read_batches(value)
    return UpdateValue(*epochs, start_offset, _read_complete_count(value), batches)


def _write_batches(value: Writer, batches: Sequence[StateBatch]) -> None:
    def write(batch: StateBatch) -> None:
        value.int64(batch.first_offset)
        value.int64(batch.last_offset)
        value.int8(batch.delivery_state)
        value.int16(batch.delivery_count)
        value.tagged_fields()

    value.compact_array(batches, write)


def _read_batches(value: Reader) -> tuple[StateBatch, ...]:
    def read() -> StateBatch:
        batch = StateBatch(value.int64(), value.int64(), value.int8(), value.int16())
        value.tagged_fields()
        return batch

    return tuple(value.compact_array(read) or ())


def _write_complete_count(value: Writer, count: int) -> None:
    if count == UNKNOWN:
        value.tagged_fields()
    else:
        value.tagged_fields([(_COMPLETE_COUNT_TAG, count.to_bytes(4, "big", signed=True))])


def _read_complete_count(value: Reader) -> int:
    found = value.tagged_fields().get(_COMPLETE_COUNT_TAG)
    return UNKNOWN if found is None else int.from_bytes(found, "big", signed=True)
