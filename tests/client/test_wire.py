import time
import uuid

import pytest

from headrace.client.admin import Admin, NewTopic
from headrace.client.librdkafka import TopicPartition
from headrace.client.producer import NewRecord, Producer
from headrace.client.transaction_admin import TransactionAdmin
from headrace.client.wire import Api, Wire
from headrace.errors import ErrorCode, KafkaError, Unreachable
from headrace.protocol.messages import Message

WAIT_S = 30.0


def test_the_newest_version_both_sides_know_is_spoken(bootstrap: str) -> None:
    with Wire(bootstrap) as wire:
        assert wire.any().version(Api.METADATA) == 13
        assert wire.any().version(Api.DESCRIBE_PRODUCERS) == 0


def test_a_broker_is_asked_by_its_id(bootstrap: str) -> None:
    cluster = Admin(bootstrap).cluster()
    with Wire(bootstrap) as wire:
        assert wire.node_ids == [node.node_id for node in cluster.brokers]
        answer = wire.broker(wire.node_ids[0]).call(Api.METADATA, Message(topics=[]))
        assert answer.cluster_id == cluster.cluster_id
        with pytest.raises(KafkaError, match="BROKER_NOT_AVAILABLE"):
            wire.broker(9_999)


def test_nobody_at_any_address_is_unreachable() -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1,127\.0\.0\.1:2"):
        Wire("127.0.0.1:1,127.0.0.1:2")


def test_logs_on_disk_are_described(bootstrap: str) -> None:
    name = f"t-{uuid.uuid4().hex[:12]}"
    Admin(bootstrap).create_topic(NewTopic(name, partitions=2))
    producer = Producer(bootstrap)
    for partition in range(2):
        producer.send(name, NewRecord(b"x", partition=partition))
    assert producer.flush(WAIT_S) == 0
    with Wire(bootstrap) as wire:
        asked = Message(topics=[Message(topic=name, partitions=[0, 1])])
        answer = wire.any().call(Api.DESCRIBE_LOG_DIRS, asked)
    (directory,) = answer.results
    assert directory.error_code == ErrorCode.NONE
    sizes = {row.partition_index: row.partition_size for row in directory.topics[0].partitions}
    assert sizes.keys() == {0, 1}
    assert min(sizes.values()) > 0


def test_a_transaction_is_open_from_its_first_record_to_its_end(bootstrap: str) -> None:
    name = f"t-{uuid.uuid4().hex[:12]}"
    Admin(bootstrap).create_topic(NewTopic(name, partitions=1))
    place = TopicPartition(name, 0)
    producer = Producer(bootstrap, {"transactional.id": name})
    producer.init_transactions()
    with Wire(bootstrap) as wire:
        transactions = TransactionAdmin(wire)
        assert transactions.open_transactions([place]) == []
        producer.begin_transaction()
        producer.send(name, NewRecord(b"x"))
        assert producer.flush(WAIT_S) == 0
        (found,) = transactions.open_transactions([place])
        assert (found.place, found.start_offset) == (place, 0)
        described = transactions.describe(name)
        assert described.partitions == (place,)
        assert described.producer_id == found.producer_id
        (listed,) = transactions.transactions(producer_ids=[found.producer_id])
        assert (listed.transactional_id, listed.state) == (name, "Ongoing")
        producer.commit_transaction()
        # The commit is answered once it is decided; its markers follow.
        deadline = time.monotonic() + WAIT_S
        while transactions.open_transactions([place]) and time.monotonic() < deadline:
            pass
        assert transactions.open_transactions([place]) == []
        while transactions.describe(name).partitions and time.monotonic() < deadline:
            pass
        assert transactions.describe(name).partitions == ()
