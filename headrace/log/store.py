"""Every partition log of one data directory: its lock, its identity, its checkpoints."""

import logging
import re
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headrace.clock import Clock
from headrace.errors import ErrorCode, KafkaError, StartRefused
from headrace.log import checkpoints
from headrace.log.deleted_files import DeletedFiles
from headrace.log.filesystem import Filesystem, join, parent
from headrace.log.open_files import OpenFiles
from headrace.log.partition_log import PartitionLog
from headrace.log.recovery import Known
from headrace.log.settings import TopicSettings

logger = logging.getLogger(__name__)

LOCK = ".lock"
DELETED = "-delete"
STRAY = "-stray"
MAX_NAME = 255
LOW_SPACE_BYTES = 16 << 20
_PARTITION = re.compile(r"(.+)-(\d+)")
_FORMER_PARTITION = re.compile(r".+\.[0-9a-f]{32}-(delete|future|stray)")
_DELETED = re.compile(r".+\.[0-9a-f]{32}-delete")


def partition_name(topic: str, index: int) -> str:
    """The directory of a partition."""
    return f"{topic}-{index}"


class _Turns:
    """Checkpoints are written one at a time, and none after a later one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.taken = 0
        self.written = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Offsets taken at one moment; `write` may run on any thread."""

    filesystem: Filesystem
    directory: str
    turns: _Turns
    turn: int
    recovery_points: Mapping[tuple[str, int], int]
    log_starts: Mapping[tuple[str, int], int]

    def write(self) -> None:
        """Put both files on stable storage, or raise OSError."""
        with self.turns.lock:
            if self.turn < self.turns.written:
                # A later one is on disk, and it says more.
                return
            for name, offsets in (
                (checkpoints.LOG_STARTS, self.log_starts),
                (checkpoints.RECOVERY_POINTS, self.recovery_points),
            ):
                content = checkpoints.write_offsets(offsets)
                self.filesystem.write_atomic(join(self.directory, name), content)
            self.turns.written = self.turn


