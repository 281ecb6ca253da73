"""Kafka's own tools read our files, and our broker opens what Kafka wrote."""

import random
import shutil
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.apache_kafka import ApacheKafka, missing, tool
from headrace.testing.broker_process import BrokerProcess

pytestmark = [
    pytest.mark.compat,
    pytest.mark.oracle,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

TOPIC = "orders"
COUNT = 3_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
SMALL_SEGMENTS = {"segment.bytes": "1048576", "index.interval.bytes": "1024"}
WAIT_S = 30.0


def fill(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(TOPIC, 1, 1, config=SMALL_SEGMENTS)]).values():
        created.result(WAIT_S)
    source = random.Random(0)
    for codec in CODECS:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "batch.size": 4096}
            | {"enable.idempotence": True}
        )
        for number in range(COUNT // len(CODECS)):
            headers = [("codec", codec.encode())]
            value = f"{codec}-{number}-{source.randbytes(1000).hex()}"
            producer.produce(TOPIC, value, str(number), headers=headers)
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0


def values(bootstrap: str) -> list[tuple[int, bytes]]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    got: list[tuple[int, bytes]] = []
    while len(got) < COUNT:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"only {len(got)} records arrived"
        assert message.error() is None, message.error()
        got.append((message.offset(), message.value()))
    consumer.close()
    return got


def test_dump_log_segments_accepts_every_file_we_write() -> None:
    with BrokerProcess() as broker:
        fill(broker.bootstrap)
        broker.stop()
        logs = sorted(map(str, (broker.data_dir / f"{TOPIC}-0").glob("*.log")))
        assert len(logs) > 2, "the topic should have rolled"
        dump = "org.apache.kafka.tools.DumpLogSegments"
        deep = tool(dump, "--deep-iteration", "--files", ",".join(logs))
        assert deep.count("payload") == 0
        assert deep.count("| offset: ") == COUNT
        assert "isvalid: false" not in deep
        indexes = sorted(map(str, (broker.data_dir / f"{TOPIC}-0").glob("*index")))
        sane = tool(dump, "--index-sanity-check", "--files", ",".join(indexes))
        assert sane.count("passed sanity check") >= len(logs)
        compared = tool(dump, "--verify-index-only", "--files", ",".join(indexes))
        assert "Mismatches" not in compared
        snapshots = sorted(map(str, (broker.data_dir / f"{TOPIC}-0").glob("*.snapshot")))
        assert "producerId" in tool(dump, "--files", ",".join(snapshots))


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_the_broker_opens_a_partition_directory_that_kafka_wrote(
    tmp_path: Path, clean: bool
) -> None:
    with ApacheKafka() as apache:
        fill(apache.bootstrap)
        expected = values(apache.bootstrap)
        if clean:
            apache.stop()
        broker = BrokerProcess(directory=tmp_path)
        shutil.copytree(apache.data_dir / f"{TOPIC}-0", broker.data_dir / f"{TOPIC}-0")
    with broker:
        assert values(broker.bootstrap) == expected
