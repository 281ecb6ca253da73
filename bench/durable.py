"""With a sync before every acknowledgement, on both sides: records a second, and their p99."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from bench.cells import Cell, quantile
from bench.raw_client import RawClient, batch, produce_error, produce_frame
from bench.rdkafka_client import create_topic
from bench.systems import System

PARTITIONS = (12, 100)
CONNECTIONS = 8
DEPTH = 5
SECONDS = 4.0
RECORD = b"x" * 100


def measure(system: System) -> Iterator[Cell]:
    for partitions in PARTITIONS:
        topic = f"durable-{partitions}"
        create_topic(system.bootstrap, topic, partitions)
        rate, times = _load(system.bootstrap, topic, partitions)
        name = f"synced one-record requests, {partitions} partitions"
        yield Cell(name, rate, "/s")
        yield Cell(f"{name}: p50", quantile(times, 0.5), "ms", more_is_better=False)
        yield Cell(f"{name}: p99", quantile(times, 0.99), "ms", more_is_better=False)


def _load(bootstrap: str, topic: str, partitions: int) -> tuple[float, list[float]]:
    started = time.perf_counter()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        workers = [
            pool.submit(_pipeline, bootstrap, topic, partitions, number)
            for number in range(CONNECTIONS)
        ]
        times = [value for worker in workers for value in worker.result()]
    return len(times) / (time.perf_counter() - started), times


def _pipeline(bootstrap: str, topic: str, partitions: int, number: int) -> list[float]:
    data = batch([RECORD])
    frames = [produce_frame(topic, {index: data}) for index in range(partitions)]
    client = RawClient(bootstrap)
    sent: list[float] = []
    times: list[float] = []
    deadline = time.perf_counter() + SECONDS
    position = number
    while time.perf_counter() < deadline or len(sent) > len(times):
        if time.perf_counter() < deadline and len(sent) - len(times) < DEPTH:
            sent.append(time.perf_counter())
            client.send(frames[position % partitions])
            position += CONNECTIONS
            continue
        if error := produce_error(client.answer(), topic):
            raise RuntimeError(f"produce answered error {error}")
        times.append((time.perf_counter() - sent[len(times)]) * 1000)
    client.close()
    return times
