from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.memory import RequestMemory


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 1 << 16)), max_size=60))
def test_leases_stay_under_the_bound_and_no_buffer_is_lent_twice(steps):
    memory = RequestMemory(1 << 17)
    held: list[bytearray] = []
    for lease, size in steps:
        if lease:
            buffer = memory.lease(size)
            if buffer is not None:
                assert len(buffer) >= size
                assert all(buffer is not other for other in held)
                held.append(buffer)
        elif held:
            memory.release(held.pop(size % len(held)))
        assert memory.leased_bytes == sum(map(len, held)) <= 1 << 17


def test_whoever_is_alone_gets_more_than_the_bound():
    memory = RequestMemory(1 << 12)
    first = memory.lease(1 << 14)
    assert first is not None
    assert memory.lease(1) is None
    assert memory.lease(1 << 15, replacing_bytes=len(first)) is not None


def test_those_who_wait_are_told_once_when_memory_is_freed():
    memory = RequestMemory(1 << 12)
    told = []
    buffer = memory.lease_past_bound(1 << 12)
    memory.when_freed(lambda: told.append("first"))
    forgotten = lambda: told.append("second")  # noqa: E731  its identity is what forget() takes
    memory.when_freed(forgotten)
    memory.forget(forgotten)
    assert memory.contended
    memory.release(buffer)
    memory.release(memory.lease_past_bound(1))
    assert told == ["first"]
    assert not memory.contended
