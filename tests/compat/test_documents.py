"""The programs of the mission's documents, run on the broker (MISSION A2.14, A2.15, A4.4, A4.6)."""

import json
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as Place

from headrace.testing import LocalBroker

pytestmark = pytest.mark.compat

WAIT_S = 30.0


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with LocalBroker() as broker:
        yield broker.bootstrap


@pytest.fixture
def topics(bootstrap: str) -> list[str]:
    names = [f"{name}-{uuid.uuid4().hex[:8]}" for name in ("one", "two", "three")]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(name, 3, 1) for name in names]).values():
        created.result(WAIT_S)
    return names


def committed(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """This many records as a reader of committed records sees them, and that there are no more."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(3)])
    values: list[bytes] = []
    ended: set[int] = set()
    while len(ended) < 3:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"{len(values)} of {count} records arrived"
        if message.error() is None:
            values.append(message.value())
        else:
            ended.add(message.partition())
    consumer.close()
    assert len(values) == count
    return values


@pytest.mark.filterwarnings("ignore:.*does not implement kafka.serializer:DeprecationWarning")
def test_a_keyed_send_that_waits_for_all_replicas(bootstrap: str, topics: list[str]) -> None:
    producer = KafkaProducer(
        bootstrap_servers=[bootstrap],
        key_serializer=lambda k: k.encode("utf-8"),
        value_serializer=lambda v: json.dumps(v).encode("utf-8"),
        acks="all",
        retries=3,
        linger_ms=5,
    )
    sent = producer.send(
        topic=topics[0], key="user_42", value={"amount": 99.99, "merchant": "coffee_shop"}
    )
    producer.flush()
    # murmur2 of user_42 is partition 1 of 3 (A2.3).
    assert sent.get(WAIT_S).partition == 1
    producer.close()
    (value,) = committed(bootstrap, topics[0], 1)
    assert json.loads(value) == {"amount": 99.99, "merchant": "coffee_shop"}


def test_three_topics_in_one_transaction_or_none(bootstrap: str, topics: list[str]) -> None:
    producer = KafkaProducer(
        bootstrap_servers=[bootstrap],
        transactional_id=f"order-processor-{uuid.uuid4().hex}",
        enable_idempotence=True,
    )
    producer.init_transactions()
    producer.begin_transaction()
    for topic in topics:
        producer.send(topic, value=b"kept")
    producer.commit_transaction()
    producer.begin_transaction()
    for topic in topics:
        producer.send(topic, value=b"rolled back")
    producer.abort_transaction()
    producer.close()
    assert [committed(bootstrap, topic, 1) for topic in topics] == [[b"kept"]] * 3


def test_input_offsets_commit_with_the_output(bootstrap: str, topics: list[str]) -> None:
    source, target = topics[:2]
    plain = KafkaProducer(bootstrap_servers=[bootstrap])
    for number in range(10):
        plain.send(source, key=b"card", value=str(number).encode())
    plain.close()
    group = f"fraud-detection-{uuid.uuid4().hex}"
    consumer = KafkaConsumer(
        source,
        bootstrap_servers=[bootstrap],
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=int(WAIT_S * 1000),
    )
    batch = [next(consumer) for _ in range(10)]
    current_offsets = {
        Place(each.topic, each.partition): OffsetAndMetadata(each.offset + 1, "", -1)
        for each in batch
    }
    producer = KafkaProducer(
        bootstrap_servers=[bootstrap],
        transactional_id=f"fraud-processor-{uuid.uuid4().hex}",
        enable_idempotence=True,
    )
    producer.init_transactions()
    producer.begin_transaction()
    for each in batch:
        producer.send(target, key=each.key, value=each.value)
    # The document names this argument group_id; kafka-python calls it group_metadata.
    producer.send_offsets_to_transaction(current_offsets, group)
    producer.commit_transaction()
    producer.close()
    (place,) = current_offsets
    assert consumer.committed(place) == 10
    consumer.close()
    assert len(committed(bootstrap, target, 10)) == 10


def test_the_exactly_once_loop_goes_on_where_it_committed(
    bootstrap: str, topics: list[str]
) -> None:
    source, target = topics[:2]
    filling = Producer({"bootstrap.servers": bootstrap})
    for number in range(100):
        filling.produce(source, str(number), f"key-{number % 7}")
    assert filling.flush(WAIT_S) == 0
    group = f"eos-group-{uuid.uuid4().hex}"
    # The first run fails before its commit, so the second reads the same input again.
    assert run_loop(bootstrap, source, target, group, fail=True) > 0
    done = 0
    while done < 100:
        done += run_loop(bootstrap, source, target, group, fail=False)
    expected = sorted(str(number).encode() * 2 for number in range(100))
    assert sorted(committed(bootstrap, target, 100)) == expected


def run_loop(bootstrap: str, source: str, target: str, group: str, *, fail: bool) -> int:
    """Poll, transform, produce and commit the offsets in one transaction, once."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{group}-loop"})
    producer.init_transactions(WAIT_S)
    consumer.subscribe([source])
    records = consumer.consume(100, 5.0)
    producer.begin_transaction()
    offsets: dict[int, int] = {}
    for record in records:
        producer.produce(target, record.value() * 2, record.key())
        offsets[record.partition()] = record.offset() + 1
    positions = [TopicPartition(source, index, offset) for index, offset in offsets.items()]
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WAIT_S)
    if fail:
        producer.abort_transaction(WAIT_S)
    else:
        producer.commit_transaction(WAIT_S)
    consumer.close()
    return len(records)
