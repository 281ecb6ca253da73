"""Requests of one record each: how many a second at each depth, and what one of them takes."""

import struct
import time
from collections.abc import Iterator

from bench.cells import Cell, quantile
from bench.raw_client import RawClient, batch, error_position, produce_frame
from bench.rdkafka_client import create_topic, latencies_ms
from bench.systems import System, resident_mb

DEPTHS = {1: 15_000, 5: 50_000, 50: 100_000}
LATENCY_RECORDS = 2_000
WARM_UP = 2_000
RECORD = b"x" * 50


def measure(system: System) -> Iterator[Cell]:
    yield Cell("resident memory, idle", resident_mb(system), "MB", more_is_better=False)
    create_topic(system.bootstrap, "requests", 1)
    requests_a_second(system.bootstrap, 5, WARM_UP)
    for depth, count in DEPTHS.items():
        rate = requests_a_second(system.bootstrap, depth, count)
        yield Cell(f"one-record requests, {depth} in flight", rate, "/s")
    create_topic(system.bootstrap, "latency", 1)
    acknowledged, arrived = latencies_ms(system.bootstrap, "latency", LATENCY_RECORDS)
    for name, values in (("acknowledgement", acknowledged), ("end to end", arrived)):
        for share in (0.5, 0.99):
            cell = f"{name} p{share * 100:.0f}"
            yield Cell(cell, quantile(values, share), "ms", more_is_better=False)


def requests_a_second(bootstrap: str, depth: int, count: int) -> float:
    frame = produce_frame("requests", {0: batch([RECORD])})
    client = RawClient(bootstrap)
    client.send(frame)
    # Every answer has the size of the first, so that those of a burst are read in one call.
    size = len(client.answer())
    position = 4 + error_position("requests")
    errors = struct.Struct(f">{position}xh{4 + size - position - 2}x")
    block = frame * depth
    started = time.perf_counter()
    for _ in range(count // depth):
        client.send(block)
        answers = client.receive((size + 4) * depth)
        if any(error for (error,) in errors.iter_unpack(answers)):
            raise RuntimeError("produce answered an error")
    rate = count / (time.perf_counter() - started)
    client.close()
    return rate
