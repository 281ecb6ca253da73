"""ListOffsets: the earliest, the latest, and the first record from a time on."""

from collections import Counter
from typing import NamedTuple

from headrace.broker.context import Broker, Call
from headrace.broker.partitions import Isolation, Partition
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(
    -1, -7, -1
)
# The first version that may ask for each special time.
SINCE_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
START_TIMES = (EARLIEST, EARLIEST_LOCAL)
CONSUMER = -1


class Found(NamedTuple):
    """An offset, the timestamp of its record if one was looked for, and its leader epoch."""

    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


NOTHING = Found()


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    asked = Counter(
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    )
    # Only consumers are held to what is visible; a replica or a debugging tool sees all.
    isolation = Isolation.of(request.isolation_level) if request.replica_id == CONSUMER else None
    topics = []
    for topic in request.topics:
        # Kafka answers a partition that is asked for twice once.
        by_index = {asking.partition_index: asking for asking in topic.partitions}
        answers = [
            await _answer(broker, call, topic.name, asking, isolation)
            if asked[topic.name, index] == 1
            else Message(partition_index=index, error_code=ErrorCode.INVALID_REQUEST)
            for index, asking in by_index.items()
        ]
        topics.append(Message(name=topic.name, partitions=answers))
    return Message(topics=topics)


async def _answer(
    broker: Broker, call: Call, topic: str, asking: Message, isolation: Isolation | None
) -> Message:
    index = asking.partition_index
    try:
        _check_version(asking.timestamp, call.api_version)
        partition = broker.partitions.get(topic, index)
        partition.check_leader_epoch(asking.current_leader_epoch)
        if isolation is not None and asking.timestamp not in START_TIMES:
            await partition.caught_up()
        found = _look_up(partition, asking.timestamp, isolation)
    except KafkaError as error:
        return Message(partition_index=index, error_code=error.code)
    return Message(partition_index=index, **found._asdict())


def _check_version(timestamp: int, version: int) -> None:
    if timestamp < 0 and version < SINCE_VERSION.get(timestamp, version + 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"no special time {timestamp}")


def _look_up(partition: Partition, timestamp: int, isolation: Isolation | None) -> Found:
    log = partition.log
    limit = log.log_end_offset if isolation is None else partition.read_limit(isolation)
    if timestamp == LATEST:
        return Found(limit, leader_epoch=_known(partition, log.leader_epochs.latest))
    if timestamp in START_TIMES:
        start = log.log_start_offset
        return Found(start, leader_epoch=_known(partition, log.leader_epochs.epoch_at(start)))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        # Nothing is tiered here, which Kafka says in this way.
        return NOTHING
    found = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_time(timestamp)
    if found is None or found[0] >= limit:
        return NOTHING
    return Found(*found)


def _known(partition: Partition, epoch: int | None) -> int:
    """A log that nobody wrote to is at the epoch its leader began with."""
    return partition.leader_epoch if epoch is None or epoch < 0 else epoch
