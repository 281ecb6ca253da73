"""A consumer group in the course of one decision, and the steps that every decision is made of.

A draft applies each record it gathers to a copy of the group, so that a later step sees what an
earlier one decided, while the group itself waits for the replay.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol
from uuid import UUID

from headrace.coordination.assignors import ASSIGNORS, AssignedMember
from headrace.coordination.consumer_group import ConsumerGroup
from headrace.coordination.consumer_group_member import ConsumerMember, MemberState, Subscription
from headrace.coordination.consumer_group_reconciliation import Goal, reconciled
from headrace.coordination.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupPartitionMetadata,
    ConsumerGroupRecord,
    ConsumerGroupRegularExpression,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
    Partitions,
    ResolvedPattern,
    StoredEpoch,
    StoredTargetEpoch,
)
from headrace.coordination.deadlines import Deadlines
from headrace.coordination.group import ConsumerGroupLimits, Now
from headrace.coordination.group_records import GroupRecord
from headrace.coordination.rebalance import Timer, TimerKind
from headrace.coordination.regular_expressions import compile_pattern
from headrace.coordination.topics import Topic

REGEX_MIN_INTERVAL_MS = 1000
"""However often topics change, a group's patterns are matched anew at most this often."""

_HASH_BYTES = 8


class TopicCatalog(Protocol):
    """The topics there are, and what groups set for themselves; `version` changes with them."""

    @property
    def version(self) -> int: ...
    @property
    def topics(self) -> Mapping[str, Topic]: ...

    def find(self, topic_id: UUID) -> Topic | None: ...

    def configs_of(self, resource_type: int, name: str) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What decisions about consumer groups need to know besides the group."""

    topics: TopicCatalog
    limits: ConsumerGroupLimits
    deadlines: Deadlines[Timer]
    now: Now


class Draft:
    """See the module. Deadlines are soft: they are set at once, and one too many does no harm."""

    def __init__(self, group: ConsumerGroup, around: Surroundings) -> None:
        self.group = group
        self.around = around
        self.records: list[GroupRecord] = []
        self._is_copy = False

    def add(self, record: ConsumerGroupRecord) -> None:
        if not self._is_copy:
            self.group = self.group.copy()
            self._is_copy = True
        self.group.apply(record)
        self.records.append(record)

    # Members.

    def subscribe(self, member: ConsumerMember) -> bool:
        """Write a member down if it is new or changed; True if its subscription changed."""
        old = self.group.members.get(member.member_id)
        if old == member:
            return False
        group_id = self.group.group_id
        self.add(ConsumerGroupMemberMetadata(group_id, member.member_id, member.stored()))
        before = Subscription() if old is None else old.subscription
        return before != member.subscription

    def remove(self, member_id: str) -> None:
        """The order matters: it owns nothing, shall own nothing, is no member."""
        group_id = self.group.group_id
        self.add(ConsumerGroupCurrentMemberAssignment(group_id, member_id, None))
        self.add(ConsumerGroupTargetAssignmentMember(group_id, member_id, None))
        self.add(ConsumerGroupMemberMetadata(group_id, member_id, None))

    def replace(self, old: ConsumerMember, new: ConsumerMember) -> None:
        """A static member came back: its new id inherits what the old one had and was to have."""
        group_id, target = self.group.group_id, self.group.target.get(old.member_id, {})
        self.remove(old.member_id)
        self.add(ConsumerGroupMemberMetadata(group_id, new.member_id, new.stored()))
        self.add(ConsumerGroupTargetAssignmentMember(group_id, new.member_id, target))
        self.store_assignment(new)

    def store_assignment(self, member: ConsumerMember) -> None:
        self.add(
            ConsumerGroupCurrentMemberAssignment(
                self.group.group_id, member.member_id, member.stored_assignment()
            )
        )

    def fence(self, member_ids: Collection[str]) -> None:
        """Members are gone: the others share what they had, once there is a new target."""
        for member_id in member_ids:
            self.remove(member_id)
        self.drop_unused_patterns()
        self.bump_epoch()

    # Subscriptions by pattern.

    def drop_unused_patterns(self) -> None:
        if not self.group.patterns:
            return
        for pattern in self.group.patterns.keys() - self.group.subscribed_patterns():
            self.add(ConsumerGroupRegularExpression(self.group.group_id, pattern, None))

    def resolve_patterns(self) -> bool:
        """Match patterns that are new, and all when topics changed; True if a match changed."""
        self.drop_unused_patterns()
        group = self.group
        wanted = group.subscribed_patterns()
        if not wanted:
            return False
        if not self._refresh_is_due():
            wanted -= group.patterns.keys()
        changed = False
        for pattern in sorted(wanted):
            matches = compile_pattern(pattern)
            found = frozenset(name for name in self.around.topics.topics if matches(name))
            known = group.patterns.get(pattern)
            changed |= bool(found) if known is None else known.topics != found
            version, wall_ms = self.around.topics.version, self.around.now.wall_ms
            resolved = ResolvedPattern(found, version, wall_ms)
            self.add(ConsumerGroupRegularExpression(group.group_id, pattern, resolved))
        return changed

    def _refresh_is_due(self) -> bool:
        limits, version = self.around.limits, self.around.topics.version
        for resolved in self.group.patterns.values():
            age_ms = self.around.now.wall_ms - resolved.timestamp_ms
            if resolved.version != version and age_ms >= REGEX_MIN_INTERVAL_MS:
                return True
            if age_ms > limits.regex_refresh_interval_ms:
                return True
        return False

    # Epochs.

    def metadata_hash(self) -> int:
        """Two groups of topics differ in it, and so do two states of the same topics.

        It is ours: Kafka's own is another, and either side takes the other's for a change of
        topics, which costs one rebalance when a log changes hands.
        """
        hashed = blake2b(digest_size=_HASH_BYTES)
        known = self.around.topics.topics
        found = [known[name] for name in sorted(self.group.subscribed_topics()) if name in known]
        for topic in found:
            hashed.update(f"{topic.name}/{topic.partitions}/".encode())
            hashed.update(topic.topic_id.bytes)
        return int.from_bytes(hashed.digest(), "big", signed=True) if found else 0

    def bump_epoch(self) -> None:
        group = self.group
        stored = StoredEpoch(group.epoch + 1, self.metadata_hash())
        self.add(ConsumerGroupMetadata(group.group_id, stored))
        if group.has_partition_metadata:
            self.add(ConsumerGroupPartitionMetadata(group.group_id, None))

    def assign(self) -> None:
        """Make a target for the newest epoch, unless the last was made too short a time ago."""
        group, wall_ms = self.group, self.around.now.wall_ms
        if group.assignment_epoch >= group.epoch:
            return
        made_ms, interval_ms = (
            group.assignment_timestamp_ms,
            self.around.limits.assignment_interval_ms,
        )
        if made_ms and interval_ms and wall_ms < made_ms + interval_ms:
            return
        for member_id, target in self._new_target().items():
            if group.target.get(member_id) != target:
                self.add(ConsumerGroupTargetAssignmentMember(group.group_id, member_id, target))
        made = StoredTargetEpoch(group.epoch, wall_ms)
        self.add(ConsumerGroupTargetAssignmentMetadata(group.group_id, made))

    def _new_target(self) -> Mapping[str, Partitions]:
        group, limits = self.group, self.around.limits
        topic_ids = self._topic_ids_of()
        members = {
            member.member_id: AssignedMember(
                member.instance_id,
                topic_ids(member.subscription),
                group.target.get(member.member_id, {}),
            )
            for member in group.members.values()
        }
        counts = {
            topic.topic_id: topic.partitions
            for topic in map(self.around.topics.topics.get, group.subscribed_topics())
            if topic is not None
        }
        asked = group.preferred_assignor()
        name = asked if asked in limits.assignors else limits.assignors[0]
        return ASSIGNORS[name](members, counts)

    def _topic_ids_of(self) -> Callable[[Subscription], frozenset[UUID]]:
        """Most members of a group subscribe to the same: ask once for each subscription."""
        known: dict[Subscription, frozenset[UUID]] = {}

        def topic_ids(subscription: Subscription) -> frozenset[UUID]:
            found = known.get(subscription)
            if found is None:
                found = known[subscription] = self.topic_ids(subscription)
            return found

        return topic_ids

    def topic_ids(self, subscription: Subscription) -> frozenset[UUID]:
        topics = self.around.topics.topics
        names = self.group.topics_of(subscription)
        return frozenset(topics[name].topic_id for name in names if name in topics)

    def reconcile(
        self, member_id: str, owned: Partitions | None, *, subscription_changed: bool
    ) -> ConsumerMember:
        """Take the member one step towards its target."""
        group = self.group
        member = group.members[member_id]
        if not subscription_changed and member.is_reconciled_to(group.assignment_epoch):
            return member
        goal = Goal(
            epoch=group.assignment_epoch,
            target=group.target.get(member_id, {}),
            subscribed=self.topic_ids(member.subscription),
            owner=group.owner,
            owned=owned,
            subscription_changed=subscription_changed,
        )
        moved = reconciled(member, goal)
        if moved == member:
            return member
        self.store_assignment(moved)
        if moved.classic is None:
            self._watch_revocation(moved)
        return moved

    def _watch_revocation(self, member: ConsumerMember) -> None:
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self.set_timer(TimerKind.REVOCATION, member.rebalance_timeout_ms, member.member_id)
        else:
            self.cancel_timer(TimerKind.REVOCATION, member.member_id)

    # Deadlines.

    def extend_session(self, member: ConsumerMember) -> None:
        own_ms = member.session_timeout_ms
        timeout_ms = self.around.limits.session_timeout_ms if own_ms is None else own_ms
        self.set_timer(TimerKind.SESSION, timeout_ms, member.member_id)

    def set_timer(self, kind: TimerKind, delay_ms: int, member_id: str) -> None:
        timer = Timer(kind, self.group.group_id, member_id)
        self.around.deadlines.set(timer, self.around.now.monotonic_ms + delay_ms)

    def cancel_timer(self, kind: TimerKind, member_id: str) -> None:
        self.around.deadlines.cancel(Timer(kind, self.group.group_id, member_id))
