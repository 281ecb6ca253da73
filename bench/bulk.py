"""Bulk work in MB/s: many records, by librdkafka and by a client with no cost of its own."""

import itertools
import time
from collections.abc import Iterator

from bench.cells import Cell
from bench.raw_client import RawClient, batch, fetch_frame, fetched, produce_error, produce_frame
from bench.rdkafka_client import consume_seconds, create_topic, produce_seconds
from bench.systems import System, resident_mb

RECORD_BYTES = (100, 1024)
PARTITIONS = (1, 12, 100)
CODECS = ("none", "lz4")
BULK_BYTES = {100: 60_000_000, 1024: 200_000_000}
BATCH_BYTES = 16_384
RAW_DEPTH = 5
RAW_PARTITIONS_PER_REQUEST = 12


def measure(system: System) -> Iterator[Cell]:
    for size, partitions, codec in itertools.product(RECORD_BYTES, PARTITIONS, CODECS):
        cell = f"{size} B, {partitions} partitions, {codec}"
        value = _payload(size)
        count = BULK_BYTES[size] // size
        megabytes = count * size / 1e6
        topic = f"bulk-{size}-{partitions}-{codec}"
        create_topic(system.bootstrap, topic, partitions)
        seconds = produce_seconds(system.bootstrap, topic, codec, value, count)
        yield Cell(f"produce, librdkafka: {cell}", megabytes / seconds, "MB/s")
        seconds = consume_seconds(system.bootstrap, topic, partitions, count)
        yield Cell(f"consume, librdkafka: {cell}", megabytes / seconds, "MB/s")
        topic = f"raw-{size}-{partitions}-{codec}"
        create_topic(system.bootstrap, topic, partitions)
        seconds, produced = _raw_produce(system.bootstrap, topic, partitions, codec, value)
        yield Cell(f"produce, raw socket: {cell}", produced / 1e6 / seconds, "MB/s")
        seconds, stored = _raw_consume(system.bootstrap, topic, partitions)
        yield Cell(f"consume, raw socket: {cell}", produced / 1e6 / seconds, "MB/s")
        if stored <= 0:
            raise RuntimeError("nothing was fetched")
    yield Cell("resident memory after bulk", resident_mb(system), "MB", more_is_better=False)


def _payload(size: int) -> bytes:
    # Half of it repeats, so that lz4 has the work it has on ordinary events.
    pattern = bytes((index * 167 + index // 7) % 251 for index in range(size // 2))
    return (pattern + b"status=created;region=eu-west-1;" * size)[:size]


def _raw_produce(
    bootstrap: str, topic: str, partitions: int, codec: str, value: bytes
) -> tuple[float, int]:
    per_batch = max(1, BATCH_BYTES // len(value))
    data = batch([value] * per_batch, codec)
    width = min(partitions, RAW_PARTITIONS_PER_REQUEST)
    frames = [
        produce_frame(topic, {(first + index) % partitions: data for index in range(width)})
        for first in range(0, partitions, width)
    ]
    per_request = per_batch * width * len(value)
    requests = BULK_BYTES[len(value)] // per_request
    client = RawClient(bootstrap)
    started = time.perf_counter()
    for number in range(requests + RAW_DEPTH):
        if number >= RAW_DEPTH and (error := produce_error(client.answer(), topic)):
            raise RuntimeError(f"produce answered error {error}")
        if number < requests:
            client.send(frames[number % len(frames)])
    seconds = time.perf_counter() - started
    client.close()
    return seconds, requests * per_request


def _raw_consume(bootstrap: str, topic: str, partitions: int) -> tuple[float, int]:
    offsets = dict.fromkeys(range(partitions), 0)
    client = RawClient(bootstrap)
    total = 0
    started = time.perf_counter()
    while True:
        client.send(fetch_frame(topic, offsets, max_bytes=1 << 20, wait_ms=0))
        got = fetched(client.answer(), topic)
        received = sum(size for size, _ in got.values())
        if received == 0:
            break
        total += received
        for partition, (_, following) in got.items():
            if following > 0:
                offsets[partition] = following
    seconds = time.perf_counter() - started
    client.close()
    return seconds, total
