"""What one node answers where Kafka would ask its other nodes, in Kafka's own words."""

import pytest

from headrace.errors import ErrorCode
from headrace.protocol.messages import Message
from tests.broker.test_topic_handlers import on_broker


async def elect(harness, topics, *, version=2, election_type=0):
    request = Message(election_type=election_type, topic_partitions=topics, timeout_ms=1000)
    return await harness.call("elect_leaders", version, request)


@on_broker
async def test_no_partition_needs_a_new_leader(harness):
    await harness.create("orders", 2)
    asked = [
        Message(topic="orders", partitions=[0, 5]),
        Message(topic="nope", partitions=[0]),
    ]
    for version in range(3):
        answer = await elect(harness, asked, version=version)
        assert answer.error_code == ErrorCode.NONE
        assert [
            (found.partition_id, found.error_code, found.error_message)
            for topic in answer.replica_election_results
            for found in topic.partition_result
        ] == [
            (
                0,
                ErrorCode.ELECTION_NOT_NEEDED,
                "Leader election not needed for topic partition.",
            ),
            (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as orders-5"),
            (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as nope"),
        ]


@on_broker
async def test_an_election_of_all_partitions_changes_none(harness):
    await harness.create("orders", 2)
    answer = await elect(harness, None)
    assert answer.replica_election_results == [Message(topic="orders", partition_result=[])]


@on_broker
async def test_an_unknown_kind_of_election_is_refused_everywhere(harness):
    await harness.create("orders")
    answer = await elect(harness, [Message(topic="orders", partitions=[0])], election_type=7)
    (topic,) = answer.replica_election_results
    (found,) = topic.partition_result
    assert answer.error_code == found.error_code == ErrorCode.INVALID_REQUEST
    assert found.error_message == "Unknown election type 7"


@pytest.mark.parametrize(
    ("topic", "index", "replicas", "code", "reason"),
    [
        ("orders", 0, [1], ErrorCode.NONE, None),
        ("orders", 1, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None),
        (
            "orders",
            7,
            None,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "Unable to find partition orders:7.",
        ),
        (
            "nope",
            0,
            [1],
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "Unable to find a topic named nope.",
        ),
        (
            "orders",
            0,
            [1, 2],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 2, but no such broker is registered.",
        ),
    ],
)
@on_broker
async def test_replicas_stay_where_they_are(harness, topic, index, replicas, code, reason):
    await harness.create("orders", 2)
    moved = Message(partition_index=index, replicas=replicas)
    for version in range(2):
        request = Message(timeout_ms=1000, topics=[Message(name=topic, partitions=[moved])])
        answer = await harness.call("alter_partition_reassignments", version, request)
        assert answer.error_code == ErrorCode.NONE
        assert answer.responses == [
            Message(
                name=topic,
                partitions=[Message(partition_index=index, error_code=code, error_message=reason)],
            )
        ]


@on_broker
async def test_nothing_is_being_moved(harness):
    await harness.create("orders")
    for topics in (None, [Message(name="orders", partition_indexes=[0])]):
        request = Message(timeout_ms=1000, topics=topics)
        answer = await harness.call("list_partition_reassignments", 0, request)
        assert (answer.error_code, answer.topics) == (ErrorCode.NONE, [])


@on_broker
async def test_this_node_leads_the_metadata_log_alone(harness):
    await harness.create("orders")
    asked = [Message(topic_name="__cluster_metadata", partitions=[Message(partition_index=0)])]
    for version in range(3):
        answer = await harness.call("describe_quorum", version, Message(topics=asked))
        (found,) = answer.topics[0].partitions
        end_offset = harness.broker.topics.metadata.log.log_end_offset
        assert found.error_code == ErrorCode.NONE
        assert (found.leader_id, found.high_watermark) == (1, end_offset)
        (voter,) = found.current_voters
        assert (voter.replica_id, voter.log_end_offset) == (1, end_offset)
    assert answer.nodes == [
        Message(node_id=1, listeners=[Message(name="PLAINTEXT", host="127.0.0.1", port=9092)])
    ]


@on_broker
async def test_only_the_metadata_log_has_a_quorum(harness):
    await harness.create("orders")
    asked = [Message(topic_name="orders", partitions=[Message(partition_index=0)])]
    answer = await harness.call("describe_quorum", 2, Message(topics=asked))
    (found,) = answer.topics[0].partitions
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.nodes == []
