"""What one partition of __consumer_offsets says: its groups and their offsets, as one machine."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from headrace.coordination.classic_group import ClassicGroup
from headrace.coordination.consumer_group import ConsumerGroup
from headrace.coordination.consumer_group_draft import TopicCatalog
from headrace.coordination.consumer_group_records import CONSUMER_GROUP_WRITERS
from headrace.coordination.consumer_groups import ConsumerGroups, NoTopics
from headrace.coordination.group import GroupLimits, Now
from headrace.coordination.group_records import GroupMetadata, GroupRecord, OffsetCommit
from headrace.coordination.groups import GroupDecision, Groups
from headrace.coordination.join import JoinRequest
from headrace.coordination.leave import Leaver, LeaverAnswer
from headrace.coordination.machine import Decision
from headrace.coordination.offsets import Offsets
from headrace.coordination.rebalance import Timer
from headrace.coordination.share_group import ShareGroup
from headrace.coordination.share_group_records import SHARE_GROUP_WRITERS
from headrace.coordination.share_groups import ShareGroups
from headrace.coordination.sync import SyncRequest
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

    def __init__(self, limits: GroupLimits, topics: Callable[[], TopicCatalog] = NoTopics) -> None:
        self.groups = Groups(limits)
        self.consumer_groups = ConsumerGroups(self.groups, topics)
        self.offsets = Offsets(self.groups, limits)
        self.shares = ShareGroups(self.groups)
        self.started = False
        self._replays: Mapping[type, Callable[..., None]] = {
            OffsetCommit: self.offsets.replay,
            GroupMetadata: self.groups.replay,
            **dict.fromkeys(CONSUMER_GROUP_WRITERS, self.consumer_groups.replay),
            **dict.fromkeys(SHARE_GROUP_WRITERS, self.shares.replay),
        }

    def start(self, now: Now) -> GroupDecision:
        self.started = True
        self.consumer_groups.start(now)
        self.shares.start(self.groups.limits.share, now)
        return self.groups.start(now)

    # The classic protocol, which members of consumer groups may speak too.

    def join(self, request: JoinRequest, ticket: int, now: Now) -> GroupDecision:
        group = self.groups.find(request.group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return self.consumer_groups.join(request, ticket, now)
        return self.groups.join(request, ticket, now)

    def sync(self, request: SyncRequest, ticket: int, now: Now) -> GroupDecision:
        if isinstance(self.groups.find(request.group_id), ConsumerGroup):
            return self.consumer_groups.sync(request, ticket, now)
        return self.groups.sync(request, ticket, now)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: Now
    ) -> ErrorCode:
        who = group_id, member_id, instance_id, generation
        if isinstance(self.groups.find(group_id), ConsumerGroup):
            return self.consumer_groups.classic_heartbeat(*who, now)
        return self.groups.heartbeat(*who, now.monotonic_ms)

    def leave(
        self, group_id: str, leavers: Sequence[Leaver], now: Now
    ) -> tuple[tuple[LeaverAnswer, ...], GroupDecision]:
        if isinstance(self.groups.find(group_id), ConsumerGroup):
            return self.consumer_groups.classic_leave(group_id, leavers, now)
        return self.groups.leave(group_id, leavers, now)

    # Groups of any kind.

    def fire(self, timer: Timer, now: Now) -> GroupDecision:
        """A deadline has passed."""
        group = self.groups.find(timer.group_id)
        if isinstance(group, ShareGroup):
            return self.shares.fire(timer)
        if isinstance(group, ConsumerGroup):
            return self.consumer_groups.fire(timer, now)
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
        names = tuple(topics)
        records = (record for topic in names for record in self.offsets.delete_topic(topic))
        return Decision((*records, *self.shares.topics_deleted(names)))

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
