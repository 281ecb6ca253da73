"""The hot codec of Produce: the batches stay where they were received."""

import struct
from collections.abc import Sequence
from functools import lru_cache
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
# The usual start of a request before version 9: no transactional id, acks, timeout, one topic, the
# length of its name; and what follows the name: one partition, its index, its length.
_ONE_TOPIC = struct.Struct(">hhiih")
_ONE_PARTITION = struct.Struct(">iii")
# Of a partition's answer: index, error code, base offset; then, by version, append time, log start.
_ANSWER_V0 = struct.Struct(">ihq")
_ANSWER_V2 = struct.Struct(">ihqq")
_ANSWER_V5 = struct.Struct(">ihqqq")
# The usual end of an answer: no record errors, no message, no tagged fields.
_NO_ERRORS = b"\x00\x00\x00\x00\xff\xff"
_NO_ERRORS_FLEXIBLE = b"\x01\x00\x00"
_LEADER = struct.Struct(">iib")
# All that follows the name in the answer for one partition without an error, the throttle time 0.
_ONE_V2 = struct.Struct(">ihqq4x")
_ONE_V5 = struct.Struct(">ihqqq4x")
_ONE_V8 = struct.Struct(">ihqqq6s4x")
_ONE_FLEXIBLE = struct.Struct(">ihqqq3s6x")
# Topics whose place in an answer is remembered; most clients write to a few.
_REMEMBERED_TOPICS = 4096


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
        return _read_one(version, buffer, position, end) or read_legacy(
            version, buffer, position, end
        )
    except UNREADABLE as error:
        raise Malformed(f"a Produce that ends too early: {error}") from error


def _read_one(version: int, buffer: memoryview, position: int, end: int) -> ProduceRequest | None:
    """The usual request, one batch outside a transaction; None for `read_legacy` to read others.

    Half the time of that: 1.3 us of 23 for a Produce of one record.
    """
    name_at = position + _ONE_TOPIC.size
    if version < 3 or name_at > end:
        return None
    transactional, acks, timeout_ms, topics, size = _ONE_TOPIC.unpack_from(buffer, position)
    name_end = name_at + size
    start = name_end + _ONE_PARTITION.size
    if transactional != -1 or topics != 1 or size < 0 or start > end:
        return None
    partitions, index, length = _ONE_PARTITION.unpack_from(buffer, name_end)
    if partitions != 1 or length < 0 or start + length > end:
        return None
    name = str(buffer[name_at:name_end], "utf-8")
    batch = (index, buffer[start : start + length])
    return ProduceRequest(None, acks, timeout_ms, [ProduceTopic(name, ZERO_UUID, [batch])])


def read_legacy(version: int, buffer: memoryview, position: int, end: int) -> ProduceRequest:
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
    if len(answers) == 1 and throttle_ms == 0 and version >= 2:
        name, topic_id, partitions = answers[0]
        if len(partitions) == 1:
            after = _after_name(version, partitions[0])
            if after is not None:
                topic = topic_id if version >= TOPIC_IDS_FROM else name
                return _before_one(version, topic) + after
    return write_produced(version, answers, throttle_ms)


@lru_cache(_REMEMBERED_TOPICS)
def _before_one(version: int, topic: str | UUID) -> bytes:
    """How an answer for one partition starts."""
    flexible = version >= FLEXIBLE_FROM
    one = pack_count(1, flexible=flexible)
    named = topic.bytes if isinstance(topic, UUID) else pack_text(topic, flexible=flexible)
    return one + named + one


def _after_name(version: int, answer: PartitionProduced) -> bytes | None:
    """The rest of it, in one call: with the above 0.8 us of 23 less than `write_produced`.

    None if there is more to tell than an error code.
    """
    index, error_code, base_offset, append_time, log_start, faults, message, leader = answer
    if faults or message is not None or leader is not None:
        return None
    fields = index, error_code, base_offset, append_time
    if version >= FLEXIBLE_FROM:
        return _ONE_FLEXIBLE.pack(*fields, log_start, _NO_ERRORS_FLEXIBLE)
    if version >= 8:
        return _ONE_V8.pack(*fields, log_start, _NO_ERRORS)
    return _ONE_V5.pack(*fields, log_start) if version >= 5 else _ONE_V2.pack(*fields)


def write_produced(version: int, answers: Sequence[TopicProduced], throttle_ms: int = 0) -> bytes:
    """Every answer, whatever it holds."""
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
