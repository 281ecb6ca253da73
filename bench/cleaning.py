"""Compaction: how fast a log is cleaned, and what a producer of another topic notices of it."""

import random
import time
from collections.abc import Iterator

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from bench.cells import Cell, quantile
from bench.raw_client import RawClient, batch, produce_error, produce_frame
from bench.rdkafka_client import create_topic
from bench.systems import System
from headrace.log.checkpoints import read_offsets
from headrace.protocol.records import Record, write_batch

# Record size, records in a batch, distinct keys, bytes of log.
LOGS = {
    "1 KB records": (1_000, 16, 50_000, 400_000_000),
    "100-byte records": (100, 100, 100_000, 100_000_000),
}
SEGMENT_BYTES = 32 << 20
DEPTH = 5
WAIT_S = 120.0
BASE_SECONDS = 5.0
PACE_S = 0.001
# Nothing is too small to be cleaned, and the cleaner looks all the time.
EAGER = {
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.min.cleanable.ratio": "0.001",
    "log.initial.task.delay.ms": "0",
    "log.flush.offset.checkpoint.interval.ms": "1000",
}


def measure(system: System) -> Iterator[Cell]:
    for name, shape in LOGS.items():
        topic = f"compact-{shape[0]}"
        size_mb, end_offset = _fill(system, topic, *shape)
        started = time.perf_counter()
        _compact(system.bootstrap, topic)
        _wait(system, topic, end_offset)
        rate = size_mb / (time.perf_counter() - started)
        yield Cell(f"compaction, {name}", rate, "MB/s of log")
    yield from _beside(system)


def _beside(system: System) -> Iterator[Cell]:
    """The p99 of a steady producer, alone and while a log is compacted."""
    create_topic(system.bootstrap, "beside", 1)
    _latencies(system, BASE_SECONDS / 5)
    alone = _latencies(system, BASE_SECONDS)
    topic = "compact-beside"
    _size_mb, end_offset = _fill(system, topic, *LOGS["1 KB records"])
    _compact(system.bootstrap, topic)
    during = _latencies(system, WAIT_S, until=(topic, end_offset))
    name = "produce p99, a record at a time"
    yield Cell(name, quantile(alone, 0.99), "ms", more_is_better=False)
    yield Cell(f"{name}, during compaction", quantile(during, 0.99), "ms", more_is_better=False)


def _latencies(system: System, seconds: float, until: tuple[str, int] | None = None) -> list[float]:
    client = RawClient(system.bootstrap)
    frame = produce_frame("beside", {0: batch([b"x" * 100])})
    times: list[float] = []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        if until and len(times) % 50 == 0 and _cleaned(system, until[0]) >= until[1]:
            break
        sent = time.perf_counter()
        client.send(frame)
        if error := produce_error(client.answer(), "beside"):
            raise RuntimeError(f"produce answered error {error}")
        times.append((time.perf_counter() - sent) * 1000)
        time.sleep(PACE_S)
    client.close()
    return times


def _fill(
    system: System, topic: str, size: int, per_batch: int, keys: int, log_bytes: int
) -> tuple[float, int]:
    """A log of several segments; its size, and where its active segment begins."""
    admin = AdminClient({"bootstrap.servers": system.bootstrap})
    configs = {"cleanup.policy": "delete", "segment.bytes": str(SEGMENT_BYTES)}
    for created in admin.create_topics([NewTopic(topic, 1, 1, config=configs)]).values():
        created.result(WAIT_S)
    client = RawClient(system.bootstrap)
    source = random.Random(1)
    value = source.randbytes(size)
    waiting = 0
    for _ in range(log_bytes // size // per_batch):
        now_ms = time.time_ns() // 1_000_000
        records = [
            Record(-1, now_ms, b"key-%08d" % source.randrange(keys), value)
            for _ in range(per_batch)
        ]
        client.send(produce_frame(topic, {0: bytes(write_batch(records))}))
        waiting += 1
        if waiting >= DEPTH:
            waiting -= _answered(client, topic)
    while waiting:
        waiting -= _answered(client, topic)
    client.close()
    segments = sorted((system.data_dir / f"{topic}-0").glob("*.log"))
    size_mb = sum(path.stat().st_size for path in segments[:-1]) / 1e6
    return size_mb, int(segments[-1].stem)


def _answered(client: RawClient, topic: str) -> int:
    if error := produce_error(client.answer(), topic):
        raise RuntimeError(f"produce answered error {error}")
    return 1


def _compact(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(WAIT_S)


def _cleaned(system: System, topic: str) -> int:
    path = system.data_dir / "cleaner-offset-checkpoint"
    if not path.exists():
        return 0
    try:
        return read_offsets(path.read_bytes()).get((topic, 0), 0)
    except ValueError:
        # Kafka makes the file before it writes in it.
        return 0


def _wait(system: System, topic: str, end_offset: int) -> None:
    deadline = time.perf_counter() + WAIT_S
    while _cleaned(system, topic) < end_offset:
        if time.perf_counter() > deadline:
            raise TimeoutError(f"{system.name} did not compact {topic} in {WAIT_S:.0f} s")
        time.sleep(0.005)
