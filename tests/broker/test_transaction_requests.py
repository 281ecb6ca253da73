"""The transactional requests, each in the versions that answer differently."""

from importlib import import_module
from uuid import uuid4

import pytest

from headrace.broker.admission import Admission
from headrace.broker.context import Broker, Call
from headrace.coordination.offsets import TopicPartitions
from headrace.coordination.topics import NewTopic
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.apis import APIS
from headrace.protocol.messages import Message, read_request, write_request, write_response
from headrace.protocol.records import Record, write_batch
from headrace.testing.clock import ManualClock
from headrace.testing.filesystems import MemoryFilesystem
from headrace.testing.virtual_time import run_virtually
from tests.broker.broker_in_memory import running_broker

KEYS = {api.name: api.key for api in APIS.values()}
FENCED, OLD_EPOCH = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH


class Client:
    """Asks a broker through its handlers, by way of the bytes of a version."""

    def __init__(self, broker: Broker, clock: ManualClock) -> None:
        self.broker = broker
        self.clock = clock

    async def ask(self, name, version, **fields):
        key = KEYS[name]
        request = read_request(key, version, write_request(key, version, Message(**fields)))
        call = Call(key, version, "client", "127.0.0.1", "PLAINTEXT", 1)
        handler = import_module(f"headrace.broker.handlers.{name}")
        answer = await handler.handle(self.broker, call, request)
        write_response(key, version, answer)
        return answer

    async def init(self, transactional_id="t", version=5, **fields):
        asked = {"transaction_timeout_ms": 1000} | fields
        return await self.ask(
            "init_producer_id", version, transactional_id=transactional_id, **asked
        )

    async def add(self, producer, *indexes, version=3, topic="orders"):
        answer = await self.ask(
            "add_partitions_to_txn",
            version,
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[Message(name=topic, partitions=list(indexes))],
        )
        (found,) = answer.results_by_topic_v3_and_below
        return [each.partition_error_code for each in found.results_by_partition]

    async def end(self, producer, version=5, *, committed=True):
        return await self.ask(
            "end_txn",
            version,
            transactional_id="t",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=committed,
        )

    def write(self, producer, version, *, index=0, sequence=0):
        """Append a batch as Produce of this version does."""
        partition = self.broker.partitions.get("orders", index)
        records = memoryview(
            write_batch(
                [Record(-1, self.clock.now_ms(), None, b"value", ())],
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=sequence,
                transactional=True,
            )
        )
        Admission(self.broker.transactions, "t", [(partition, records)], version).check(partition)
        partition.append(records)

    async def commit_offset(self, producer, version, **fields):
        asked = {"group_id": "g", "generation_id": -1, "member_id": "", "topic": "orders"} | fields
        topic = asked.pop("topic")
        answer = await self.ask(
            "txn_offset_commit",
            version,
            transactional_id="t",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            topics=[
                Message(
                    name=topic,
                    partitions=[
                        Message(partition_index=0, committed_offset=7, committed_metadata="")
                    ],
                )
            ],
            **asked,
        )
        return answer.topics[0].partitions[0].error_code


def in_broker(story):
    """Tell a story to a client of a new broker, whose topic orders has two partitions."""

    async def main():
        clock = ManualClock()
        async with running_broker(MemoryFilesystem(), clock) as broker:
            await broker.topics.create([NewTopic("orders", uuid4(), 2)])
            await story(Client(broker, clock))

    run_virtually(main)


def refused(call, *arguments, **fields):
    with pytest.raises(KafkaError) as refusal:
        call(*arguments, **fields)
    return refusal.value


async def refusal_of(asking):
    with pytest.raises(KafkaError) as refusal:
        await asking
    return refusal.value.code


@pytest.mark.parametrize(
    ("version", "code"), [(0, OLD_EPOCH), (1, OLD_EPOCH), (2, FENCED), (3, FENCED)]
)
def test_a_fenced_producer_is_told_so_in_the_words_of_its_version(version, code):
    async def story(client):
        zombie = await client.init()
        await client.init()
        assert await client.add(zombie, 0, version=version) == [code]
        assert await refusal_of(client.end(zombie, version)) is code
        offsets = client.ask(
            "add_offsets_to_txn",
            version,
            transactional_id="t",
            producer_id=zombie.producer_id,
            producer_epoch=zombie.producer_epoch,
            group_id="g",
        )
        assert await refusal_of(offsets) is code

    in_broker(story)


@pytest.mark.parametrize(("version", "code"), [(3, OLD_EPOCH), (4, FENCED), (5, FENCED)])
def test_recovery_of_a_fenced_producer_is_refused_in_the_words_of_its_version(version, code):
    async def story(client):
        zombie = await client.init()
        await client.init()
        again = {"producer_id": zombie.producer_id, "producer_epoch": zombie.producer_epoch}
        refused = await client.init(version=version, **again)
        assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (code, -1, -1)

    in_broker(story)


