"""Short words for tests of the log: a batch, an open log, everything in it."""

from collections.abc import Sequence

from headrace.clock import Clock
from headrace.log.filesystem import Filesystem, parent
from headrace.log.open_files import OpenFiles
from headrace.log.partition_log import NEW, PartitionLog
from headrace.log.recovery import Known
from headrace.log.settings import TopicSettings
from headrace.protocol.records import BatchView, Record, batches, write_batch
from headrace.testing.clock import ManualClock

DIRECTORY = "/data/orders-0"
NOW_MS = 1_700_000_000_000


def batch(*values: bytes, timestamp: int = NOW_MS, **header: int | bool) -> bytearray:
    """A batch of records with these values, as a producer sends it."""
    records = [Record(-1, timestamp, None, value) for value in values]
    return write_batch(records, **header)  # type: ignore[arg-type]  # passed on as given


def open_log(
    filesystem: Filesystem,
    known: Known = NEW,
    *,
    settings: TopicSettings | None = None,
    clock: Clock | None = None,
    directory: str = DIRECTORY,
) -> PartitionLog:
    """The log of one partition, its directory made if need be."""
    filesystem.mkdir(directory)
    # The data directory itself is the store's to make; here it is just there.
    filesystem.sync_dir(parent(parent(directory)))
    return PartitionLog.open(
        OpenFiles(filesystem),
        directory,
        settings or TopicSettings(),
        clock or ManualClock(NOW_MS),
        known,
    )


def small_segments(size: int, **settings: object) -> TopicSettings:
    """Settings whose segments hold this many bytes."""
    return TopicSettings(internal_segment_bytes=size, **settings)  # type: ignore[arg-type]


def sync(log: PartitionLog) -> None:
    """Put everything written so far on stable storage."""
    ticket = log.dirty()
    if ticket is not None:
        ticket.sync()
        log.synced(ticket)


def read_all(log: PartitionLog, *, max_bytes: int = 1 << 20) -> list[BatchView]:
    """Every batch from the log's start to its end, as a consumer fetches them."""
    found: list[BatchView] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        content = log.read(
            offset, max_bytes=max_bytes, end_offset=log.log_end_offset, min_one=True
        ).read()
        if not content:
            break
        found += batches(content)
        offset = found[-1].next_offset
    return found


def values(found: Sequence[BatchView]) -> list[tuple[int, bytes | None]]:
    """Offset and value of every record."""
    return [(record.offset, record.value) for view in found for record in view.records()]
