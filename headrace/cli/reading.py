"""Where a reader starts, and when it is done."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from headrace.client.admin import EARLIEST, LATEST, Admin, Isolation
from headrace.client.librdkafka import TopicPartition
from headrace.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True)
class Start:
    """At most one is given; none: at the end, for what comes next."""

    from_beginning: bool = False
    offset: int | None = None
    time_ms: int | None = None

    @property
    def given(self) -> int:
        return self.from_beginning + (self.offset is not None) + (self.time_ms is not None)


def places(admin: Admin, topic: str, partitions: Collection[int]) -> list[TopicPartition]:
    """The partitions to be read: those named, or all."""
    if not admin.topic_exists(topic):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic} does not exist: create it with `headrace topics create {topic}`",
        )
    known = [partition.index for partition in admin.describe_topics([topic])[0].partitions]
    missing = sorted(set(partitions) - set(known))
    if missing:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic} has partitions 0 to {max(known)}, not {missing[0]}",
        )
    return [TopicPartition(topic, index) for index in partitions or known]


def start_offsets(
    admin: Admin, wanted: Iterable[TopicPartition], start: Start
) -> dict[TopicPartition, int]:
    """The first offset to be read of each partition, always within what it holds."""
    chosen = list(wanted)
    latest = _known(admin.offsets(chosen, LATEST))
    if start.time_ms is not None:
        found = admin.offsets(chosen, start.time_ms)
        # Nothing that late yet: whatever comes next is.
        return {place: latest[place] if at is None else at for place, at in found.items()}
    if start.offset is None and not start.from_beginning:
        return latest
    earliest = _known(admin.offsets(chosen, EARLIEST))
    if start.offset is None:
        return earliest
    asked = start.offset
    return {
        place: min(max(asked if asked >= 0 else end + asked, earliest[place]), end)
        for place, end in latest.items()
    }


def end_offsets(
    admin: Admin, wanted: Iterable[TopicPartition], isolation: Isolation
) -> dict[TopicPartition, int]:
    """Where each partition ends now, for a reader of this isolation."""
    return _known(admin.offsets(wanted, LATEST, isolation=isolation))


class Remaining:
    """Partitions not yet read up to where they ended when the reading began."""

    def __init__(self, starts: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> None:
        self._ends = {place: end for place, end in ends.items() if starts[place] < end}

    def __bool__(self) -> bool:
        return bool(self._ends)

    def wants(self, place: TopicPartition, offset: int) -> bool:
        """Whether a record read belongs to the reading; the last one ends its partition."""
        end = self._ends.get(place)
        if end is None:
            return False
        if offset >= end - 1:
            del self._ends[place]
        return offset < end

    def at_end(self, place: TopicPartition) -> None:
        """Nothing more is there: the last offsets were markers, or were compacted away."""
        self._ends.pop(place, None)


def _known(offsets: dict[TopicPartition, int | None]) -> dict[TopicPartition, int]:
    return {place: offset or 0 for place, offset in offsets.items()}
