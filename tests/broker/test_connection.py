import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.connection import Connection, Shared
from headrace.broker.exchange import SILENCE, ClientRefused, Pending
from headrace.broker.limits import Limits
from headrace.broker.memory import RequestMemory
from tests.broker.manual_loop import ManualLoop, ScriptedTransport

PRODUCE, OTHER = 0, 3
MAX_UNSENT_BYTES = 10_000
MAX_UNANSWERED = 60


def limits(max_frame):
    return Limits(
        max_frame_bytes=max_frame,
        request_memory_bytes=1 << 20,
        max_connections=10,
        max_connections_per_ip=10,
        max_idle_ms=1000,
        max_unsent_bytes=MAX_UNSENT_BYTES,
        max_unanswered=MAX_UNANSWERED,
    )


def framed(body):
    return struct.pack(">i", len(body)) + body


def request(api_key, number, padding=b""):
    return framed(struct.pack(">hi", api_key, number) + padding)


def answer_bytes(number):
    return framed(struct.pack(">i", number) + b"answer")


class Client:
    """A connection with its far end in the test's hand."""

    def __init__(self, *, memory_bytes=1 << 20, max_frame=1 << 20, room=1 << 30):
        self.loop = ManualLoop()
        self.transport = ScriptedTransport(room=room)
        self.memory = RequestMemory(memory_bytes)
        self.started = []
        self.promised = {}
        self.answered = set()
        self.ready = set()
        self.silent = set()
        self.refused = set()
        self.bodies = {}
        self.gone: list[Connection] = []
        self.body = b"answer"
        shared = Shared(
            self.loop,
            self.dispatch,
            self.memory,
            limits(max_frame),
            on_close=self.gone.append,
        )
        # Any: its state changes between asserts, unseen by the type checker.
        self.connection: Any = Connection(
            self.transport, shared, number=1, host="test", listener="PLAINTEXT"
        )
        self.connection.start()

    def dispatch(self, connection, buffer, start, end):
        api_key, number = struct.unpack_from(">hi", buffer, start)
        self.bodies[number] = bytes(buffer[start + 6 : end])
        unanswered = [asked for asked in self.started if asked[1] not in self.answered]
        if api_key != PRODUCE:
            assert unanswered == []
        assert all(key == PRODUCE for key, _ in unanswered)
        self.started.append((api_key, number))
        head = struct.pack(">i", number)
        if number in self.refused:
            raise ClientRefused("as told")
        if number in self.silent:
            self.answered.add(number)
            return head, SILENCE
        if number in self.ready:
            self.answered.add(number)
            return head, (self.body,)
        self.promised[number] = Pending()
        return head, self.promised[number]

    def finish(self, number):
        self.answered.add(number)
        self.promised.pop(number).finish((b"ans", b"wer"))

    def turn(self):
        """Let the loop do everything that it could do now."""
        for _ in range(10_000):
            self.loop.run_ready()
            if self.transport.fd in self.loop.readers and self.transport.incoming:
                self.loop.readers[self.transport.fd]()
            elif self.transport.fd in self.loop.writers and self.transport.room:
                self.loop.writers[self.transport.fd]()
            elif not self.loop.ready:
                return
        raise AssertionError("the connection does not come to rest")


@st.composite
def conversations(draw):
    kinds = draw(st.lists(st.sampled_from([PRODUCE, OTHER]), min_size=1, max_size=20))
    ready = draw(st.sets(st.integers(0, len(kinds) - 1)))
    paddings = [b"x" * draw(st.sampled_from([0, 0, 1, 50, 5_000])) for _ in range(len(kinds))]
    return kinds, ready, paddings


def chunked(stream, sizes):
    position = 0
    for size in sizes:
        if position >= len(stream):
            return
        yield stream[position : position + size]
        position += size
    if position < len(stream):
        yield stream[position:]


@given(
    conversations(),
    st.lists(st.sampled_from([1, 2, 3, 4, 5, 7, 60, 3_000, 100_000]), max_size=60),
    st.randoms(use_true_random=False),
)
def test_answers_leave_in_order_however_bytes_and_answers_arrive(conversation, sizes, choose):
    kinds, ready, paddings = conversation
    client = Client(room=choose.choice([0, 3, 1 << 30]))
    client.ready = ready
    stream = b"".join(request(kind, number, paddings[number]) for number, kind in enumerate(kinds))
    for chunk in chunked(stream, sizes):
        client.transport.feed(chunk)
        if choose.random() < 0.5:
            client.turn()
        if client.promised and choose.random() < 0.5:
            client.finish(choose.choice(sorted(client.promised)))
        client.transport.room += choose.choice([0, 1, 10, 100])
    client.turn()
    while client.promised:
        client.finish(choose.choice(sorted(client.promised)))
        client.turn()
    client.transport.room = 1 << 30
    client.turn()
    assert client.started == [(kind, number) for number, kind in enumerate(kinds)]
    assert client.bodies == dict(enumerate(paddings))
    assert client.transport.sent == b"".join(map(answer_bytes, range(len(kinds))))
    assert client.memory.leased_bytes == 0
    assert not client.connection.closed


