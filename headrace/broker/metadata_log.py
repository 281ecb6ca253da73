"""The metadata log: the partition the catalog is replayed from, and its snapshots beside it.

A snapshot is a file of record batches named by the offset its state ends at, as KRaft's are:

    <offset, 20 digits>-<epoch, 10 digits>.checkpoint
    SnapshotHeader (control) | metadata records ... | SnapshotFooter (control)

The two newest are kept, and the log from the older one on, so that one damaged file loses nothing.
"""

import asyncio
import logging
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from headrace.broker.flusher import Flusher
from headrace.broker.partitions import Partition
from headrace.broker.settings import BrokerSettings
from headrace.broker.shard import Shard
from headrace.clock import Clock
from headrace.coordination.catalog import Catalog
from headrace.coordination.metadata_records import MetadataCodec, MetadataRecord, NoOpRecord
from headrace.coordination.topics import METADATA_TOPIC, Placement
from headrace.errors import ErrorCode
from headrace.log.filesystem import Filesystem, join
from headrace.log.origin import Origin
from headrace.log.settings import TopicSettings
from headrace.log.store import Store
from headrace.protocol.records import Record, batches, write_batch

log = logging.getLogger(__name__)

METADATA_TOPIC_ID = UUID(int=1)
KEPT_SNAPSHOTS = 2
RECORDS_BETWEEN_SNAPSHOTS = 10_000
RECORDS_PER_BATCH = 5_000
SNAPSHOT_EPOCH = 0

SETTINGS = {
    # Only a snapshot may shorten this log.
    "cleanup.policy": "",
    "compression.type": "producer",
    "max.message.bytes": str(8 << 20),
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "message.timestamp.type": "CreateTime",
    # Small, because what a snapshot covers goes by whole segments.
    "segment.bytes": str(16 << 20),
}

_FILE = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_CONTROL_KEY = Struct(">hh")
_HEADER_VALUE = Struct(">hqb")
_FOOTER_VALUE = Struct(">hb")
_SNAPSHOT_HEADER = 3
_SNAPSHOT_FOOTER = 4


class Snapshot(NamedTuple):
    """A snapshot file, and the offset from which the log goes on."""

    offset: int
    path: str


class Snapshots:
    """The snapshot files of one directory."""

    def __init__(self, filesystem: Filesystem, directory: str) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._codec = MetadataCodec()

    def newest_first(self) -> list[Snapshot]:
        found = [
            Snapshot(int(match[1]), join(self._directory, match[0]))
            for name in self._filesystem.listdir(self._directory)
            if (match := _FILE.fullmatch(name))
        ]
        return sorted(found, reverse=True)

    def read(self, snapshot: Snapshot) -> list[MetadataRecord]:
        """Every record, or ValueError if the file is not whole."""
        content = self._filesystem.read(snapshot.path)
        records: list[MetadataRecord] = []
        kinds = []
        for batch in batches(content):
            if not batch.crc_valid():
                raise ValueError(f"a batch at byte {batch.position} has a wrong checksum")
            for record in batch.records():
                if batch.is_control:
                    kinds.append(_CONTROL_KEY.unpack_from(record.key or b"\0\0\0\0")[1])
                elif known := self._codec.decode(record.key, record.value):
                    records.append(known)
        if not kinds or kinds[0] != _SNAPSHOT_HEADER or kinds[-1] != _SNAPSHOT_FOOTER:
            raise ValueError("its beginning or its end is missing")
        return records

    def encode(self, records: Sequence[MetadataRecord], now_ms: int) -> bytes:
        header = _HEADER_VALUE.pack(0, now_ms, 0)
        content = _control(0, _SNAPSHOT_HEADER, header, now_ms)
        offset = 1
        for chunk in _chunks(records):
            rows = [
                Record(offset + at, now_ms, *self._codec.encode(record), ())
                for at, record in enumerate(chunk)
            ]
            content += write_batch(rows, base_offset=offset, leader_epoch=SNAPSHOT_EPOCH)
            offset += len(rows)
        content += _control(offset, _SNAPSHOT_FOOTER, _FOOTER_VALUE.pack(0, 0), now_ms)
        return bytes(content)

    def write(self, offset: int, content: bytes) -> None:
        """Put a snapshot on stable storage, then remove those nobody needs any more."""
        name = f"{offset:020d}-{SNAPSHOT_EPOCH:010d}.checkpoint"
        self._filesystem.write_atomic(join(self._directory, name), content)
        for old in self.newest_first()[KEPT_SNAPSHOTS:]:
            self._filesystem.remove(old.path)