def test_partitions_are_added_all_or_none():
    async def story(client):
        producer = await client.init()
        unknown, not_tried = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
        assert await client.add(producer, 0, 9) == [not_tried, unknown]
        assert not client.broker.transactions.find("t").partitions
        assert await client.add(producer, 0, 1) == [0, 0]

    in_broker(story)


def test_a_batch_of_transactions_is_added_and_verified_one_by_one():
    async def story(client):
        producer = await client.init()

        def asked(verify_only, *indexes):
            return Message(
                transactional_id="t",
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                verify_only=verify_only,
                topics=[Message(name="orders", partitions=list(indexes))],
            )

        answer = await client.ask(
            "add_partitions_to_txn", 5, transactions=[asked(False, 0), asked(True, 0, 1)]
        )
        added, verified = (each.topic_results[0] for each in answer.results_by_transaction)
        assert [each.partition_error_code for each in added.results_by_partition] == [0]
        assert [each.partition_error_code for each in verified.results_by_partition] == [
            0,
            ErrorCode.TRANSACTION_ABORTABLE,
        ]

    in_broker(story)


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (10, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE),
        (12, None),
    ],
)
def test_a_batch_outside_its_transaction_is_refused_unless_it_adds_the_partition(version, code):
    async def story(client):
        producer = await client.init()
        await client.add(producer, 1)
        if code is None:
            client.write(producer, version)
            partitions = client.broker.transactions.find("t").partitions
            assert {index for _, index in partitions} == {0, 1}
        else:
            assert refused(client.write, producer, version).code is code
            assert client.broker.partitions.get("orders", 0).log.log_end_offset == 0
        client.write(producer, version, index=1)

    in_broker(story)


@pytest.mark.parametrize("version", [10, 11, 12])
def test_a_batch_of_a_fenced_producer_is_refused(version):
    async def story(client):
        zombie = await client.init()
        await client.add(zombie, 0)
        client.write(zombie, version)
        await client.init()
        assert refused(client.write, zombie, version, sequence=1).code is OLD_EPOCH

    in_broker(story)


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (3, ErrorCode.INVALID_TXN_STATE),
        (4, ErrorCode.TRANSACTION_ABORTABLE),
        (5, ErrorCode.NONE),
    ],
)
def test_offsets_outside_the_transaction_are_refused_unless_they_add_the_group(version, code):
    async def story(client):
        producer = await client.init()
        await client.add(producer, 0)
        assert await client.commit_offset(producer, version) == code

    in_broker(story)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", [3, 5])
def test_offsets_count_once_their_transaction_commits(version, committed):
    async def story(client):
        producer = await client.init()
        if version < 5:
            await client.ask(
                "add_offsets_to_txn",
                3,
                transactional_id="t",
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                group_id="g",
            )
        assert await client.commit_offset(producer, version) == 0
        asked = [TopicPartitions("orders", [0])]
        groups = client.broker.groups
        (pending,) = await groups.fetch_offsets("g", asked, require_stable=True)
        assert pending.partitions[0].error is ErrorCode.UNSTABLE_OFFSET_COMMIT
        await client.end(producer, version, committed=committed)
        await client.broker.transactions.settled("t")
        (ended,) = await groups.fetch_offsets("g", asked, require_stable=True)
        found = ended.partitions[0].committed
        assert (found.offset if found else None) == (7 if committed else None)

    in_broker(story)


def test_offsets_of_a_wrong_generation_or_topic_are_refused_and_nothing_is_kept():
    async def story(client):
        producer = await client.init()
        wrong = client.commit_offset(producer, 5, generation_id=3, member_id="m")
        assert await wrong == ErrorCode.ILLEGAL_GENERATION
        unknown = await client.commit_offset(producer, 5, topic="nowhere")
        assert unknown == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        zombie = Message(producer_id=producer.producer_id, producer_epoch=9)
        assert await client.commit_offset(zombie, 5) == OLD_EPOCH

    in_broker(story)


def test_an_end_of_version_5_names_the_next_epoch_and_can_be_repeated():
    async def story(client):
        producer = await client.init()
        client.write(producer, 12)
        ended = await client.end(producer)
        assert ended.producer_epoch == producer.producer_epoch + 1
        again = await client.end(producer)
        assert (again.producer_id, again.producer_epoch) == (
            ended.producer_id,
            ended.producer_epoch,
        )
        partition = client.broker.partitions.get("orders", 0)
        assert partition.last_stable_offset == partition.log.log_end_offset == 2

    in_broker(story)


