"""confluent-kafka's consumer, typed: poll, commit, seek."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

import confluent_kafka

from headrace.client.librdkafka import PARTITION_EOF, TopicPartition, client_settings, refusal

OFFSET_BEGINNING: int = confluent_kafka.OFFSET_BEGINNING
OFFSET_END: int = confluent_kafka.OFFSET_END
# librdkafka needs a group's name even when the group is never joined.
NO_GROUP = "headrace-no-group"
COMMIT_TIMEOUT_S = 30.0
TIMESTAMP_TYPES = {0: "none", 1: "create", 2: "append"}


class Received(NamedTuple):
    """One record as it was read."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class EndReached:
    """A partition had nothing more to read at this offset."""

    place: TopicPartition
    offset: int


class Consumer:
    """Reads records, either as a member of a group or from partitions of its choice."""

    def __init__(
        self,
        bootstrap: str,
        group: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._bootstrap = bootstrap
        defaults: dict[str, Any] = {
            "group.id": group or NO_GROUP,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
        }
        try:
            self._raw = confluent_kafka.Consumer(
                client_settings(bootstrap, {**defaults, **(settings or {})})
            )
        except confluent_kafka.KafkaException as error:
            raise refusal(error, bootstrap) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def subscribe(self, topics: Sequence[str]) -> None:
        """Join the group; it decides the partitions."""
        self._raw.subscribe(list(topics))

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets, outside any group's say."""
        self._raw.assign(
            [confluent_kafka.TopicPartition(*place, offset) for place, offset in starts.items()]
        )

    def seek(self, place: TopicPartition, offset: int) -> None:
        try:
            self._raw.seek(confluent_kafka.TopicPartition(*place, offset))
        except confluent_kafka.KafkaException as error:
            raise refusal(error, self._bootstrap, str(place)) from error

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(TopicPartition(p.topic, p.partition) for p in self._raw.assignment())

    @property
    def group_metadata(self) -> object:
        """What Producer.send_offsets_to_transaction needs of this member."""
        return self._raw.consumer_group_metadata()

    def poll(self, *, max_records: int, timeout_s: float) -> list[Received | EndReached]:
        """Up to max_records, waiting for the first one at most timeout_s."""
        try:
            # consume() waits for as many as it may return, so only poll() may wait.
            first = self._raw.poll(timeout_s)
            if first is None:
                return []
            messages = [first, *self._raw.consume(max_records - 1, 0)]
        except confluent_kafka.KafkaException as error:
            raise refusal(error, self._bootstrap) from error
        return [self._event(message) for message in messages]

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit, and wait for it, the next offset to be read of each partition."""
        positions = [
            confluent_kafka.TopicPartition(*place, offset) for place, offset in offsets.items()
        ]
        if not positions:
            return
        try:
            self._raw.commit(offsets=positions, asynchronous=False)
        except confluent_kafka.KafkaException as error:
            raise refusal(error, self._bootstrap) from error

    def committed(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The group's committed offsets; None where it has none."""
        wanted = [confluent_kafka.TopicPartition(*place) for place in places]
        try:
            found = self._raw.committed(wanted, COMMIT_TIMEOUT_S)
        except confluent_kafka.KafkaException as error:
            raise refusal(error, self._bootstrap) from error
        return {
            TopicPartition(p.topic, p.partition): p.offset if p.offset >= 0 else None for p in found
        }

    def close(self) -> None:
        """Leave the group."""
        self._raw.close()

    def _event(self, message: Any) -> Received | EndReached:
        error = message.error()
        if error is None:
            timestamp_type, timestamp_ms = message.timestamp()
            return Received(
                message.topic(),
                message.partition(),
                message.offset(),
                timestamp_ms,
                TIMESTAMP_TYPES[timestamp_type],
                message.key(),
                message.value(),
                tuple(message.headers() or ()),
            )
        place = TopicPartition(message.topic(), message.partition())
        if error.code() == PARTITION_EOF:
            return EndReached(place, message.offset())
        raise refusal(error, self._bootstrap, str(place))