class MetadataLog:
    """The catalog's shard, and when its state is written down whole."""

    def __init__(
        self,
        store: Store,
        flusher: Flusher,
        clock: Clock,
        settings: BrokerSettings,
        placement: Placement,
    ) -> None:
        own = TopicSettings.resolve(settings, SETTINGS)
        journal = store.open(METADATA_TOPIC, 0, METADATA_TOPIC_ID, own)
        self.partition = Partition(journal, own, flusher, METADATA_TOPIC_ID)
        # The directory may be one that Kafka wrote, and then is at a later epoch.
        self.partition.leader_epoch = max(journal.leader_epochs.latest, 0)
        self._snapshots = Snapshots(store.filesystem, journal.directory)
        self._clock = clock
        self._max_bytes = settings.metadata_log_max_record_bytes_between_snapshots
        self._snapshot_offset = 0
        self._snapshot_records = 0
        self._snapshot_bytes = 0
        self.shard: Shard[Catalog, MetadataRecord] = Shard(
            self.partition,
            lambda: Catalog(placement),
            MetadataCodec(),
            clock,
            restore=self._restore,
            unavailable=ErrorCode.KAFKA_STORAGE_ERROR,
        )
        self.shard.load()

    def snapshot_due(self) -> bool:
        """Whether the log grew enough: by as much as a snapshot costs, so that both stay cheap."""
        grown = self.partition.log.log_end_offset - self._snapshot_offset
        enough = max(RECORDS_BETWEEN_SNAPSHOTS, self._snapshot_records)
        grown_bytes = self.partition.log.size_bytes - self._snapshot_bytes
        return grown >= enough or (grown > 0 and grown_bytes >= self._max_bytes)

    async def snapshot(self) -> None:
        """Write the whole catalog down and drop the log before the snapshot before this one."""
        offset = self.partition.log.log_end_offset
        records = self.shard.machine.snapshot()
        content = self._snapshots.encode(records, self._clock.now_ms())
        self._snapshot_offset = offset
        self._snapshot_records = len(records)
        self._snapshot_bytes = self.partition.log.size_bytes
        await asyncio.to_thread(self._snapshots.write, offset, content)
        kept = self._snapshots.newest_first()
        if len(kept) == KEPT_SNAPSHOTS:
            self.partition.log.delete_records(
                min(kept[-1].offset, self.partition.log.log_end_offset)
            )
        log.info("metadata snapshot written offset=%d records=%d", offset, len(records))

    def _restore(self, catalog: Catalog) -> int:
        for snapshot in self._snapshots.newest_first():
            try:
                records = self._snapshots.read(snapshot)
            except (ValueError, OSError) as error:
                log.warning("snapshot ignored file=%s reason=%s", snapshot.path, error)
                continue
            for record in records:
                catalog.replay(record)
            self._snapshot_offset = snapshot.offset
            self._snapshot_records = len(records)
            self._fill_to(snapshot.offset)
            return snapshot.offset
        start = self.partition.log.log_start_offset
        if start > 0:
            log.error(
                "metadata before offset %d is lost: no snapshot can be read. Topics whose "
                "directories are there are taken up again with default settings.",
                start,
            )
        return start

    def _fill_to(self, offset: int) -> None:
        """New records must come after the snapshot, even where the log lost its own end."""
        missing = offset - self.partition.log.log_end_offset
        if missing <= 0:
            return
        log.warning("metadata log is shorter than its snapshot missing_records=%d", missing)
        now_ms = self._clock.now_ms()
        nothing = MetadataCodec().encode(NoOpRecord())
        while missing > 0:
            count = min(missing, RECORDS_PER_BATCH)
            rows = [Record(at, now_ms, *nothing, ()) for at in range(count)]
            self.partition.append(write_batch(rows), origin=Origin.COORDINATOR)
            missing -= count


def _control(offset: int, kind: int, value: bytes, now_ms: int) -> bytearray:
    row = Record(offset, now_ms, _CONTROL_KEY.pack(0, kind), value, ())
    return write_batch([row], base_offset=offset, control=True, leader_epoch=SNAPSHOT_EPOCH)


def _chunks(records: Sequence[MetadataRecord]) -> Iterator[list[MetadataRecord]]:
    rest = iter(records)
    while chunk := list(islice(rest, RECORDS_PER_BATCH)):
        yield chunk
