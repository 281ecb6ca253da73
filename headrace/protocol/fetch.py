"""The hot codec of Fetch: sessions in, slices of files out between the bytes that frame them."""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from headrace.protocol.packing import (
    INT32,
    UNREADABLE,
    count_at,
    name_at,
    pack_count,
    pack_tags,
    pack_text,
    skip_tags,
    tags_at,
    text_at,
    uuid_at,
)
from headrace.protocol.primitives import MAX_ELEMENTS, ZERO_UUID, Malformed, unsigned_varint

FLEXIBLE_FROM: Final = 12
TOPIC_IDS_FROM: Final = 13
CONSUMER_REPLICA_ID: Final = -1

# replica id (until 14), max wait, min bytes, max bytes, isolation level; then the session (from 7).
_LIMITS_V4 = struct.Struct(">iiiib")
_LIMITS_V7 = struct.Struct(">iiiibii")
_LIMITS_V15 = struct.Struct(">iiibii")
# Of a partition asked for, by version: see FetchPartition for the names.
_PARTITION_V4 = struct.Struct(">iqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V12 = struct.Struct(">iiqiqi")
# Of an answer: index, error code, high watermark, last stable offset; then the log start (from 5).
_ANSWER_V4 = struct.Struct(">ihqq")
_ANSWER_V5 = struct.Struct(">ihqqq")
_SESSION = struct.Struct(">ihi")
_ABORTED = struct.Struct(">qq")
_CLUSTER_ID_TAG = 0
_REPLICA_STATE_TAG = 1
_REPLICA_STATE = struct.Struct(">iq")
_EPOCH_END = struct.Struct(">iqb")
_LEADER = struct.Struct(">iib")


class FetchPartition(NamedTuple):
    """One partition asked for; fields the version lacks have Kafka's defaults."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int


class FetchTopic(NamedTuple):
    """Partitions asked for, of a topic named by its name (until 12) or its id (from 13)."""

    name: str
    topic_id: UUID
    partitions: list[FetchPartition]


class ForgottenTopic(NamedTuple):
    """Partitions to be dropped from the session."""

    name: str
    topic_id: UUID
    partitions: list[int]


class FetchRequest(NamedTuple):
    """One Fetch."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    rack_id: str
    cluster_id: str | None


class Slice(Protocol):
    """Bytes that are sent later, from wherever they lie."""

    @property
    def size(self) -> int: ...


class Aborted(Protocol):
    """A transaction that ended badly: its records from ``first_offset`` on are not to be seen."""

    @property
    def producer_id(self) -> int: ...

    @property
    def first_offset(self) -> int: ...


class PartitionFetched(NamedTuple):
    """The answer for one partition."""

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    # None for a reader that sees uncommitted records.
    aborted: Sequence[Aborted] | None = None
    records: Slice | bytes | None = None
    preferred_read_replica: int = -1
    # Epoch and end offset, where a follower's log parted from ours (KIP-595).
    diverging_epoch: tuple[int, int] | None = None
    current_leader: tuple[int, int] | None = None


class TopicFetched(NamedTuple):
    """The answer for one topic, named as the request named it."""

    name: str
    topic_id: UUID
    partitions: Sequence[PartitionFetched]


def read_fetch(version: int, buffer: memoryview, position: int, end: int) -> FetchRequest:
    try:
        return _read(version, buffer, position, end)
    except UNREADABLE as error:
        raise Malformed(f"a Fetch that ends too early: {error}") from error


def _read(version: int, buffer: memoryview, position: int, end: int) -> FetchRequest:
    flexible = version >= FLEXIBLE_FROM
    limits, position = _limits_at(version, buffer, position)
    topics, position = _read_topics(version, buffer, position, end)
    forgotten: list[ForgottenTopic] = []
    rack_id = ""
    cluster_id = None
    if version >= 7:
        forgotten, position = _read_forgotten(version, buffer, position, end)
    if version >= 11:
        rack_id, position = name_at(buffer, position, end, flexible=flexible)
    replica_id = None
    if flexible:
        if buffer[position] != 0:
            cluster_id, replica_id = _read_tags(version, buffer, position, end)
        position = skip_tags(buffer, position, end)
    if position > end:
        raise Malformed(f"the request is {position - end} bytes short")
    if replica_id is not None:
        limits = (replica_id, *limits[1:])
    return FetchRequest(*limits, topics, forgotten, rack_id, cluster_id)


def _limits_at(
    version: int, buffer: memoryview, position: int
) -> tuple[tuple[int, int, int, int, int, int, int], int]:
    """The fields of a request before its topics, from replica id to session epoch."""
    if version >= 15:
        limits = _LIMITS_V15.unpack_from(buffer, position)
        return (CONSUMER_REPLICA_ID, *limits), position + _LIMITS_V15.size
    if version >= 7:
        return _LIMITS_V7.unpack_from(buffer, position), position + _LIMITS_V7.size
    return (*_LIMITS_V4.unpack_from(buffer, position), 0, -1), position + _LIMITS_V4.size


def _read_tags(
    version: int, buffer: memoryview, position: int, end: int
) -> tuple[str | None, int | None]:
    """The cluster id, and the replica id where it is among the tagged fields."""
    cluster_id = replica_id = None
    for tag, start, stop in tags_at(buffer, position, end):
        if tag == _CLUSTER_ID_TAG:
            cluster_id, _ = text_at(buffer, start, stop, flexible=True)
        elif tag == _REPLICA_STATE_TAG and version >= 15:
            replica_id, _ = _REPLICA_STATE.unpack(buffer[start : start + _REPLICA_STATE.size])
    return cluster_id, replica_id


def _read_topics(
    version: int, buffer: memoryview, position: int, end: int
) -> tuple[list[FetchTopic], int]:
    flexible = version >= FLEXIBLE_FROM
    count, position = count_at(buffer, position, end, flexible=flexible)
    topics = []
    left = MAX_ELEMENTS
    for _ in range(count):
        name, topic_id, position = _topic_at(version, buffer, position, end)
        size, position = count_at(buffer, position, end, flexible=flexible)
        left -= size + 1
        if left < 0:
            raise Malformed(f"more than {MAX_ELEMENTS} topics and partitions")
        partitions = []
        for _ in range(size):
            partition, position = _partition_at(version, buffer, position)
            partitions.append(partition)
            if flexible:
                position = skip_tags(buffer, position, end)
        if flexible:
            position = skip_tags(buffer, position, end)
        topics.append(FetchTopic(name, topic_id, partitions))
    return topics, position


def _partition_at(version: int, buffer: memoryview, position: int) -> tuple[FetchPartition, int]:
    if version >= 12:
        fields = _PARTITION_V12.unpack_from(buffer, position)
        return FetchPartition._make(fields), position + _PARTITION_V12.size
    if version >= 9:
        index, epoch, offset, log_start, max_bytes = _PARTITION_V9.unpack_from(buffer, position)
        position += _PARTITION_V9.size
        return FetchPartition(index, epoch, offset, -1, log_start, max_bytes), position
    if version >= 5:
        index, offset, log_start, max_bytes = _PARTITION_V5.unpack_from(buffer, position)
        position += _PARTITION_V5.size
        return FetchPartition(index, -1, offset, -1, log_start, max_bytes), position
    index, offset, max_bytes = _PARTITION_V4.unpack_from(buffer, position)
    return FetchPartition(index, -1, offset, -1, -1, max_bytes), position + _PARTITION_V4.size


def _topic_at(version: int, buffer: memoryview, position: int, end: int) -> tuple[str, UUID, int]:
    if version >= TOPIC_IDS_FROM:
        return "", *uuid_at(buffer, position, end)
    name, position = name_at(buffer, position, end, flexible=version >= FLEXIBLE_FROM)
    return name, ZERO_UUID, position


def _read_forgotten(
    version: int, buffer: memoryview, position: int, end: int
) -> tuple[list[ForgottenTopic], int]:
    flexible = version >= FLEXIBLE_FROM
    count, position = count_at(buffer, position, end, flexible=flexible)
    forgotten = []
    left = MAX_ELEMENTS
    for _ in range(count):
        name, topic_id, position = _topic_at(version, buffer, position, end)
        size, position = count_at(buffer, position, end, flexible=flexible)
        left -= size + 1
        if left < 0:
            raise Malformed(f"more than {MAX_ELEMENTS} forgotten topics and partitions")
        stop = position + 4 * size
        if stop > end:
            raise Malformed(f"{size} partitions, {end - position} bytes are left")
        partitions = list(struct.unpack_from(f">{size}i", buffer, position))
        position = skip_tags(buffer, stop, end) if flexible else stop
        forgotten.append(ForgottenTopic(name, topic_id, partitions))
    return forgotten, position


def write_fetch(
    version: int,
    answers: Iterable[TopicFetched],
    *,
    throttle_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
) -> list[bytes | Slice]:
    """The parts to be sent one after the other; slices are handed through untouched."""
    flexible = version >= FLEXIBLE_FROM
    parts: list[bytes | Slice] = []
    if version >= 7:
        out = bytearray(_SESSION.pack(throttle_ms, error_code, session_id))
    else:
        out = bytearray(INT32.pack(throttle_ms))
    topics = list(answers)
    out += pack_count(len(topics), flexible=flexible)
    for name, topic_id, partitions in topics:
        out += topic_id.bytes if version >= TOPIC_IDS_FROM else pack_text(name, flexible=flexible)
        out += pack_count(len(partitions), flexible=flexible)
        for answer in partitions:
            records = answer.records
            if records is None or isinstance(records, bytes):
                # No records are an empty set of them, never null, as Kafka answers.
                _write_partition(out, version, answer, len(records or b""))
                out += records or b""
            else:
                _write_partition(out, version, answer, records.size)
                if records.size:
                    parts += (bytes(out), records)
                    out = bytearray()
            if flexible:
                out += _partition_tags(answer)
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    if out:
        parts.append(bytes(out))
    return parts


def _write_partition(out: bytearray, version: int, answer: PartitionFetched, size: int) -> None:
    flexible = version >= FLEXIBLE_FROM
    out += _ANSWER_V5.pack(*answer[:5]) if version >= 5 else _ANSWER_V4.pack(*answer[:4])
    aborted = answer.aborted
    if aborted is None:
        out += pack_count(-1, flexible=flexible)
    else:
        out += pack_count(len(aborted), flexible=flexible)
        for transaction in aborted:
            out += _ABORTED.pack(transaction.producer_id, transaction.first_offset)
            if flexible:
                out.append(0)
    if version >= 11:
        out += INT32.pack(answer.preferred_read_replica)
    out += unsigned_varint(size + 1) if flexible else INT32.pack(size)


def _partition_tags(answer: PartitionFetched) -> bytes:
    if answer.diverging_epoch is None and answer.current_leader is None:
        return b"\x00"
    fields = []
    if answer.diverging_epoch is not None:
        fields.append((0, _EPOCH_END.pack(*answer.diverging_epoch, 0)))
    if answer.current_leader is not None:
        fields.append((1, _LEADER.pack(*answer.current_leader, 0)))
    return pack_tags(*fields)
