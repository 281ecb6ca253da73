"""Hostile bytes: every reader of the wire raises its one exception, at once and without memory."""

import random
import time
import tracemalloc
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol import schemas
from headrace.protocol.apis import APIS
from headrace.protocol.fetch import read_fetch
from headrace.protocol.messages import read_request
from headrace.protocol.primitives import Malformed
from headrace.protocol.produce import read_produce
from headrace.protocol.records import CorruptBatch, Record, batches, write_batch
from tests.protocol import kio_schemas
from tests.protocol.kio_oracle import few_examples, kio_bytes, random_message

HOSTILE = [
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x3b\x9a\xca\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x80\x80",
    b"\x00\x00\x00\x00",
    b"\xff",
    b"",
]
# A frame of a kilobyte may not make a reader take more than this.
MEMORY_BYTES = 2_000_000


def served_versions(api):
    known = schemas.versions(api.key)
    return range(max(api.min_version, known[0]), api.max_version + 1)


def mutated(body: bytes, rng: random.Random) -> bytes:
    """One honest body with a few bytes replaced, cut out or put in."""
    for _ in range(rng.randint(1, 3)):
        start = rng.randint(0, len(body))
        stop = start + rng.choice((0, 1, 2, 4, 8))
        body = body[:start] + rng.choice((*HOSTILE, rng.randbytes(4))) + body[stop:]
    return body


def tolerated(read: Callable[[memoryview], object], body: bytes) -> None:
    try:
        read(memoryview(body))
    except Malformed:
        return


def produce_at(version: int, body: memoryview) -> object:
    return read_produce(version, body, 0, len(body))


def fetch_at(version: int, body: memoryview) -> object:
    return read_fetch(version, body, 0, len(body))


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_mutated_requests_raise_only_malformed(api):
    @few_examples()
    @given(st.integers(0, 2**32))
    def check(seed):
        rng = random.Random(seed)
        for version in served_versions(api):
            entity = kio_schemas.entity(api.key, version, request=True)
            honest = kio_bytes(entity, random_message(entity, rng))
            for _ in range(10):
                body = mutated(honest, rng)
                tolerated(partial(read_request, api.key, version), body)
                tolerated(partial(produce_at, version), body)
                if version >= 4:
                    tolerated(partial(fetch_at, version), body)

    check()


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_random_requests_raise_only_malformed(api):
    @few_examples()
    @given(st.binary(max_size=120))
    def check(body):
        for version in served_versions(api):
            tolerated(partial(read_request, api.key, version), body)

    check()


def test_claims_of_billions_take_no_memory_and_no_time():
    for api in APIS.values():
        for version in served_versions(api):
            tolerated(partial(read_request, api.key, version), b"")
    tracemalloc.start()
    started = time.monotonic()
    for api in APIS.values():
        for version in served_versions(api):
            for claim in HOSTILE:
                for before in (b"", b"\x00\x00", b"\x01", bytes(8), b"\x00\x01t"):
                    tolerated(partial(read_request, api.key, version), before + claim * 100)
    elapsed = time.monotonic() - started
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MEMORY_BYTES
    # Thousands of bodies; one that loops a billion times would take minutes.
    assert elapsed < 30


@given(st.integers(0, 2**32), st.integers(0, 4))
def test_mutated_batches_raise_only_corrupt_batch(seed, codec):
    rng = random.Random(seed)
    rows = [
        Record(
            timestamp=index, key=rng.randbytes(3), value=rng.randbytes(20), headers=(("h", b""),)
        )
        for index in range(3)
    ]
    honest = bytes(write_batch(rows, compression=codec))
    for _ in range(20):
        buffer = mutated(honest, rng)
        try:
            for batch in batches(buffer):
                batch.crc_valid()
                list(batch.records(max_bytes=1 << 20))
        except CorruptBatch:
            continue
