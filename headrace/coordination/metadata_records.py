"""The records of the metadata log, in KRaft's encoding, so that Kafka's own tools can read it.

A record has no key. Its value is

    frame version (uvarint, 1) | api key (uvarint) | version (uvarint) | fields | tagged fields

with every string and array in its compact form.
"""

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Any
from uuid import UUID

from headrace.protocol.primitives import Malformed, Reader, Writer

FRAME_VERSION = 1

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
GROUP_RESOURCE = 32


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic exists; its partitions follow as records of their own."""

    name: str
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A partition exists. On one node the one replica is also the leader and the in-sync set."""

    partition_id: int
    topic_id: UUID
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    directories: tuple[UUID, ...]
    leader_epoch: int = 0
    partition_epoch: int = 0
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """A setting of a topic or a broker; the value None removes it."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class RemoveTopicRecord:
    """A topic is gone, with its partitions and its settings."""

    topic_id: UUID


@dataclass(frozen=True, slots=True)
class FeatureLevelRecord:
    """The level of a cluster-wide feature that is in force."""

    name: str
    feature_level: int


@dataclass(frozen=True, slots=True)
class ProducerIdsRecord:
    """Every producer id below `next_producer_id` may be in use."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


@dataclass(frozen=True, slots=True)
class NoOpRecord:
    """Says nothing; Kafka's controller writes one twice a second."""


MetadataRecord = (
    TopicRecord
    | PartitionRecord
    | ConfigRecord
    | RemoveTopicRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
    | NoOpRecord
)

Kind = tuple[Callable[[Writer, Any], None], Callable[[Reader], Any]]


def _array(item: Kind) -> Kind:
    write, read = item
    return (
        lambda writer, values: writer.compact_array(values, lambda value: write(writer, value)),
        lambda reader: tuple(reader.compact_array(lambda: read(reader)) or ()),
    )


_INT8: Kind = (Writer.int8, Reader.int8)
_INT16: Kind = (Writer.int16, Reader.int16)
_INT32: Kind = (Writer.int32, Reader.int32)
_INT64: Kind = (Writer.int64, Reader.int64)
_UUID: Kind = (Writer.uuid, Reader.uuid)
_STRING: Kind = (Writer.compact_string, Reader.compact_string)
_NULLABLE_STRING: Kind = (Writer.compact_string, Reader.compact_nullable_string)


@dataclass(frozen=True, slots=True)
class Row:
    """How one record type is written; versions of the same layout, the last one is written."""

    record: type[Any]
    api_key: int
    versions: tuple[int, ...]
    fields: tuple[tuple[str, Kind], ...]


ROWS = (
    Row(TopicRecord, 2, (0,), (("name", _STRING), ("topic_id", _UUID))),
    Row(
        PartitionRecord,
        3,
        (1, 2),
        (
            ("partition_id", _INT32),
            ("topic_id", _UUID),
            ("replicas", _array(_INT32)),
            ("isr", _array(_INT32)),
            ("removing_replicas", _array(_INT32)),
            ("adding_replicas", _array(_INT32)),
            ("leader", _INT32),
            ("leader_epoch", _INT32),
            ("partition_epoch", _INT32),
            ("directories", _array(_UUID)),
        ),
    ),
    Row(
        ConfigRecord,
        4,
        (0,),
        (
            ("resource_type", _INT8),
            ("resource_name", _STRING),
            ("name", _STRING),
            ("value", _NULLABLE_STRING),
        ),
    ),
    Row(RemoveTopicRecord, 9, (0,), (("topic_id", _UUID),)),
    Row(FeatureLevelRecord, 12, (0,), (("name", _STRING), ("feature_level", _INT16))),
    Row(
        ProducerIdsRecord,
        15,
        (0,),
        (("broker_id", _INT32), ("broker_epoch", _INT64), ("next_producer_id", _INT64)),
    ),
    Row(NoOpRecord, 20, (0,), ()),
)

_BY_TYPE = {row.record: row for row in ROWS}
_BY_KEY = {(row.api_key, version): row for row in ROWS for version in row.versions}


class MetadataCodec:
    """Metadata records as log records."""

    def encode(self, record: MetadataRecord) -> tuple[None, bytes]:
        row = _BY_TYPE[type(record)]
        writer = Writer()
        writer.unsigned_varint(FRAME_VERSION)
        writer.unsigned_varint(row.api_key)
        writer.unsigned_varint(row.versions[-1])
        for name, (write, _) in row.fields:
            write(writer, getattr(record, name))
        writer.tagged_fields()
        return None, writer.getvalue()

    def decode(self, key: bytes | None, value: bytes | None) -> MetadataRecord | None:
        if not value:
            return None
        return _decode_lone_partition(value) or self.decode_any(value)

    def decode_any(self, value: bytes) -> MetadataRecord | None:
        """Any record, by its row."""
        reader = Reader(value)
        try:
            frame_version = reader.unsigned_varint()
            row = _BY_KEY.get((reader.unsigned_varint(), reader.unsigned_varint()))
            if frame_version != FRAME_VERSION or row is None:
                return None
            found = {name: read(reader) for name, (_, read) in row.fields}
            reader.tagged_fields()
        except Malformed:
            return None
        record: MetadataRecord = row.record(**found)
        return record


# A partition with one replica, as nearly every record of a large catalog is: read at once, in a
# third of the time that its row takes. The constants are the frame, the lengths and the tags.
_LONE_PARTITION = Struct(">3s i16s BiBi2s iii B16sB")
_LONE_FRAME = bytes((FRAME_VERSION, 3, 2))
_LONE_LENGTHS = (2, 2, b"\x01\x01", 2, 0)


def _decode_lone_partition(value: bytes) -> PartitionRecord | None:
    if len(value) != _LONE_PARTITION.size or value[:3] != _LONE_FRAME:
        return None
    (
        _,
        partition_id,
        topic_id,
        replicas,
        replica,
        in_sync,
        in_sync_replica,
        moving,
        leader,
        leader_epoch,
        partition_epoch,
        directories,
        directory,
        tags,
    ) = _LONE_PARTITION.unpack(value)
    if (replicas, in_sync, moving, directories, tags) != _LONE_LENGTHS:
        return None
    return PartitionRecord(
        partition_id,
        UUID(bytes=topic_id),
        (replica,),
        (in_sync_replica,),
        leader,
        (UUID(bytes=directory),),
        leader_epoch,
        partition_epoch,
    )
