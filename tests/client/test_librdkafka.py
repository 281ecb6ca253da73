import pytest
from confluent_kafka import KafkaError as RawError
from confluent_kafka import KafkaException

from headrace.client.librdkafka import TopicPartition, check_reachable, refusal, split_address
from headrace.errors import ErrorCode, KafkaError, Unreachable


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
