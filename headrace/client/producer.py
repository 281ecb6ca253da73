"""confluent-kafka's producer, typed: send, flush, transactions."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import confluent_kafka

from headrace.client.librdkafka import REQUEST_TIMEOUT_S, TopicPartition, client_settings, refusal
from headrace.errors import ErrorCode, HeadraceError, KafkaError

# How long one poll serves deliveries while the queue of unsent records is full.
QUEUE_FULL_POLL_S = 0.1
# A full queue that does not move for this many polls: the broker is gone.
QUEUE_FULL_POLLS = 1_200
TRANSACTION_TIMEOUT_S = 60.0
# Kafka's default of socket.request.max.bytes: nothing larger would be read by a broker.
MAX_REQUEST_BYTES = 100 * 1024 * 1024
# A topic that the broker creates on demand is there within so many looks.
CREATION_ATTEMPTS = 15
CREATION_PAUSE_S = 0.1

Headers = Sequence[tuple[str, bytes | None]]


class Delivered(NamedTuple):
    """Where an acknowledged record lies."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class NewRecord(NamedTuple):
    """A record to be written; the broker or the key chooses what is left None."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


OnDelivery = Callable[[Delivered | HeadraceError], None]


class Producer:
    """Sends records; every record sent is reported once, as Delivered or as an error."""

    def __init__(self, bootstrap: str, settings: Mapping[str, Any] | None = None) -> None:
        self._bootstrap = bootstrap
        self._last_reporter: tuple[OnDelivery, Callable[[Any, Any], None]] | None = None
        # murmur2 routes a key as Kafka's Java client does; librdkafka's own default does not.
        # How large a record may be is the broker's say, not librdkafka's.
        defaults: dict[str, Any] = {
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "message.max.bytes": MAX_REQUEST_BYTES,
        }
        if settings and str(settings.get("acks", "all")) not in ("all", "-1"):
            defaults["enable.idempotence"] = False
        try:
            self._raw = confluent_kafka.Producer(
                client_settings(bootstrap, {**defaults, **(settings or {})})
            )
        except confluent_kafka.KafkaException as error:
            raise refusal(error, bootstrap) from error

    def send(self, topic: str, record: NewRecord, on_delivery: OnDelivery | None = None) -> None:
        """Queue a record; waits, serving deliveries, while the queue is full."""
        arguments: dict[str, Any] = {"value": record.value, "key": record.key}
        if record.headers:
            arguments["headers"] = list(record.headers)
        if record.partition is not None:
            arguments["partition"] = record.partition
        if record.timestamp_ms is not None:
            arguments["timestamp"] = record.timestamp_ms
        if on_delivery is not None:
            arguments["on_delivery"] = self._reporter(on_delivery)
        try:
            self._queue(topic, arguments)
        except confluent_kafka.KafkaException as error:
            raise refusal(error, self._bootstrap, topic) from error
        self._raw.poll(0)

    def require_topic(self, topic: str) -> None:
        """Raise at once if the topic is not there and the broker does not create it by itself."""
        for _ in range(CREATION_ATTEMPTS):
            # Asking by name is what makes a broker create it, if it does so at all.
            found = self._metadata(topic)
            if found.error is None and found.partitions:
                return
            if found.error is not None and not ErrorCode(found.error.code()).retriable:
                raise refusal(found.error, self._bootstrap, f"topic {topic}")
            time.sleep(CREATION_PAUSE_S)
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic} does not exist: create it with `headrace topics create {topic}`",
        )

    def flush(self, timeout_s: float) -> int:
        """Wait for every queued record to be reported; returns how many are still not."""
        try:
            return int(self._raw.flush(timeout_s))
        except confluent_kafka.KafkaException as error:
            raise refusal(error, self._bootstrap) from error

    def close(self) -> None:
        """Drop what is unsent and let the connections go."""
        # A fenced producer tells so once more here, when nobody can do anything about it.
        with suppress(confluent_kafka.KafkaException):
            self._raw.purge()
            self._raw.flush(QUEUE_FULL_POLL_S)

    def init_transactions(self, timeout_s: float = TRANSACTION_TIMEOUT_S) -> None:
        self._transact(self._raw.init_transactions, timeout_s)

    def begin_transaction(self) -> None:
        self._transact(self._raw.begin_transaction)

    def commit_transaction(self, timeout_s: float = TRANSACTION_TIMEOUT_S) -> None:
        self._transact(self._raw.commit_transaction, timeout_s)

    def abort_transaction(self) -> None:
        self._transact(self._raw.abort_transaction, TRANSACTION_TIMEOUT_S)

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int], group_metadata: object
    ) -> None:
        """Commit a consumer's next offsets with this transaction (Consumer.group_metadata)."""
        positions = [
            confluent_kafka.TopicPartition(place.topic, place.partition, offset)
            for place, offset in offsets.items()
        ]
        self._transact(
            self._raw.send_offsets_to_transaction, positions, group_metadata, TRANSACTION_TIMEOUT_S
        )

    def _metadata(self, topic: str) -> Any:
        try:
            return self._raw.list_topics(topic, REQUEST_TIMEOUT_S).topics[topic]
        except confluent_kafka.KafkaException as error:
            raise refusal(error, self._bootstrap, topic) from error

    def _queue(self, topic: str, arguments: dict[str, Any]) -> None:
        for _ in range(QUEUE_FULL_POLLS):
            try:
                self._raw.produce(topic, **arguments)
                return
            except BufferError:
                self._raw.poll(QUEUE_FULL_POLL_S)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{topic}: no room for another record")

    def _reporter(self, on_delivery: OnDelivery) -> Callable[[Any, Any], None]:
        # In bulk every record has the same callback, so its wrapper is made once.
        if self._last_reporter is None or self._last_reporter[0] != on_delivery:
            self._last_reporter = (on_delivery, self._report(on_delivery))
        return self._last_reporter[1]

    def _report(self, on_delivery: OnDelivery) -> Callable[[Any, Any], None]:
        def report(error: Any, message: Any) -> None:
            if error is not None:
                on_delivery(refusal(error, self._bootstrap, message.topic()))
                return
            on_delivery(
                Delivered(
                    message.topic(), message.partition(), message.offset(), message.timestamp()[1]
                )
            )

        return report

    def _transact(self, step: Callable[..., Any], *arguments: Any) -> None:
        try:
            step(*arguments)
        except confluent_kafka.KafkaException as error:
            raise refusal(error, self._bootstrap) from error
