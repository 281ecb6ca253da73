"""Fetch: slices of logs, at once if there is enough, else when there is or the wait is over."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import cast
from uuid import UUID

from headrace.broker.context import Broker, Call
from headrace.broker.exchange import Answer, Pending
from headrace.broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchPosition,
    FetchSession,
)
from headrace.broker.partitions import Isolation, Partition
from headrace.broker.waits import Wait
from headrace.errors import ErrorCode, KafkaError
from headrace.log.reading import FileSlice
from headrace.log.txn_index import AbortedTxn
from headrace.protocol.fetch import (
    FetchRequest,
    PartitionFetched,
    TopicFetched,
    read_fetch,
    write_fetch,
)

TOPIC_IDS_FROM = 13

Found = tuple[FetchPosition, PartitionFetched]


def start(
    broker: Broker, call: Call, buffer: memoryview, position: int, end: int
) -> Answer | Pending:
    """Runs without a task of its own: a Fetch that waits is parked, and costs nothing there."""
    version = call.api_version
    request = read_fetch(version, buffer, position, end)
    try:
        fetch = Fetch(broker, version, request)
    except KafkaError as error:
        return cast(Answer, write_fetch(version, (), error_code=error.code))
    return fetch.begin()


class Fetch:
    """One Fetch being served: looked up now, parked when there is too little, looked up again."""

    __slots__ = (
        "_broker",
        "_deadline",
        "_incremental",
        "_isolation",
        "_max_bytes",
        "_min_bytes",
        "_pending",
        "_positions",
        "_session",
        "_version",
        "_wait",
    )

    def __init__(self, broker: Broker, version: int, request: FetchRequest) -> None:
        self._broker = broker
        self._version = version
        self._isolation = Isolation.of(request.isolation_level)
        self._max_bytes = min(request.max_bytes, broker.settings.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._incremental = request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH)
        self._session: FetchSession | None = None
        self._positions = self._open(request)
        self._deadline = broker.loop.time() + request.max_wait_ms / 1000
        self._pending: Pending | None = None
        self._wait: Wait | None = None

    def begin(self) -> Answer | Pending:
        found, total_bytes, failed = self._look_up()
        if self._is_enough(total_bytes, failed=failed):
            return self._answer(found)
        self._pending = Pending()
        self._pending.on_abandon = self._abandon
        self._park(total_bytes)
        return self._pending

    def _open(self, request: FetchRequest) -> list[FetchPosition]:
        """What is asked for, with what the session remembers of it; refuses as Kafka does."""
        sessions = self._broker.fetch_sessions
        by_id = self._version >= TOPIC_IDS_FROM
        asked = list(_positions(request))
        if self._incremental:
            session = sessions.resume(
                request.session_id, request.session_epoch, uses_topic_ids=by_id
            )
            session.update(asked, _forgotten(request, by_id=by_id))
            if not session.positions:
                sessions.remove(session.session_id)
                return []
            sessions.advance(session)
            self._session = session
            return list(session.positions.values())
        if request.session_id != NO_SESSION:
            sessions.remove(request.session_id)
        if request.session_epoch == INITIAL_EPOCH:
            self._session = sessions.create(len(asked), uses_topic_ids=by_id)
            if self._session is not None:
                self._session.update(asked, ())
        return asked

    def _is_enough(self, total_bytes: int, *, failed: bool) -> bool:
        return (
            total_bytes >= self._min_bytes
            or failed
            or not self._positions
            or self._broker.loop.time() >= self._deadline
        )

    def _park(self, total_bytes: int) -> None:
        self._wait = self._broker.waits.park(
            [position.partition for position in self._positions if position.partition],
            missing_bytes=self._min_bytes - total_bytes,
            committed_only=self._isolation == Isolation.READ_COMMITTED,
            delay_s=self._deadline - self._broker.loop.time(),
            resume=self._resume,
        )

    def _resume(self) -> None:
        assert self._pending is not None
        found, total_bytes, failed = self._look_up()
        if self._broker.draining or self._is_enough(total_bytes, failed=failed):
            self._pending.finish(self._answer(found))
        else:
            self._park(total_bytes)

    def _abandon(self) -> None:
        if self._wait is not None:
            self._wait.cancel()

    def _look_up(self) -> tuple[list[Found], int, bool]:
        """Everything worth telling, its bytes of records, and whether some partition failed."""
        found: list[Found] = []
        total_bytes = 0
        failed = False
        for position in self._positions:
            try:
                fetched = self._look_at(position, self._max_bytes - total_bytes, total_bytes == 0)
            except KafkaError as error:
                failed = True
                found.append((position, _failed(position, error)))
                continue
            if fetched is None:
                continue
            if fetched.records is not None:
                total_bytes += fetched.records.size  # type: ignore[union-attr]  # always a slice
            failed |= fetched.diverging_epoch is not None
            found.append((position, fetched))
        return found, total_bytes, failed

    def _look_at(
        self, position: FetchPosition, left_bytes: int, first: bool
    ) -> PartitionFetched | None:
        partition = position.partition
        if partition is None or partition.removed:
            partition = position.partition = self._resolve(position)
        if position.current_leader_epoch != partition.leader_epoch:
            partition.check_leader_epoch(position.current_leader_epoch)
        diverging = None
        if position.last_fetched_epoch >= 0:
            diverging = _diverging(partition, position)
        records: FileSlice | None = None
        aborted: list[AbortedTxn] = []
        if diverging is None:
            records, aborted = partition.read(
                position.fetch_offset,
                max_bytes=max(min(position.max_bytes, left_bytes), 0),
                isolation=self._isolation,
                min_one=first,
            )
        high_watermark, log_start_offset = partition.high_watermark, partition.log.log_start_offset
        if (
            self._incremental
            and records is None
            and diverging is None
            and position.told_high_watermark == high_watermark
            and position.told_log_start_offset == log_start_offset
        ):
            return None
        return PartitionFetched(
            position.index,
            0,
            high_watermark,
            partition.last_stable_offset,
            log_start_offset,
            aborted if self._isolation == Isolation.READ_COMMITTED else None,
            records,
            diverging_epoch=diverging,
        )

    def _resolve(self, position: FetchPosition) -> Partition:
        if self._version >= TOPIC_IDS_FROM:
            return self._broker.partitions.by_id(position.topic_id, position.index)
        return self._broker.partitions.get(position.topic, position.index)

    def _answer(self, found: list[Found]) -> Answer:
        session = self._session
        if session is not None:
            for position, fetched in found:
                # An error is told again until it is gone, so nothing counts as told then.
                position.told_high_watermark = fetched.high_watermark
                position.told_log_start_offset = fetched.log_start_offset
                if fetched.records is not None and self._incremental:
                    session.serve_last(position)
        session_id = session.session_id if session is not None else NO_SESSION
        parts = write_fetch(self._version, _by_topic(found), session_id=session_id)
        # The codec knows of a slice only its size; these came from a log.
        return cast(Answer, parts)


def _failed(position: FetchPosition, error: KafkaError) -> PartitionFetched:
    # Where there is no partition Kafka's list of aborted transactions is empty, else it is null.
    unknown = error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
    return PartitionFetched(position.index, error.code, aborted=() if unknown else None)


def _diverging(partition: Partition, position: FetchPosition) -> tuple[int, int] | None:
    """Where the reader's history parts from ours (KIP-595), if it does."""
    epoch, end_offset = partition.log.end_offset_for_epoch(position.last_fetched_epoch)
    if end_offset < 0:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{partition} knows no epoch {position.last_fetched_epoch}",
        )
    if end_offset < position.fetch_offset or epoch < position.last_fetched_epoch:
        return epoch, end_offset
    return None


def _positions(request: FetchRequest) -> Iterator[FetchPosition]:
    for name, topic_id, partitions in request.topics:
        for asked in partitions:
            yield FetchPosition(
                name,
                topic_id,
                asked.partition,
                asked.fetch_offset,
                asked.partition_max_bytes,
                asked.current_leader_epoch,
                asked.last_fetched_epoch,
            )


def _forgotten(request: FetchRequest, *, by_id: bool) -> Iterator[tuple[str | UUID, int]]:
    for topic in request.forgotten:
        for index in topic.partitions:
            yield topic.topic_id if by_id else topic.name, index


def _by_topic(found: Iterable[Found]) -> Iterator[TopicFetched]:
    """Neighbours of one topic together; the order of partitions is the order of fairness."""
    for (name, topic_id), group in groupby(found, lambda pair: (pair[0].topic, pair[0].topic_id)):
        yield TopicFetched(name, topic_id, [fetched for _, fetched in group])
