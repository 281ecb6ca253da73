"""The records of __consumer_offsets about share groups (KIP-932), in Kafka's own bytes.

    10  ShareGroupMemberMetadata            group, member -> who it is, what it subscribes to
    11  ShareGroupMetadata                  group -> epoch, hash of the topics it reads
    12  ShareGroupTargetAssignmentMetadata  group -> epoch and time of the target assignment
    13  ShareGroupTargetAssignmentMember    group, member -> what it shall read
    14  ShareGroupCurrentMemberAssignment   group, member -> its epoch, what it reads
    15  ShareGroupStatePartitionMetadata    group -> the partitions that have a share state

Every value has version 0.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from headrace.protocol.primitives import Malformed, Reader, Writer

Partitions = Mapping[UUID, frozenset[int]]
"""Partition numbers by topic id."""

NO_TIMESTAMP = 0
_TIMESTAMP_TAG = 0


@dataclass(frozen=True, slots=True)
class StoredShareMember:
    """Who a member is and what it subscribes to."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()


class ShareGroupMemberMetadata(NamedTuple):
    """A member's subscription, or with no value its end."""

    group_id: str
    member_id: str
    value: StoredShareMember | None


class StoredShareEpoch(NamedTuple):
    """The epoch of a group, and a hash of the topics it was reached with."""

    epoch: int
    metadata_hash: int = 0


class ShareGroupMetadata(NamedTuple):
    """A group's epoch, or with no value its end."""

    group_id: str
    value: StoredShareEpoch | None


class StoredShareTarget(NamedTuple):
    """For which group epoch the target assignment was made, and when."""

    epoch: int
    timestamp_ms: int = NO_TIMESTAMP


class ShareGroupTargetAssignmentMetadata(NamedTuple):
    """The target assignment's epoch, or with no value its end."""

    group_id: str
    value: StoredShareTarget | None


class ShareGroupTargetAssignmentMember(NamedTuple):
    """What a member shall read, or with no value nothing any more."""

    group_id: str
    member_id: str
    value: Partitions | None


@dataclass(frozen=True, slots=True)
class StoredShareAssignment:
    """How far a member has come; nothing is revoked in a share group, so its state is 0."""

    epoch: int
    previous_epoch: int
    assigned: Partitions
    state: int = 0


class ShareGroupCurrentMemberAssignment(NamedTuple):
    """What a member reads, or with no value that it leaves."""

    group_id: str
    member_id: str
    value: StoredShareAssignment | None


class StateTopic(NamedTuple):
    """Partitions of a topic that have a share state, or are about to have one."""

    name: str
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class StoredStatePartitions:
    """Share states by topic id: being made, made, and names of those being deleted."""

    initializing: Mapping[UUID, StateTopic]
    initialized: Mapping[UUID, StateTopic]
    deleting: Mapping[UUID, str]


class ShareGroupStatePartitionMetadata(NamedTuple):
    """Which partitions have a share state, or with no value none."""

    group_id: str
    value: StoredStatePartitions | None


ShareGroupRecord = (
    ShareGroupMemberMetadata
    | ShareGroupMetadata
    | ShareGroupTargetAssignmentMetadata
    | ShareGroupTargetAssignmentMember
    | ShareGroupCurrentMemberAssignment
    | ShareGroupStatePartitionMetadata
)

# Reading.


def _read_member(key: Reader, value: Reader | None) -> ShareGroupMemberMetadata:
    group_id, member_id = key.string(), key.string()
    if value is None:
        return ShareGroupMemberMetadata(group_id, member_id, None)
    _check_version(value)
    rack_id = value.compact_nullable_string()
    client_id, client_host = value.compact_string(), value.compact_string()
    topics = tuple(value.compact_array(value.compact_string) or ())
    stored = StoredShareMember(rack_id, client_id, client_host, topics)
    return ShareGroupMemberMetadata(group_id, member_id, stored)


def _read_metadata(key: Reader, value: Reader | None) -> ShareGroupMetadata:
    group_id = key.string()
    if value is None:
        return ShareGroupMetadata(group_id, None)
    _check_version(value)
    return ShareGroupMetadata(group_id, StoredShareEpoch(value.int32(), value.int64()))


def _read_target_epoch(key: Reader, value: Reader | None) -> ShareGroupTargetAssignmentMetadata:
    group_id = key.string()
    if value is None:
        return ShareGroupTargetAssignmentMetadata(group_id, None)
    _check_version(value)
    epoch = value.int32()
    made = value.tagged_fields().get(_TIMESTAMP_TAG)
    timestamp_ms = NO_TIMESTAMP if made is None else Reader(made).int64()
    return ShareGroupTargetAssignmentMetadata(group_id, StoredShareTarget(epoch, timestamp_ms))


def _read_target(key: Reader, value: Reader | None) -> ShareGroupTargetAssignmentMember:
    group_id, member_id = key.string(), key.string()
    if value is None:
        return ShareGroupTargetAssignmentMember(group_id, member_id, None)
    _check_version(value)
    return ShareGroupTargetAssignmentMember(group_id, member_id, _read_topics(value))


def _read_assignment(key: Reader, value: Reader | None) -> ShareGroupCurrentMemberAssignment:
    group_id, member_id = key.string(), key.string()
    if value is None:
        return ShareGroupCurrentMemberAssignment(group_id, member_id, None)
    _check_version(value)
    epoch, previous_epoch, state = value.int32(), value.int32(), value.int8()
    stored = StoredShareAssignment(epoch, previous_epoch, _read_topics(value), state)
    return ShareGroupCurrentMemberAssignment(group_id, member_id, stored)


def _read_topics(value: Reader) -> Partitions:
    return dict(value.compact_array(lambda: _read_topic(value)) or ())


