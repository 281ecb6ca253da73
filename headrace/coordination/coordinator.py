"""What one partition of __consumer_offsets says: its groups and their offsets, as one machine."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from headrace.coordination.classic_group import ClassicGroup
from headrace.coordination.group import GroupLimits, Now
from headrace.coordination.group_records import GroupMetadata, GroupRecord, OffsetCommit
from headrace.coordination.groups import GroupDecision, Groups
from headrace.coordination.machine import Decision
from headrace.coordination.offsets import Offsets
from headrace.coordination.rebalance import Timer
from headrace.coordination.share_group import ShareGroup
from headrace.coordination.share_group_records import SHARE_GROUP_WRITERS
from headrace.coordination.share_groups import ShareGroups
from headrace.errors import ErrorCode, KafkaError


class ProducerIdentity(Protocol):
    """Whose transaction a record or a marker belongs to."""

    @property
    def producer_id(self) -> int: ...


class DeletedGroup(NamedTuple):
    """How the deletion of one group went."""

    group_id: str
    error: ErrorCode


class Coordinator:
    """Groups and offsets live and die together: they share a log, and an id.

    `started` is soft: it says whether the members found in the log have been given deadlines.
    """

    def __init__(self, limits: GroupLimits) -> None:
        self.groups = Groups(limits)
        self.offsets = Offsets(self.groups, limits)
        self.shares = ShareGroups(self.groups)
        self.started = False
        self._replays: Mapping[type, Callable[..., None]] = {
            OffsetCommit: self.offsets.replay,
            GroupMetadata: self.groups.replay,
            **dict.fromkeys(SHARE_GROUP_WRITERS, self.shares.replay),
        }

    def start(self, now: Now) -> GroupDecision:
        self.started = True
        self.shares.start(self.groups.limits.share, now)
        return self.groups.start(now)

    def fire(self, timer: Timer, now: Now) -> GroupDecision:
        """A deadline has passed."""
        if isinstance(self.groups.find(timer.group_id), ShareGroup):
            return self.shares.fire(timer)
        return self.groups.fire(timer, now)

    def delete_groups(
        self, group_ids: Iterable[str]
    ) -> tuple[tuple[DeletedGroup, ...], GroupDecision]:
        answers: list[DeletedGroup] = []
        records: list[GroupRecord] = []
        for group_id in group_ids:
            try:
                ending = self.groups.delete(group_id)
                records.extend(self.offsets.delete_group(group_id))
                records.extend(ending)
                answers.append(DeletedGroup(group_id, ErrorCode.NONE))
            except KafkaError as refusal:
                answers.append(DeletedGroup(group_id, refusal.code))
        return tuple(answers), Decision(tuple(records))

    def expire(self, now: Now) -> GroupDecision:
        """Offsets past their retention go, and groups that have nothing left go with them."""
        records: list[GroupRecord] = []
        for group in list(self.groups):
            expired, nothing_left = self.offsets.expired(group, now.wall_ms)
            records.extend(expired)
            if nothing_left and group.is_empty and not _stays(group):
                records.extend(group.tombstones())
        return Decision(tuple(records))

    def delete_topics(self, topics: Iterable[str]) -> GroupDecision:
        records = (record for topic in topics for record in self.offsets.delete_topic(topic))
        return Decision(tuple(records))

    def replay(self, record: GroupRecord) -> None:
        self._replays[type(record)](record)

    def replay_transactional(self, record: GroupRecord, producer: ProducerIdentity) -> None:
        if isinstance(record, OffsetCommit):
            self.offsets.replay_transactional(record, producer.producer_id)
        else:
            self.replay(record)

    def replay_marker(self, producer: ProducerIdentity, *, committed: bool) -> None:
        self.offsets.complete(producer.producer_id, committed=committed)


def _stays(group: object) -> bool:
    """Someone is about to join, or what it knows is no offset and does not expire."""
    if isinstance(group, ClassicGroup):
        return bool(group.pending_joins)
    return isinstance(group, ShareGroup)
