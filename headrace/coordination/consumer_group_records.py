"""The records of __consumer_offsets about groups of the consumer protocol, in Kafka's own bytes.

    3   ConsumerGroupMetadata                  group -> epoch, hash of the topics it reads
    4   ConsumerGroupPartitionMetadata         group -> topics; before Kafka 4.1, tombstones since
    5   ConsumerGroupMemberMetadata            group, member -> who it is, what it subscribes to
    6   ConsumerGroupTargetAssignmentMetadata  group -> epoch and time of the target assignment
    7   ConsumerGroupTargetAssignmentMember    group, member -> what it shall own
    8   ConsumerGroupCurrentMemberAssignment   group, member -> its epoch, state, what it owns
    16  ConsumerGroupRegularExpression         group, pattern -> the topics it matched

Every value has version 0 so far: what was added since came as tagged fields.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from headrace.protocol.primitives import Malformed, Reader, Writer

Partitions = Mapping[UUID, frozenset[int]]
"""Partition numbers by topic id."""

EpochedPartitions = Mapping[UUID, Mapping[int, int]]
"""By topic id and partition number the epoch at which a member got the partition (KIP-1251)."""

NO_REBALANCE_TIMEOUT = -1


class StoredEpoch(NamedTuple):
    """The epoch of a group, and a hash of the topics it was reached with."""

    epoch: int
    metadata_hash: int = 0


class ConsumerGroupMetadata(NamedTuple):
    """A group's epoch, or with no value its end."""

    group_id: str
    value: StoredEpoch | None


class StoredTopic(NamedTuple):
    """A topic as older coordinators wrote it down."""

    topic_id: UUID
    name: str
    partitions: int


class ConsumerGroupPartitionMetadata(NamedTuple):
    """Topics of a group; only its tombstone is written any more."""

    group_id: str
    value: tuple[StoredTopic, ...] | None


class StoredClassicMember(NamedTuple):
    """What a member of the classic protocol has besides: its session and its protocols."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class StoredConsumerMember:
    """Who a member is and what it subscribes to."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    pattern: str | None = ""
    rebalance_timeout_ms: int = NO_REBALANCE_TIMEOUT
    server_assignor: str | None = None
    classic: StoredClassicMember | None = None


class ConsumerGroupMemberMetadata(NamedTuple):
    """A member's subscription, or with no value its end."""

    group_id: str
    member_id: str
    value: StoredConsumerMember | None


class StoredTargetEpoch(NamedTuple):
    """For which group epoch the target assignment was made, and when."""

    epoch: int
    timestamp_ms: int = 0


class ConsumerGroupTargetAssignmentMetadata(NamedTuple):
    """The target assignment's epoch, or with no value its end."""

    group_id: str
    value: StoredTargetEpoch | None


class ConsumerGroupTargetAssignmentMember(NamedTuple):
    """What a member shall own, or with no value nothing any more."""

    group_id: str
    member_id: str
    value: Partitions | None


@dataclass(frozen=True, slots=True)
class StoredAssignment:
    """Where a member is on its way to the target; `state` is the number of a MemberState."""

    epoch: int
    previous_epoch: int
    state: int
    assigned: EpochedPartitions
    pending_revocation: EpochedPartitions


class ConsumerGroupCurrentMemberAssignment(NamedTuple):
    """What a member owns, or with no value that it owns nothing and leaves."""

    group_id: str
    member_id: str
    value: StoredAssignment | None


