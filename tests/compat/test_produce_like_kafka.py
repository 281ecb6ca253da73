"""The same batches and settings to Apache Kafka and to Headrace: the same codes come back."""

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.broker.settings import BrokerSettings
from headrace.errors import ErrorCode
from headrace.protocol.messages import Message
from headrace.protocol.records import Record, write_batch
from headrace.settings import by_name
from headrace.testing.apache_kafka import ApacheKafka, missing
from headrace.testing.local_broker import LocalBroker
from tests.compat.test_groups_like_kafka import Client
from tests.log.test_validation import REFUSED_BY_KAFKA, REFUSED_MORE_CLEARLY

pytestmark = [
    pytest.mark.compat,
    pytest.mark.oracle,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

TOPIC, BROKER = 2, 4
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "bounded": {"message.timestamp.before.max.ms": "60000"},
    "small": {"max.message.bytes": "300"},
    "small-plain": {"max.message.bytes": "300", "compression.type": "uncompressed"},
    "gzip": {"compression.type": "gzip"},
}
# What Headrace means to answer otherwise; see docs/settings.md and docs/decisions.
OWN_ANSWERS = {
    "flush.ms",
    "group.coordinator.rebalance.protocols",
    "log.dir",
    "min.insync.replicas",
}


class Side:
    """One broker, asked over one connection."""

    def __init__(self, bootstrap: str) -> None:
        self._client = Client(bootstrap)

    def close(self) -> None:
        self._client.close()

    def create(self, name: str, configs: dict[str, str]) -> None:
        topic = Message(
            name=name,
            num_partitions=1,
            replication_factor=1,
            assignments=[],
            configs=[Message(name=key, value=value) for key, value in configs.items()],
        )
        answer = self._client.ask("create_topics", 7, topics=[topic], timeout_ms=20_000)
        assert answer.topics[0].error_code == 0, answer
        wanted = [Message(name=name)]
        for _ in range(200):
            [found] = self._client.ask("metadata", 12, topics=wanted).topics
            if found.error_code == 0 and found.partitions[0].error_code == 0:
                return
            # Kafka's broker learns of a topic a moment after its controller made it.
            time.sleep(0.02)
        raise AssertionError(f"{name} is not there")

    def produce(self, name: str, batch: bytes) -> tuple[str, int, list[int]]:
        """The code, the base offset and which records are at fault."""
        topic = Message(name=name, partition_data=[Message(index=0, records=bytes(batch))])
        answer = self._client.ask("produce", 12, acks=-1, timeout_ms=20_000, topic_data=[topic])
        [partition] = answer.responses[0].partition_responses
        faults = [fault.batch_index for fault in partition.record_errors]
        return ErrorCode(partition.error_code).name, partition.base_offset, faults

    def configs(self, kind: int, name: str) -> dict[str, tuple[Any, ...]]:
        resource = Message(resource_type=kind, resource_name=name, configuration_keys=None)
        answer = self._client.ask(
            "describe_configs", 4, resources=[resource], include_synonyms=True
        )
        [result] = answer.results
        assert result.error_code == 0, result
        return {
            it.name: (
                it.value,
                it.config_source,
                it.config_type,
                it.read_only,
                it.is_sensitive,
                [(synonym.name, synonym.value, synonym.source) for synonym in it.synonyms],
            )
            for it in result.configs
        }


@pytest.fixture(scope="module")
def sides() -> Iterator[tuple[Side, Side]]:
    with ApacheKafka() as kafka, LocalBroker() as local:
        both = Side(kafka.bootstrap), Side(local.bootstrap)
        for side in both:
            for name, configs in TOPICS.items():
                side.create(name, configs)
        yield both
        for side in both:
            side.close()


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.mark.parametrize("case", sorted(REFUSED_BY_KAFKA))
def test_what_kafka_refuses_is_refused_with_its_code(sides, case):
    kafka, ours = sides
    content, code = REFUSED_BY_KAFKA[case]
    assert kafka.produce("plain", content) == ours.produce("plain", content) == (code.name, -1, [])


