"""What the APIs of topics and of the cluster answer, over the wire's own bytes."""

import asyncio
import functools
import inspect
from uuid import uuid4

import pytest

from headrace.broker.groups import group_coordinator
from headrace.broker.handlers import metadata
from headrace.broker.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from headrace.broker.packed_topics import PackedTopics
from headrace.broker.topics import Topics
from headrace.coordination.topics import Topic
from headrace.errors import ErrorCode
from headrace.protocol.apis import APIS
from headrace.protocol.messages import Message, read_response, write_response
from headrace.protocol.primitives import ZERO_UUID
from tests.broker.harness import batch, run

METADATA_VERSIONS = range(APIS[3].min_version, APIS[3].max_version + 1)


def on_broker(scenario=None, **settings):
    """Marks a test as a scenario on a broker whose topics are open."""
    if scenario is None:
        return functools.partial(on_broker, **settings)

    async def opened(harness, **arguments):
        await Topics.open(harness.broker)
        harness.broker.groups = group_coordinator(harness.broker)
        await scenario(harness, **arguments)

    @functools.wraps(scenario)
    def test(**arguments):
        run(functools.partial(opened, **arguments), **settings)

    # pytest must not take the harness for a fixture.
    test.__signature__ = _without_first(scenario)  # type: ignore[attr-defined]
    return test


def _without_first(function):
    signature = inspect.signature(function)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def new(name, **fields):
    return Message(**{"name": name, "num_partitions": -1, "replication_factor": -1, **fields})


async def create(harness, *topics, version=7, **fields):
    request = Message(topics=list(topics), timeout_ms=1000, **fields)
    return (await harness.call("create_topics", version, request)).topics


async def ask_metadata(harness, version, topics, **fields):
    return await harness.call("metadata", version, Message(topics=topics, **fields))


def names_of(answer):
    return [topic.name for topic in answer.topics]


@on_broker(num_partitions="3")
async def test_created_topics_are_answered_with_what_they_became(harness):
    configs = [Message(name="retention.ms", value="5000")]
    (topic,) = await create(harness, new("orders", configs=configs))
    assert (topic.error_code, topic.error_message) == (0, None)
    assert (topic.num_partitions, topic.replication_factor) == (3, 1)
    assert topic.topic_id == harness.broker.catalog.topic("orders").topic_id != ZERO_UUID
    sources = {config.name: (config.value, config.config_source) for config in topic.configs}
    assert sources["retention.ms"] == ("5000", 1)
    assert sources["segment.bytes"] == (str(1 << 30), 5)


@on_broker
async def test_each_topic_of_a_request_is_created_or_refused_on_its_own(harness):
    bad_value = [Message(name="retention.ms", value="soon")]
    bad_name = [Message(name="retention.msec", value="1")]
    answers = await create(
        harness,
        new("fine"),
        new("twice"),
        new("twice"),
        new("a b"),
        new("three", replication_factor=3),
        new("bad.value", configs=bad_value),
        new("bad.name", configs=bad_name),
        new("null", configs=[Message(name="retention.ms", value=None)]),
    )
    codes = {answer.name: ErrorCode(answer.error_code) for answer in answers}
    assert codes == {
        "fine": ErrorCode.NONE,
        "twice": ErrorCode.INVALID_REQUEST,
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "three": ErrorCode.INVALID_REPLICATION_FACTOR,
        "bad.value": ErrorCode.INVALID_CONFIG,
        "bad.name": ErrorCode.INVALID_CONFIG,
        "null": ErrorCode.INVALID_CONFIG,
    }
    messages = {answer.name: answer.error_message for answer in answers}
    assert "soon" in messages["bad.value"]
    assert "retention.ms" in messages["bad.name"]
    assert set(harness.broker.catalog.topics) == {"fine"}


@on_broker
async def test_validate_only_creates_nothing(harness):
    (topic,) = await create(harness, new("orders"), validate_only=True)
    assert topic.error_code == 0
    assert not harness.broker.catalog.topics
    assert len(harness.broker.partitions) == 0


@on_broker(single_node_replication="clamp")
async def test_a_clamped_topic_is_created_with_one_replica_and_no_error(harness):
    (topic,) = await create(harness, new("orders", replication_factor=3))
    assert (topic.error_code, topic.error_message, topic.replication_factor) == (0, None, 1)


