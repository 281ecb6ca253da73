from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordination.catalog import (
    Catalog,
    PartitionsAdded,
    Refused,
    TopicCreated,
)
from headrace.coordination.machine import Decision
from headrace.coordination.metadata_records import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    MetadataCodec,
    MetadataRecord,
    PartitionRecord,
)
from headrace.coordination.topics import NewTopic, Placement, Topic, collision_key
from headrace.errors import ErrorCode, KafkaError

PLACEMENT = Placement(node_id=7, directory_id=UUID(int=99), num_partitions=3)
NAMES = ["orders", "a.b", "a_b", "x", "__consumer_offsets"]


def anything_goes(configs: object) -> None:
    return None


@dataclass
class History:
    """A catalog driven by decisions, with every record it ever replayed."""

    catalog: Catalog = field(default_factory=lambda: Catalog(PLACEMENT))
    records: list[MetadataRecord] = field(default_factory=list)
    next_id: int = 1

    def carry_out(self, decide: Callable[[], Decision[MetadataRecord, Any]]) -> Any:
        try:
            decision = decide()
        except KafkaError as error:
            return error
        for record in decision.records:
            self.catalog.replay(record)
        self.records += decision.records
        return decision.effects

    def fresh_id(self) -> UUID:
        self.next_id += 1
        return UUID(int=self.next_id)

    def create(self, *names: str, **wanted: Any) -> Any:
        new = [NewTopic(name, self.fresh_id(), **wanted) for name in names]
        return self.carry_out(lambda: self.catalog.create_topics(new, anything_goes))


def step(history: History, data: st.DataObject) -> None:
    catalog = history.catalog
    name = data.draw(st.sampled_from(NAMES))
    match data.draw(st.integers(0, 6)):
        case 0 | 1:
            names = data.draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3))
            configs = data.draw(st.dictionaries(st.sampled_from("kl"), st.text(max_size=3)))
            history.create(*names, num_partitions=data.draw(st.integers(-2, 4)), configs=configs)
        case 2 if name in catalog.topics:
            history.carry_out(lambda: catalog.delete_topics([catalog.topic(name).topic_id]))
        case 3:
            count = data.draw(st.integers(0, 6))
            history.carry_out(lambda: catalog.create_partitions([(name, count, None)]))
        case 4:
            values = st.dictionaries(st.sampled_from("klm"), st.none() | st.text(max_size=3))
            changes = data.draw(values)
            kind = data.draw(st.sampled_from([TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE]))
            resource = name if kind == TOPIC_RESOURCE else data.draw(st.sampled_from(["", "7"]))
            history.carry_out(lambda: catalog.alter_configs(kind, resource, changes))
        case 5:
            history.carry_out(lambda: catalog.allocate_producer_ids(10))
        case _:
            topic = Topic(name, history.fresh_id(), 2, {}, {1: 5})
            history.carry_out(lambda: catalog.adopt_topic(topic))


def check_invariants(catalog: Catalog) -> None:
    for name, topic in catalog.topics.items():
        assert topic.name == name
        assert catalog.topic_by_id(topic.topic_id) is topic
        assert topic.partitions >= 1
        assert topic.topic_id not in catalog.removed
    assert len({topic.topic_id for topic in catalog.topics.values()}) == len(catalog.topics)


@given(st.data())
def test_random_histories_keep_the_invariants_and_replay_to_the_same_state(data):
    history = History()
    for _ in range(data.draw(st.integers(0, 25))):
        before = history.catalog.next_producer_id
        step(history, data)
        check_invariants(history.catalog)
        assert history.catalog.next_producer_id >= before

    codec = MetadataCodec()
    replayed = Catalog(PLACEMENT)
    for record in history.records:
        decoded = codec.decode(*codec.encode(record))
        assert decoded == record
        assert decoded is not None
        replayed.replay(decoded)
    assert replayed == history.catalog


@given(st.data())
def test_a_snapshot_and_the_records_after_it_give_the_same_catalog(data):
    history = History()
    for _ in range(data.draw(st.integers(0, 12))):
        step(history, data)
    restored = Catalog(PLACEMENT)
    for record in history.catalog.snapshot():
        restored.replay(record)
    cut = len(history.records)
    for _ in range(data.draw(st.integers(0, 8))):
        step(history, data)
    for record in history.records[cut:]:
        restored.replay(record)
    # A snapshot remembers that a removed id must go, not what its topic was called.
    assert restored.removed.keys() == history.catalog.removed.keys()
    for catalog in (restored, history.catalog):
        catalog.forget_removed(list(catalog.removed))
    assert restored == history.catalog


