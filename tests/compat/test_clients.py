"""The clients people already have, unmodified: produce, consume and list on one broker."""

import asyncio
import shutil
import subprocess
import uuid
from collections.abc import Iterator

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing import LocalBroker
from headrace.testing.apache_kafka import missing, tool

pytestmark = pytest.mark.compat

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORDS = [(f"key-{number}".encode(), f"value-{number}".encode() * 50) for number in range(200)]
WAIT_S = 30.0


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with LocalBroker() as broker:
        yield broker.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"t-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(name, 2, 1)]).values():
        created.result(WAIT_S)
    return name


def read_with_confluent(bootstrap: str, topic: str) -> list[tuple[bytes, bytes]]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(2)])
    got: list[tuple[bytes, bytes]] = []
    while len(got) < len(RECORDS):
        message = consumer.poll(WAIT_S)
        assert message is not None, f"only {len(got)} records arrived"
        assert message.error() is None, message.error()
        got.append((message.key(), message.value()))
    consumer.close()
    return sorted(got)


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka_writes_every_codec_and_kafka_python_reads_it(
    bootstrap: str, topic: str, codec: str
) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
    for key, value in RECORDS:
        producer.produce(topic, value, key)
    assert producer.flush(WAIT_S) == 0
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    consumer.assign([kafka.TopicPartition(topic, index) for index in range(2)])
    got = []
    for message in consumer:
        got.append((message.key, message.value))
        if len(got) == len(RECORDS):
            break
    consumer.close()
    assert sorted(got) == sorted(RECORDS)


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_writes_every_codec_and_confluent_kafka_reads_it(
    bootstrap: str, topic: str, codec: str
) -> None:
    compression = None if codec == "none" else codec
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap, compression_type=compression, acks="all"
    )
    for key, value in RECORDS:
        producer.send(topic, value, key)
    producer.flush(WAIT_S)
    producer.close()
    assert read_with_confluent(bootstrap, topic) == sorted(RECORDS)


def test_aiokafka_writes_and_reads(bootstrap: str, topic: str) -> None:
    async def round_trip() -> list[tuple[bytes, bytes]]:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
        await producer.start()
        for key, value in RECORDS:
            await producer.send(topic, value, key)
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest"
        )
        consumer.assign([aiokafka.TopicPartition(topic, index) for index in range(2)])
        await consumer.start()
        got: list[tuple[bytes, bytes]] = []
        while len(got) < len(RECORDS):
            message = await asyncio.wait_for(consumer.getone(), WAIT_S)
            got.append((message.key, message.value))
        await consumer.stop()
        return sorted(got)

    assert asyncio.run(round_trip()) == sorted(RECORDS)


def test_every_client_lists_the_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    assert len(admin.list_topics(timeout=WAIT_S).topics[topic].partitions) == 2
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap)
    assert topic in consumer.topics()
    consumer.close()


def test_kcat_writes_and_reads(bootstrap: str, topic: str) -> None:
    kcat = shutil.which("kcat") or shutil.which("kafkacat")
    if kcat is None:
        pytest.skip("kcat is not installed (a system package)")
    write = [kcat, "-b", bootstrap, "-P", "-t", topic, "-p", "0"]
    subprocess.run(write, input=b"one\ntwo\n", check=True, timeout=WAIT_S)
    read = [kcat, "-b", bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q"]
    assert subprocess.check_output(read, timeout=WAIT_S) == b"one\ntwo\n"


@pytest.mark.oracle
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_kafkas_own_console_tools_write_list_and_read(bootstrap: str, topic: str) -> None:
    at = ("--bootstrap-server", bootstrap)
    assert topic in tool("org.apache.kafka.tools.TopicCommand", *at, "--list")
    described = tool("org.apache.kafka.tools.TopicCommand", *at, "--describe", "--topic", topic)
    assert "PartitionCount: 2" in described
    tool("org.apache.kafka.tools.ConsoleProducer", *at, "--topic", topic, stdin="one\ntwo\n")
    arguments = ("--topic", topic, "--partition", "0", "--offset", "earliest")
    read = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    lines = []
    for partition in ("0", "1"):
        arguments = ("--topic", topic, "--partition", partition, "--offset", "earliest")
        lines += tool(read, *at, *arguments, "--timeout-ms", "5000").splitlines()
    assert sorted(lines) == ["one", "two"]
