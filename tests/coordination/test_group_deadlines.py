"""Deadlines against the plainest model: a dictionary that is scanned."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.coordination.deadlines import Deadlines

keys = st.sampled_from("abcd")
steps = st.lists(
    st.tuples(st.just("set"), keys, st.integers(0, 50))
    | st.tuples(st.just("cancel"), keys, st.just(0))
    | st.tuples(st.just("due"), st.just(""), st.integers(0, 20)),
    max_size=60,
)


@given(steps)
def test_each_key_is_due_once_at_its_latest_deadline(history):
    deadlines: Deadlines[str] = Deadlines()
    model: dict[str, int] = {}
    now = 0
    for kind, key, number in history:
        if kind == "set":
            deadlines.set(key, now + number)
            model[key] = now + number
        elif kind == "cancel":
            deadlines.cancel(key)
            model.pop(key, None)
        else:
            now += number
            expected = {each for each, at in model.items() if at <= now}
            assert set(deadlines.due(now)) == expected
            for each in expected:
                del model[each]
        assert len(deadlines) == len(model)
        next_ms = deadlines.next_ms()
        assert not model or (next_ms is not None and next_ms <= min(model.values()))


def test_extending_a_deadline_does_not_grow_the_heap():
    deadlines: Deadlines[str] = Deadlines()
    for at_ms in range(1000):
        deadlines.set("member", at_ms)
    assert len(deadlines._heap) == 1
