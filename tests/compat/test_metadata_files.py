"""Kafka's own tool reads our metadata log, and our broker takes over a whole Kafka directory."""

import re
import shutil
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from headrace.testing.apache_kafka import ApacheKafka, missing, tool
from headrace.testing.broker_process import BrokerProcess

pytestmark = [
    pytest.mark.compat,
    pytest.mark.oracle,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

WAIT_S = 30.0


def settle(futures: Mapping[Any, Future[Any]]) -> None:
    for future in futures.values():
        future.result(WAIT_S)


def change_topics(bootstrap: str) -> AdminClient:
    """Topics a (4 partitions, retention.ms=5000, segment.ms=60000) and c; b comes and goes."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [NewTopic("a", 3, 1, config={"retention.ms": "5000"}), NewTopic("b", 1, 1)]
    settle(admin.create_topics([*wanted, NewTopic("c", 1, 1)]))
    settle(admin.create_partitions([NewPartitions("a", 4)]))
    resource = ConfigResource(ResourceType.TOPIC, "a")
    entry = ConfigEntry("segment.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    resource.add_incremental_config(entry)
    settle(admin.incremental_alter_configs([resource]))
    settle(admin.delete_topics(["b"]))
    return admin


def test_kafkas_decoder_reads_every_record_of_the_metadata_log() -> None:
    with BrokerProcess() as broker:
        change_topics(broker.bootstrap)
        broker.stop()
        log = broker.data_dir / "__cluster_metadata-0" / "00000000000000000000.log"
        dump = tool(
            "org.apache.kafka.tools.DumpLogSegments",
            "--cluster-metadata-decoder",
            "--files",
            str(log),
        )
    kinds = Counter(re.findall(r'payload: \{"type":"(\w+)"', dump))
    assert kinds.pop("FEATURE_LEVEL_RECORD") >= 1
    assert kinds == {
        "TOPIC_RECORD": 3,
        "PARTITION_RECORD": 3 + 1 + 1 + 1,
        "CONFIG_RECORD": 2,
        "REMOVE_TOPIC_RECORD": 1,
    }
    assert "isvalid: false" not in dump


def test_the_broker_takes_over_a_whole_directory_that_kafka_wrote(tmp_path: Path) -> None:
    with ApacheKafka() as apache:
        change_topics(apache.bootstrap)
        apache.stop()
        broker = BrokerProcess(directory=tmp_path)
        shutil.copytree(apache.data_dir, broker.data_dir, dirs_exist_ok=True)
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        listed = admin.list_topics(timeout=WAIT_S).topics
        assert {name: len(topic.partitions) for name, topic in listed.items()} == {"a": 4, "c": 1}
        (configs,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "a")]).values()
        found = configs.result(WAIT_S)
        assert (found["retention.ms"].value, found["segment.ms"].value) == ("5000", "60000")
