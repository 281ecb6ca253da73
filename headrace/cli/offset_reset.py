"""Which offsets a reset gives a group: pure rules, and the forms in which they are asked for."""

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headrace.client.librdkafka import TopicPartition


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """What `--topic` names: a topic, some of its partitions, perhaps an offset for them."""

    topic: str
    partitions: tuple[int, ...] = ()
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known of one partition: what it holds, and what the group committed."""

    earliest: int
    latest: int
    committed: int | None


@dataclass(frozen=True, slots=True)
class Planned:
    """One partition's offset before and after; `warning` says why it is not what was asked."""

    place: TopicPartition
    before: int | None
    after: int
    warning: str = ""


# The offset asked for, for one partition; it may lie outside what the partition holds.
Target = Callable[[TopicPartition, Bounds], int]


def topic_choice(text: str) -> TopicChoice:
    """orders, orders:2, orders:0,1,2 as Kafka has them; orders:2:10000 names the offset as well."""
    topic, *rest = text.split(":")
    if not topic or len(rest) > 2:
        raise ValueError(f"{text!r} is not TOPIC, TOPIC:PARTITIONS or TOPIC:PARTITION:OFFSET")
    partitions = tuple(_number(part, text) for part in rest[0].split(",")) if rest else ()
    offset = _number(rest[1], text) if len(rest) == 2 else None
    return TopicChoice(topic, tuple(dict.fromkeys(partitions)), offset)


def to_earliest(place: TopicPartition, bounds: Bounds) -> int:
    return bounds.earliest


def to_latest(place: TopicPartition, bounds: Bounds) -> int:
    return bounds.latest


def to_current(place: TopicPartition, bounds: Bounds) -> int:
    """Where the group is: this pins a group that would otherwise lose its offsets to expiry."""
    return bounds.latest if bounds.committed is None else bounds.committed


def to_offset(offset: int) -> Target:
    return lambda place, bounds: offset


def shift_by(records: int) -> Target:
    def target(place: TopicPartition, bounds: Bounds) -> int:
        if bounds.committed is None:
            raise ValueError(f"{place} has no committed offset to shift from")
        return bounds.committed + records

    return target


def to_offsets(offsets: Mapping[TopicPartition, int | None]) -> Target:
    """Offsets found elsewhere; None, as for a time after the last record, is the end."""

    def target(place: TopicPartition, bounds: Bounds) -> int:
        if place not in offsets:
            raise ValueError(f"no offset is given for {place}")
        found = offsets[place]
        return bounds.latest if found is None else found

    return target


def plan(known: Mapping[TopicPartition, Bounds], target: Target) -> list[Planned]:
    """Each partition's new offset, kept within what the partition holds, as Kafka does it."""
    return [_planned(place, bounds, target(place, bounds)) for place, bounds in known.items()]


def read_csv(lines: Iterable[str], group: str) -> dict[TopicPartition, int]:
    """Kafka's file: topic,partition,offset on each line, or group,topic,partition,offset."""
    offsets: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(lines, skipinitialspace=True), start=1):
        if not row:
            continue
        if len(row) not in (3, 4):
            raise ValueError(f"line {number}: not topic,partition,offset")
        if len(row) == 4 and row[0] != group:
            continue
        topic, partition, offset = row[-3:]
        place = TopicPartition(topic, _number(partition, f"line {number}"))
        offsets[place] = _number(offset, f"line {number}")
    if not offsets:
        raise ValueError(f"it holds no offset of group {group}")
    return offsets


def choices_of(offsets: Iterable[TopicPartition]) -> list[TopicChoice]:
    """The partitions a file names, as if `--topic` had named them."""
    return [TopicChoice(place.topic, (place.partition,)) for place in offsets]


def csv_line(planned: Planned) -> str:
    return f"{planned.place.topic},{planned.place.partition},{planned.after}"


def _planned(place: TopicPartition, bounds: Bounds, asked: int) -> Planned:
    if asked < bounds.earliest:
        warning = f"{place}: offset {asked} is before the earliest, {bounds.earliest}"
        return Planned(place, bounds.committed, bounds.earliest, warning)
    if asked > bounds.latest:
        warning = f"{place}: offset {asked} is after the latest, {bounds.latest}"
        return Planned(place, bounds.committed, bounds.latest, warning)
    return Planned(place, bounds.committed, asked)


def _number(text: str, where: str) -> int:
    if not text.strip().isdigit():
        raise ValueError(f"{where}: {text!r} is not a whole number from 0")
    return int(text)
