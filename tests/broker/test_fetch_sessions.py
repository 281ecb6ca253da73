from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.fetch_sessions import EVICTION_MS, MAX_INT, FetchPosition, FetchSessions
from headrace.errors import ErrorCode, KafkaError
from headrace.testing.clock import ManualClock

NO_ID = UUID(int=0)


def position(topic, index, offset=0):
    return FetchPosition(topic, NO_ID, index, fetch_offset=offset, max_bytes=100)


def created(sessions, size=1):
    session = sessions.create(size, uses_topic_ids=False)
    if session is not None:
        session.update([position("t", index) for index in range(size)], ())
    return session


def refusal(sessions, session_id, epoch, *, uses_topic_ids=False):
    with pytest.raises(KafkaError) as caught:
        sessions.resume(session_id, epoch, uses_topic_ids=uses_topic_ids)
    return caught.value.code


@given(st.lists(st.tuples(st.sampled_from(["ask", "forget"]), st.integers(0, 3)), max_size=30))
def test_a_session_remembers_what_was_asked_and_not_forgotten(steps):
    session = created(FetchSessions(1, ManualClock(0)), 0)
    model = {}
    for number, (step, index) in enumerate(steps):
        if step == "ask":
            session.update([position("t", index, offset=number)], ())
            model[index] = number
        else:
            session.update((), [("t", index)])
            model.pop(index, None)
    found = {at.index: at.fetch_offset for at in session.positions.values()}
    assert found == model


def test_whoever_got_records_is_served_last_next_time():
    session = created(FetchSessions(1, ManualClock(0)), 3)
    first = next(iter(session.positions.values()))
    session.serve_last(first)
    assert [at.index for at in session.positions.values()] == [1, 2, 0]


def test_a_session_is_refused_as_kafka_refuses_it():
    sessions = FetchSessions(2, ManualClock(0))
    session = created(sessions)
    known = session.session_id
    assert refusal(sessions, known + 1, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert refusal(sessions, known, 2) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    mixed = refusal(sessions, known, 1, uses_topic_ids=True)
    assert mixed is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert sessions.resume(known, 1, uses_topic_ids=False) is session
    sessions.advance(session)
    assert refusal(sessions, known, 1) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    sessions.remove(known)
    assert refusal(sessions, known, 2) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_epochs_wrap_around_to_one():
    sessions = FetchSessions(1, ManualClock(0))
    session = created(sessions)
    session.epoch = MAX_INT
    sessions.advance(session)
    assert session.epoch == 1


def test_a_full_cache_grants_no_session_to_an_equal():
    sessions = FetchSessions(1, ManualClock(0))
    assert created(sessions) is not None
    assert created(sessions) is None
    assert len(sessions) == 1


def test_without_slots_there_are_no_sessions():
    assert created(FetchSessions(0, ManualClock(0))) is None


def test_a_stale_session_makes_room_for_any():
    clock = ManualClock(0)
    sessions = FetchSessions(2, clock)
    stale, used = created(sessions), created(sessions)
    clock.advance(EVICTION_MS + 1)
    sessions.advance(used)
    assert created(sessions) is not None
    assert refusal(sessions, stale.session_id, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.resume(used.session_id, 2, uses_topic_ids=False) is used


def test_a_session_in_use_makes_room_only_for_a_larger_one():
    clock = ManualClock(0)
    sessions = FetchSessions(1, clock)
    small = created(sessions, 2)
    for _ in range(3):
        clock.advance(EVICTION_MS)
        sessions.advance(small)
    assert created(sessions, 2) is None
    assert created(sessions, 3) is not None
    assert len(sessions) == 1
