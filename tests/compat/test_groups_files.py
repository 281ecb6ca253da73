"""Kafka's own formatters read our __consumer_offsets, and we read what Kafka wrote there."""

import json
import shutil
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing import LocalBroker
from headrace.testing.apache_kafka import ApacheKafka, missing, tool

pytestmark = [
    pytest.mark.compat,
    pytest.mark.oracle,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

WAIT_S = 30.0
ONE_PARTITION = {"offsets.topic.num.partitions": "1"}
FORMATTERS = "org.apache.kafka.tools.consumer"


def fill(bootstrap: str) -> None:
    """A static member that read 20 of 30 records, and a group that only ever committed."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic("orders", 1, 1)]).values():
        created.result(WAIT_S)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(30):
        producer.produce("orders", str(number))
    assert producer.flush(WAIT_S) == 0
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "group.instance.id": "reader-1",
            "client.id": "laptop",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    for _ in range(20):
        message = consumer.poll(WAIT_S)
        assert message is not None
    consumer.commit(message, asynchronous=False)
    consumer.close()
    altered = admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions("simple", [TopicPartition("orders", 0, 7)])]
    )
    altered["simple"].result(WAIT_S)


def committed(bootstrap: str, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = [ConsumerGroupTopicPartitions(group, [TopicPartition("orders", 0)])]
    (found,) = admin.list_consumer_group_offsets(asked)[group].result(WAIT_S).topic_partitions
    offset: int = found.offset
    return offset


def formatted(bootstrap: str, formatter: str, count: int) -> list[dict[str, Any]]:
    """What Kafka's console consumer prints of the first records."""
    printed = tool(
        f"{FORMATTERS}.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", "__consumer_offsets", "--partition", "0"),
        *("--offset", "earliest", "--max-messages", str(count)),
        *("--formatter", f"{FORMATTERS}.{formatter}"),
    )
    decoder = json.JSONDecoder()
    found = []
    position = 0
    while position < len(printed.strip()):
        value, position = decoder.raw_decode(printed, position)
        found.append(value)
    return found


def test_kafkas_formatters_read_our_groups_and_offsets():
    with LocalBroker(settings=ONE_PARTITION) as broker:
        fill(broker.bootstrap)
        (group,) = formatted(broker.bootstrap, "GroupMetadataMessageFormatter", 3)
        stored = group["value"]["data"]
        assert group["key"]["data"] == {"group": "readers"}
        assert (stored["protocolType"], stored["generation"]) == ("consumer", 1)
        (member,) = stored["members"]
        assert member["memberId"] == stored["leader"]
        assert (member["groupInstanceId"], member["clientId"]) == ("reader-1", "laptop")
        offsets = formatted(broker.bootstrap, "OffsetsMessageFormatter", 3)
        assert [
            (each["key"]["data"]["group"], each["value"]["data"]["offset"]) for each in offsets
        ] == [("readers", 20), ("simple", 7)]
        assert all(each["value"]["version"] == 4 for each in offsets)


def test_groups_and_offsets_that_kafka_wrote_are_here(tmp_path: Path) -> None:
    with ApacheKafka(ONE_PARTITION, directory=tmp_path) as kafka:
        fill(kafka.bootstrap)
        kafka.stop()
        ours = tmp_path / "ours"
        shutil.copytree(kafka.data_dir, ours, ignore=shutil.ignore_patterns("__cluster_metadata*"))
    with LocalBroker(data_dir=ours, settings=ONE_PARTITION) as broker:
        assert committed(broker.bootstrap, "readers") == 20
        assert committed(broker.bootstrap, "simple") == 7
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        found = admin.describe_consumer_groups(["readers"])["readers"].result(WAIT_S)
        (member,) = found.members
        assert (member.group_instance_id, member.client_id) == ("reader-1", "laptop")
        assert member.assignment.topic_partitions == [TopicPartition("orders", 0)]