def test_a_new_producer_gets_its_epoch_at_once_though_a_transaction_was_open():
    async def story(client):
        first = await client.init()
        client.write(first, 12)
        second = await client.init()
        assert second.producer_epoch == first.producer_epoch + 2
        assert client.broker.transactions.find("t").partitions == frozenset()

    in_broker(story)


def test_a_transaction_past_its_timeout_is_aborted():
    async def story(client):
        producer = await client.init()
        client.write(producer, 12)
        client.clock.advance(1001)
        await client.broker.transactions.abort_timed_out()
        partition = client.broker.partitions.get("orders", 0)
        assert [txn.producer_id for txn in partition.log.aborted(0, 9)] == [producer.producer_id]
        assert partition.last_stable_offset == 2

    in_broker(story)


def test_an_unused_transactional_id_is_forgotten():
    async def story(client):
        await client.init()
        client.clock.advance(client.broker.settings.transactional_id_expiration_ms)
        await client.broker.transactions.expire()
        assert client.broker.transactions.find("t") is None

    in_broker(story)


def test_transactions_are_described():
    async def story(client):
        producer = await client.init()
        client.write(producer, 12, index=1)
        answer = await client.ask("describe_transactions", 0, transactional_ids=["t", "x", ""])
        known, unknown, empty = answer.transaction_states
        assert (known.transaction_state, known.producer_id) == ("Ongoing", producer.producer_id)
        assert known.transaction_start_time_ms == client.clock.now_ms()
        assert [(each.topic, each.partitions) for each in known.topics] == [("orders", [1])]
        assert unknown.error_code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert empty.error_code is ErrorCode.INVALID_REQUEST

    in_broker(story)


LISTS = [
    ({}, {"t", "u1", "u2"}),
    ({"state_filters": ["Ongoing"]}, {"t"}),
    ({"state_filters": ["Empty", "Nonsense"]}, {"u1", "u2"}),
    ({"producer_id_filters": [1]}, {"u1"}),
    ({"duration_filter": 100}, {"t", "u1", "u2"}),
    ({"duration_filter": 100, "state_filters": ["Ongoing"]}, {"t"}),
    ({"duration_filter": 101, "state_filters": ["Ongoing"]}, set()),
    ({"transactional_id_pattern": "u."}, {"u1", "u2"}),
    ({"transactional_id_pattern": "u"}, set()),
]


@pytest.mark.parametrize(("filters", "expected"), LISTS)
def test_transactions_are_listed_by_filters(filters, expected):
    async def story(client):
        producer = await client.init("t")
        client.write(producer, 12)
        await client.init("u1")
        await client.init("u2")
        client.clock.advance(101)
        answer = await client.ask("list_transactions", 2, **filters)
        assert {txn.transactional_id for txn in answer.transaction_states} == expected
        unknown = [each for each in filters.get("state_filters", ()) if each == "Nonsense"]
        assert answer.unknown_state_filters == unknown

    in_broker(story)


def test_a_pattern_that_is_none_is_refused():
    async def story(client):
        asking = client.ask("list_transactions", 2, transactional_id_pattern="(")
        assert await refusal_of(asking) is ErrorCode.INVALID_REGULAR_EXPRESSION

    in_broker(story)


def test_an_administrator_ends_a_transaction_with_a_marker():
    async def story(client):
        producer = await client.init()
        client.write(producer, 12)
        answer = await client.ask(
            "write_txn_markers",
            1,
            markers=[
                Message(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    transaction_result=False,
                    coordinator_epoch=0,
                    topics=[
                        Message(name="orders", partition_indexes=[0]),
                        Message(name="nowhere", partition_indexes=[0]),
                    ],
                )
            ],
        )
        codes = [topic.partitions[0].error_code for topic in answer.markers[0].topics]
        assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert client.broker.partitions.get("orders", 0).last_stable_offset == 2

    in_broker(story)


def test_a_transaction_that_no_coordinator_knows_is_aborted_and_its_retry_is_no_duplicate():
    async def story(client):
        producer = await client.init()
        partition = client.broker.partitions.get("orders", 0)
        lost = write_batch(
            [Record(-1, 0, None, b"lost", ())],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        partition.append(lost)
        assert partition.log.producers.first_unstable_offset == 0
        await client.broker.transactions.recover()
        assert partition.last_stable_offset == 2
        assert refused(client.write, producer, 12).code is OLD_EPOCH

    in_broker(story)


def test_what_is_not_in_a_transaction_is_not_asked_about():
    async def story(client):
        producer = await client.init()
        partition = client.broker.partitions.get("orders", 0)
        plain = memoryview(write_batch([Record(-1, 0, None, b"plain", ())]))
        Admission(client.broker.transactions, "t", [(partition, plain)], 12).check(partition)
        assert client.broker.transactions.find("t").partitions == frozenset()
        assert producer.producer_epoch == 0

    in_broker(story)
