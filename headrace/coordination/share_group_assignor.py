"""Which members of a share group read which partitions: Kafka's simple assignor, as a function.

A partition may have many readers, and there may be more members than partitions: every member is
hashed to one partition, partitions nobody reads are dealt out, and what members read they keep.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from uuid import UUID

from headrace.coordination.sharding import java_hash
from headrace.coordination.share_group_records import Partitions

TopicPartition = tuple[UUID, int]


def assign_simple(
    subscriptions: Mapping[str, Sequence[UUID]],
    partitions: Mapping[UUID, Iterable[int]],
    current: Mapping[str, Partitions],
) -> dict[str, Partitions]:
    """By member: the topics it reads in, then what it was assigned; what it shall read out."""
    wanted = {
        member_id: [
            (topic_id, each) for topic_id in topics for each in sorted(partitions.get(topic_id, ()))
        ]
        for member_id, topics in subscriptions.items()
    }
    owned = _owned(current, subscriptions)
    given: dict[str, set[TopicPartition]] = {
        member_id: owned.get(member_id, set()) & set(wanted[member_id]) for member_id in wanted
    }
    taken = {each for kept in owned.values() for each in kept}
    for member_id, targets in wanted.items():
        if targets:
            hashed = abs(_remainder(java_hash(member_id), len(targets)))
            given[member_id].add(targets[hashed])
            taken.add(targets[hashed])
    _deal_out(wanted, taken, given)
    return {member_id: _by_topic(found) for member_id, found in given.items()}


def _deal_out(
    wanted: Mapping[str, Sequence[TopicPartition]],
    taken: set[TopicPartition],
    given: Mapping[str, set[TopicPartition]],
) -> None:
    readers: dict[UUID, list[str]] = {}
    left: dict[UUID, dict[int, None]] = {}
    for member_id, targets in wanted.items():
        for topic_id in dict.fromkeys(topic_id for topic_id, _ in targets):
            readers.setdefault(topic_id, []).append(member_id)
        for topic_id, partition in targets:
            if (topic_id, partition) not in taken:
                left.setdefault(topic_id, {})[partition] = None
    turns: dict[tuple[str, ...], Iterable[str]] = {}
    for topic_id, unread in left.items():
        # Topics with the same readers are dealt out in one round.
        turn = turns.setdefault(tuple(readers[topic_id]), cycle(readers[topic_id]))
        for partition, member_id in zip(unread, turn, strict=False):
            given[member_id].add((topic_id, partition))


def _owned(
    current: Mapping[str, Partitions], members: Iterable[str]
) -> dict[str, set[TopicPartition]]:
    return {
        member_id: {
            (topic_id, each) for topic_id, found in current[member_id].items() for each in found
        }
        for member_id in members
        if member_id in current
    }


def _by_topic(found: Iterable[TopicPartition]) -> dict[UUID, frozenset[int]]:
    topics: dict[UUID, set[int]] = {}
    for topic_id, partition in sorted(found, key=lambda pair: (pair[0].bytes, pair[1])):
        topics.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(each) for topic_id, each in topics.items()}


def _remainder(number: int, divisor: int) -> int:
    """Java's, which keeps the sign of the number."""
    return number % divisor if number >= 0 else -(-number % divisor)
