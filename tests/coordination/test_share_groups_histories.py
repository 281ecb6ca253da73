"""Share groups: random histories of members, topics and states, and what always holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordination.coordinator import Coordinator
from headrace.coordination.group import GroupLimits, GroupType, Now, ShareGroupLimits
from headrace.coordination.group_records import GroupCodec
from headrace.coordination.rebalance import Timer, TimerKind
from headrace.coordination.share_group import ShareGroup
from headrace.coordination.share_group_assignor import assign_simple
from headrace.coordination.share_groups import ShareHeartbeat, ShareHeartbeatAnswer
from headrace.coordination.topics import Topic
from headrace.errors import ErrorCode, KafkaError

GROUP = "workers"
REFUSALS = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.INVALID_REQUEST,
}
LIMITS = ShareGroupLimits(session_timeout_ms=1000, max_size=4)


@dataclass
class Topics:
    topics: Mapping[str, Topic] = field(
        default_factory=lambda: {
            name: Topic(name, UUID(int=number), number)
            for number, name in enumerate(("orders", "bills"), 1)
        }
    )


class History:
    """A coordinator with its log; states are made as soon as they are asked for."""

    def __init__(self) -> None:
        self.machine = Coordinator(GroupLimits())
        self.catalog = Topics()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.time_ms = 0
        self.epochs: dict[str, int] = {}

    @property
    def now(self) -> Now:
        return Now(1_000_000 + self.time_ms, self.time_ms)

    @property
    def group(self) -> ShareGroup | None:
        found = self.machine.groups.find(GROUP)
        return found if isinstance(found, ShareGroup) else None

    def apply(self, decision) -> None:
        for record in decision.records:
            self.log.append(GroupCodec().encode(record))
            self.machine.replay(record)

    def replayed(self) -> Coordinator:
        machine = Coordinator(GroupLimits())
        for key, value in self.log:
            record = GroupCodec().decode(key, value)
            assert record is not None
            machine.replay(record)
        return machine

    def beat(self, member_id: str, epoch: int, topics=None) -> ShareHeartbeatAnswer:
        request = ShareHeartbeat(GROUP, member_id, epoch, topics)
        answer, decision = self.machine.shares.heartbeat(request, self.catalog, LIMITS, self.now)
        self.apply(decision)
        self.epochs[member_id] = answer.member_epoch
        return answer

    def make_states(self, answer: ShareHeartbeatAnswer) -> None:
        self.apply(self.machine.shares.state_made(GROUP, answer.stateless or {}))

    def grow(self, name: str) -> None:
        topic = self.catalog.topics[name]
        grown = replace(topic, partitions=min(topic.partitions + 1, 5))
        self.catalog.topics = {**self.catalog.topics, name: grown}

    def advance(self, ms: int) -> None:
        self.time_ms += ms
        for timer in self.machine.groups.deadlines.due(self.time_ms):
            self.apply(self.machine.fire(timer, self.now))


MEMBERS = st.sampled_from(["ann", "bob", "cid", "dan", "eve"])
NAMES = st.sampled_from([("orders",), ("bills",), ("orders", "bills"), ("unknown",)])
STEPS = st.one_of(
    st.tuples(st.just("join"), MEMBERS, NAMES),
    st.tuples(st.just("beat"), MEMBERS),
    st.tuples(st.just("leave"), MEMBERS),
    st.tuples(st.just("grow"), st.sampled_from(["orders", "bills"])),
    st.tuples(st.just("time"), st.sampled_from([100, 600])),
)


def take(history: History, step) -> None:
    try:
        match step:
            case ("join", member, topics):
                history.make_states(history.beat(member, 0, topics))
            case ("beat", member):
                history.make_states(history.beat(member, history.epochs.get(member, 1)))
            case ("leave", member):
                history.beat(member, -1)
            case ("grow", name):
                history.grow(name)
            case ("time", ms):
                history.advance(ms)
    except KafkaError as error:
        if error.code not in REFUSALS:
            raise


def check(history: History) -> None:
    group = history.group
    if group is None:
        return
    assert history.replayed().groups.find(GROUP) == group
    assert len(group.members) <= LIMITS.max_size
    assert group.assignment_epoch <= group.epoch
    for member in group.members.values():
        assert member.epoch <= group.assignment_epoch
        assert Timer(TimerKind.SESSION, GROUP, member.member_id) in history.machine.groups.deadlines
        for topic_id, partitions in member.assigned.items():
            assert partitions <= group.initialized(topic_id)


@given(st.lists(STEPS, max_size=30))
def test_replay_rebuilds_the_group_and_its_members_have_deadlines(steps):
    history = History()
    for step in steps:
        take(history, step)
        check(history)


@given(st.lists(STEPS, max_size=15))
def test_when_all_members_beat_twice_every_partition_has_a_reader(steps):
    history = History()
    for step in [*steps, ("join", "ann", ("orders", "bills"))]:
        take(history, step)
    if history.group is None or "ann" not in history.group.members:
        return
    for _ in range(2):
        for member_id, member in list(history.group.members.items()):
            history.make_states(history.beat(member_id, member.epoch))
    for member_id, member in list(history.group.members.items()):
        history.beat(member_id, member.epoch)
    read = {
        (topic_id, each)
        for member in history.group.members.values()
        for topic_id, partitions in member.assigned.items()
        for each in partitions
    }
    assert read == {
        (topic.topic_id, each)
        for topic in history.catalog.topics.values()
        for each in range(topic.partitions)
    }


def test_a_member_that_repeats_its_last_heartbeat_is_no_stranger():
    history = History()
    history.make_states(history.beat("ann", 0, ("orders",)))
    first = history.epochs["ann"]
    second = history.beat("ann", first).member_epoch
    assert second > first
    assert history.beat("ann", first).member_epoch == second
    with pytest.raises(KafkaError) as refused:
        history.beat("ann", second + 1)
    assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_group_of_another_kind_is_not_joined():
    history = History()
    history.machine.groups.ensure(GROUP)
    with pytest.raises(KafkaError) as refused:
        history.beat("ann", 0, ("orders",))
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_share_group_does_not_expire():
    history = History()
    history.beat("ann", 0, ("orders",))
    history.beat("ann", -1)
    history.apply(history.machine.expire(Now(10**15, 10**15)))
    assert history.group is not None
    assert history.group.group_type is GroupType.SHARE


def test_deleting_a_group_leaves_no_trace():
    history = History()
    history.make_states(history.beat("ann", 0, ("orders",)))
    history.beat("ann", -1)
    _, decision = history.machine.delete_groups([GROUP])
    history.apply(decision)
    assert history.group is None
    assert history.replayed().groups.find(GROUP) is None


SUBSCRIPTIONS = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.lists(st.sampled_from([UUID(int=1), UUID(int=2)]), min_size=1, max_size=2, unique=True),
    min_size=1,
    max_size=9,
)
COUNTS = st.fixed_dictionaries({UUID(int=n): st.integers(1, 5).map(range) for n in (1, 2)})


@given(SUBSCRIPTIONS, COUNTS, st.data())
def test_partitions_are_spread_evenly_and_members_keep_what_they_can(subscriptions, counts, data):
    first = assign_simple(subscriptions, counts, {})
    check_even(subscriptions, counts, first)
    assert assign_simple(subscriptions, counts, first) == first
    left = data.draw(st.sampled_from(sorted(subscriptions)))
    staying = {key: topics for key, topics in subscriptions.items() if key != left}
    if staying:
        second = assign_simple(staying, counts, first)
        check_even(staying, counts, second)


def check_even(subscriptions, counts, assignment) -> None:
    assert assignment.keys() == subscriptions.keys()
    for member_id, topics in assignment.items():
        assert topics.keys() <= set(subscriptions[member_id])
    for topic_id in {each for topics in subscriptions.values() for each in topics}:
        read = [each for topics in assignment.values() for each in topics.get(topic_id, ())]
        assert set(read) == set(counts[topic_id])
    if len({frozenset(topics) for topics in subscriptions.values()}) == 1:
        loads = [sum(map(len, topics.values())) for topics in assignment.values()]
        assert max(loads) - min(loads) <= 1
        assert min(loads) >= 1
