"""The messages that consumers of the classic protocol hide in JoinGroup and SyncGroup.

Subscription   version, topics, user data; since 1 owned partitions; 2 generation; 3 rack
Assignment     version, partitions by topic, user data
"""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.protocol.primitives import Reader, Writer

OWNED_SINCE = 1
GENERATION_SINCE = 2
RACK_SINCE = 3

TopicNames = Mapping[str, frozenset[int]]
"""Partition numbers by topic name."""


class ConsumerSubscription(NamedTuple):
    """What a consumer reads, and what it owns as it asks."""

    version: int
    topics: frozenset[str]
    owned: TopicNames
    rack_id: str | None = None


class ConsumerAssignment(NamedTuple):
    """What a consumer was given; user data belongs to the assignor that wrote it."""

    partitions: TopicNames
    user_data: bytes = b""


def read_subscription(metadata: bytes) -> ConsumerSubscription:
    """Raises ValueError for bytes of another protocol."""
    reader = Reader(metadata)
    version = reader.int16()
    topics = frozenset(reader.array(reader.string) or [])
    reader.nullable_bytes()
    owned = dict(_partitions(reader)) if version >= OWNED_SINCE else {}
    if version >= GENERATION_SINCE:
        reader.int32()
    rack_id = reader.nullable_string() if version >= RACK_SINCE else None
    return ConsumerSubscription(version, topics, owned, rack_id)


def read_assignment(assignment: bytes) -> ConsumerAssignment:
    """Raises ValueError for bytes of another protocol; a member without any has nothing."""
    if not assignment:
        return ConsumerAssignment({})
    reader = Reader(assignment)
    reader.int16()
    partitions = dict(_partitions(reader))
    return ConsumerAssignment(partitions, reader.nullable_bytes() or b"")


def write_assignment(partitions: TopicNames, version: int) -> bytes:
    writer = Writer()
    writer.int16(version)
    writer.array(sorted(partitions.items()), lambda each: _write_topic(writer, *each))
    writer.sized_bytes(None)
    return writer.getvalue()


def _partitions(reader: Reader) -> list[tuple[str, frozenset[int]]]:
    return (
        reader.array(lambda: (reader.string(), frozenset(reader.array(reader.int32) or []))) or []
    )


def _write_topic(writer: Writer, topic: str, partitions: frozenset[int]) -> None:
    writer.string(topic)
    writer.array(sorted(partitions), writer.int32)
