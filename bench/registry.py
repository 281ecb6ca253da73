"""The schema registry: reads by id, registrations against many versions, starting with many."""

import json
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil

from bench.cells import Cell, quantile
from bench.systems import System
from headrace.client.admin import Admin, NewTopic
from headrace.client.producer import NewRecord, Producer
from headrace.registry.records import SchemaRecord, encode
from headrace.registry.schema import Schema, SchemaVersion
from headrace.testing.registry_process import RegistryProcess

SCHEMAS = 10_000
SUBJECTS = 1_000
FIELDS = 20
READS = 20_000
CONNECTIONS = 4
VERSIONS = 100
REGISTRATIONS = 50


def measure(system: System) -> Iterator[Cell]:
    _fill(system.bootstrap)
    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        with RegistryProcess(system.bootstrap, Path(directory)) as registry:
            seconds = time.perf_counter() - started
            yield Cell(f"start with {SCHEMAS:,} schemas", seconds, "s", more_is_better=False)
            yield Cell("GET of a schema by id", _reads_a_second(registry.address), "/s")
            waits = _registrations(registry.url)
            name = f"registration against {VERSIONS} versions, p99"
            yield Cell(name, quantile(waits, 0.99) * 1000, "ms", more_is_better=False)
            memory = psutil.Process(registry.pid).memory_info().rss / 1e6
            name = f"memory with {SCHEMAS:,} schemas"
            yield Cell(name, memory, "MB", more_is_better=False)


def _fill(bootstrap: str) -> None:
    Admin(bootstrap).create_topic(NewTopic("_schemas", 1, 1, {"cleanup.policy": "compact"}))
    producer = Producer(bootstrap)
    for number in range(SCHEMAS):
        schema = Schema("AVRO", _record(f"r{number}", range(FIELDS)))
        subject, version = f"s{number % SUBJECTS}", number // SUBJECTS + 1
        value = SchemaVersion(subject, version, number + 1, schema, schema.guid)
        key, text = encode(SchemaRecord(subject, version, value))
        producer.send("_schemas", NewRecord(text, key))
    if producer.flush(60):
        raise RuntimeError("the schemas were not written")


def _record(name: str, fields: range) -> str:
    shown = [{"name": f"f{n}", "type": ["null", "string"], "default": None} for n in fields]
    return json.dumps({"type": "record", "name": name, "fields": shown}, separators=(",", ":"))


def _reads_a_second(address: str) -> float:
    host, port = address.rsplit(":", 1)
    requests = [
        f"GET /schemas/ids/{number} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode()
        for number in range(1, 101)
    ]
    sockets = [socket.create_connection((host, int(port))) for _ in range(CONNECTIONS)]
    started = time.perf_counter()
    for number in range(READS // CONNECTIONS):
        for each in sockets:
            each.sendall(requests[number % 100])
        for each in sockets:
            if not each.recv(65_536).startswith(b"HTTP/1.1 200"):
                raise RuntimeError("a schema was not found")
    rate = READS / (time.perf_counter() - started)
    for each in sockets:
        each.close()
    return rate


def _registrations(url: str) -> list[float]:
    """Seconds of each registration when the level compares with every version, both ways."""
    waits = []
    with httpx.Client(base_url=url, timeout=60) as client:
        client.put("/config/many", json={"compatibility": "FULL_TRANSITIVE"})
        for count in range(1, VERSIONS + REGISTRATIONS + 1):
            started = time.perf_counter()
            body = {"schema": _record("many", range(count, count + FIELDS))}
            client.post("/subjects/many/versions", json=body).raise_for_status()
            if count > VERSIONS:
                waits.append(time.perf_counter() - started)
    return waits
