"""Hostile bytes on the wire: nothing crashes, memory stays bounded, others are not disturbed."""

import os
import random
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress

import confluent_kafka
import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.compat

FRAMES = int(os.environ.get("HEADRACE_FUZZ_FRAMES", "100000"))
# The first offence closes a connection, so that more frames behind it would prove nothing.
FRAMES_PER_CONNECTION = 2
IDLE_CONNECTIONS = 2_000
GROWTH_LIMIT_BYTES = 150_000_000
WAIT_S = 30.0
API_KEYS = (*range(-1, 100), 32767)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess({"log.write.caching": "true", "auto.create.topics.enable": "false"}) as own:
        admin = AdminClient({"bootstrap.servers": own.bootstrap})
        for created in admin.create_topics([NewTopic("quiet", 1, 1)]).values():
            created.result(WAIT_S)
        yield own


@pytest.fixture
def unharmed(broker: BrokerProcess) -> Iterator[None]:
    """A producer connected all along still gets its acknowledgements, and memory is as before."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    outcomes: list[object] = []
    producer.produce("quiet", b"before", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(WAIT_S) == 0
    before = resident(broker)
    pid = broker.pid
    yield
    producer.produce("quiet", b"after", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(WAIT_S) == 0
    assert outcomes == [None, None]
    assert broker.pid == pid
    assert resident(broker) - before < GROWTH_LIMIT_BYTES
    assert "Traceback" not in broker.log


def resident(broker: BrokerProcess) -> int:
    size: int = psutil.Process(broker.pid).memory_info().rss
    return size


def connect(broker: BrokerProcess) -> socket.socket:
    host, port = broker.bootstrap.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=WAIT_S)


def hostile_frame(source: random.Random) -> bytes:
    """A frame whose header is plausible more often than not, and whose body seldom is."""
    kind = source.random()
    if kind < 0.1:
        return source.randbytes(source.randrange(1, 40))
    length = source.choice((0, 1, 7, 20, 60, 200))
    body = bytearray(source.randbytes(length) if kind < 0.6 else bytes(length))
    for _ in range(source.randrange(3)):
        at = source.randrange(len(body)) if body else 0
        billion = struct.pack(">i", source.choice((1_000_000_000, 2**31 - 1, -1, -2, 0)))
        body[at : at + 4] = source.choice((billion, b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80"))
    client = source.choice((b"\xff\xff", b"\0\3abc", b"\0\2\xff\xfe"))
    header = struct.pack(
        ">hhi", source.choice(API_KEYS), source.choice((0, 1, 4, 9, 12, 99, -1)), 7
    )
    request = header + client + bytes(body)
    size = len(request) if source.random() < 0.95 else source.choice((0, -1, 2**31 - 1, 5))
    return struct.pack(">i", size) + request


@pytest.mark.usefixtures("unharmed")
def test_fuzzed_frames_disturb_nobody(broker: BrokerProcess) -> None:
    source = random.Random(20260)
    for _ in range(FRAMES // FRAMES_PER_CONNECTION):
        frames = b"".join(hostile_frame(source) for _ in range(FRAMES_PER_CONNECTION))
        with connect(broker) as connection, suppress(ConnectionError):
            connection.sendall(frames)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
    print(f"{FRAMES:,} hostile frames")  # noqa: T201 - the count is the result


@pytest.mark.usefixtures("unharmed")
@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 0])
def test_a_nonsense_length_closes_that_connection_only(broker: BrokerProcess, size: int) -> None:
    with connect(broker) as connection:
        connection.sendall(struct.pack(">i", size) + b"x" * 64)
        with suppress(ConnectionError):
            assert connection.recv(1) == b""
    deadline = time.monotonic() + WAIT_S
    while "127.0.0.1" not in broker.log and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "127.0.0.1" in broker.log


@pytest.mark.usefixtures("unharmed")
def test_thousands_of_idle_and_half_sent_connections_are_borne(broker: BrokerProcess) -> None:
    connections = []
    try:
        for number in range(IDLE_CONNECTIONS):
            connection = connect(broker)
            if number % 2:
                connection.sendall(struct.pack(">ihh", 1000, 0, 9))
            connections.append(connection)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        assert "quiet" in admin.list_topics(timeout=WAIT_S).topics
    finally:
        for connection in connections:
            connection.close()


@pytest.mark.usefixtures("unharmed")
def test_a_client_that_never_reads_is_held_back(broker: BrokerProcess) -> None:
    # ApiVersions answers are some 500 bytes: without back-pressure these would pile up to 100 MB.
    request = struct.pack(">ihhih", 10, 18, 0, 1, -1)
    with connect(broker) as connection:
        connection.settimeout(2.0)
        with suppress(TimeoutError):
            for _ in range(200):
                connection.sendall(request * 1000)