@on_broker(default_replication_factor="3")
async def test_a_default_replication_factor_above_one_is_in_force_as_one(harness):
    (topic,) = await create(harness, new("orders"))
    assert (topic.error_code, topic.replication_factor) == (0, 1)


@pytest.mark.parametrize("version", range(2, 8))
@on_broker
async def test_every_version_of_create_and_delete_is_answered(harness, version):
    (topic,) = await create(harness, new("orders", num_partitions=1), version=version)
    assert topic.error_code == 0
    delete_version = min(version - 1, 6)
    asked = Message(
        topics=[Message(name="orders", topic_id=ZERO_UUID)],
        topic_names=["orders"],
        timeout_ms=1000,
    )
    answer = await harness.call("delete_topics", delete_version, asked)
    assert [each.error_code for each in answer.responses] == [0]
    assert not harness.broker.catalog.topics


@on_broker
async def test_topics_are_deleted_by_name_or_id_and_refused_one_by_one(harness):
    a, b, c = await create(harness, new("a"), new("b"), new("c"))

    async def delete(*keys):
        topics = [Message(name=name, topic_id=topic_id) for name, topic_id in keys]
        answer = await harness.call("delete_topics", 6, Message(topics=topics, timeout_ms=1000))
        return {(one.name, one.topic_id): ErrorCode(one.error_code) for one in answer.responses}

    unknown = uuid4()
    assert await delete(
        ("a", ZERO_UUID),
        (None, b.topic_id),
        (None, unknown),
        (None, ZERO_UUID),
        ("c", c.topic_id),
        ("c", ZERO_UUID),
        ("c", ZERO_UUID),
        ("missing", ZERO_UUID),
    ) == {
        ("a", a.topic_id): ErrorCode.NONE,
        ("b", b.topic_id): ErrorCode.NONE,
        (None, unknown): ErrorCode.UNKNOWN_TOPIC_ID,
        (None, ZERO_UUID): ErrorCode.INVALID_REQUEST,
        ("c", c.topic_id): ErrorCode.INVALID_REQUEST,
        ("c", ZERO_UUID): ErrorCode.INVALID_REQUEST,
        ("missing", ZERO_UUID): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert set(harness.broker.catalog.topics) == {"c"}


@on_broker(delete_topic_enable="false")
async def test_deletion_can_be_disabled(harness):
    await create(harness, new("a"))
    asked = Message(topics=[Message(name="a")], timeout_ms=1000)
    (refused,) = (await harness.call("delete_topics", 6, asked)).responses
    assert refused.error_code == ErrorCode.TOPIC_DELETION_DISABLED


@on_broker
async def test_topics_grow_and_their_new_partitions_are_served(harness):
    await create(harness, new("orders", num_partitions=1))

    async def grow(name, count, **fields):
        topic = Message(name=name, count=count, assignments=None)
        request = Message(topics=[topic], timeout_ms=1000, **fields)
        (answer,) = (await harness.call("create_partitions", 3, request)).results
        return ErrorCode(answer.error_code)

    assert await grow("orders", 3, validate_only=True) is ErrorCode.NONE
    assert harness.broker.catalog.topic("orders").partitions == 1
    assert await grow("orders", 3) is ErrorCode.NONE
    assert harness.partition("orders", 2).log.log_end_offset == 0
    assert await grow("orders", 3) is ErrorCode.INVALID_PARTITIONS
    assert await grow("missing", 3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", METADATA_VERSIONS)
@on_broker
async def test_kept_metadata_is_the_same_bytes_as_plainly_written(harness, version):
    await create(harness, new("a", num_partitions=3), new("b"), new("__consumer_offsets"))
    operations = TOPIC_OPERATIONS if version >= 8 else NOT_ASKED
    cluster = CLUSTER_OPERATIONS if 8 <= version <= 10 else NOT_ASKED
    broker = harness.broker
    plain = Message(
        brokers=[Message(node_id=1, host="127.0.0.1", port=9092)],
        cluster_id=broker.cluster_id,
        controller_id=1,
        topics=[
            metadata.described(broker, topic, operations)
            for topic in broker.catalog.topics.values()
        ],
        cluster_authorized_operations=cluster,
    )
    expected = read_response(3, version, write_response(3, version, plain))
    everything: list[Message] | None = [] if version == 0 else None
    flags = dict.fromkeys(
        ("include_topic_authorized_operations", "include_cluster_authorized_operations"), True
    )
    for _ in range(2):
        assert await ask_metadata(harness, version, everything, **flags) == expected
    # What was kept must not outlive a change.
    await broker.topics.add_partitions([("b", 2, None)])
    changed = await ask_metadata(harness, version, everything, **flags)
    assert [len(topic.partitions) for topic in changed.topics] == [3, 2, 1]


@on_broker
async def test_no_topics_are_asked_for_by_an_empty_list_and_all_by_null(harness):
    await create(harness, new("a"), new("b"))
    assert names_of(await ask_metadata(harness, 0, [])) == ["a", "b"]
    assert names_of(await ask_metadata(harness, 1, [])) == []
    assert names_of(await ask_metadata(harness, 1, None)) == ["a", "b"]


@on_broker
async def test_metadata_by_id_names_the_topic(harness):
    (a,) = await create(harness, new("a"))
    unknown = uuid4()
    asked = [Message(topic_id=each, name=None) for each in (a.topic_id, unknown)]
    found, missing = (await ask_metadata(harness, 13, asked)).topics
    assert (found.name, found.error_code) == ("a", 0)
    assert (missing.name, missing.topic_id) == (None, unknown)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@on_broker(num_partitions="2")
async def test_a_missing_topic_is_created_on_the_way_and_answered_at_once(harness):
    asked = [Message(name=name) for name in ("fresh", "a b", "fresh")]
    answer = await ask_metadata(harness, 12, asked, allow_auto_topic_creation=True)
    found = {topic.name: (topic.error_code, len(topic.partitions)) for topic in answer.topics}
    assert found == {"fresh": (0, 2), "a b": (ErrorCode.INVALID_TOPIC_EXCEPTION, 0)}
    assert len(answer.topics) == 2


@pytest.mark.parametrize("by_client", [True, False])
def test_topics_are_not_created_where_client_or_broker_forbids_it(by_client):
    @on_broker(auto_create_topics_enable="true" if by_client else "false")
    async def scenario(harness):
        (topic,) = (
            await ask_metadata(
                harness,
                12,
                [Message(name="fresh")],
                allow_auto_topic_creation=not by_client,
            )
        ).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not harness.broker.catalog.topics

    scenario()


@on_broker
async def test_a_topic_whose_directory_could_not_be_made_is_repaired_when_asked_for(harness):
    broker = harness.broker
    create_partition = broker.partitions.create

    def full(*arguments):
        raise OSError(28, "No space left on device")

    broker.partitions.create = full
    (refused,) = await create(harness, new("orders"))
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    (topic,) = (await ask_metadata(harness, 12, None)).topics
    assert [each.error_code for each in topic.partitions] == [ErrorCode.LEADER_NOT_AVAILABLE]
    broker.partitions.create = create_partition
    (topic,) = (await ask_metadata(harness, 12, None)).topics
    assert [each.error_code for each in topic.partitions] == [0]


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
@on_broker
async def test_pages_of_partitions_add_up_to_all_of_them_once(harness, limit):
    counts = {"a": 3, "b": 1, "c": 4}
    await create(harness, *(new(name, num_partitions=n) for name, n in counts.items()))
    seen = []
    cursor = None
    while True:
        request = Message(topics=[], response_partition_limit=limit, cursor=cursor)
        answer = await harness.call("describe_topic_partitions", 0, request)
        page = [
            (topic.name, each.partition_index)
            for topic in answer.topics
            for each in topic.partitions
        ]
        assert 0 < len(page) <= limit
        seen += page
        cursor = answer.next_cursor
        if cursor is None:
            break
    assert seen == [(name, index) for name, n in counts.items() for index in range(n)]


@on_broker
async def test_partitions_are_described_from_the_cursor_on(harness):
    await create(harness, new("a", num_partitions=2), new("b"))

    async def described(names, cursor):
        request = Message(
            topics=[Message(name=name) for name in names],
            response_partition_limit=10,
            cursor=cursor and Message(topic_name=cursor[0], partition_index=cursor[1]),
        )
        answer = await harness.call("describe_topic_partitions", 0, request)
        return [
            (t.name, ErrorCode(t.error_code), [p.partition_index for p in t.partitions])
            for t in answer.topics
        ]

    assert await described(["b", "a"], ("a", 1)) == [
        ("a", ErrorCode.NONE, [1]),
        ("b", ErrorCode.NONE, [0]),
    ]
    assert await described(["zz", "a b"], None) == [
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION, []),
        ("zz", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
    ]
    assert await described(["a"], ("a", -1)) == [("a", ErrorCode.INVALID_REQUEST, [])]


@pytest.mark.parametrize("version", range(3))
@on_broker(broker_rack="r1")
async def test_the_cluster_is_one_broker_that_is_its_own_controller(harness, version):
    request = Message(include_cluster_authorized_operations=True, endpoint_type=1)
    answer = await harness.call("describe_cluster", version, request)
    assert (answer.error_code, answer.controller_id) == (0, 1)
    assert answer.cluster_id == harness.broker.cluster_id
    assert answer.cluster_authorized_operations == CLUSTER_OPERATIONS
    (node,) = answer.brokers
    assert (node.broker_id, node.host, node.port, node.rack) == (1, "127.0.0.1", 9092, "r1")


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
@on_broker
async def test_controllers_are_not_to_be_had_here(harness, endpoint_type, code):
    answer = await harness.call("describe_cluster", 2, Message(endpoint_type=endpoint_type))
    assert answer.error_code == code


@pytest.mark.parametrize("version", range(1, 6))
@on_broker
async def test_log_dirs_tell_sizes_and_the_disks_room(harness, version):
    await create(harness, new("a", num_partitions=2), new("b"))
    written = batch(b"value")
    harness.partition("a", 1).append(written)
    asked = Message(topics=[Message(topic="a", partitions=[1, 9])])
    (found,) = (await harness.call("describe_log_dirs", version, asked)).results
    (topic,) = found.topics
    assert [(p.partition_index, p.partition_size) for p in topic.partitions] == [(1, len(written))]
    if version >= 4:
        assert found.total_bytes >= found.usable_bytes > 0
    (found,) = (await harness.call("describe_log_dirs", version, Message(topics=None))).results
    assert {topic.name for topic in found.topics} == {"a", "b"}
    assert found.log_dir == "/data"


@on_broker
async def test_producers_of_a_partition_are_described(harness):
    await create(harness, new("a"))
    harness.partition("a").append(
        batch(b"1", b"2", producer_id=7, producer_epoch=3, base_sequence=0)
    )
    asked = Message(topics=[Message(name="a", partition_indexes=[0, 5])])
    (topic,) = (await harness.call("describe_producers", 0, asked)).topics
    known, missing = topic.partitions
    (producer,) = known.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 3, 1)
    assert producer.current_txn_start_offset == -1
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(6))
@on_broker
async def test_idempotent_producers_get_ids_of_their_own(harness, version):
    ids = set()
    for _ in range(3):
        request = Message(transactional_id=None, producer_id=-1, producer_epoch=-1)
        answer = await harness.call("init_producer_id", version, request)
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        ids.add(answer.producer_id)
    assert len(ids) == 3


