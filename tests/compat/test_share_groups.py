"""Kafka's own share consumers and tools on Headrace: queues as their users know them."""

import json
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing import LocalBroker
from headrace.testing.apache_kafka import ApacheKafka, missing, tool
from headrace.testing.broker_process import BrokerProcess

pytestmark = [
    pytest.mark.compat,
    pytest.mark.oracle,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

WAIT_S = 30.0
TOOLS = "org.apache.kafka.tools"
ONE_PARTITION = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}


@pytest.fixture(name="broker")
def _broker() -> Iterator[LocalBroker]:
    with LocalBroker(settings=ONE_PARTITION) as broker:
        yield broker


def fill(bootstrap: str, count: int, *, partitions: int = 1, group: str = "workers") -> None:
    """A topic with records, and a group that begins at its start."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", partitions, 1)])["orders"].result(WAIT_S)
    produce(bootstrap, 0, count)
    configure(bootstrap, group, "share.auto.offset.reset=earliest")


def produce(bootstrap: str, first: int, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in range(first, first + count):
        producer.produce("orders", str(number), key=str(number))
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0


def configure(bootstrap: str, group: str, config: str) -> None:
    tool(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", bootstrap, "--alter", "--group", group, "--add-config", config),
    )


def consume(bootstrap: str, count: int, *more: str) -> list[int]:
    printed = tool(
        f"{TOOLS}.consumer.ConsoleShareConsumer",
        *("--bootstrap-server", bootstrap, "--topic", "orders", "--group", "workers"),
        *("--max-messages", str(count), "--timeout-ms", "30000", *more),
    )
    return [int(line) for line in printed.split()]


def share_groups(bootstrap: str, *arguments: str) -> str:
    return tool(
        f"{TOOLS}.consumer.group.ShareGroupCommand", "--bootstrap-server", bootstrap, *arguments
    )


def verifiable(bootstrap: str, count: int) -> list[int]:
    """What one of several consumers was given, acknowledging each batch and waiting for it."""
    printed = tool(
        f"{TOOLS}.VerifiableShareConsumer",
        *("--bootstrap-server", bootstrap, "--topic", "orders", "--group-id", "workers"),
        *("--max-messages", str(count), "--acknowledgement-mode", "sync", "--verbose"),
    )
    events = [json.loads(line) for line in printed.splitlines()]
    return [int(event["value"]) for event in events if event["name"] == "record_data"]


def test_a_share_consumer_is_given_every_record_once(broker: LocalBroker) -> None:
    fill(broker.bootstrap, 500, partitions=3)
    assert sorted(consume(broker.bootstrap, 500)) == list(range(500))
    produce(broker.bootstrap, 500, 10)
    # What was acknowledged does not come again.
    assert sorted(consume(broker.bootstrap, 10)) == list(range(500, 510))


def test_more_consumers_than_partitions_share_the_work(broker: LocalBroker) -> None:
    fill(broker.bootstrap, 3000)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: verifiable(broker.bootstrap, 1000), range(2)))
    assert all(len(each) >= 1000 for each in found)
    assert len(set(found[0]) & set(found[1])) == 0


def test_released_records_come_again_and_rejected_ones_do_not(broker: LocalBroker) -> None:
    fill(broker.bootstrap, 5)
    assert consume(broker.bootstrap, 5, "--release") == [0, 1, 2, 3, 4]
    assert consume(broker.bootstrap, 5, "--reject") == [0, 1, 2, 3, 4]
    produce(broker.bootstrap, 5, 1)
    assert consume(broker.bootstrap, 1) == [5]


def test_acknowledged_records_stay_so_when_the_broker_is_killed() -> None:
    with BrokerProcess() as broker:
        fill(broker.bootstrap, 40)
        first = consume(broker.bootstrap, 20)
        broker.kill()
        broker.start()
        second = consume(broker.bootstrap, 40 - len(first))
        assert sorted(first + second) == list(range(40))


def test_kafkas_tool_shows_moves_and_deletes_share_groups(broker: LocalBroker) -> None:
    fill(broker.bootstrap, 10)
    consume(broker.bootstrap, 10)
    assert re.search(r"workers\s+Empty", share_groups(broker.bootstrap, "--list", "--state"))
    shown = share_groups(broker.bootstrap, "--describe", "--group", "workers")
    assert re.search(r"workers\s+orders\s+0\s+10\s+0", shown)
    moved = ("--group", "workers", "--topic", "orders", "--to-earliest", "--execute")
    share_groups(broker.bootstrap, "--reset-offsets", *moved)
    shown = share_groups(broker.bootstrap, "--describe", "--group", "workers", "--offsets")
    assert re.search(r"workers\s+orders\s+0\s+0\s+10", shown)
    assert consume(broker.bootstrap, 10) == list(range(10))
    topic = ("--group", "workers", "--topic", "orders")
    share_groups(broker.bootstrap, "--delete-offsets", *topic)
    shown = share_groups(broker.bootstrap, "--describe", "--group", "workers", "--offsets")
    assert "orders" not in shown
    share_groups(broker.bootstrap, "--delete", "--group", "workers")
    assert "workers" not in share_groups(broker.bootstrap, "--list")


def test_kafkas_dump_reads_the_state_of_share_groups(tmp_path: Path) -> None:
    with LocalBroker(settings=ONE_PARTITION, data_dir=tmp_path) as broker:
        fill(broker.bootstrap, 10)
        consume(broker.bootstrap, 4, "--reject")
        consume(broker.bootstrap, 6)
    states = dump(tmp_path, "__share_group_state", "--share-group-state-decoder")
    assert {each["type"] for each in states} == {"0", "1"}
    assert {each["key"]["groupId"] for each in states} == {"workers"}
    assert states[-1]["payload"]["startOffset"] == 10
    groups = dump(tmp_path, "__consumer_offsets", "--offsets-decoder")
    types = {each["type"] for each in groups}
    assert types >= {"10", "11", "12", "13", "14", "15"}


def test_a_share_group_that_kafka_wrote_goes_on_here(tmp_path: Path) -> None:
    with ApacheKafka(ONE_PARTITION, directory=tmp_path, heap="400M") as kafka:
        fill(kafka.bootstrap, 20)
        first = consume(kafka.bootstrap, 12)
        kafka.stop()
        ours = tmp_path / "ours"
        shutil.copytree(kafka.data_dir, ours, ignore=shutil.ignore_patterns("__cluster_metadata*"))
    with LocalBroker(data_dir=ours, settings=ONE_PARTITION) as broker:
        assert "workers" in share_groups(broker.bootstrap, "--list")
        second = consume(broker.bootstrap, 20 - len(first))
        assert sorted(first + second) == list(range(20))


def dump(directory: Path, topic: str, decoder: str) -> list[dict]:
    segment = directory / f"{topic}-0" / "00000000000000000000.log"
    printed = tool(f"{TOOLS}.DumpLogSegments", decoder, "--files", str(segment))
    found = []
    for line in printed.splitlines():
        match = re.search(r"key: (\{.*\}) payload: (\{.*\}|<DELETE>)$", line.strip())
        if match:
            key = json.loads(match[1])
            payload = {} if match[2] == "<DELETE>" else json.loads(match[2])
            found.append(
                {"type": key["type"], "key": key["data"], "payload": payload.get("data", {})}
            )
    return found
