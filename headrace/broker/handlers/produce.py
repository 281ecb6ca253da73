"""Produce: batches to their logs at once, the answer when acks says so."""

import asyncio
from contextlib import suppress
from functools import partial

from headrace.broker.admission import Admission
from headrace.broker.context import Broker, Call
from headrace.broker.exchange import SILENCE, Answer, ClientRefused, Pending
from headrace.broker.partitions import Partition
from headrace.errors import ErrorCode, KafkaError
from headrace.log.validation import InvalidRecords
from headrace.protocol.produce import (
    PartitionProduced,
    ProduceRequest,
    ProduceTopic,
    TopicProduced,
    read_produce,
    write_produce,
)

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
TOPIC_IDS_FROM = 13
# Kafka lets its admin client alone write to internal topics.
ADMIN_CLIENT = "__admin_client"
# Of a batch: its format, the low byte of its attributes, and the bit for transactional.
MAGIC_POSITION = 16
MAGIC = 2
ATTRIBUTES_POSITION = 22
TRANSACTIONAL = 0x10
# In the place of a partition: the log of the transaction coordinator.
JOURNAL = (0, -1)


def start(
    broker: Broker, call: Call, buffer: memoryview, position: int, end: int
) -> Answer | Pending:
    """Runs without a task of its own: nothing here waits but the promise it may return."""
    version = call.api_version
    request = read_produce(version, buffer, position, end)
    acks = request.acks
    if not ACKS_ALL <= acks <= ACKS_LEADER:
        refused = KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}")
        return (write_produce(version, _refused(request, refused)),)
    admission = _admission(broker, version, request)
    syncing: Syncing | None = None
    answers: list[TopicProduced] = []
    for topic in request.topics:
        produced: list[PartitionProduced] = []
        for index, records in topic.partitions:
            try:
                partition = _partition(broker, version, topic, index)
                batch = _checked(partition, call, request, records)
                if admission is not None:
                    admission.check(partition)
                base_offset, last_offset, time_ms, log_start, _ = partition.append(batch)
                if acks == ACKS_ALL and last_offset >= partition.high_watermark:
                    syncing = syncing or Syncing(broker, version, answers)
                    syncing.add(partition, last_offset + 1, produced)
                produced.append(PartitionProduced(index, 0, base_offset, time_ms, log_start))
            except KafkaError as error:
                produced.append(_failed(index, error))
        answers.append(TopicProduced(topic.name, topic.topic_id, produced))
    if acks == ACKS_NONE:
        return _silence(answers)
    if syncing is not None:
        syncing.add_journal(admission)
        syncing.expire_after(request.timeout_ms)
        return syncing
    return (write_produce(version, answers),)


class Syncing(Pending):
    """A Produce with acks=all, written and not yet on stable storage everywhere."""

    __slots__ = ("_answers", "_broker", "_timer", "_unsettled", "_version")

    def __init__(self, broker: Broker, version: int, answers: list[TopicProduced]) -> None:
        super().__init__()
        self._broker = broker
        self._version = version
        self._answers = answers
        self._unsettled: dict[tuple[int, int], list[PartitionProduced]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(
        self, partition: Partition, next_offset: int, produced: list[PartitionProduced]
    ) -> None:
        """The partition whose answer comes next in `produced` is to be waited for."""
        place = (id(produced), len(produced))
        self._unsettled[place] = produced
        partition.when_durable(next_offset, partial(self._settled, place))

    def add_journal(self, admission: Admission | None) -> None:
        """What made the partitions part of their transaction must be durable as well."""
        journal = None if admission is None else admission.journal
        if journal is not None and journal.log.log_end_offset > journal.high_watermark:
            self._unsettled[JOURNAL] = []
            journal.when_durable(journal.log.log_end_offset, partial(self._settled, JOURNAL))

    def expire_after(self, timeout_ms: int) -> None:
        self._timer = self._broker.loop.call_later(max(timeout_ms, 0) / 1000, self._expire)
        self.on_abandon = self._timer.cancel

    def _settled(self, place: tuple[int, int], error: KafkaError | None) -> None:
        produced = self._unsettled.pop(place, None)
        if produced is None:
            return
        if error is not None:
            self._fail(place, produced, error)
        if not self._unsettled:
            self._finish()

    def _expire(self) -> None:
        late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "not on stable storage in time")
        for place, produced in self._unsettled.items():
            self._fail(place, produced, late)
        self._unsettled.clear()
        self._finish()

    def _fail(
        self, place: tuple[int, int], produced: list[PartitionProduced], error: KafkaError
    ) -> None:
        if place != JOURNAL:
            produced[place[1]] = _failed(produced[place[1]][0], error)
            return
        for at, (name, topic_id, partitions) in enumerate(self._answers):
            failed = [_failed(each[0], error) for each in partitions]
            self._answers[at] = TopicProduced(name, topic_id, failed)

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.finish((write_produce(self._version, self._answers),))


def _partition(broker: Broker, version: int, topic: ProduceTopic, index: int) -> Partition:
    if version >= TOPIC_IDS_FROM:
        return broker.partitions.by_id(topic.topic_id, index)
    return broker.partitions.get(topic.name, index)


def _admission(broker: Broker, version: int, request: ProduceRequest) -> Admission | None:
    """Ask the transaction coordinator once for everything in the request."""
    if request.transactional_id is None:
        return None
    writes = []
    for topic in request.topics:
        for index, records in topic.partitions:
            if records is not None:
                with suppress(KafkaError):
                    writes.append((_partition(broker, version, topic, index), records))
    return Admission(broker.transactions, request.transactional_id, writes, version)


def _checked(
    partition: Partition, call: Call, request: ProduceRequest, records: memoryview | None
) -> memoryview:
    """The batch, or what is refused before the log is asked."""
    if records is None or len(records) <= ATTRIBUTES_POSITION:
        raise KafkaError(ErrorCode.INVALID_RECORD, "exactly one record batch is required")
    if partition.guarded:
        _check_guarded(partition, call, request)
    if (
        records[ATTRIBUTES_POSITION] & TRANSACTIONAL
        and request.transactional_id is None
        and records[MAGIC_POSITION] == MAGIC
    ):
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a transactional batch in a request without a transactional id",
        )
    return records


def _check_guarded(partition: Partition, call: Call, request: ProduceRequest) -> None:
    if partition.internal and call.client_id != ADMIN_CLIENT:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is internal")
    replicas = partition.settings.min_insync_replicas
    if request.acks == ACKS_ALL and replicas > 1:
        raise KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{partition} has 1 replica and min.insync.replicas is {replicas}: "
            "lower it, or use acks=1",
        )


def _failed(index: int, error: KafkaError) -> PartitionProduced:
    faults = error.record_errors if isinstance(error, InvalidRecords) else ()
    message = error.message or None
    return PartitionProduced(index, error.code, record_errors=faults, error_message=message)


def _refused(request: ProduceRequest, error: KafkaError) -> list[TopicProduced]:
    return [
        TopicProduced(
            topic.name, topic.topic_id, [_failed(index, error) for index, _ in topic.partitions]
        )
        for topic in request.topics
    ]


def _silence(answers: list[TopicProduced]) -> Answer:
    """With acks=0 there is no answer to carry an error: Kafka closes the connection instead."""
    for topic in answers:
        for produced in topic.partitions:
            if produced.error_code:
                code = ErrorCode(produced.error_code)
                raise ClientRefused(
                    f"produce with acks=0 to {topic.name or topic.topic_id}-{produced.partition} "
                    f"failed: {code.name} {produced.error_message or ''}"
                )
    return SILENCE