@on_broker
async def test_a_producer_id_without_its_epoch_is_refused(harness):
    request = Message(transactional_id=None, producer_id=5, producer_epoch=-1)
    answer = await harness.call("init_producer_id", 5, request)
    assert (answer.error_code, answer.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


@on_broker
async def test_concurrent_producers_never_share_an_id_across_blocks(harness):
    topics = harness.broker.topics
    ids = await asyncio.gather(*(topics.next_producer_id() for _ in range(2500)))
    assert len(set(ids)) == 2500


@on_broker
async def test_resources_with_settings_are_listed(harness):
    await create(harness, new("a"))

    async def listed(version, *types):
        request = Message(resource_types=list(types))
        answer = await harness.call("list_config_resources", version, request)
        return ErrorCode(answer.error_code), {
            (each.resource_type, each.resource_name) for each in answer.config_resources
        }

    assert await listed(1) == (ErrorCode.NONE, {(2, "a"), (4, "1")})
    assert await listed(1, 4) == (ErrorCode.NONE, {(4, "1")})
    assert await listed(1, 9) == (ErrorCode.UNSUPPORTED_VERSION, set())
    assert (await listed(0))[0] is ErrorCode.NONE


def test_kept_topics_are_bounded_and_never_those_of_another_topic():
    kept = PackedTopics(max_bytes=10)
    first, second = (Topic(name, uuid4(), 1) for name in ("a", "b"))
    kept.keep(first, 1, b"123456")
    assert kept.find(first, 1) == b"123456"
    assert kept.find(first, 2) is None
    assert kept.find(Topic("a", first.topic_id, 2), 1) is None
    kept.keep(second, 1, b"123456")
    assert kept.find(first, 1) is None
    assert kept.find(second, 1) == b"123456"
