import threading
import time

import pytest
from confluent_kafka import KafkaError as RawError
from confluent_kafka import KafkaException

from headrace.client.admin import Admin, NewTopic
from headrace.client.consumer import Consumer
from headrace.client.group_admin import GroupAdmin
from headrace.client.librdkafka import (
    TopicPartition,
    check_reachable,
    client_settings,
    refusal,
    split_address,
)
from headrace.client.producer import NewRecord, Producer
from headrace.errors import ErrorCode, KafkaError, Unreachable
from headrace.testing import LocalBroker

WAIT_S = 30.0
PAUSE_S = 0.01
QUICK = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 10}


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("localhost:9092", ("localhost", 9092)),
        (" kafka.example ", ("kafka.example", 9092)),
        ("[::1]:19092", ("::1", 19092)),
        ("PLAINTEXT://10.0.0.1:1", ("10.0.0.1", 1)),
    ],
)
def test_an_address_is_a_host_and_perhaps_a_port(address: str, expected: tuple[str, int]) -> None:
    assert split_address(address) == expected


@pytest.mark.parametrize("address", ["localhost:", "localhost:0", "localhost:65536", "a:b"])
def test_an_address_with_a_senseless_port_is_refused(address: str) -> None:
    with pytest.raises(Unreachable, match="is not a port"):
        split_address(address)


def test_one_address_of_several_that_answers_is_enough(bootstrap: str) -> None:
    check_reachable(f"127.0.0.1:1,{bootstrap}")
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1,127\.0\.0\.1:2 \(connection refused\)"):
        check_reachable("127.0.0.1:1,127.0.0.1:2")


def test_every_code_of_kafka_keeps_its_meaning() -> None:
    for code in ErrorCode:
        error = refusal(RawError(code.value), "b", "orders")
        assert isinstance(error, KafkaError)
        assert error.code is code
        assert error.message.startswith("orders: ")


def test_an_error_of_the_connection_names_the_address() -> None:
    error = refusal(KafkaException(RawError(RawError._TRANSPORT)), "kafka.example:9092")
    assert isinstance(error, Unreachable)
    assert "no Kafka broker answers at kafka.example:9092" in str(error)


def test_an_error_of_librdkafka_gets_the_code_that_says_the_same() -> None:
    error = refusal(RawError(RawError._FENCED), "b")
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.PRODUCER_FENCED
    assert "Local: " not in str(error)


def test_a_partition_is_written_as_kafka_names_its_directory() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"


def test_a_transaction_outlives_a_restart_of_the_only_broker() -> None:
    alone = threading.Event()

    def notice(error: RawError) -> None:
        if error.code() == RawError._ALL_BROKERS_DOWN:
            alone.set()

    place = TopicPartition("orders", 0)
    with LocalBroker() as broker:
        Admin(broker.bootstrap).create_topic(NewTopic(place.topic, partitions=1))
        settings = {"transactional.id": "t", "error_cb": notice, **QUICK}
        producer = Producer(broker.bootstrap, settings)
        producer.init_transactions()
        with Consumer(broker.bootstrap, "billing") as consumer:
            metadata = consumer.group_metadata

        def write() -> None:
            producer.begin_transaction()
            producer.send(place.topic, NewRecord(b"x"))
            assert producer.flush(WAIT_S) == 0

        def end(offset: int) -> None:
            producer.send_offsets_to_transaction({place: offset}, metadata)
            producer.commit_transaction()
            finished.set()

        # The first teaches librdkafka which broker takes the group's offsets.
        finished = threading.Event()
        write()
        end(1)
        write()
        broker.stop()
        deadline = time.monotonic() + WAIT_S
        while not alone.wait(PAUSE_S):
            assert time.monotonic() < deadline
            producer.flush(0)  # serves the callbacks
        broker.start()
        finished.clear()
        # librdkafka does not keep its own timeout where it waits for a broker that it forgot.
        threading.Thread(target=end, args=(2,), daemon=True).start()
        assert finished.wait(WAIT_S)
        assert GroupAdmin(Admin(broker.bootstrap)).offsets("billing") == {place: 2}


def test_a_caller_may_have_settings_of_its_own() -> None:
    chosen = client_settings("b", {"metadata.recovery.strategy": "rebootstrap"})
    assert chosen["metadata.recovery.strategy"] == "rebootstrap"
    assert client_settings("b")["metadata.recovery.strategy"] == "none"
