"""The hot codec of OffsetCommit: groups commit more often than they ask for anything else."""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from headrace.protocol.packing import (
    INT32,
    UNREADABLE,
    count_at,
    name_at,
    pack_count,
    pack_text,
    skip_tags,
    text_at,
    uuid_at,
)
from headrace.protocol.primitives import MAX_ELEMENTS, ZERO_UUID, Buffer, Malformed

RETENTION_UNTIL: Final = 4
LEADER_EPOCH_FROM: Final = 6
INSTANCE_ID_FROM: Final = 7
FLEXIBLE_FROM: Final = 8
TOPIC_IDS_FROM: Final = 10

_INT64 = struct.Struct(">q")
_INDEX_AND_OFFSET = struct.Struct(">iq")
_INDEX_OFFSET_AND_EPOCH = struct.Struct(">iqi")
_INDEX_AND_ERROR = struct.Struct(">ih")
_INDEX_ERROR_AND_TAGS = struct.Struct(">ihb")


class CommitPartition(NamedTuple):
    """How far the group has come in one partition."""

    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


class CommitTopic(NamedTuple):
    """Partitions of one topic, which has a name or from version 10 on an id."""

    name: str
    topic_id: UUID
    partitions: list[CommitPartition]


class OffsetCommitRequest(NamedTuple):
    """One OffsetCommit."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    retention_ms: int
    topics: list[CommitTopic]


def read_offset_commit(version: int, buffer: Buffer) -> OffsetCommitRequest:
    try:
        return _read(version, buffer, len(buffer))
    except UNREADABLE as error:
        raise Malformed(f"an OffsetCommit that ends too early: {error}") from error


def _read(version: int, buffer: Buffer, end: int) -> OffsetCommitRequest:
    flexible = version >= FLEXIBLE_FROM
    group_id, position = name_at(buffer, 0, end, flexible=flexible)
    (generation,) = INT32.unpack_from(buffer, position)
    member_id, position = name_at(buffer, position + 4, end, flexible=flexible)
    instance_id, retention_ms = None, -1
    if version >= INSTANCE_ID_FROM:
        instance_id, position = text_at(buffer, position, end, flexible=flexible)
    elif version <= RETENTION_UNTIL:
        (retention_ms,) = _INT64.unpack_from(buffer, position)
        position += 8
    count, position = count_at(buffer, position, end, flexible=flexible)
    topics = []
    left = MAX_ELEMENTS - count
    for _ in range(count):
        name, topic_id = "", ZERO_UUID
        if version >= TOPIC_IDS_FROM:
            topic_id, position = uuid_at(buffer, position, end)
        else:
            name, position = name_at(buffer, position, end, flexible=flexible)
        size, position = count_at(buffer, position, end, flexible=flexible)
        left -= size
        if left < 0:
            raise Malformed(f"more than {MAX_ELEMENTS} topics and partitions")
        partitions, position = _read_partitions(version, size, buffer, position, end)
        topics.append(CommitTopic(name, topic_id, partitions))
    if flexible:
        position = skip_tags(buffer, position, end)
    if position > end:
        raise Malformed(f"the request is {position - end} bytes short")
    return OffsetCommitRequest(group_id, generation, member_id, instance_id, retention_ms, topics)


def _read_partitions(
    version: int, count: int, buffer: Buffer, position: int, end: int
) -> tuple[list[CommitPartition], int]:
    """The partitions of a topic, and where what follows the topic's tagged fields begins."""
    flexible = version >= FLEXIBLE_FROM
    partitions = []
    epoch = -1
    for _ in range(count):
        if version >= LEADER_EPOCH_FROM:
            index, offset, epoch = _INDEX_OFFSET_AND_EPOCH.unpack_from(buffer, position)
            position += 16
        else:
            index, offset = _INDEX_AND_OFFSET.unpack_from(buffer, position)
            position += 12
        metadata, position = text_at(buffer, position, end, flexible=flexible)
        partitions.append(CommitPartition(index, offset, epoch, metadata))
        if flexible:
            position = skip_tags(buffer, position, end)
    return partitions, skip_tags(buffer, position, end) if flexible else position


def write_offset_commit(version: int, topics: Sequence[CommitTopic], codes: Iterable[int]) -> bytes:
    """The answer: a code for each partition, in the order of the request."""
    flexible = version >= FLEXIBLE_FROM
    out = bytearray(b"\x00\x00\x00\x00" if version >= 3 else b"")
    out += pack_count(len(topics), flexible=flexible)
    code = iter(codes)
    for name, topic_id, partitions in topics:
        if version >= TOPIC_IDS_FROM:
            out += topic_id.bytes
        else:
            out += pack_text(name, flexible=flexible)
        out += pack_count(len(partitions), flexible=flexible)
        for partition in partitions:
            if flexible:
                out += _INDEX_ERROR_AND_TAGS.pack(partition.partition, next(code), 0)
            else:
                out += _INDEX_AND_ERROR.pack(partition.partition, next(code))
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    return bytes(out)