class Store:
    """Holds the directory's lock from construction to close(); no other broker writes in it."""

    def __init__(
        self,
        filesystem: Filesystem,
        data_dir: str,
        clock: Clock,
        *,
        node_id: int = 1,
        cluster_id: str | None = None,
    ) -> None:
        self.filesystem = filesystem
        self.data_dir = data_dir.rstrip("/") or "/"
        self.logs: dict[str, PartitionLog] = {}
        self._clock = clock
        self._turns = _Turns()
        # Before the lock: a directory of a newer format is left as it is.
        meta = self._read_meta(node_id, cluster_id)
        self._make_directory(self.data_dir)
        self._lock = filesystem.lock(join(self.data_dir, LOCK))
        try:
            self._take_over(meta, node_id, cluster_id)
        except BaseException:
            self._lock.release()
            raise

    def _make_directory(self, path: str) -> None:
        """Make it, and have every directory above know it for good."""
        if self.filesystem.exists(path):
            return
        self._make_directory(parent(path))
        self.filesystem.mkdir(path)
        self.filesystem.sync_dir(parent(path))

    def _take_over(self, meta: dict[str, str], node_id: int, cluster_id: str | None) -> None:
        if not meta:
            meta = self._write_meta(node_id, cluster_id)
        self.node_id = node_id
        self.cluster_id = meta["cluster.id"]
        self.directory_id = meta.get("directory.id", "")
        self.files = OpenFiles(self.filesystem)
        self.deleted = DeletedFiles(self.filesystem)
        self._recovery_points = self._read_offsets(checkpoints.RECOVERY_POINTS)
        self._log_starts = self._read_offsets(checkpoints.LOG_STARTS)
        # Where the last compaction of each log ended.
        self.cleaned_offsets = self._read_offsets(checkpoints.CLEANED_OFFSETS)
        self._written = dict(self._recovery_points), dict(self._log_starts)
        marker = join(self.data_dir, checkpoints.CLEAN_SHUTDOWN)
        self.clean = self.filesystem.exists(marker)
        if self.clean:
            # On stable storage before anything is written: the promise ends here.
            self.filesystem.remove(marker)
            self.filesystem.sync_dir(self.data_dir)

    # Partitions

    def found(self) -> list[tuple[str, int]]:
        """Topic and index of every partition directory there is, open or not."""
        partitions = []
        for name in self.filesystem.listdir(self.data_dir):
            match = _PARTITION.fullmatch(name)
            if match is not None and not _FORMER_PARTITION.fullmatch(name):
                partitions.append((match[1], int(match[2])))
        return sorted(partitions)

    def open(
        self, topic: str, index: int, topic_id: uuid.UUID | None, settings: TopicSettings
    ) -> PartitionLog:
        """The partition's log: as found, or new if there is none or it is another topic's.

        Another topic's files are kept under another name, as Kafka keeps stray logs.
        """
        name = partition_name(topic, index)
        if name in self.logs:
            return self.logs[name]
        path = join(self.data_dir, name)
        if not self.filesystem.exists(path):
            return self._open_new(topic, index, topic_id, settings)
        log = self._open(topic, index, settings)
        if topic_id is not None and log.topic_id is None:
            log.belong_to(topic_id)
        elif topic_id is not None and log.topic_id != topic_id:
            self._stray(name)
            return self._open_new(topic, index, topic_id, settings)
        return log

    def open_all(self, settings_of: Callable[[str], TopicSettings]) -> None:
        """Open every partition found, each with its topic's settings."""
        for topic, index in self.found():
            self.open(topic, index, None, settings_of(topic))

    def create(
        self, topic: str, index: int, topic_id: uuid.UUID, settings: TopicSettings
    ) -> PartitionLog:
        """A new, empty log. What a deleted topic left under the name is set aside."""
        name = partition_name(topic, index)
        if name in self.logs:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"partition {name} exists")
        try:
            if self.filesystem.exists(join(self.data_dir, name)):
                self._stray(name)
            return self._open_new(topic, index, topic_id, settings)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{name} cannot be created: {error.strerror}"
            ) from error

    def delete(self, name: str) -> None:
        """The log is gone at once; its files go with sweep()."""
        log = self.logs.pop(name)
        log.close(clean=False)
        self._set_aside(name, DELETED)

    def sweep(self) -> int:
        """Remove the files of deleted partitions; what cannot be removed now stays for later."""
        self.deleted.remove(self._clock.monotonic_ms())
        removed = 0
        for name in self.filesystem.listdir(self.data_dir):
            if not _DELETED.fullmatch(name):
                continue
            try:
                self.filesystem.remove_tree(join(self.data_dir, name))
                removed += 1
            except OSError as error:
                logger.warning("deleted partition not yet removed name=%s reason=%s", name, error)
        return removed

    def _open(self, topic: str, index: int, settings: TopicSettings) -> PartitionLog:
        name = partition_name(topic, index)
        known = Known(
            self._recovery_points.get((topic, index), 0),
            self._log_starts.get((topic, index), 0),
            self.clean,
        )
        log = PartitionLog.open(self.files, join(self.data_dir, name), settings, self._clock, known)
        self.logs[name] = log
        return log

    def _open_new(
        self, topic: str, index: int, topic_id: uuid.UUID | None, settings: TopicSettings
    ) -> PartitionLog:
        self._forget(topic, index)
        name = partition_name(topic, index)
        path = join(self.data_dir, name)
        self.filesystem.mkdir(path)
        log = PartitionLog.open(self.files, path, settings, self._clock)
        if topic_id is not None:
            log.belong_to(topic_id)
        self.logs[name] = log
        return log

    def _forget(self, topic: str, index: int) -> None:
        """Offsets of a former log of this name must never be taken for those of the new one."""
        key = topic, index
        self._recovery_points.pop(key, None)
        self._log_starts.pop(key, None)
        self.cleaned_offsets.pop(key, None)
        if any(key in offsets for offsets in self._written):
            self.checkpoint()

    def _stray(self, name: str) -> None:
        """Keep what is not known to be deleted: the file that names its topic may be damaged."""
        log = self.logs.pop(name, None)
        if log is not None:
            log.close(clean=False)
        target = self._set_aside(name, STRAY)
        logger.error("partition of another topic set aside partition=%s as=%s", name, target)

    def _set_aside(self, name: str, reason: str) -> str:
        suffix = f".{uuid.uuid4().hex}{reason}"
        target = name[: MAX_NAME - len(suffix)] + suffix
        self.filesystem.rename(join(self.data_dir, name), join(self.data_dir, target))
        return target

    def recovery_point(self, topic: str, index: int) -> int:
        """Up to which offset a start believes a partition's files, as the last checkpoint says."""
        return self._written[0].get((topic, index), 0)

    # Checkpoints

    def checkpoint(self) -> None:
        """Note how far every log is safe; blocks for the disk. See begin_checkpoint."""
        begun = self.begin_checkpoint()
        if begun is not None:
            begun.write()
            self.finish_checkpoint(begun)

    def begin_checkpoint(self) -> Checkpoint | None:
        """Take the offsets, on the thread that owns the logs; None if nothing moved."""
        recovery_points = dict(self._recovery_points)
        log_starts = dict(self._log_starts)
        for name, log in self.logs.items():
            log.checkpoint()
            topic, _dash, index = name.rpartition("-")
            recovery_points[topic, int(index)] = log.synced_offset
            log_starts[topic, int(index)] = log.log_start_offset
        if (recovery_points, log_starts) == self._written:
            return None
        if self.filesystem.free_bytes(self.data_dir) < LOW_SPACE_BYTES:
            # With no room for the files that come first, room is made first. A crash before
            # they are written may bring back records of a segment not wholly deleted.
            self._remove_below(log_starts)
            self.deleted.remove_all()
        turns = self._turns
        turns.taken += 1
        return Checkpoint(
            self.filesystem, self.data_dir, turns, turns.taken, recovery_points, log_starts
        )

    def finish_checkpoint(self, checkpoint: Checkpoint) -> None:
        """The checkpoint is on stable storage: segments below its log starts may go."""
        self._written = dict(checkpoint.recovery_points), dict(checkpoint.log_starts)
        self._remove_below(checkpoint.log_starts)

    def _remove_below(self, log_starts: Mapping[tuple[str, int], int]) -> None:
        for name, log in list(self.logs.items()):
            topic, _dash, index = name.rpartition("-")
            moved = log.remove_segments_below(log_starts.get((topic, int(index)), 0))
            self.remove_later(moved, log.settings.file_delete_delay_ms)

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Remove files that are no longer the log's, once whoever reads them is done."""
        self.deleted.add(paths, self._clock.monotonic_ms() + delay_ms)

    def close(self, *, clean: bool = True) -> None:
        """Give the directory back; `clean` leaves the mark that spares the next start a scan."""
        try:
            for log in self.logs.values():
                log.close(clean=clean)
            if clean:
                self.checkpoint()
                self.filesystem.write_atomic(
                    join(self.data_dir, checkpoints.CLEAN_SHUTDOWN),
                    checkpoints.write_clean_shutdown(),
                )
        except OSError as error:
            logger.error("not stopped cleanly, the next start scans reason=%s", error)
        finally:
            self.logs.clear()
            self._lock.release()

    # Identity

    def _read_meta(self, node_id: int, cluster_id: str | None) -> dict[str, str]:
        path = join(self.data_dir, checkpoints.META_PROPERTIES)
        if not self.filesystem.exists(path):
            return {}
        content = self.filesystem.read(path)
        if not content.strip(b"\0 \r\n\t"):
            logger.warning("empty file written anew file=%s", path)
            return {}
        try:
            meta = checkpoints.read_properties(content)
        except UnicodeDecodeError:
            meta = {}
        version = meta.get("version")
        if version != str(checkpoints.META_VERSION):
            raise StartRefused(
                f"{path} is of version {version}, this broker knows {checkpoints.META_VERSION}: "
                "start a newer broker, or name another data directory"
            )
        for name, wanted in (("node.id", str(node_id)), ("cluster.id", cluster_id)):
            if wanted is not None and name in meta and meta[name] != wanted:
                raise StartRefused(
                    f"{path} says {name}={meta[name]}, the settings say {wanted}: "
                    "correct the setting, or name another data directory"
                )
        if "cluster.id" not in meta:
            raise StartRefused(f"{path} has no cluster.id: this is no broker's data directory")
        return meta

    def _write_meta(self, node_id: int, cluster_id: str | None) -> dict[str, str]:
        meta = {
            "version": str(checkpoints.META_VERSION),
            "cluster.id": cluster_id or checkpoints.write_uuid(uuid.uuid4()),
            "node.id": str(node_id),
            "directory.id": checkpoints.write_uuid(uuid.uuid4()),
        }
        self.filesystem.write_atomic(
            join(self.data_dir, checkpoints.META_PROPERTIES), checkpoints.write_properties(meta)
        )
        return meta

    def _read_offsets(self, name: str) -> dict[tuple[str, int], int]:
        path = join(self.data_dir, name)
        if not self.filesystem.exists(path):
            return {}
        content = self.filesystem.read(path)
        if not content:
            # Kafka makes these files before it has anything to say in them.
            return {}
        try:
            return checkpoints.read_offsets(content)
        except ValueError as error:
            logger.warning("checkpoint ignored file=%s reason=%s", path, error)
            return {}
