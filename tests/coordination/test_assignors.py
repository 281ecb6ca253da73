"""What assignors promise: everything assigned once, to readers only, evenly, and little moved."""

from collections import Counter
from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordination.assignors import (
    ASSIGNORS,
    AssignedMember,
    Assignment,
    assign_range,
    assign_uniform,
)

A, B, C = (UUID(int=number) for number in (1, 2, 3))
TOPICS = (A, B, C)

counts = st.fixed_dictionaries({topic: st.integers(1, 7) for topic in TOPICS})
subscriptions = st.frozensets(st.sampled_from(TOPICS))
member_ids = st.sampled_from([f"m{number}" for number in range(6)])
groups = st.dictionaries(member_ids, subscriptions, min_size=1, max_size=6)


def members(topics: Mapping[str, frozenset[UUID]]) -> dict[str, AssignedMember]:
    return {member_id: AssignedMember(topics=each) for member_id, each in topics.items()}


def after(
    assignment: Assignment, topics: Mapping[str, frozenset[UUID]]
) -> dict[str, AssignedMember]:
    """The group as the next assignment finds it."""
    return {
        member_id: AssignedMember(topics=each, target=assignment.get(member_id, {}))
        for member_id, each in topics.items()
    }


def owners(assignment: Assignment) -> dict[tuple[UUID, int], str]:
    found: dict[tuple[UUID, int], str] = {}
    for member_id, partitions in assignment.items():
        for topic_id, numbers in partitions.items():
            for number in numbers:
                assert (topic_id, number) not in found, "a partition has two owners"
                found[topic_id, number] = member_id
    return found


def loads(assignment: Assignment) -> Counter[str]:
    return Counter({key: sum(map(len, each.values())) for key, each in assignment.items()})


@pytest.mark.parametrize("name", ASSIGNORS)
@given(topics=groups, counts=counts)
def test_every_partition_that_is_read_has_one_reader_as_owner(
    name: str, topics: dict[str, frozenset[UUID]], counts: dict[UUID, int]
) -> None:
    assignment = ASSIGNORS[name](members(topics), counts)
    found = owners(assignment)
    read = frozenset().union(*topics.values())
    assert found.keys() == {(topic, each) for topic in read for each in range(counts[topic])}
    assert all(topic in topics[owner] for (topic, _), owner in found.items())
    assert assignment.keys() == topics.keys()


@given(groups, counts)
def test_uniform_leaves_no_move_that_would_make_it_more_even(
    topics: dict[str, frozenset[UUID]], counts: dict[UUID, int]
) -> None:
    assignment = assign_uniform(members(topics), counts)
    load = loads(assignment)
    for (topic, _), owner in owners(assignment).items():
        for member_id, read in topics.items():
            assert topic not in read or load[owner] - load[member_id] < 2


@given(groups, counts)
def test_uniform_moves_nothing_when_nothing_changed(
    topics: dict[str, frozenset[UUID]], counts: dict[UUID, int]
) -> None:
    first = assign_uniform(members(topics), counts)
    assert assign_uniform(after(first, topics), counts) == first


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 20))
def test_uniform_moves_no_more_than_evenness_demands(before: int, now: int, count: int) -> None:
    old = {f"m{number}": frozenset({A}) for number in range(before)}
    new = {f"m{number}": frozenset({A}) for number in range(now)}
    first = assign_uniform(members(old), {A: count})
    second = assign_uniform(after(first, new), {A: count})
    had, has = owners(first), owners(second)
    moved = sum(had[each] != has[each] for each in has)
    gone = sum(load for member_id, load in loads(first).items() if member_id not in new)
    given_up = sum(max(loads(first)[each] - loads(second)[each], 0) for each in new if each in old)
    assert moved == gone + given_up
    most, least = max(loads(second).values()), min(loads(second).values())
    assert most - least <= 1
    # Whoever gives up a partition had more than the most that anyone may keep.
    assert all(loads(second)[each] >= count // now for each in new)


def test_a_third_member_takes_one_partition_from_each_of_two() -> None:
    """MISSION A3.7: only P2 and P5 move."""
    read = frozenset({A})
    first: Assignment = {"C1": {A: frozenset({0, 1, 2})}, "C2": {A: frozenset({3, 4, 5})}}
    topics = dict.fromkeys(("C1", "C2", "C3"), read)
    assert assign_uniform(after(first, topics), {A: 6}) == {
        "C1": {A: frozenset({0, 1})},
        "C2": {A: frozenset({3, 4})},
        "C3": {A: frozenset({2, 5})},
    }


def test_range_gives_the_first_member_the_larger_part_of_every_topic() -> None:
    """MISSION A3.2: C1 {A0, A1, B0, B1}, C2 {A2, B2}."""
    topics = dict.fromkeys(("C1", "C2"), frozenset({A, B}))
    assert assign_range(members(topics), {A: 3, B: 3}) == {
        "C1": {A: frozenset({0, 1}), B: frozenset({0, 1})},
        "C2": {A: frozenset({2}), B: frozenset({2})},
    }


@pytest.mark.parametrize(("consumers", "idle"), [(3, 0), (6, 0), (8, 2)])
@pytest.mark.parametrize("name", ASSIGNORS)
def test_six_partitions_among_more_and_more_members(name: str, consumers: int, idle: int) -> None:
    """MISSION A3.1: 2 each, 1 each, 2 idle."""
    topics = {f"m{number}": frozenset({A}) for number in range(consumers)}
    load = loads(ASSIGNORS[name](members(topics), {A: 6}))
    assert sorted(load.values()) == [0] * idle + [6 // min(consumers, 6)] * min(consumers, 6)


def test_range_orders_static_members_by_instance_before_all_others() -> None:
    group = {
        "a": AssignedMember(topics=frozenset({A})),
        "z": AssignedMember("i1", frozenset({A})),
        "b": AssignedMember("i2", frozenset({A})),
    }
    assigned = assign_range(group, {A: 3})
    assert assigned == {
        "z": {A: frozenset({0})},
        "b": {A: frozenset({1})},
        "a": {A: frozenset({2})},
    }


def test_uniform_forgets_partitions_and_topics_that_are_gone() -> None:
    group = {"m": AssignedMember(None, frozenset({A}), {A: frozenset({0, 9}), B: frozenset({0})})}
    assert assign_uniform(group, {A: 2}) == {"m": {A: frozenset({0, 1})}}
