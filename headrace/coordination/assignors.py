"""Who shall own what: members with their topics in, one assignment out; functions only.

range    by topic: members in order take neighbouring partitions, so that topics with as many
         partitions are cut alike
uniform  over all topics: no member has two partitions more than another that could take one, and
         of what members had, as much as that allows stays where it is
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

Partitions = Mapping[UUID, frozenset[int]]
Assignment = dict[str, Partitions]


@dataclass(frozen=True, slots=True)
class AssignedMember:
    """A member as an assignor sees it: the topics it reads, and what it was to own until now."""

    instance_id: str | None = None
    topics: frozenset[UUID] = frozenset()
    target: Partitions = field(default_factory=dict)


Assignor = Callable[[Mapping[str, AssignedMember], Mapping[UUID, int]], Assignment]
"""Members by id and partition counts by topic id; every topic of a member has a count."""


def assign_range(members: Mapping[str, AssignedMember], counts: Mapping[UUID, int]) -> Assignment:
    readers: dict[UUID, list[str]] = defaultdict(list)
    for member_id in _static_first(members):
        for topic_id in members[member_id].topics:
            readers[topic_id].append(member_id)
    assigned: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic_id, member_ids in readers.items():
        quota, extra = divmod(counts[topic_id], len(member_ids))
        start = 0
        for place, member_id in enumerate(member_ids):
            end = start + quota + (place < extra)
            if start < end:
                assigned[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(assigned)


def assign_uniform(members: Mapping[str, AssignedMember], counts: Mapping[UUID, int]) -> Assignment:
    share = _Share(members, counts)
    if len({member.topics for member in members.values()}) <= 1:
        share.fill_quotas()
    else:
        share.hand_out()
        share.even_out()
    return share.assignment()


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}


def _static_first(members: Mapping[str, AssignedMember]) -> Iterable[str]:
    """A static member keeps its place when it comes back under another id."""

    def place(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return (instance_id is None, member_id if instance_id is None else instance_id)

    return sorted(members, key=place)


class _Share:
    """A uniform assignment in the making: it starts from what members had and may still have."""

    def __init__(self, members: Mapping[str, AssignedMember], counts: Mapping[UUID, int]) -> None:
        self._members = members
        self._counts = counts
        self._owned: dict[str, dict[UUID, set[int]]] = {}
        self._load: Counter[str] = Counter(dict.fromkeys(members, 0))
        self._readers: dict[UUID, list[str]] = defaultdict(list)
        taken: dict[UUID, set[int]] = defaultdict(set)
        for member_id, member in members.items():
            for topic_id in member.topics:
                self._readers[topic_id].append(member_id)
            self._owned[member_id] = self._kept(member, taken)
            self._load[member_id] = sum(map(len, self._owned[member_id].values()))

    def _kept(self, member: AssignedMember, taken: dict[UUID, set[int]]) -> dict[UUID, set[int]]:
        kept: dict[UUID, set[int]] = {}
        for topic_id, partitions in member.target.items():
            if topic_id in member.topics:
                count = self._counts[topic_id]
                kept[topic_id] = {each for each in partitions if each < count} - taken[topic_id]
                taken[topic_id] |= kept[topic_id]
        return kept

    def fill_quotas(self) -> None:
        """Where all read the same: everyone has the least that is fair, some have one more."""
        total = sum(self._counts[topic_id] for topic_id in self._readers)
        quota, extra = divmod(total, max(len(self._members), 1))
        allowed = dict.fromkeys(self._members, quota)
        # Whoever has more than the least is the first to keep one more.
        for member_id in sorted(self._members, key=lambda each: self._load[each] <= quota)[:extra]:
            allowed[member_id] += 1
        for member_id in self._members:
            self._trim(member_id, allowed[member_id])
        free = [(topic_id, each) for topic_id in self._readers for each in self._free(topic_id)]
        free.reverse()
        for member_id in self._members:
            while self._load[member_id] < allowed[member_id]:
                self._give(member_id, *free.pop())

    def _trim(self, member_id: str, allowed: int) -> None:
        spare = self._load[member_id] - allowed
        if spare <= 0:
            return
        owned = self._owned[member_id]
        for topic_id in sorted(owned, reverse=True):
            for partition in sorted(owned[topic_id], reverse=True)[:spare]:
                owned[topic_id].discard(partition)
                self._load[member_id] -= 1
                spare -= 1

    def hand_out(self) -> None:
        """Partitions of nobody go to whoever has least; those with few readers first."""
        for topic_id in sorted(self._readers, key=lambda each: (len(self._readers[each]), each)):
            free = self._free(topic_id)
            if not free:
                continue
            waiting = [(self._load[each], each) for each in self._readers[topic_id]]
            heapq.heapify(waiting)
            for partition in free:
                load, member_id = waiting[0]
                self._give(member_id, topic_id, partition)
                heapq.heapreplace(waiting, (load + 1, member_id))

    def _free(self, topic_id: UUID) -> Sequence[int]:
        taken = set().union(
            *(self._owned[each].get(topic_id, ()) for each in self._readers[topic_id])
        )
        return [each for each in range(self._counts[topic_id]) if each not in taken]

    def even_out(self) -> None:
        """Every move makes the sum of the squares of all loads smaller, so there is a last one."""
        moved = True
        while moved:
            moves = [self._even_out_topic(topic_id) for topic_id in sorted(self._readers)]
            moved = any(moves)

    def _even_out_topic(self, topic_id: UUID) -> bool:
        moved = False
        while True:
            owners = [each for each in self._readers[topic_id] if self._owned[each].get(topic_id)]
            if not owners:
                return moved
            giver = max(owners, key=lambda each: (self._load[each], each))
            taker = min(self._readers[topic_id], key=lambda each: (self._load[each], each))
            if self._load[giver] - self._load[taker] < 2:
                return moved
            partition = max(self._owned[giver][topic_id])
            self._owned[giver][topic_id].discard(partition)
            self._load[giver] -= 1
            self._give(taker, topic_id, partition)
            moved = True

    def _give(self, member_id: str, topic_id: UUID, partition: int) -> None:
        self._owned[member_id].setdefault(topic_id, set()).add(partition)
        self._load[member_id] += 1

    def assignment(self) -> Assignment:
        return {
            member_id: {key: frozenset(each) for key, each in owned.items() if each}
            for member_id, owned in self._owned.items()
        }
