"""The same share group requests to Apache Kafka and to Headrace: the answers must not differ."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from headrace.errors import ErrorCode
from headrace.protocol.messages import Message
from headrace.protocol.records import Record, batches, write_batch
from headrace.testing.apache_kafka import ApacheKafka, missing
from headrace.testing.local_broker import LocalBroker
from tests.compat.test_groups_like_kafka import Client

pytestmark = [
    pytest.mark.compat,
    pytest.mark.oracle,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
WAIT_S = 20.0
SOME_GROUP_RESOURCE = 32
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4

Acks = list[tuple[int, int, list[int]]]


class Session:
    """A member of a group on one broker, and a transcript of what it was answered."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.client = Client(bootstrap)
        self.group = self.topic = name
        self.member = "m1"
        self.transcript: list[Any] = []
        self.epoch = 0
        self._until(self._find, lambda answer: not answer.coordinators[0].error_code)
        self._create()

    def close(self) -> None:
        self.client.close()

    def say(self, *facts: Any) -> None:
        self.transcript.append(facts)

    def produce(self, *sizes: int) -> None:
        for size in sizes:
            batch = write_batch([Record(index, 0, b"k", b"v", ()) for index in range(size)])
            # A topic that is new may not have its leader yet.
            self._until(partial(self._produce, bytes(batch)), _is_produced)

    def _produce(self, records: bytes) -> Message:
        partition = Message(index=0, records=records)
        return self.client.ask(
            "produce",
            9,
            transactional_id=None,
            acks=-1,
            timeout_ms=5000,
            topic_data=[Message(name=self.topic, partition_data=[partition])],
        )

    def configure(self, **configs: str) -> None:
        resource = Message(
            resource_type=SOME_GROUP_RESOURCE,
            resource_name=self.group,
            configs=[
                Message(name=name.replace("_", "."), config_operation=0, value=value)
                for name, value in configs.items()
            ],
        )
        answer = self.client.ask(
            "incremental_alter_configs", 1, resources=[resource], validate_only=False
        )
        self.say("configs", [ErrorCode(each.error_code).name for each in answer.responses])

    def beat(self, what: str, **fields: Any) -> Message:
        asked = {
            "group_id": self.group,
            "member_id": self.member,
            "member_epoch": 0,
            "rack_id": None,
            "subscribed_topic_names": [self.topic],
            **fields,
        }
        answer = self.client.ask("share_group_heartbeat", 1, **asked)
        self.say(what, ErrorCode(answer.error_code).name, min(answer.member_epoch, 1))
        return answer

    def join(self) -> None:
        """With Kafka the partitions come with a later heartbeat."""
        request = {"group_id": self.group, "member_id": self.member, "rack_id": None}
        epoch = 0

        def beat() -> Message:
            nonlocal epoch
            answer = self.client.ask(
                "share_group_heartbeat",
                1,
                **request,
                member_epoch=epoch,
                subscribed_topic_names=[self.topic],
            )
            if not answer.error_code:
                epoch = answer.member_epoch
            return answer

        joined = self._until(beat, lambda it: it.assignment and it.assignment.topic_partitions)
        topics = joined.assignment.topic_partitions
        self.say("joined", [(each.topic_id == self.topic_id, each.partitions) for each in topics])

    def fetch(self, what: str, acks: Acks | None = None, **fields: Any) -> None:
        asked = {
            "group_id": self.group,
            "member_id": self.member,
            "share_session_epoch": self.epoch,
            "max_wait_ms": 100,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "share_acquire_mode": 0,
            "is_renew_ack": False,
            "topics": [self._topic(acks or [])],
            "forgotten_topics_data": [],
            **fields,
        }
        answer = self.client.ask("share_fetch", 2, **asked)
        self._advance(answer)
        found = [_fetched(each) for topic in answer.responses for each in topic.partitions]
        # An empty answer may name its partitions or not.
        told = [each for each in found if each[1:] != ("NONE", "NONE", [], [])]
        self.say(what, ErrorCode(answer.error_code).name, told)

    def acknowledge(self, what: str, acks: Acks, **fields: Any) -> None:
        asked = {
            "group_id": self.group,
            "member_id": self.member,
            "share_session_epoch": self.epoch,
            "is_renew_ack": False,
            "topics": [self._topic(acks)],
            **fields,
        }
        answer = self.client.ask("share_acknowledge", 2, **asked)
        self._advance(answer)
        codes = [
            ErrorCode(each.error_code).name
            for topic in answer.responses
            for each in topic.partitions
        ]
        self.say(what, ErrorCode(answer.error_code).name, codes)

    def _advance(self, answer: Message) -> None:
        if not answer.error_code:
            self.epoch += 1

    def _topic(self, acks: Acks) -> Message:
        partition = Message(
            partition_index=0,
            acknowledgement_batches=[
                Message(first_offset=first, last_offset=last, acknowledge_types=types)
                for first, last, types in acks
            ],
        )
        return Message(topic_id=self.topic_id, partitions=[partition])

    def _find(self) -> Message:
        return self.client.ask("find_coordinator", 4, key_type=0, coordinator_keys=[self.group])

    def _create(self) -> None:
        new = Message(
            name=self.topic, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        answer = self.client.ask(
            "create_topics", 7, topics=[new], timeout_ms=9000, validate_only=False
        )
        self.topic_id: UUID = answer.topics[0].topic_id

    def _until(self, ask: Callable[[], Message], done: Callable[[Message], Any]) -> Message:
        deadline = time.monotonic() + WAIT_S
        while not done(answer := ask()):
            assert time.monotonic() < deadline, answer
            time.sleep(0.05)
        return answer


def _is_produced(answer: Message) -> bool:
    return not answer.responses[0].partition_responses[0].error_code


def _fetched(found: Message) -> tuple[Any, ...]:
    # How ranges are cut, and whether batches come along that hold nothing for the member, is left
    # to the broker.
    acquired = {
        offset: each.delivery_count
        for each in found.acquired_records
        for offset in range(each.first_offset, each.last_offset + 1)
    }
    needed = [
        (each.base_offset, each.last_offset)
        for each in batches(found.records or b"")
        if any(each.base_offset <= offset <= each.last_offset for offset in acquired)
    ]
    codes = ErrorCode(found.error_code).name, ErrorCode(found.acknowledge_error_code).name
    return (found.partition_index, *codes, list(acquired.items()), needed)


@pytest.fixture(scope="module", name="sides")
def _sides() -> Iterator[tuple[str, str]]:
    with (
        ApacheKafka(SETTINGS, heap="400M") as kafka,
        LocalBroker(settings=SETTINGS) as headrace,
    ):
        yield kafka.bootstrap, headrace.bootstrap


def heartbeats(session: Session) -> None:
    session.join()
    session.beat("no group", group_id="")
    session.beat("no member", member_id="")
    session.beat("no topics", subscribed_topic_names=None)
    session.beat("no such epoch", member_epoch=-2)
    session.beat("an empty rack", rack_id="")
    session.beat("a group nobody knows", group_id="nobody", member_epoch=1)
    session.beat("leaving a group nobody knows", group_id="nobody", member_epoch=-1)
    session.beat("a member nobody knows", member_id="m9", member_epoch=1)
    session.beat("an epoch to come", member_epoch=50)
    session.beat("leaving", member_epoch=-1, subscribed_topic_names=None)
    session.beat("leaving twice", member_epoch=-1, subscribed_topic_names=None)


def sessions(session: Session) -> None:
    session.produce(3, 2, 4)
    session.join()
    for epoch in (1, -1):
        session.fetch(f"no session {epoch}", share_session_epoch=epoch)
        session.acknowledge(f"no session to acknowledge in {epoch}", [], share_session_epoch=epoch)
    session.acknowledge("acknowledging first", [], share_session_epoch=0)
    session.epoch = 0
    session.fetch("new with acknowledgements", [(0, 0, [ACCEPT])])
    session.fetch("new", max_records=4)
    session.fetch("a wrong epoch", share_session_epoch=5)
    session.acknowledge("one", [(0, 0, [ACCEPT])])
    session.acknowledge("below the start", [(0, 0, [ACCEPT])])
    session.acknowledge("backwards", [(1, 0, [ACCEPT])])
    session.acknowledge("no type", [(1, 2, [])])
    session.acknowledge("types to spare", [(1, 2, [ACCEPT] * 3)])
    session.acknowledge("a renewal not said to be one", [(1, 2, [RENEW])])
    session.acknowledge("no such type", [(1, 2, [9])])
    session.acknowledge("twice the same", [(1, 2, [ACCEPT]), (2, 2, [ACCEPT])])
    session.acknowledge("out of order", [(2, 2, [ACCEPT]), (1, 1, [ACCEPT])])
    session.acknowledge("past the end", [(20, 21, [ACCEPT])])
    session.acknowledge("partly past the end", [(1, 20, [ACCEPT])])
    session.acknowledge("not held", [(6, 6, [ACCEPT])])
    session.acknowledge("renewed", [(1, 2, [RENEW])], is_renew_ack=True)
    session.acknowledge("released", [(1, 2, [RELEASE])])
    session.fetch("the rest", [(3, 3, [ACCEPT])])
    session.fetch("a renewal that fetches", [(4, 4, [RENEW])], is_renew_ack=True)
    session.fetch("the last", [(5, 6, [ACCEPT])], share_session_epoch=-1)
    session.epoch = 0
    session.fetch("anew", max_wait_ms=500)
    session.acknowledge("the end", [(1, 1, [REJECT])], share_session_epoch=-1)
    session.acknowledge("after the end", [], share_session_epoch=-1)


def acquiring(session: Session) -> None:
    session.produce(1, 1, 3, 5, 2, 10, 1, 4)
    session.join()
    session.fetch("one", max_records=1)
    session.fetch("two", max_records=2)
    session.fetch("no more than three", max_records=3, share_acquire_mode=1)
    session.fetch("all", max_records=100)
    session.acknowledge(
        "each its own", [(0, 4, [ACCEPT, REJECT, RELEASE, 0, ACCEPT]), (5, 26, [RELEASE])]
    )
    session.fetch("the released ones", batch_size=1000)
    session.acknowledge("all of them", [(2, 2, [ACCEPT]), (5, 26, [ACCEPT])])
    session.produce(2)
    session.fetch("new ones")


@pytest.mark.parametrize("story", [heartbeats, sessions, acquiring])
def test_both_answer_alike(sides: tuple[str, str], story: Callable[[Session], None]) -> None:
    transcripts = []
    for bootstrap in sides:
        session = Session(bootstrap, f"share-{story.__name__}")
        try:
            session.configure(share_auto_offset_reset="earliest")
            session.configure(share_record_lock_duration_ms="1")
            session.configure(no_such_name="1")
            story(session)
        finally:
            session.close()
        transcripts.append(session.transcript)
    kafka, headrace = transcripts
    assert headrace == kafka
