from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.waits import Waits
from tests.broker.manual_loop import ManualLoop


class Source:
    def __init__(self):
        self.waiters = {}

    def show(self, size):
        for wait in list(self.waiters):
            wait.count(size)


def parked(waits, sources, *, missing_bytes=1, delay_s=0.5):
    resumed = []
    wait = waits.park(
        sources,
        missing_bytes=missing_bytes,
        committed_only=False,
        delay_s=delay_s,
        resume=lambda: resumed.append(waits.loop.time()),
    )
    return wait, resumed


@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20)), max_size=20),
)
def test_a_wait_resumes_once_when_enough_bytes_are_visible_or_at_its_deadline(missing, shown):
    loop = ManualLoop()
    waits = Waits(loop)
    sources = [Source(), Source(), Source()]
    _, resumed = parked(waits, sources, missing_bytes=missing)
    total = 0
    for which, size in shown:
        total += size
        sources[which].show(size)
        loop.run_ready()
        assert bool(resumed) == (total >= missing)
    loop.advance(0.5)
    loop.run_ready()
    assert len(resumed) == 1
    assert not waits.parked
    assert not any(source.waiters for source in sources)


def test_bytes_of_one_burst_resume_a_wait_once_and_after_the_burst():
    loop = ManualLoop()
    source = Source()
    _, resumed = parked(Waits(loop), [source])
    source.show(10)
    source.show(10)
    assert resumed == []
    loop.run_ready()
    assert len(resumed) == 1


def test_a_cancelled_wait_never_resumes():
    loop = ManualLoop()
    waits = Waits(loop)
    source = Source()
    wait, resumed = parked(waits, [source])
    wait.cancel()
    source.show(10)
    loop.advance(1)
    loop.run_ready()
    assert resumed == []
    assert not waits.parked


def test_past_the_limit_an_answer_does_not_wait():
    loop = ManualLoop()
    waits = Waits(loop, limit=1)
    source = Source()
    _, first = parked(waits, [source])
    _, second = parked(waits, [source])
    loop.run_ready()
    assert (first, second) == ([], [0.0])


def test_a_draining_broker_resumes_everything_parked():
    loop = ManualLoop()
    waits = Waits(loop)
    outcomes = [parked(waits, [Source()])[1] for _ in range(3)]
    waits.wake_all()
    loop.run_ready()
    assert [len(resumed) for resumed in outcomes] == [1, 1, 1]


def test_what_was_woken_can_still_be_cancelled_woken_and_expire_without_harm():
    loop = ManualLoop()
    wait, resumed = parked(Waits(loop), [Source()])
    wait.wake()
    wait.wake()
    wait.expire()
    wait.cancel()
    loop.advance(1)
    loop.run_ready()
    assert len(resumed) == 1
