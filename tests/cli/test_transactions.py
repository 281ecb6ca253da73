import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from headrace.client.producer import Delivered, NewRecord, Producer
from headrace.errors import ErrorCode, KafkaError
from tests.cli.command_line import CommandLine

DELIVERY_S = 30.0


@dataclass
class Open:
    """A transaction left open on one record."""

    transactional_id: str
    topic: str
    offset: int
    producer: Producer


@pytest.fixture
def ongoing(bootstrap: str, topic: str) -> Iterator[Open]:
    transactional_id = f"x-{uuid.uuid4().hex[:12]}"
    producer = Producer(bootstrap, {"transactional.id": transactional_id})
    producer.init_transactions()
    producer.begin_transaction()
    delivered: list[object] = []
    producer.send(topic, NewRecord(b"pending", partition=1), delivered.append)
    assert producer.flush(DELIVERY_S) == 0
    (where,) = delivered
    assert isinstance(where, Delivered)
    yield Open(transactional_id, topic, where.offset, producer)
    producer.close()


def state(headrace: CommandLine, transactional_id: str) -> str:
    (row,) = headrace.ok("transactions", "describe", transactional_id, "--json").json
    return str(row["state"])


def read(headrace: CommandLine, topic: str, isolation: str) -> list[str]:
    options = ["--from-beginning", "--stop-at-end", "--isolation", isolation]
    return headrace.ok("consume", topic, *options).lines


def test_an_open_transaction_is_listed_and_described(headrace: CommandLine, ongoing: Open) -> None:
    rows = headrace.ok("transactions", "list", "--state", "Ongoing", "--json").json
    assert ongoing.transactional_id in [row["transactional_id"] for row in rows]
    (row,) = headrace.ok("transactions", "describe", ongoing.transactional_id, "--json").json
    assert row["state"] == "Ongoing"
    assert row["partitions"] == [f"{ongoing.topic}-1"]
    assert row["timeout_ms"] == 60_000


def test_an_aborted_transaction_is_never_seen_and_its_producer_is_fenced(
    headrace: CommandLine, ongoing: Open
) -> None:
    headrace.ok("produce", ongoing.topic, "--partition", "1", stdin=b"after\n")
    assert read(headrace, ongoing.topic, "read_committed") == []
    aborted = headrace.ok("transactions", "abort", ongoing.transactional_id)
    assert aborted.out == f"aborted {ongoing.transactional_id} and fenced its producer\n"
    assert read(headrace, ongoing.topic, "read_committed") == ["after"]
    assert read(headrace, ongoing.topic, "read_uncommitted") == ["pending", "after"]
    with pytest.raises(KafkaError) as fenced:
        ongoing.producer.commit_transaction()
    assert fenced.value.code is ErrorCode.PRODUCER_FENCED


def test_a_transaction_is_aborted_by_where_it_began(headrace: CommandLine, ongoing: Open) -> None:
    place = ["--topic", ongoing.topic, "--partition", "1", "--start-offset"]
    wrong = headrace("transactions", "abort", *place, str(ongoing.offset + 1))
    assert wrong.code == 1
    assert "no transaction on" in wrong.err
    headrace.ok("transactions", "abort", *place, str(ongoing.offset))
    assert read(headrace, ongoing.topic, "read_committed") == []
    again = headrace("transactions", "abort", *place, str(ongoing.offset))
    assert again.code == 1


def test_a_transaction_its_coordinator_knows_does_not_hang(
    headrace: CommandLine, ongoing: Open
) -> None:
    found = headrace.ok(
        "transactions", "find-hanging", "--topic", ongoing.topic, "--older-than", "0s", "--json"
    )
    assert found.json == []
    assert state(headrace, ongoing.transactional_id) == "Ongoing"


def test_an_unknown_id_or_state_is_an_error(headrace: CommandLine) -> None:
    unknown = headrace("transactions", "describe", "no-such-id")
    assert unknown.code == 1
    assert "TRANSACTIONAL_ID_NOT_FOUND" in unknown.err
    assert headrace("transactions", "abort", "no-such-id").code == 1
    assert headrace("transactions", "list", "--state", "Dreaming").code == 1


@pytest.mark.parametrize(
    "options",
    [[], ["id", "--topic", "t"], ["--topic", "t"], ["--topic", "t", "--partition", "1"]],
)
def test_an_abort_needs_an_id_or_a_place(headrace: CommandLine, options: list[str]) -> None:
    assert headrace("transactions", "abort", *options).code == 2
