"""The same transactional requests to Apache Kafka and to Headrace: the answers must not differ."""

import random
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import confluent_kafka
import pytest

from headrace.coordination.transaction_records import (
    Forgotten,
    Transaction,
    TransactionCodec,
    TransactionState,
)
from headrace.errors import ErrorCode
from headrace.protocol.messages import Message
from headrace.protocol.records import Record, write_batch
from headrace.testing.apache_kafka import ApacheKafka, missing
from headrace.testing.local_broker import LocalBroker
from tests.compat.test_groups_like_kafka import Client

pytestmark = [
    pytest.mark.compat,
    pytest.mark.oracle,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
WAIT_S = 20.0
STEPS = 40
TOPIC = "orders"
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
COME_AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    LOADING,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


@dataclass
class Believed:
    """What one producer process thinks of itself."""

    producer_id: int
    epoch: int
    sequences: dict[tuple[int, int], int] = field(default_factory=dict)


class Session:
    """One transactional id on one broker; ids are given names, so that transcripts compare."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self.client = Client(bootstrap)
        # A test that fails must not leave its connection open: that would fail the next one.
        self._closing = weakref.finalize(self, self.client.close)
        self.transactional_id = transactional_id
        self.names: dict[int, str] = {}
        self.producers: list[Believed] = []
        self.transcript: list[Any] = []

    def close(self) -> None:
        self._closing()

    def ask(self, name: str, version: int, **fields: Any) -> Message:
        """Ask until the last transaction has ended: how long that takes is left to chance."""
        deadline = time.monotonic() + WAIT_S
        while True:
            answer = self.client.ask(name, version, **fields)
            if COME_AGAIN.isdisjoint(codes(answer)):
                return answer
            assert time.monotonic() < deadline, "the last transaction does not end"
            time.sleep(0.005)

    def say(self, what: str, *facts: Any) -> None:
        self.transcript.append((what, *facts))

    def name(self, producer_id: int) -> str:
        return self.names.setdefault(producer_id, f"id {len(self.names)}")

    def init(
        self, version: int, expected: Believed | None = None, timeout_ms: int = 60_000
    ) -> None:
        answer = self.ask(
            "init_producer_id",
            version,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=-1 if expected is None else expected.producer_id,
            producer_epoch=-1 if expected is None else expected.epoch,
        )
        self.say("init", answer.error_code, self.name(answer.producer_id), answer.producer_epoch)
        if not answer.error_code:
            self.producers.append(Believed(answer.producer_id, answer.producer_epoch))

    def add(self, version: int, who: Believed, *indexes: int) -> None:
        answer = self.ask(
            "add_partitions_to_txn",
            version,
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=who.producer_id,
            v3_and_below_producer_epoch=who.epoch,
            v3_and_below_topics=[Message(name=TOPIC, partitions=list(indexes))],
        )
        self.say("add", indexes, sorted(codes(answer)))

    def add_offsets(self, version: int, who: Believed) -> None:
        answer = self.ask(
            "add_offsets_to_txn",
            version,
            transactional_id=self.transactional_id,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            group_id=f"group of {self.transactional_id}",
        )
        self.say("add offsets", answer.error_code)

    def commit_offset(self, version: int, who: Believed) -> None:
        partition = Message(partition_index=0, committed_offset=3, committed_metadata="")
        answer = self.ask(
            "txn_offset_commit",
            version,
            transactional_id=self.transactional_id,
            group_id=f"group of {self.transactional_id}",
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            topics=[Message(name=TOPIC, partitions=[partition])],
        )
        self.say("commit offset", sorted(codes(answer)))

    def produce(self, version: int, who: Believed, index: int) -> None:
        sequence = who.sequences.get((index, who.epoch), 0)
        batch = write_batch(
            [Record(-1, int(time.time() * 1000), None, b"value", ())],
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        answer = self.ask(
            "produce",
            version,
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                Message(name=TOPIC, partition_data=[Message(index=index, records=bytes(batch))])
            ],
        )
        (produced,) = answer.responses[0].partition_responses
        if not produced.error_code:
            who.sequences[index, who.epoch] = sequence + 1
        self.say("produce", version, index, produced.error_code)

    def end(self, version: int, who: Believed, *, committed: bool) -> None:
        answer = self.ask(
            "end_txn",
            version,
            transactional_id=self.transactional_id,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            committed=committed,
        )
        raised = (self.name(answer.producer_id), answer.producer_epoch) if version >= 5 else None
        self.say("end", version, committed, answer.error_code, raised)
        if not answer.error_code and version >= 5:
            who.producer_id, who.epoch = answer.producer_id, answer.producer_epoch

    def await_state(self, title: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while True:
            (found,) = self.client.ask(
                "describe_transactions", 0, transactional_ids=[self.transactional_id]
            ).transaction_states
            if found.transaction_state == title:
                return
            assert time.monotonic() < deadline, found
            time.sleep(0.02)

    def describe(self) -> None:
        """How the coordinator sees it, once nothing is ending any more."""
        deadline = time.monotonic() + WAIT_S
        while True:
            (found,) = self.client.ask(
                "describe_transactions", 0, transactional_ids=[self.transactional_id]
            ).transaction_states
            if not found.transaction_state.startswith("Prepare"):
                break
            assert time.monotonic() < deadline
            time.sleep(0.005)
        self.say(
            "described",
            found.error_code,
            found.transaction_state,
            self.name(found.producer_id),
            found.producer_epoch,
            found.transaction_timeout_ms,
            sorted((each.topic, sorted(each.partitions)) for each in found.topics),
        )


def codes(answer: Any) -> list[int]:
    """Every error code in an answer, however deep."""
    if isinstance(answer, list | tuple):
        return [code for each in answer for code in codes(each)]
    if not isinstance(answer, Message):
        return []
    found: list[int] = []
    for name, value in vars(answer).items():
        found += [value] if name.endswith("error_code") else codes(value)
    return found


@pytest.fixture(scope="module")
def brokers() -> Iterator[tuple[str, str]]:
    with (
        ApacheKafka(SETTINGS, heap="400M") as theirs,
        LocalBroker(settings=SETTINGS) as ours,
    ):
        for bootstrap in (theirs.bootstrap, ours.bootstrap):
            client = Client(bootstrap)
            answer = client.ask(
                "create_topics",
                7,
                topics=[Message(name=TOPIC, num_partitions=3, replication_factor=1)],
                timeout_ms=10_000,
            )
            assert set(codes(answer)) == {0}
            await_leaders(client)
            client.close()
        yield theirs.bootstrap, ours.bootstrap


def await_leaders(client: Client) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        answer = client.ask("metadata", 9, topics=[Message(name=TOPIC)])
        if set(codes(answer)) == {0} and len(answer.topics[0].partitions) == 3:
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    # The coordinators' topics come with the first question for them.
    for key_type, key in ((0, "g"), (1, "t")):
        while True:
            answer = client.ask("find_coordinator", 3, key_type=key_type, key=key)
            if not answer.error_code:
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)
    while codes(client.ask("describe_transactions", 0, transactional_ids=["t"])) == [LOADING]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def step(session: Session, choice: random.Random) -> None:
    """One random request; the same seed asks both brokers the same."""
    kind = choice.choice(KINDS)
    index, committed = choice.randrange(3), choice.random() < 0.6
    old = choice.random() < 0.15
    version = choice.random()
    if kind == "init" or not session.producers:
        recovering = session.producers and choice.random() < 0.4
        session.init(
            choice.choice((3, 4, 5)),
            session.producers[-1] if recovering else None,
            choice.choice((60_000, 60_000, 0, 10**9)),
        )
        return
    who = session.producers[0 if old else -1]
    if kind == "add":
        session.add(3 if version < 0.5 else 1, who, index, *([7] if version > 0.95 else []))
    elif kind == "add offsets":
        session.add_offsets(3 if version < 0.5 else 0, who)
    elif kind == "commit offset":
        session.commit_offset(3 if version < 0.3 else 4 if version < 0.5 else 5, who)
    elif kind == "produce":
        session.produce(9 if version < 0.25 else 11 if version < 0.4 else 12, who, index)
    elif kind == "end":
        session.end(5 if version < 0.6 else 3 if version < 0.8 else 1, who, committed=committed)
    elif kind == "again":
        twice = replace(who)
        session.end(5, who, committed=committed)
        session.describe()
        session.end(5, twice, committed=committed)


KINDS = ["produce"] * 5 + ["end"] * 3 + ["add", "add", "add offsets", "commit offset"]
KINDS += ["init", "again"]


@pytest.mark.parametrize("seed", range(15))
def test_the_same_requests_get_the_same_answers(brokers: tuple[str, str], seed: int) -> None:
    transcripts = []
    for bootstrap in brokers:
        choice = random.Random(seed)
        session = Session(bootstrap, f"t {seed}")
        for _ in range(STEPS):
            step(session, choice)
            session.describe()
        session.close()
        transcripts.append(session.transcript)
    theirs, ours = transcripts
    for number, (their, our) in enumerate(zip(theirs, ours, strict=True)):
        assert our == their, f"after {theirs[max(0, number - 6) : number]}"


@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize("committed", [True, False])
def test_a_timeout_means_the_same(brokers: tuple[str, str], version: int, committed: bool) -> None:
    transcripts = []
    for bootstrap in brokers:
        session = Session(bootstrap, f"timeout {version} {committed}")
        session.init(5, timeout_ms=300)
        late = session.producers[-1]
        session.add(3, late, 0)
        session.produce(12 if version >= 5 else 9, late, 0)
        session.await_state("CompleteAbort")
        session.describe()
        session.produce(12 if version >= 5 else 9, late, 0)
        session.add(3, late, 0)
        session.commit_offset(version, late)
        twice = replace(late)
        session.end(version, late, committed=committed)
        session.describe()
        session.end(version, twice, committed=not committed)
        session.describe()
        session.init(5, late)
        session.init(5, twice)
        session.close()
        transcripts.append(session.transcript)
    assert transcripts[1] == transcripts[0]


FILTERS: list[dict[str, Any]] = [
    {},
    {"state_filters": ["Ongoing"]},
    {"state_filters": ["CompleteCommit", "Nonsense", "PrepareEpochFence"]},
    {"duration_filter": 0, "state_filters": ["Ongoing", "Empty"]},
    {"duration_filter": 10**9},
    {"transactional_id_pattern": "listed .*c"},
    {"transactional_id_pattern": "isted"},
    {"transactional_id_pattern": "("},
    {"transactional_id_pattern": ""},
    {"producer_id_filters": [10**9]},
]


def test_lists_are_the_same(brokers: tuple[str, str]) -> None:
    answers = []
    for bootstrap in brokers:
        for name in ("listed a", "listed b", "listed bc"):
            session = Session(bootstrap, name)
            session.init(5)
            if name != "listed a":
                session.produce(12, session.producers[-1], 1)
            if name == "listed b":
                session.end(5, session.producers[-1], committed=True)
            session.describe()
            session.close()
        time.sleep(0.01)
        client = Client(bootstrap)
        found = []
        for filters in FILTERS:
            answer = client.ask("list_transactions", 2, **filters)
            states = sorted(
                (txn.transactional_id, txn.transaction_state)
                for txn in answer.transaction_states
                if txn.transactional_id.startswith("listed")
            )
            found.append((filters, answer.error_code, answer.unknown_state_filters, states))
        client.close()
        answers.append(found)
    assert answers[1] == answers[0]


def test_the_transaction_log_says_the_same_in_the_same_bytes(brokers: tuple[str, str]) -> None:
    found = []
    for bootstrap in brokers:
        session = Session(bootstrap, "bytes")
        session.init(5)
        old = session.producers[-1]
        session.add(3, old, 0, 1)
        session.end(3, old, committed=True)
        session.describe()
        session.add_offsets(3, old)
        session.end(3, old, committed=False)
        session.describe()
        session.produce(12, old, 2)
        session.end(5, old, committed=True)
        session.describe()
        session.end(5, old, committed=False)
        session.describe()
        session.produce(12, old, 2)
        session.init(5)
        session.init(5, session.producers[-1])
        session.close()
        found.append(list(records(bootstrap, "bytes")))
    theirs, ours = found
    for key, value in theirs:
        assert TransactionCodec().encode(decoded(key, value)) == (key, value)
    assert [plain(*each) for each in ours] == [plain(*each) for each in theirs]


def decoded(key: bytes, value: bytes | None) -> Transaction | Forgotten:
    record = TransactionCodec().decode(key, value)
    assert record is not None
    return record


def plain(key: bytes, value: bytes | None) -> Transaction:
    """A record without what chance and time decide."""
    txn = decoded(key, value)
    assert isinstance(txn, Transaction)
    started = txn.started_ms > 0 if txn.state is not TransactionState.EMPTY else txn.started_ms
    return replace(
        txn,
        producer_id=0,
        previous_producer_id=txn.previous_producer_id - txn.producer_id,
        started_ms=started,
        updated_ms=0,
    )


def records(bootstrap: str, transactional_id: str) -> Iterator[tuple[bytes, bytes | None]]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([confluent_kafka.TopicPartition("__transaction_state", 0, 0)])
    while True:
        message = consumer.poll(WAIT_S)
        assert message is not None
        if message.error() is not None:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            break
        key = message.key()
        if transactional_id.encode() in key:
            yield key, message.value()
    consumer.close()