class ResolvedPattern(NamedTuple):
    """The topics that a pattern matched, in which version of the catalog and when."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroupRegularExpression(NamedTuple):
    """What a pattern matches, or with no value that nobody subscribes to it any more."""

    group_id: str
    pattern: str
    value: ResolvedPattern | None


ConsumerGroupRecord = (
    ConsumerGroupMetadata
    | ConsumerGroupPartitionMetadata
    | ConsumerGroupMemberMetadata
    | ConsumerGroupTargetAssignmentMetadata
    | ConsumerGroupTargetAssignmentMember
    | ConsumerGroupCurrentMemberAssignment
    | ConsumerGroupRegularExpression
)

_METADATA_HASH_TAG = 0
_TIMESTAMP_TAG = 0
_CLASSIC_TAG = 0
_EPOCHS_TAG = 0


# Reading.


def _read_metadata(key: Reader, value: Reader | None) -> ConsumerGroupMetadata:
    group_id = key.string()
    if value is None:
        return ConsumerGroupMetadata(group_id, None)
    _check_version(value)
    epoch = value.int32()
    metadata_hash = _read_tagged_int64(value, _METADATA_HASH_TAG)
    return ConsumerGroupMetadata(group_id, StoredEpoch(epoch, metadata_hash))


def _read_partition_metadata(key: Reader, value: Reader | None) -> ConsumerGroupPartitionMetadata:
    group_id = key.string()
    if value is None:
        return ConsumerGroupPartitionMetadata(group_id, None)
    _check_version(value)
    topics = value.compact_array(lambda: _read_topic(value)) or []
    return ConsumerGroupPartitionMetadata(group_id, tuple(topics))


def _read_topic(value: Reader) -> StoredTopic:
    topic = StoredTopic(value.uuid(), value.compact_string(), value.int32())
    value.compact_array(lambda: _skip_racks(value))
    value.tagged_fields()
    return topic


def _skip_racks(value: Reader) -> None:
    value.int32()
    value.compact_array(value.compact_string)
    value.tagged_fields()


def _read_member(key: Reader, value: Reader | None) -> ConsumerGroupMemberMetadata:
    group_id, member_id = key.string(), key.string()
    if value is None:
        return ConsumerGroupMemberMetadata(group_id, member_id, None)
    _check_version(value)
    instance_id, rack_id = value.compact_nullable_string(), value.compact_nullable_string()
    client_id, client_host = value.compact_string(), value.compact_string()
    topics = value.compact_array(value.compact_string) or []
    pattern, rebalance_timeout_ms = value.compact_nullable_string(), value.int32()
    server_assignor = value.compact_nullable_string()
    classic = value.tagged_fields().get(_CLASSIC_TAG)
    stored = StoredConsumerMember(
        instance_id,
        rack_id,
        client_id,
        client_host,
        tuple(topics),
        pattern,
        rebalance_timeout_ms,
        server_assignor,
        None if classic is None else _read_classic(Reader(classic)),
    )
    return ConsumerGroupMemberMetadata(group_id, member_id, stored)


def _read_classic(value: Reader) -> StoredClassicMember | None:
    # A nullable struct in a tagged field begins with a varint: 0 if it is not there.
    if value.unsigned_varint() == 0:
        return None
    session_timeout_ms = value.int32()
    protocols = value.compact_array(lambda: _read_protocol(value)) or []
    return StoredClassicMember(session_timeout_ms, tuple(protocols))


def _read_protocol(value: Reader) -> tuple[str, bytes]:
    name, metadata = value.compact_string(), value.compact_bytes()
    value.tagged_fields()
    return name, metadata


def _read_target_epoch(key: Reader, value: Reader | None) -> ConsumerGroupTargetAssignmentMetadata:
    group_id = key.string()
    if value is None:
        return ConsumerGroupTargetAssignmentMetadata(group_id, None)
    _check_version(value)
    epoch = value.int32()
    timestamp_ms = _read_tagged_int64(value, _TIMESTAMP_TAG)
    return ConsumerGroupTargetAssignmentMetadata(group_id, StoredTargetEpoch(epoch, timestamp_ms))


def _read_target(key: Reader, value: Reader | None) -> ConsumerGroupTargetAssignmentMember:
    group_id, member_id = key.string(), key.string()
    if value is None:
        return ConsumerGroupTargetAssignmentMember(group_id, member_id, None)
    _check_version(value)
    topics = value.compact_array(lambda: _read_partitions(value)) or []
    return ConsumerGroupTargetAssignmentMember(group_id, member_id, dict(topics))


def _read_partitions(value: Reader) -> tuple[UUID, frozenset[int]]:
    topic_id = value.uuid()
    partitions = frozenset(value.compact_array(value.int32) or [])
    value.tagged_fields()
    return topic_id, partitions


def _read_assignment(key: Reader, value: Reader | None) -> ConsumerGroupCurrentMemberAssignment:
    group_id, member_id = key.string(), key.string()
    if value is None:
        return ConsumerGroupCurrentMemberAssignment(group_id, member_id, None)
    _check_version(value)
    epoch, previous_epoch, state = value.int32(), value.int32(), value.int8()
    assigned = value.compact_array(lambda: _read_epoched(value, epoch)) or []
    pending = value.compact_array(lambda: _read_epoched(value, epoch)) or []
    stored = StoredAssignment(epoch, previous_epoch, state, dict(assigned), dict(pending))
    return ConsumerGroupCurrentMemberAssignment(group_id, member_id, stored)


def _read_epoched(value: Reader, member_epoch: int) -> tuple[UUID, dict[int, int]]:
    topic_id = value.uuid()
    partitions = value.compact_array(value.int32) or []
    tagged = value.tagged_fields().get(_EPOCHS_TAG)
    reader = None if tagged is None else Reader(tagged)
    epochs = reader.compact_array(reader.int32) if reader else None
    if epochs is None:
        # Written before epochs were: the member's own is the most that any of them can be.
        epochs = [member_epoch] * len(partitions)
    return topic_id, dict(zip(partitions, epochs, strict=True))


def _read_pattern(key: Reader, value: Reader | None) -> ConsumerGroupRegularExpression:
    group_id, pattern = key.string(), key.string()
    if value is None:
        return ConsumerGroupRegularExpression(group_id, pattern, None)
    _check_version(value)
    topics = frozenset(value.compact_array(value.compact_string) or [])
    resolved = ResolvedPattern(topics, value.int64(), value.int64())
    return ConsumerGroupRegularExpression(group_id, pattern, resolved)


def _read_tagged_int64(value: Reader, tag: int) -> int:
    tagged = value.tagged_fields().get(tag)
    return 0 if tagged is None else Reader(tagged).int64()


def _check_version(value: Reader) -> None:
    version = value.int16()
    if version != 0:
        raise Malformed(f"value version {version} is not 0")


# Writing.


def _key(number: int, *names: str) -> bytes:
    key = Writer()
    key.int16(number)
    for name in names:
        key.string(name)
    return key.getvalue()


def _value() -> Writer:
    value = Writer()
    value.int16(0)
    return value


def _tagged_int64(value: int, tag: int) -> list[tuple[int, bytes]]:
    """Fields at their default are left out."""
    return [(tag, value.to_bytes(8, "big", signed=True))] if value else []


def _write_metadata(record: ConsumerGroupMetadata) -> tuple[bytes, bytes | None]:
    key = _key(3, record.group_id)
    if record.value is None:
        return key, None
    value = _value()
    value.int32(record.value.epoch)
    value.tagged_fields(_tagged_int64(record.value.metadata_hash, _METADATA_HASH_TAG))
    return key, value.getvalue()


def _write_partition_metadata(record: ConsumerGroupPartitionMetadata) -> tuple[bytes, bytes | None]:
    key = _key(4, record.group_id)
    if record.value is None:
        return key, None
    value = _value()
    value.compact_array(record.value, lambda topic: _write_topic(value, topic))
    value.tagged_fields()
    return key, value.getvalue()


def _write_topic(value: Writer, topic: StoredTopic) -> None:
    value.uuid(topic.topic_id)
    value.compact_string(topic.name)
    value.int32(topic.partitions)
    value.compact_array((), value.int32)
    value.tagged_fields()


def _write_member(record: ConsumerGroupMemberMetadata) -> tuple[bytes, bytes | None]:
    key = _key(5, record.group_id, record.member_id)
    stored = record.value
    if stored is None:
        return key, None
    value = _value()
    value.compact_string(stored.instance_id)
    value.compact_string(stored.rack_id)
    value.compact_string(stored.client_id)
    value.compact_string(stored.client_host)
    value.compact_array(stored.topics, value.compact_string)
    value.compact_string(stored.pattern)
    value.int32(stored.rebalance_timeout_ms)
    value.compact_string(stored.server_assignor)
    value.tagged_fields([(_CLASSIC_TAG, _classic_bytes(stored.classic))])
    return key, value.getvalue()


def _classic_bytes(classic: StoredClassicMember | None) -> bytes:
    # Kafka writes that there is none, though none is the default.
    if classic is None:
        return b"\x00"
    value = Writer()
    value.unsigned_varint(1)
    value.int32(classic.session_timeout_ms)
    value.compact_array(classic.protocols, lambda each: _write_protocol(value, each))
    value.tagged_fields()
    return value.getvalue()


def _write_protocol(value: Writer, protocol: tuple[str, bytes]) -> None:
    value.compact_string(protocol[0])
    value.compact_bytes(protocol[1])
    value.tagged_fields()


def _write_target_epoch(
    record: ConsumerGroupTargetAssignmentMetadata,
) -> tuple[bytes, bytes | None]:
    key = _key(6, record.group_id)
    if record.value is None:
        return key, None
    value = _value()
    value.int32(record.value.epoch)
    value.tagged_fields(_tagged_int64(record.value.timestamp_ms, _TIMESTAMP_TAG))
    return key, value.getvalue()


def _write_target(record: ConsumerGroupTargetAssignmentMember) -> tuple[bytes, bytes | None]:
    key = _key(7, record.group_id, record.member_id)
    if record.value is None:
        return key, None
    value = _value()
    value.compact_array(list(record.value.items()), lambda each: _write_partitions(value, *each))
    value.tagged_fields()
    return key, value.getvalue()


def _write_partitions(value: Writer, topic_id: UUID, partitions: frozenset[int]) -> None:
    value.uuid(topic_id)
    value.compact_array(sorted(partitions), value.int32)
    value.tagged_fields()


def _write_assignment(record: ConsumerGroupCurrentMemberAssignment) -> tuple[bytes, bytes | None]:
    key = _key(8, record.group_id, record.member_id)
    stored = record.value
    if stored is None:
        return key, None
    value = _value()
    value.int32(stored.epoch)
    value.int32(stored.previous_epoch)
    value.int8(stored.state)
    for owned in (stored.assigned, stored.pending_revocation):
        value.compact_array(list(owned.items()), lambda each: _write_epoched(value, *each))
    value.tagged_fields()
    return key, value.getvalue()


def _write_epoched(value: Writer, topic_id: UUID, partitions: Mapping[int, int]) -> None:
    value.uuid(topic_id)
    numbers = sorted(partitions)
    value.compact_array(numbers, value.int32)
    epochs = Writer()
    epochs.compact_array([partitions[each] for each in numbers], epochs.int32)
    value.tagged_fields([(_EPOCHS_TAG, epochs.getvalue())])


def _write_pattern(record: ConsumerGroupRegularExpression) -> tuple[bytes, bytes | None]:
    key = _key(16, record.group_id, record.pattern)
    resolved = record.value
    if resolved is None:
        return key, None
    value = _value()
    value.compact_array(sorted(resolved.topics), value.compact_string)
    value.int64(resolved.version)
    value.int64(resolved.timestamp_ms)
    value.tagged_fields()
    return key, value.getvalue()


CONSUMER_GROUP_READERS: Mapping[
    int, tuple[str, Callable[[Reader, Reader | None], ConsumerGroupRecord]]
] = {
    3: ("ConsumerGroupMetadata", _read_metadata),
    4: ("ConsumerGroupPartitionMetadata", _read_partition_metadata),
    5: ("ConsumerGroupMemberMetadata", _read_member),
    6: ("ConsumerGroupTargetAssignmentMetadata", _read_target_epoch),
    7: ("ConsumerGroupTargetAssignmentMember", _read_target),
    8: ("ConsumerGroupCurrentMemberAssignment", _read_assignment),
    16: ("ConsumerGroupRegularExpression", _read_pattern),
}

CONSUMER_GROUP_WRITERS: Mapping[type, Callable[..., tuple[bytes, bytes | None]]] = {
    ConsumerGroupMetadata: _write_metadata,
    ConsumerGroupPartitionMetadata: _write_partition_metadata,
    ConsumerGroupMemberMetadata: _write_member,
    ConsumerGroupTargetAssignmentMetadata: _write_target_epoch,
    ConsumerGroupTargetAssignmentMember: _write_target,
    ConsumerGroupCurrentMemberAssignment: _write_assignment,
    ConsumerGroupRegularExpression: _write_pattern,
}