def test_names_that_differ_only_in_dots_and_underscores_do_not_coexist():
    history = History()
    history.create("a.b")
    (refused,) = history.create("a_b")
    assert refused.error.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    history.carry_out(
        lambda: history.catalog.delete_topics([history.catalog.topic("a.b").topic_id])
    )
    assert isinstance(history.create("a_b")[0], TopicCreated)
    assert collision_key("a.b_c") == collision_key("a_b.c")


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a b", "a/b", "x" * 250, "ünicode", "line\n", "a:b"]
)
def test_illegal_names_are_refused(name):
    (refused,) = History().create(name)
    assert refused.error.code is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 3}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"num_partitions": 10_001}, ErrorCode.POLICY_VIOLATION),
        ({"assignments": [(0, [7])], "num_partitions": 1}, ErrorCode.INVALID_REQUEST),
        ({"assignments": [(0, [7])], "replication_factor": 1}, ErrorCode.INVALID_REQUEST),
        ({"assignments": [(0, [8])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [(0, [])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [(0, [7, 7])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [(0, [7]), (2, [7])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [(0, [7]), (0, [7])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_topic_this_node_cannot_hold_is_refused_with_kafkas_code(wanted, code):
    history = History()
    (refused,) = history.create("orders", **wanted)
    assert isinstance(refused, Refused)
    assert refused.error.code is code
    assert not history.records


def test_a_replication_factor_is_clamped_only_when_asked_for():
    history = History(Catalog(Placement(node_id=7, clamp=True)))
    (created,) = history.create("orders", replication_factor=3)
    assert created.clamped
    assert not history.create("others", replication_factor=1)[0].clamped
    refusal = History().create("orders", replication_factor=3)[0]
    assert "single.node.replication=clamp" in refusal.error.message


def test_validate_only_says_the_same_and_writes_nothing():
    catalog = Catalog(PLACEMENT)
    new = [NewTopic("orders", UUID(int=1)), NewTopic(".", UUID(int=2))]
    decision = catalog.create_topics(new, anything_goes, validate_only=True)
    assert decision.records == ()
    assert [type(effect) for effect in decision.effects] == [TopicCreated, Refused]


def test_partitions_only_grow_and_their_assignments_are_checked():
    history = History()
    history.create("orders", num_partitions=2)

    def grown(count, assignments=None):
        (effect,) = history.carry_out(
            lambda: history.catalog.create_partitions([("orders", count, assignments)])
        )
        return effect.error.code if isinstance(effect, Refused) else effect

    assert grown(2) is ErrorCode.INVALID_PARTITIONS
    assert grown(1) is ErrorCode.INVALID_PARTITIONS
    assert grown(4, [[7]]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grown(3, [[8]]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    added = grown(4, [[7], [7]])
    assert isinstance(added, PartitionsAdded)
    assert (added.first, added.topic.partitions) == (2, 4)
    assert [r.partition_id for r in history.records if isinstance(r, PartitionRecord)] == [
        *range(4)
    ]


def test_the_number_of_all_partitions_is_bounded():
    history = History(Catalog(Placement(node_id=7, max_partitions=5)))
    created, refused = history.create("a", "b", num_partitions=3)
    assert isinstance(created, TopicCreated)
    assert refused.error.code is ErrorCode.POLICY_VIOLATION
    history.carry_out(lambda: history.catalog.delete_topics([created.topic.topic_id]))
    assert isinstance(history.create("b", num_partitions=5)[0], TopicCreated)


def test_producer_ids_are_never_given_out_twice():
    history = History()
    blocks = [history.carry_out(history.catalog.allocate_producer_ids)[0] for _ in range(3)]
    given_out = [i for block in blocks for i in range(block.first, block.first + block.count)]
    assert len(set(given_out)) == len(given_out) == 3000


def test_records_of_a_newer_version_are_left_alone():
    codec = MetadataCodec()
    assert codec.decode(None, b"\x02\x02\x00\x00") is None
    assert codec.decode(None, b"\x01\x02\x63\x00") is None
    assert codec.decode(None, b"\x01\x7e\x00\x00") is None
    assert codec.decode(None, b"\x01\x02\x00\x09a") is None
    assert codec.decode(None, b"") is None


IDS = st.uuids()
INT32 = st.integers(-(2**31), 2**31 - 1)
NODES = st.lists(INT32, max_size=2).map(tuple)


@given(
    st.builds(
        PartitionRecord,
        partition_id=INT32,
        topic_id=IDS,
        replicas=NODES | st.just((7,)),
        isr=NODES | st.just((7,)),
        leader=INT32,
        directories=st.lists(IDS, max_size=2).map(tuple) | IDS.map(lambda one: (one,)),
        leader_epoch=INT32,
        partition_epoch=INT32,
        removing_replicas=NODES | st.just(()),
        adding_replicas=NODES | st.just(()),
    )
)
def test_partitions_read_at_once_are_those_read_by_their_row(record):
    codec = MetadataCodec()
    _, value = codec.encode(record)
    assert codec.decode(None, value) == codec.decode_any(value) == record
