"""Which members of a share group read which partitions: Kafka's simple assignor, as a function.

A partition may have many readers, and there may be more members than partitions. Every partition
gets as many readers as it takes for each member to have one; no member has two partitions more
than another; within that, members keep what they read. Where members subscribe to different
topics, this holds topic by topic.
"""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from headrace.coordination.share_group_records import Partitions

TopicPartition = tuple[UUID, int]


def assign_simple(
    subscriptions: Mapping[str, Sequence[UUID]],
    partitions: Mapping[UUID, Iterable[int]],
    current: Mapping[str, Partitions],
) -> dict[str, Partitions]:
    """By member: the topics it reads in, then what it was assigned; what it shall read out."""
    given: dict[str, set[TopicPartition]] = {member_id: set() for member_id in subscriptions}
    for readers, topic_ids in _rounds(subscriptions):
        targets = [
            (topic_id, each) for topic_id in topic_ids for each in sorted(partitions[topic_id])
        ]
        if targets:
            owned = {
                member_id: _owned(current.get(member_id, {}), targets) for member_id in readers
            }
            for member_id, found in _Round(targets, owned).result().items():
                given[member_id] |= found
    return {member_id: _by_topic(found) for member_id, found in given.items()}


def _rounds(
    subscriptions: Mapping[str, Sequence[UUID]],
) -> Iterable[tuple[list[str], list[UUID]]]:
    """What is dealt out together: everything if all subscribe alike, else each topic."""
    readers: dict[UUID, list[str]] = {}
    for member_id, topic_ids in subscriptions.items():
        for topic_id in topic_ids:
            readers.setdefault(topic_id, []).append(member_id)
    if len({frozenset(topics) for topics in subscriptions.values()}) <= 1:
        return [(list(subscriptions), list(readers))] if readers else []
    return [(members, [topic_id]) for topic_id, members in readers.items()]


class _Round:
    """Partitions and members with how many of the other each shall have."""

    def __init__(
        self, targets: Sequence[TopicPartition], owned: Mapping[str, set[TopicPartition]]
    ) -> None:
        self._targets = targets
        self._given = {member_id: set(found) for member_id, found in owned.items()}
        members = len(owned)
        self._readers = -(-members // len(targets))
        slots = self._readers * len(targets)
        # The same number for each, and what does not divide spread evenly over them.
        ends = [-(-slots * place // members) for place in range(members + 1)]
        self._room = {
            member_id: ends[place + 1] - ends[place] for place, member_id in enumerate(owned)
        }

    def result(self) -> dict[str, set[TopicPartition]]:
        self._take_back_overshared()
        self._take_back_overfilled()
        for target in self._targets:
            missing = self._readers - len(self._readers_of(target))
            for _ in range(missing):
                member_id = self._neediest(target)
                if member_id is None:
                    break
                self._given[member_id].add(target)
        return self._given

    def _take_back_overshared(self) -> None:
        for target in self._targets:
            readers = self._readers_of(target)
            readers.sort(key=self._left)
            for member_id in readers[: max(len(readers) - self._readers, 0)]:
                self._given[member_id].discard(target)

    def _take_back_overfilled(self) -> None:
        for member_id, given in self._given.items():
            for target in [each for each in self._targets if each in given]:
                if self._left(member_id) >= 0:
                    break
                given.discard(target)

    def _readers_of(self, target: TopicPartition) -> list[str]:
        return [member_id for member_id, given in self._given.items() if target in given]

    def _left(self, member_id: str) -> int:
        return self._room[member_id] - len(self._given[member_id])

    def _neediest(self, target: TopicPartition) -> str | None:
        able = [
            member_id
            for member_id, given in self._given.items()
            if target not in given and self._left(member_id) > 0
        ]
        return max(able, key=self._left, default=None)


def _owned(current: Partitions, targets: Iterable[TopicPartition]) -> set[TopicPartition]:
    return {
        (topic_id, each) for topic_id, each in targets if each in current.get(topic_id, frozenset())
    }


def _by_topic(found: Iterable[TopicPartition]) -> dict[UUID, frozenset[int]]:
    topics: dict[UUID, set[int]] = {}
    for topic_id, partition in sorted(found, key=lambda pair: (pair[0].bytes, pair[1])):
        topics.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(each) for topic_id, each in topics.items()}
