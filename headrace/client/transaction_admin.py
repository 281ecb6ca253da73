"""Transactions as an operator sees them: who has one open, for how long, and how to end it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.client.librdkafka import TopicPartition
from headrace.client.wire import Api, Connection, CoordinatorKind, Wire, asked, refuse
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message

# Fencing only opens the way to an abort; the timeout of a transaction never begun is of no use.
FENCING_TIMEOUT_MS = 60_000
NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """One line of a listing."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class Transaction:
    """What its coordinator knows of a transactional id; started_ms -1: none is open."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction open on one partition, as that partition's log knows it."""

    place: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


class TransactionAdmin:
    """Asks coordinators and partition leaders; changes only what abort and terminate say."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def transactions(
        self, *, states: Sequence[str] = (), producer_ids: Sequence[int] = ()
    ) -> list[TransactionListing]:
        """Every transactional id of the cluster, or those in some states or of some producers."""
        request = Message(state_filters=list(states), producer_id_filters=list(producer_ids))
        found = [row for node_id in self._wire.node_ids for row in self._held_by(node_id, request)]
        return sorted(found, key=lambda listing: listing.transactional_id)

    def describe(self, transactional_id: str) -> Transaction:
        node_id, coordinator = self._coordinator(transactional_id)
        request = Message(transactional_ids=[transactional_id])
        answer = asked(
            coordinator,
            Api.DESCRIBE_TRANSACTIONS,
            request,
            f"transactional id {transactional_id}",
            lambda found: int(found.transaction_states[0].error_code),
        )
        (row,) = answer.transaction_states
        return Transaction(
            row.transactional_id,
            node_id,
            row.producer_id,
            row.producer_epoch,
            row.transaction_state,
            row.transaction_timeout_ms,
            row.transaction_start_time_ms,
            tuple(
                sorted(
                    TopicPartition(topic.topic, partition)
                    for topic in row.topics
                    for partition in topic.partitions
                )
            ),
        )

    def terminate(self, transactional_id: str) -> None:
        """Abort what the transactional id has open and fence its producer, as a new one would."""
        state = self.describe(transactional_id).state
        _, coordinator = self._coordinator(transactional_id)
        request = Message(
            transactional_id=transactional_id, transaction_timeout_ms=FENCING_TIMEOUT_MS
        )
        about = f"transactional id {transactional_id} in state {state}"
        asked(coordinator, Api.INIT_PRODUCER_ID, request, about)

    def open_transactions(self, places: Iterable[TopicPartition]) -> list[OpenTransaction]:
        """Transactions that partitions hold open, from their leaders."""
        leaders = self._leaders(sorted({place.topic for place in places}))
        found: list[OpenTransaction] = []
        for place in places:
            if place not in leaders:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(place))
            found += _open_on(self._wire.broker(leaders[place]), place)
        return found

    def hanging(
        self, places: Iterable[TopicPartition], *, older_than_ms: int, now_ms: int
    ) -> list[OpenTransaction]:
        """Transactions open on a partition that no coordinator will ever end."""
        old = [
            found
            for found in self.open_transactions(places)
            if now_ms - found.last_timestamp_ms >= older_than_ms
        ]
        producer_ids = sorted({found.producer_id for found in old})
        if not producer_ids:
            return []
        owned = {
            (listing.producer_id, place)
            for listing in self.transactions(producer_ids=producer_ids)
            for place in self.describe(listing.transactional_id).partitions
        }
        return [found for found in old if (found.producer_id, found.place) not in owned]

    def abort(self, hanging: OpenTransaction) -> None:
        """Write the abort marker to the one partition that waits for it."""
        place = hanging.place
        leader = self._wire.broker(self._leaders([place.topic])[place])
        marker = Message(
            producer_id=hanging.producer_id,
            producer_epoch=hanging.producer_epoch,
            transaction_result=False,
            topics=[Message(name=place.topic, partition_indexes=[place.partition])],
            # A partition that never saw a marker knows no coordinator; any epoch is news to it.
            coordinator_epoch=max(hanging.coordinator_epoch, 0),
        )
        answer = leader.call(Api.WRITE_TXN_MARKERS, Message(markers=[marker]))
        row = answer.markers[0].topics[0].partitions[0]
        refuse(row.error_code, f"aborting producer {hanging.producer_id} on {place}")

    def _held_by(self, node_id: int, request: Message) -> list[TransactionListing]:
        broker = self._wire.broker(node_id)
        answer = asked(broker, Api.LIST_TRANSACTIONS, request, "listing transactions")
        if answer.unknown_state_filters:
            unknown = ", ".join(answer.unknown_state_filters)
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"no transaction state is named {unknown}")
        return [
            TransactionListing(
                row.transactional_id, node_id, row.producer_id, row.transaction_state
            )
            for row in answer.transaction_states
        ]

    def _coordinator(self, transactional_id: str) -> tuple[int, Connection]:
        return self._wire.coordinator(CoordinatorKind.TRANSACTION, transactional_id)

    def _leaders(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        request = Message(
            topics=[Message(name=name) for name in topics], allow_auto_topic_creation=False
        )
        answer = self._wire.any().call(Api.METADATA, request)
        for topic in answer.topics:
            refuse(topic.error_code, f"topic {topic.name}")
        return {
            TopicPartition(topic.name, row.partition_index): row.leader_id
            for topic in answer.topics
            for row in topic.partitions
        }


def _open_on(leader: Connection, place: TopicPartition) -> list[OpenTransaction]:
    topic = Message(name=place.topic, partition_indexes=[place.partition])
    answer = leader.call(Api.DESCRIBE_PRODUCERS, Message(topics=[topic]))
    row = answer.topics[0].partitions[0]
    refuse(row.error_code, f"producers of {place}")
    return [
        OpenTransaction(
            place,
            producer.producer_id,
            producer.producer_epoch,
            producer.coordinator_epoch,
            producer.current_txn_start_offset,
            producer.last_timestamp,
        )
        for producer in row.active_producers
        if producer.current_txn_start_offset != NO_OFFSET
    ]
