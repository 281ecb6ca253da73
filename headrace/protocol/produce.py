"""The hot codec of Produce: the batches stay where they were received."""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from headrace.protocol.packing import (
    INT32,
    UNREADABLE,
    count_at,
    more_varint,
    name_at,
    pack_count,
    pack_tags,
    pack_text,
    skip_tags,
    text_at,
    uuid_at,
)
from headrace.protocol.primitives import MAX_ELEMENTS, ZERO_UUID, Malformed

FLEXIBLE_FROM: Final = 9
TOPIC_IDS_FROM: Final = 13

_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_INDEX_AND_LENGTH = struct.Struct(">iB")
# Of a partition's answer: index, error code, base offset; then, by version, append time, log start.
_ANSWER_V0 = struct.Struct(">ihq")
_ANSWER_V2 = struct.Struct(">ihqq")
_ANSWER_V5 = struct.Struct(">ihqqq")
# The usual end of an answer: no record errors, no message, no tagged fields.
_NO_ERRORS = b"\x00\x00\x00\x00\xff\xff"
_NO_ERRORS_FLEXIBLE = b"\x01\x00\x00"
_LEADER = struct.Struct(">iib")


class ProduceTopic(NamedTuple):
    """Batches for one topic; a partition without bytes is None."""

    name: str
    topic_id: UUID
    partitions: list[tuple[int, memoryview | None]]


class ProduceRequest(NamedTuple):
    """One Produce, its records not copied."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class RecordError(NamedTuple):
    """Why one record had the whole batch refused."""

    batch_index: int
    message: str | None = None


class PartitionProduced(NamedTuple):
    """The answer for one partition."""

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None
    # Leader id and epoch, told with NOT_LEADER_OR_FOLLOWER (KIP-951).
    current_leader: tuple[int, int] | None = None


class TopicProduced(NamedTuple):
    """The answer for one topic, named as the request named it."""

    name: str
    topic_id: UUID
    partitions: Sequence[PartitionProduced]


def read_produce(version: int, buffer: memoryview, position: int, end: int) -> ProduceRequest:
    try:
        if version >= FLEXIBLE_FROM:
            return _read_flexible(version, buffer, position, end)
        return _read_legacy(version, buffer, position, end)
    except UNREADABLE as error:
        raise Malformed(f"a Produce that ends too early: {error}") from error


def _read_legacy(version: int, buffer: memoryview, position: int, end: int) -> ProduceRequest:
    transactional_id = None
    if version >= 3:
        transactional_id, position = text_at(buffer, position, end, flexible=False)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(buffer, position)
    count, position = count_at(buffer, position + 6, end, flexible=False)
    topics = []
    left = MAX_ELEMENTS
    int32_at = INT32.unpack_from
    for _ in range(count):
        name, position = name_at(buffer, position, end, flexible=False)
        size, position = count_at(buffer, position, end, flexible=False)
        left = _spend(left, size + 1)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(size):
            (index,) = int32_at(buffer, position)
            (length,) = int32_at(buffer, position + 4)
            position += 8
            records = None
            if length != -1:
                stop = position + length
                if length < 0 or stop > end:
                    raise Malformed(f"records of {length} bytes, {end - position} are left")
                records = buffer[position:stop]
                position = stop
            partitions.append((index, records))
        topics.append(ProduceTopic(name, ZERO_UUID, partitions))
    return _whole(ProduceRequest(transactional_id, acks, timeout_ms, topics), position, end)


def _read_flexible(version: int, buffer: memoryview, position: int, end: int) -> ProduceRequest:
    # Lengths of one byte are read where they are: a fifth off the time of a request of one batch.
    transactional_id = None
    if buffer[position] == 0:
        position += 1
    else:
        transactional_id, position = text_at(buffer, position, end, flexible=True)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(buffer, position)
    count, position = count_at(buffer, position + 6, end, flexible=True)
    topics = []
    left = MAX_ELEMENTS
    for _ in range(count):
        name, topic_id = "", ZERO_UUID
        if version >= TOPIC_IDS_FROM:
            topic_id, position = uuid_at(buffer, position, end)
        else:
            name, position = name_at(buffer, position, end, flexible=True)
        size, position = count_at(buffer, position, end, flexible=True)
        left = _spend(left, size + 1)
        partitions, position = _read_partitions(size, buffer, position, end)
        topics.append(ProduceTopic(name, topic_id, partitions))
    position = skip_tags(buffer, position, end)
    return _whole(ProduceRequest(transactional_id, acks, timeout_ms, topics), position, end)


def _read_partitions(
    count: int, buffer: memoryview, position: int, end: int
) -> tuple[list[tuple[int, memoryview | None]], int]:
    """The partitions of a topic, and where what follows the topic's tagged fields begins."""
    partitions: list[tuple[int, memoryview | None]] = []
    for _ in range(count):
        index, length = _INDEX_AND_LENGTH.unpack_from(buffer, position)
        if length < 0x80:
            position += 5
        else:
            length, position = more_varint(buffer, position + 4)
        if length:
            stop = position + length - 1
            if stop > end:
                raise Malformed(f"records of {length - 1} bytes, {end - position} are left")
            partitions.append((index, buffer[position:stop]))
            position = stop
        else:
            partitions.append((index, None))
        position = position + 1 if buffer[position] == 0 else skip_tags(buffer, position, end)
    return partitions, skip_tags(buffer, position, end)


def _spend(left: int, elements: int) -> int:
    if elements > left:
        raise Malformed(f"more than {MAX_ELEMENTS} topics and partitions")
    return left - elements


def _whole(request: ProduceRequest, position: int, end: int) -> ProduceRequest:
    if position > end:
        raise Malformed(f"the request is {position - end} bytes short")
    return request


def write_produce(version: int, answers: Sequence[TopicProduced], throttle_ms: int = 0) -> bytes:
    flexible = version >= FLEXIBLE_FROM
    out = bytearray(pack_count(len(answers), flexible=flexible))
    for name, topic_id, partitions in answers:
        if version >= TOPIC_IDS_FROM:
            out += topic_id.bytes
        else:
            out += pack_text(name, flexible=flexible)
        out += pack_count(len(partitions), flexible=flexible)
        for answer in partitions:
            _write_partition(out, version, answer)
        if flexible:
            out.append(0)
    if version >= 1:
        out += INT32.pack(throttle_ms)
    if flexible:
        out.append(0)
    return bytes(out)


def _write_partition(out: bytearray, version: int, answer: PartitionProduced) -> None:
    if version >= 5:
        out += _ANSWER_V5.pack(*answer[:5])
    elif version >= 2:
        out += _ANSWER_V2.pack(*answer[:4])
    else:
        out += _ANSWER_V0.pack(*answer[:3])
    if version < 8:
        return
    flexible = version >= FLEXIBLE_FROM
    if not answer.record_errors and answer.error_message is None and answer.current_leader is None:
        out += _NO_ERRORS_FLEXIBLE if flexible else _NO_ERRORS
        return
    out += pack_count(len(answer.record_errors), flexible=flexible)
    for batch_index, message in answer.record_errors:
        out += INT32.pack(batch_index)
        out += pack_text(message, flexible=flexible)
        if flexible:
            out.append(0)
    out += pack_text(answer.error_message, flexible=flexible)
    if version >= 10 and answer.current_leader is not None:
        out += pack_tags((0, _LEADER.pack(*answer.current_leader, 0)))
    elif flexible:
        out.append(0)
