"""The schemas topic: read from the beginning into memory, written one transaction at a time.

A write is answered only after it was read back, so what a client was told is in the log, and what
is in memory is in the log too. Without the log, reads go on from memory and writes are refused.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from headrace.client.admin import Admin, ConfigKind, NewTopic
from headrace.client.consumer import Consumer, EndReached, Received
from headrace.client.librdkafka import TopicPartition
from headrace.client.producer import Delivered, NewRecord, Producer
from headrace.errors import ErrorCode, HeadraceError, KafkaError, StartRefused
from headrace.registry.records import BadRecord, Noop, Record, decode, encode
from headrace.registry.refusals import Refusal, Refused

logger = logging.getLogger(__name__)

BATCH_RECORDS = 1_000
POLL_S = 0.2
RETRY_PAUSE_S = 0.5
# Batches read but not yet replayed.
MAX_UNREPLAYED = 8
# A record not acknowledged in this time is given up; the client may ask again.
WRITE_LIMIT_S = 5.0
READ_BACK_LIMIT_S = 5.0
# Kafka aborts a transaction that its producer left open for this long.
TRANSACTION_TIMEOUT_MS = 15_000
# librdkafka doubles its pauses up to this: a log that comes back is found at once.
RECONNECT_MS = 500
# Kafka's default of max.message.bytes.
DEFAULT_RECORD_BYTES = 1_048_588
FENCED = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)

# What was read: the offset after it, and the record, or why it is none.
Read = tuple[int, Record | BadRecord | None]


@dataclass(frozen=True, slots=True)
class Found:
    """What the registry needs to know of the cluster and the topic."""

    cluster_id: str
    max_record_bytes: int


def ensure_topic(bootstrap: str, topic: str) -> Found:
    """Create the topic compacted with one partition, or check that it is so."""
    admin = Admin(bootstrap)
    if not admin.topic_exists(topic):
        try:
            admin.create_topic(NewTopic(topic, 1, None, {"cleanup.policy": "compact"}))
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
    (found,) = admin.describe_topics([topic])
    if len(found.partitions) != 1:
        raise StartRefused(f"{topic} has {len(found.partitions)} partitions instead of 1")
    configs = {entry.name: entry.value for entry in admin.configs(ConfigKind.TOPIC, topic)}
    if configs.get("cleanup.policy") != "compact":
        raise StartRefused(
            f"{topic} has cleanup.policy={configs.get('cleanup.policy')}, so schemas would be "
            "lost: set it to compact"
        )
    largest = int(configs.get("max.message.bytes") or DEFAULT_RECORD_BYTES)
    return Found(admin.cluster().cluster_id, largest)


class Reader:
    """Follows the topic in a thread and replays it on the loop, in order."""

    def __init__(
        self, bootstrap: str, topic: str, replay: Callable[[Record | BadRecord, int], None]
    ) -> None:
        self._bootstrap = bootstrap
        self._place = TopicPartition(topic, 0)
        self._replay = replay
        self._loop = asyncio.get_running_loop()
        self._loaded = asyncio.Event()
        self._moved = asyncio.Condition()
        self._unreplayed = threading.BoundedSemaphore(MAX_UNREPLAYED)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="schemas-reader", daemon=True)
        # The offset after the last record replayed, and after the last one read.
        self.position = 0
        # Not "the beginning", of which librdkafka asks the broker, after half a second: an offset
        # that compaction has taken away leads to the next one that is there.
        self._read_to = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        with suppress(ValueError):
            self._unreplayed.release()
        self._thread.join()

    async def loaded(self, limit_s: float) -> None:
        """Wait for the end that the topic had at the start."""
        async with asyncio.timeout(limit_s):
            await self._loaded.wait()

    async def reached(self, offset: int) -> None:
        """Wait until the record of this offset was replayed."""
        async with asyncio.timeout(READ_BACK_LIMIT_S), self._moved:
            await self._moved.wait_for(lambda: self.position > offset)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with Consumer(self._bootstrap, settings=_reading()) as consumer:
                    consumer.assign({self._place: self._read_to})
                    self._follow(consumer)
            except HeadraceError as error:
                logger.warning("schemas topic cannot be read reason=%s", error)
                self._stopping.wait(RETRY_PAUSE_S)
            except Exception:
                # The thread's root: a registry that no longer reads must not look as if it did.
                logger.exception("schemas topic cannot be read")
                self._stopping.wait(RETRY_PAUSE_S)

    def _follow(self, consumer: Consumer) -> None:
        while not self._stopping.is_set():
            events = consumer.poll(max_records=BATCH_RECORDS, timeout_s=POLL_S)
            if not events:
                continue
            read = [_decoded(event) for event in events]
            self._unreplayed.acquire()
            self._read_to = read[-1][0]
            at_end = any(isinstance(event, EndReached) for event in events)
            try:
                self._loop.call_soon_threadsafe(self._apply, read, at_end)
            except RuntimeError:
                # The loop is closed: the process stops.
                return

    def _apply(self, read: Sequence[Read], at_end: bool) -> None:
        for next_offset, record in read:
            if record is not None:
                self._replay(record, next_offset - 1)
            self.position = max(self.position, next_offset)
        with suppress(ValueError):
            self._unreplayed.release()
        if at_end:
            self._loaded.set()
        self._wake = self._loop.create_task(self._notify())

    async def _notify(self) -> None:
        async with self._moved:
            self._moved.notify_all()


class Writer:
    """Writes as the topic's only writer: opening one fences whoever wrote before (KIP-98)."""

    def __init__(self, bootstrap: str, topic: str, transactional_id: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._transactional_id = transactional_id
        self._producer: Producer | None = None

    def write(self, records: Sequence[Record]) -> int:
        """All or none; blocks until they are in the log, and returns the last one's offset."""
        try:
            return self._write(self._open(), records)
        except HeadraceError:
            # Whether it is in the log is not known: the next one to open the writer ends it.
            self.close()
            raise

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def _open(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(self._bootstrap, _writing(self._transactional_id))
            self._producer.init_transactions(WRITE_LIMIT_S)
        return self._producer

    def _write(self, producer: Producer, records: Sequence[Record]) -> int:
        outcomes: list[Delivered | HeadraceError] = []
        producer.begin_transaction()
        for record in records:
            key, value = encode(record)
            producer.send(self._topic, NewRecord(value, key, partition=0), outcomes.append)
        try:
            # Not flushed first: confluent-kafka's flush, told of a fence, raises what no
            # `except` catches, and committing waits for every record anyway.
            producer.commit_transaction(WRITE_LIMIT_S)
        except HeadraceError as error:
            refusals = (each for each in outcomes if isinstance(each, HeadraceError))
            # What was wrong with a record says more than that the transaction failed.
            raise next(refusals, error) from error
        return max(each.offset for each in outcomes if isinstance(each, Delivered))


class TopicLog:
    """The topic as the registry sees it: append, and know that it is there."""

    def __init__(self, reader: Reader, writer: Writer) -> None:
        self._reader = reader
        self._writer = writer
        # Blocking calls of the writer go here, one at a time.
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="schemas-writer")
        # Whether everything this registry ever wrote, or another one, has been read back.
        self._settled = False

    @property
    def position(self) -> int:
        return self._reader.position

    async def settle(self) -> None:
        """Make sure that memory has all that is in the log; free if it is known to have."""
        if not self._settled:
            await self._write((Noop(),))

    async def append(self, records: Sequence[Record]) -> None:
        """Write, and wait until it was read back; raises 42209, 50001 or 50002."""
        await self._write(records)

    def unsettle(self) -> None:
        """Another registry may have written."""
        self._settled = False

    async def reached(self, offset: int) -> None:
        await self._reader.reached(offset)

    def close(self) -> None:
        self._threads.submit(self._writer.close)
        self._threads.shutdown(wait=True)
        self._reader.stop()

    async def _write(self, records: Sequence[Record]) -> None:
        self._settled = False
        loop = asyncio.get_running_loop()
        try:
            offset = await loop.run_in_executor(self._threads, self._writer.write, records)
            await self._reader.reached(offset)
        except TimeoutError:
            raise Refused(Refusal.TIMED_OUT, "the write was not read back in time") from None
        except HeadraceError as error:
            raise _refused(error) from error
        self._settled = True


def _refused(error: HeadraceError) -> Refused:
    if isinstance(error, KafkaError):
        if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
            return Refused(Refusal.SCHEMA_TOO_LARGE)
        if error.code is ErrorCode.REQUEST_TIMED_OUT:
            return Refused(Refusal.TIMED_OUT, error)
        if error.code in FENCED:
            return Refused(Refusal.STORE_FAILED, "another registry has become the leader")
    return Refused(Refusal.STORE_FAILED, error)


def _decoded(event: Received | EndReached) -> Read:
    if isinstance(event, EndReached):
        return event.offset, None
    try:
        return event.offset + 1, decode(event.key, event.value, event.timestamp_ms)
    except BadRecord as error:
        return event.offset + 1, error


def _reading() -> dict[str, Any]:
    return {
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "reconnect.backoff.max.ms": RECONNECT_MS,
        "fetch.queue.backoff.ms": 10,
    }


def _writing(transactional_id: str) -> dict[str, Any]:
    return {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        "message.timeout.ms": int(WRITE_LIMIT_S * 1000),
        "linger.ms": 0,
        "reconnect.backoff.max.ms": RECONNECT_MS,
    }