@pytest.mark.parametrize("case", sorted(REFUSED_MORE_CLEARLY))
def test_what_kafka_stumbles_over_or_trims_is_refused_here(sides, case):
    kafka, ours = sides
    content, code = REFUSED_MORE_CLEARLY[case]
    assert ours.produce("plain", content)[0] == code.name
    if case == "bytes after the batch":
        return
    assert kafka.produce("plain", content)[0] in ("UNKNOWN_SERVER_ERROR", "INVALID_RECORD")


def test_rules_of_topics_give_the_same_codes_offsets_and_faults(sides):
    kafka, ours = sides
    now = now_ms()
    rows = {
        "keys": [Record(timestamp=now, key=b"k", value=b"v")] * 2,
        "a missing key": [Record(timestamp=now, key=key, value=b"v") for key in (b"k", None)],
        "old": [Record(timestamp=now - age, key=b"k", value=b"v") for age in (0, 120_000, 0)],
        "future": [Record(timestamp=now + age, key=b"k", value=b"v") for age in (0, 9_000_000)],
        "large": [Record(timestamp=now, key=b"k", value=b"v" * 2000)],
        "no time": [Record(timestamp=-1, key=b"k", value=b"v")],
    }
    seen = set()
    for topic in TOPICS:
        for what, records in rows.items():
            for codec in (0, 1, 2, 3, 4):
                batch = write_batch(records, compression=codec)
                answer = ours.produce(topic, batch)
                assert answer == kafka.produce(topic, batch), (topic, what, codec)
                seen.add(answer[0])
    assert seen == {"NONE", "INVALID_RECORD", "INVALID_TIMESTAMP", "MESSAGE_TOO_LARGE"}


@pytest.mark.parametrize("seed", range(4))
def test_retries_gaps_and_epochs_of_producers_are_answered_alike(sides, seed):
    kafka, ours = sides
    topic = f"producers-{seed}"
    for side in sides:
        side.create(topic, {})
    chance = random.Random(seed)
    known: dict[int, tuple[int, int]] = {}
    seen: dict[str, int] = {}
    for step in range(120):
        producer_id = 1000 * seed + chance.randrange(3)
        epoch, sequence = known.get(producer_id, (0, 0))
        count = chance.choice([1, 1, 2, 3])
        match chance.choice(["next"] * 5 + ["retry"] * 3 + ["epoch", "odd"]):
            case "retry":
                sequence = max(0, sequence - chance.randrange(1, 9))
            case "epoch":
                epoch = max(0, epoch + chance.choice([-1, 1, 1]))
                sequence = chance.choice([0, sequence])
            case "odd":
                sequence = chance.choice([0, sequence + 1, 2**31 - 1, 2**31 - 2])
        batch = write_batch(
            [Record(timestamp=now_ms(), value=b"v")] * count,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        answer = ours.produce(topic, batch)
        assert answer == kafka.produce(topic, batch), (step, producer_id, epoch, sequence, count)
        seen[answer[0]] = seen.get(answer[0], 0) + 1
        if answer[0] == "NONE":
            known[producer_id] = max(
                known.get(producer_id, (0, 0)), (epoch, (sequence + count) % 2**31)
            )
    assert len(seen) >= 2, seen


def test_a_topics_settings_are_described_alike(sides):
    kafka, ours = sides
    for topic in TOPICS:
        theirs, mine = kafka.configs(TOPIC, topic), ours.configs(TOPIC, topic)
        assert set(mine) - set(theirs) == {"write.caching"}
        for name in set(theirs) - OWN_ANSWERS:
            assert mine[name] == theirs[name], (topic, name)


def test_a_brokers_settings_are_described_alike_where_nothing_was_set(sides):
    kafka, ours = sides
    theirs, mine = kafka.configs(BROKER, "1"), ours.configs(BROKER, "1")
    assert set(theirs) <= set(mine)
    static = 4
    for name in set(theirs) - OWN_ANSWERS:
        # Java's classes are nothing here, and each of the two was started with settings of its own.
        java = str(theirs[name][0]).startswith("org.apache.")
        if java or static in (theirs[name][1], mine[name][1]) or name == "broker.id":
            continue
        assert mine[name] == theirs[name], name
        assert mine[name][2] == by_name(BrokerSettings)[name].kind
