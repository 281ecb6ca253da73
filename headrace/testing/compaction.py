"""Short words for tests of compaction: keyed batches, a log that rolls, one whole cleaning."""

from collections.abc import Sequence

from headrace.log.cleaning import Cleaning
from headrace.log.compaction_plan import Limits, plan
from headrace.log.compaction_rewrite import Compaction, Progress
from headrace.log.partition_log import PartitionLog
from headrace.log.store import Store
from headrace.protocol.records import Record, write_batch
from headrace.testing.logs import NOW_MS, read_all, sync

LIMITS = Limits(1 << 20, 1 << 16, float("inf"))

Pair = tuple[bytes | None, bytes | None]


def keyed(*pairs: Pair, timestamp: int = NOW_MS, **header: int | bool) -> bytearray:
    """A batch of keys and values, as a producer sends it; a value of None is a tombstone."""
    records = [Record(-1, timestamp, key, value) for key, value in pairs]
    return write_batch(records, **header)  # type: ignore[arg-type]  # passed on as given


def records_of(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of every record but markers, aborted or not."""
    return [
        (record.offset, record.key, record.value)
        for batch in read_all(log)
        if not batch.is_control
        for record in batch.records()
    ]


def settle(store: Store, log: PartitionLog, now_ms: int = NOW_MS) -> None:
    """End the active segment and put everything on stable storage, so that it may be cleaned."""
    if log.segments[-1].size:
        log.roll(now_ms)
    sync(log)
    store.checkpoint()


def compact(
    store: Store,
    log: PartitionLog,
    *,
    now_ms: int = NOW_MS,
    stable_offset: int | None = None,
    limits: Limits = LIMITS,
) -> Progress | None:
    """One cleaning from the plan to the checkpoint; None if there was nothing dirty."""
    cleaning = Cleaning(store)
    unstable = log.producers.first_unstable_offset
    stable = min(log.synced_offset, log.synced_offset if unstable is None else unstable)
    found = cleaning.examine(log, stable if stable_offset is None else stable_offset, now_ms)
    if not found.dirty_bytes:
        return None
    compaction = Compaction(
        store.filesystem, plan(found, now_ms=now_ms, limits=limits), lambda _count: None
    )
    for cleaned in compaction.run():
        cleaning.commit(log, cleaned)
        if not cleaning.exchange(log, cleaned):
            raise AssertionError(f"segments {cleaned.bases} changed during a test")
    content = cleaning.note(log, compaction.progress.end_offset)
    cleaning.save(log.directory, content)
    return compaction.progress


def latest(pairs: Sequence[tuple[int, bytes | None, bytes | None]]) -> dict[bytes, bytes]:
    """What a reader who applies the records in order knows at the end."""
    state: dict[bytes, bytes] = {}
    for _offset, key, value in pairs:
        if key is not None and value is not None:
            state[key] = value
        elif key is not None:
            state.pop(key, None)
    return state