def test_answers_of_one_burst_leave_in_one_call():
    client = Client()
    client.ready = set(range(50))
    client.transport.feed(b"".join(request(PRODUCE, number) for number in range(50)))
    client.turn()
    assert client.transport.sends == 1


def test_answers_settled_together_leave_in_one_call():
    client = Client()
    client.transport.feed(b"".join(request(PRODUCE, number) for number in range(50)))
    client.turn()
    for number in range(50):
        client.finish(number)
    client.turn()
    assert client.transport.sends == 1


def test_a_silent_request_gets_no_answer():
    client = Client()
    client.ready, client.silent = {1}, {0}
    client.transport.feed(request(PRODUCE, 0) + request(PRODUCE, 1))
    client.turn()
    assert client.transport.sent == answer_bytes(1)


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, (1 << 20) + 1])
def test_a_senseless_size_closes_the_connection_after_what_came_before(size, caplog):
    client = Client()
    client.ready = {0}
    client.transport.feed(request(OTHER, 0) + struct.pack(">i", size) + b"junk")
    client.turn()
    assert client.transport.sent == answer_bytes(0)
    assert client.connection.closed
    assert client.gone == [client.connection]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert client.memory.leased_bytes == 0


def test_a_refusal_closes_only_after_earlier_requests_are_answered():
    client = Client()
    client.refused = {1}
    client.transport.feed(request(PRODUCE, 0) + request(PRODUCE, 1) + request(PRODUCE, 2))
    client.turn()
    assert not client.connection.closed
    client.finish(0)
    client.turn()
    assert client.transport.sent == answer_bytes(0)
    assert client.connection.closed
    assert client.started == [(PRODUCE, 0), (PRODUCE, 1)]


def test_a_client_that_never_reads_is_not_read_from():
    client = Client(room=0)
    client.body = b"x" * (MAX_UNSENT_BYTES // 10)
    client.ready = set(range(100))
    for number in range(100):
        client.transport.feed(request(PRODUCE, number))
    client.turn()
    assert len(client.started) == 10
    assert client.transport.fd not in client.loop.readers
    client.transport.room = 1 << 30
    client.turn()
    assert len(client.started) == 100
    assert client.transport.fd in client.loop.readers


def test_produces_waiting_for_the_disk_are_bounded():
    client = Client()
    for number in range(MAX_UNANSWERED + 5):
        client.transport.feed(request(PRODUCE, number))
    client.turn()
    assert len(client.started) == MAX_UNANSWERED
    client.finish(0)
    client.turn()
    assert len(client.started) == MAX_UNANSWERED + 1


def test_a_frame_that_never_comes_holds_little_memory():
    client = Client(memory_bytes=1 << 30, max_frame=1 << 27)
    client.transport.feed(struct.pack(">i", 1 << 27) + b"x" * 10)
    client.turn()
    assert client.memory.leased_bytes <= 4096


def test_reading_waits_for_memory_and_goes_on_when_some_is_free():
    client = Client(memory_bytes=1 << 19)
    taken = client.memory.lease_past_bound(1 << 18)
    client.ready = {0}
    frame = request(PRODUCE, 0, b"x" * (1 << 19))
    for chunk in chunked(frame, [100_000] * 10):
        client.transport.feed(chunk)
    client.turn()
    assert client.started == []
    assert client.transport.fd not in client.loop.readers
    client.memory.release(taken)
    client.turn()
    assert client.transport.sent == answer_bytes(0)
    assert client.memory.leased_bytes == 0


def test_a_client_that_leaves_releases_what_waits_for_its_sake():
    client = Client()
    client.transport.feed(request(OTHER, 0) + request(OTHER, 1))
    client.turn()
    left = []
    client.promised[0].on_abandon = lambda: left.append(0)
    client.connection.close()
    assert left == [0]
    assert client.memory.leased_bytes == 0
    assert not client.loop.readers
    assert not client.loop.writers
    client.finish(0)
    client.turn()
    assert client.transport.sent == b""


def test_a_draining_connection_answers_what_it_started_and_starts_nothing():
    client = Client()
    client.transport.feed(request(PRODUCE, 0))
    client.turn()
    client.connection.drain()
    client.transport.feed(request(PRODUCE, 1))
    client.turn()
    assert not client.connection.idle
    client.finish(0)
    client.turn()
    assert client.connection.idle
    assert client.started == [(PRODUCE, 0)]
    assert client.transport.sent == answer_bytes(0)


def test_a_client_that_owes_a_read_is_not_read_from_even_with_nothing_waiting():
    client = Client(room=0)
    client.body = b"x" * (MAX_UNSENT_BYTES + 1)
    client.ready = {0}
    client.transport.feed(request(PRODUCE, 0))
    client.turn()
    assert client.transport.fd not in client.loop.readers
    client.transport.room = 1 << 30
    client.turn()
    assert client.transport.fd in client.loop.readers