def _read_topic(value: Reader) -> tuple[UUID, frozenset[int]]:
    topic_id = value.uuid()
    partitions = frozenset(value.compact_array(value.int32) or ())
    value.tagged_fields()
    return topic_id, partitions


def _read_state_partitions(key: Reader, value: Reader | None) -> ShareGroupStatePartitionMetadata:
    group_id = key.string()
    if value is None:
        return ShareGroupStatePartitionMetadata(group_id, None)
    _check_version(value)
    initializing = dict(value.compact_array(lambda: _read_state_topic(value)) or ())
    initialized = dict(value.compact_array(lambda: _read_state_topic(value)) or ())
    deleting = dict(value.compact_array(lambda: _read_deleting(value)) or ())
    stored = StoredStatePartitions(initializing, initialized, deleting)
    return ShareGroupStatePartitionMetadata(group_id, stored)


def _read_state_topic(value: Reader) -> tuple[UUID, StateTopic]:
    topic_id, name = value.uuid(), value.compact_string()
    partitions = frozenset(value.compact_array(value.int32) or ())
    value.tagged_fields()
    return topic_id, StateTopic(name, partitions)


def _read_deleting(value: Reader) -> tuple[UUID, str]:
    topic_id, name = value.uuid(), value.compact_string()
    value.tagged_fields()
    return topic_id, name


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


def _write_member(record: ShareGroupMemberMetadata) -> tuple[bytes, bytes | None]:
    key, member = _key(10, record.group_id, record.member_id), record.value
    if member is None:
        return key, None
    value = _value()
    value.compact_string(member.rack_id)
    value.compact_string(member.client_id)
    value.compact_string(member.client_host)
    value.compact_array(member.topics, value.compact_string)
    value.tagged_fields()
    return key, value.getvalue()


def _write_metadata(record: ShareGroupMetadata) -> tuple[bytes, bytes | None]:
    key = _key(11, record.group_id)
    if record.value is None:
        return key, None
    value = _value()
    value.int32(record.value.epoch)
    value.int64(record.value.metadata_hash)
    value.tagged_fields()
    return key, value.getvalue()


def _write_target_epoch(record: ShareGroupTargetAssignmentMetadata) -> tuple[bytes, bytes | None]:
    key = _key(12, record.group_id)
    if record.value is None:
        return key, None
    value = _value()
    value.int32(record.value.epoch)
    made_ms = record.value.timestamp_ms
    # A tagged field at its default is left out.
    made = [] if made_ms == NO_TIMESTAMP else [(_TIMESTAMP_TAG, made_ms.to_bytes(8, "big"))]
    value.tagged_fields(made)
    return key, value.getvalue()


def _write_target(record: ShareGroupTargetAssignmentMember) -> tuple[bytes, bytes | None]:
    key = _key(13, record.group_id, record.member_id)
    if record.value is None:
        return key, None
    value = _value()
    _write_topics(value, record.value)
    value.tagged_fields()
    return key, value.getvalue()


def _write_assignment(record: ShareGroupCurrentMemberAssignment) -> tuple[bytes, bytes | None]:
    key, stored = _key(14, record.group_id, record.member_id), record.value
    if stored is None:
        return key, None
    value = _value()
    value.int32(stored.epoch)
    value.int32(stored.previous_epoch)
    value.int8(stored.state)
    _write_topics(value, stored.assigned)
    value.tagged_fields()
    return key, value.getvalue()


def _write_topics(value: Writer, topics: Partitions) -> None:
    def write(topic: tuple[UUID, frozenset[int]]) -> None:
        value.uuid(topic[0])
        value.compact_array(sorted(topic[1]), value.int32)
        value.tagged_fields()

    value.compact_array(list(topics.items()), write)


def _write_state_partitions(
    record: ShareGroupStatePartitionMetadata,
) -> tuple[bytes, bytes | None]:
    key, stored = _key(15, record.group_id), record.value
    if stored is None:
        return key, None
    value = _value()

    def write_topic(item: tuple[UUID, StateTopic]) -> None:
        value.uuid(item[0])
        value.compact_string(item[1].name)
        value.compact_array(sorted(item[1].partitions), value.int32)
        value.tagged_fields()

    def write_deleting(item: tuple[UUID, str]) -> None:
        value.uuid(item[0])
        value.compact_string(item[1])
        value.tagged_fields()

    value.compact_array(list(stored.initializing.items()), write_topic)
    value.compact_array(list(stored.initialized.items()), write_topic)
    value.compact_array(list(stored.deleting.items()), write_deleting)
    value.tagged_fields()
    return key, value.getvalue()


SHARE_GROUP_READERS: Mapping[
    int, tuple[str, Callable[[Reader, Reader | None], ShareGroupRecord]]
] = {
    10: ("ShareGroupMemberMetadata", _read_member),
    11: ("ShareGroupMetadata", _read_metadata),
    12: ("ShareGroupTargetAssignmentMetadata", _read_target_epoch),
    13: ("ShareGroupTargetAssignmentMember", _read_target),
    14: ("ShareGroupCurrentMemberAssignment", _read_assignment),
    15: ("ShareGroupStatePartitionMetadata", _read_state_partitions),
}

SHARE_GROUP_WRITERS: Mapping[type, Callable[..., tuple[bytes, bytes | None]]] = {
    ShareGroupMemberMetadata: _write_member,
    ShareGroupMetadata: _write_metadata,
    ShareGroupTargetAssignmentMetadata: _write_target_epoch,
    ShareGroupTargetAssignmentMember: _write_target,
    ShareGroupCurrentMemberAssignment: _write_assignment,
    ShareGroupStatePartitionMetadata: _write_state_partitions,
}
