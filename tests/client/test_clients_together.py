import uuid
from collections.abc import Callable

import pytest

from headrace.client.admin import EARLIEST, LATEST, Admin, Isolation, NewTopic
from headrace.client.consumer import Consumer, EndReached, Received
from headrace.client.group_admin import GroupAdmin
from headrace.client.librdkafka import TopicPartition
from headrace.client.producer import Delivered, NewRecord, Producer
from headrace.errors import ErrorCode, HeadraceError, KafkaError

WAIT_S = 30.0
POLLS = 300


@pytest.fixture
def place(bootstrap: str) -> TopicPartition:
    name = f"t-{uuid.uuid4().hex[:12]}"
    Admin(bootstrap).create_topic(NewTopic(name, partitions=1))
    return TopicPartition(name, 0)


@pytest.fixture
def write(bootstrap: str, place: TopicPartition) -> Callable[..., list[Delivered | HeadraceError]]:
    def write(*values: bytes) -> list[Delivered | HeadraceError]:
        outcomes: list[Delivered | HeadraceError] = []
        producer = Producer(bootstrap)
        for value in values:
            producer.send(place.topic, NewRecord(value), outcomes.append)
        assert producer.flush(WAIT_S) == 0
        return outcomes

    return write


def read(consumer: Consumer) -> list[bytes | None]:
    """Everything up to the end of the one partition assigned."""
    values: list[bytes | None] = []
    for _ in range(POLLS):
        for event in consumer.poll(max_records=100, timeout_s=0.1):
            if isinstance(event, EndReached):
                return values
            values.append(event.value)
    raise AssertionError(f"no end in sight after {values}")


def test_every_record_is_reported_with_its_place(
    place: TopicPartition, write: Callable[..., list[Delivered]]
) -> None:
    outcomes = write(b"a", b"b", b"c")
    assert [(found.topic, found.partition, found.offset) for found in outcomes] == [
        (*place, 0),
        (*place, 1),
        (*place, 2),
    ]
    assert all(found.timestamp_ms > 0 for found in outcomes)


def test_a_consumer_reads_where_it_is_put_and_where_it_seeks(
    bootstrap: str, place: TopicPartition, write: Callable[..., list[Delivered]]
) -> None:
    write(b"a", b"b", b"c")
    with Consumer(bootstrap) as consumer:
        consumer.assign({place: 1})
        assert consumer.assignment == {place}
        assert read(consumer) == [b"b", b"c"]
        consumer.seek(place, 0)
        assert read(consumer) == [b"a", b"b", b"c"]


def test_committed_offsets_are_those_of_the_group(
    bootstrap: str, place: TopicPartition, write: Callable[..., list[Delivered]]
) -> None:
    write(b"a", b"b")
    group = f"g-{uuid.uuid4().hex[:12]}"
    with Consumer(bootstrap, group) as consumer:
        assert consumer.committed([place]) == {place: None}
        consumer.assign({place: 0})
        consumer.commit({place: 1})
        assert consumer.committed([place]) == {place: 1}
    groups = GroupAdmin(Admin(bootstrap))
    assert groups.offsets(group) == {place: 1}
    groups.commit(group, {place: 2})
    assert groups.offsets(group) == {place: 2}


def test_offsets_are_found_by_position_and_by_time(
    bootstrap: str, place: TopicPartition, write: Callable[..., list[Delivered]]
) -> None:
    admin = Admin(bootstrap)
    first, *_, last = write(b"a", b"b", b"c")
    assert admin.offsets([place], EARLIEST) == {place: 0}
    assert admin.offsets([place], LATEST) == {place: 3}
    assert admin.offsets([place], first.timestamp_ms) == {place: 0}
    assert admin.offsets([place], last.timestamp_ms + 1) == {place: None}
    assert admin.delete_records({place: 2}) == {place: 2}
    assert admin.offsets([place], EARLIEST) == {place: 2}


def test_a_transaction_shows_when_it_is_committed_and_carries_offsets(
    bootstrap: str, place: TopicPartition, write: Callable[..., list[Delivered]]
) -> None:
    write(b"input")
    group = f"g-{uuid.uuid4().hex[:12]}"
    admin = Admin(bootstrap)
    producer = Producer(bootstrap, {"transactional.id": f"x-{uuid.uuid4().hex[:12]}"})
    producer.init_transactions()
    with Consumer(bootstrap, group) as consumer:
        consumer.subscribe([place.topic])
        for _ in range(POLLS):
            if consumer.assignment:
                break
            consumer.poll(max_records=1, timeout_s=0.1)
        for kept in (False, True):
            producer.begin_transaction()
            producer.send(place.topic, NewRecord(b"kept" if kept else b"dropped"))
            producer.send_offsets_to_transaction({place: 1}, consumer.group_metadata)
            if kept:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
                assert GroupAdmin(admin).offsets(group) == {}
    assert GroupAdmin(admin).offsets(group) == {place: 1}
    committed = {"isolation.level": Isolation.READ_COMMITTED.value}
    with Consumer(bootstrap, settings=committed) as consumer:
        consumer.assign({place: 0})
        assert read(consumer) == [b"input", b"kept"]


def test_a_refusal_keeps_kafkas_code(bootstrap: str, place: TopicPartition) -> None:
    admin = Admin(bootstrap)
    with pytest.raises(KafkaError) as twice:
        admin.create_topic(NewTopic(place.topic))
    assert twice.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(KafkaError) as missing:
        admin.describe_topics(["no-such-topic"])
    assert missing.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_is_only_checked_when_asked_so(bootstrap: str) -> None:
    admin = Admin(bootstrap)
    name = f"t-{uuid.uuid4().hex[:12]}"
    admin.create_topic(NewTopic(name), validate_only=True)
    assert not admin.topic_exists(name)
    with pytest.raises(KafkaError) as bad:
        admin.create_topic(NewTopic(name, replication_factor=7), validate_only=True)
    assert bad.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_received_record_is_what_was_sent(bootstrap: str, place: TopicPartition) -> None:
    producer = Producer(bootstrap)
    record = NewRecord(None, b"key", (("a", b"1"), ("a", None)), 0, 1_705_276_800_000)
    producer.send(place.topic, record)
    assert producer.flush(WAIT_S) == 0
    with Consumer(bootstrap) as consumer:
        consumer.assign({place: 0})
        for _ in range(POLLS):
            events = consumer.poll(max_records=1, timeout_s=0.1)
            if events:
                break
    expected = Received(*place, 0, 1_705_276_800_000, "create", b"key", None, tuple(record.headers))
    assert events == [expected]
