"""From launch to the first acknowledged record: empty, with many partitions, with a large log."""

import random
import signal
import time
from collections.abc import Callable, Iterator

from bench.cells import Cell, quantile
from bench.raw_client import RawClient, batch, fetch_frame, produce_error, produce_frame
from bench.rdkafka_client import create_topic
from bench.systems import System, resident_mb

START_LIMIT_S = 180.0
TOPIC = "first"
PARTITIONS = (1, 1_000, 10_000)
PARTITIONS_PER_TOPIC = 1_000
LOG_BYTES = {"100 MB": 100_000_000, "1 GB": 1_000_000_000, "10 GB": 10_000_000_000}
LOOKUPS = 2_000
BULK_BATCH = 64 * 1024
BULK_DEPTH = 5


def first_record(system: System) -> float:
    """Milliseconds from launch until a record is acknowledged."""
    started = time.perf_counter()
    system.launch()
    frame = produce_frame(TOPIC, {0: batch([b"first"])})
    while time.perf_counter() - started < START_LIMIT_S:
        try:
            client = RawClient(system.bootstrap)
            client.ensure_topic(TOPIC)
            client.send(frame)
            error = produce_error(client.answer(), TOPIC)
            client.close()
            if error == 0:
                return (time.perf_counter() - started) * 1000
        except OSError:
            time.sleep(0.005)
    raise TimeoutError(f"{system.name} did not acknowledge a record in {START_LIMIT_S:.0f} s")


def empty(make: Callable[[], System]) -> Iterator[Cell]:
    system = make()
    try:
        system.prepare()
        name = "start to first acknowledged record"
        yield Cell(name, first_record(system), "ms", more_is_better=False)
    finally:
        system.discard()


def with_partitions(make: Callable[[], System], partitions: int) -> Iterator[Cell]:
    system = make()
    try:
        system.prepare()
        system.start()
        for number in range(max(1, partitions // PARTITIONS_PER_TOPIC)):
            topic = f"wide-{number}"
            create_topic(system.bootstrap, topic, min(partitions, PARTITIONS_PER_TOPIC))
        system.stop()
        took = first_record(system)
        yield Cell(f"start with {partitions:,} partitions", took, "ms", more_is_better=False)
        memory = resident_mb(system)
        name = f"resident memory with {partitions:,} partitions"
        yield Cell(name, memory, "MB", more_is_better=False)
    finally:
        system.discard()


def with_log(make: Callable[[], System], label: str) -> Iterator[Cell]:
    """Start after kill -9 on a log of this size, and what a look-up in it takes."""
    system = make()
    try:
        system.prepare()
        system.start()
        create_topic(system.bootstrap, TOPIC, 1)
        records = _fill(system.bootstrap, LOG_BYTES[label])
        system.stop(signal.SIGKILL)
        took = first_record(system)
        yield Cell(f"start after kill -9 with {label}", took, "ms", more_is_better=False)
        times = _look_up(system.bootstrap, records)
        name = f"look-up in {label}, p50"
        yield Cell(name, quantile(times, 0.5), "ms", more_is_better=False)
    finally:
        system.discard()


def _fill(bootstrap: str, size: int) -> int:
    per_batch = BULK_BATCH // 1024
    frame = produce_frame(TOPIC, {0: batch([random.randbytes(1000)] * per_batch)}, acks=1)
    client = RawClient(bootstrap)
    requests = size // BULK_BATCH
    for number in range(requests + BULK_DEPTH):
        if number >= BULK_DEPTH and (error := produce_error(client.answer(), TOPIC)):
            raise RuntimeError(f"produce answered error {error}")
        if number < requests:
            client.send(frame)
    client.close()
    return requests * per_batch


def _look_up(bootstrap: str, records: int) -> list[float]:
    source = random.Random(1)
    client = RawClient(bootstrap)
    times: list[float] = []
    for _ in range(LOOKUPS):
        started = time.perf_counter()
        client.send(fetch_frame(TOPIC, {0: source.randrange(records)}, max_bytes=1))
        client.answer()
        times.append((time.perf_counter() - started) * 1000)
    client.close()
    return times
