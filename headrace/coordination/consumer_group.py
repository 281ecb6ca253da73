"""A group of the consumer protocol (KIP-848) as its records make it.

Three epochs tell how far it is: the group's grows with every change of members, subscriptions or
topics; the target assignment's says which of them it was made for; a member's, how far it has come.

Invariants, after any history:
- a partition has at most one owner: whom it is assigned to, or who has still to revoke it;
- a member's epoch is at most the target's, and that at most the group's;
- an instance id belongs to at most one member.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from uuid import UUID

from headrace.coordination.consumer_group_member import (
    LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
    Subscription,
)
from headrace.coordination.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupPartitionMetadata,
    ConsumerGroupRecord,
    ConsumerGroupRegularExpression,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
    EpochedPartitions,
    Partitions,
    ResolvedPattern,
    StoredEpoch,
    StoredTargetEpoch,
)
from headrace.coordination.group import CommittedPartition, Committer, GroupType
from headrace.coordination.group_records import CommittedOffset, GroupRecord
from headrace.errors import ErrorCode, KafkaError

CONSUMER_PROTOCOL_TYPE = "consumer"

FIRST_EPOCH = 1
"""Of a group that no record has given an epoch: the target, at 0, is behind it."""


class ConsumerGroupState(StrEnum):
    """What the three epochs add up to."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup:
    """See the module. `apply` is the only mutator; a decision applies to a copy."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        self.has_partition_metadata = False
        self.members: dict[str, ConsumerMember] = {}
        self.target: dict[str, Partitions] = {}
        self.patterns: dict[str, ResolvedPattern] = {}
        self._instances: dict[str, str] = {}
        self._owners: dict[UUID, dict[int, str]] = {}
        self._subscriptions: Counter[Subscription] = Counter()
        self._classic_members = 0

    def copy(self) -> "ConsumerGroup":
        twin = ConsumerGroup(self._group_id)
        vars(twin).update(vars(self))
        twin.members = dict(self.members)
        twin.target = dict(self.target)
        twin.patterns = dict(self.patterns)
        twin._instances = dict(self._instances)
        twin._owners = {key: dict(owners) for key, owners in self._owners.items()}
        twin._subscriptions = Counter(self._subscriptions)
        return twin

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConsumerGroup) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # a group changes

    def __repr__(self) -> str:
        return f"ConsumerGroup({vars(self)})"

    # What every kind of group offers.

    @property
    def group_id(self) -> str:
        return self._group_id

    @property
    def group_type(self) -> GroupType:
        return GroupType.CONSUMER

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(each.is_reconciled_to(self.assignment_epoch) for each in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type_name(self) -> str:
        return CONSUMER_PROTOCOL_TYPE

    @property
    def is_empty(self) -> bool:
        return not self.members

    def check_commit(self, committer: Committer, offsets: Iterable[CommittedPartition]) -> None:
        if committer.generation < 0 and self.is_empty:
            # An administrator, or a consumer that assigns its partitions itself.
            return
        anonymous = not committer.member_id and committer.group_instance_id is None
        if committer.transactional and committer.generation == -1 and anonymous:
            return
        member = self.member(committer.member_id)
        # The version that knows GROUP_ID_NOT_FOUND is the one that knows epochs.
        if not (committer.transactional or member.classic or committer.knows_group_not_found):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer "
                "group protocol",
            )
        try:
            _check_epochs(member, committer.generation, offsets)
        except KafkaError as refusal:
            # TxnOffsetCommit is older than epochs, so it has no code of theirs.
            code = ErrorCode.ILLEGAL_GENERATION if committer.transactional else refusal.code
            raise KafkaError(code, refusal.message) from refusal

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.epoch:
            raise _stale(member, f"epoch {member_epoch} is not {member.epoch}")

    def check_offset_delete(self) -> None:
        """Offsets of topics that nobody reads may go while the group lives."""

    def check_delete(self) -> None:
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in each.topics for each in self._subscriptions) or any(
            topic in resolved.topics for resolved in self.patterns.values()
        )

    def expiry_base_ms(self, committed: CommittedOffset) -> int | None:
        return committed.commit_timestamp_ms

    def tombstones(self) -> tuple[GroupRecord, ...]:
        group_id, members = self._group_id, self.members
        records: list[GroupRecord] = [
            *(ConsumerGroupCurrentMemberAssignment(group_id, each, None) for each in members),
            *(ConsumerGroupTargetAssignmentMember(group_id, each, None) for each in self.target),
            ConsumerGroupTargetAssignmentMetadata(group_id, None),
            *(ConsumerGroupMemberMetadata(group_id, each, None) for each in members),
            *(ConsumerGroupRegularExpression(group_id, each, None) for each in self.patterns),
        ]
        if self.has_partition_metadata:
            records.append(ConsumerGroupPartitionMetadata(group_id, None))
        records.append(ConsumerGroupMetadata(group_id, None))
        return tuple(records)

    # What only a consumer group has.

    def member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self._group_id}.",
            )
        return member

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = None if instance_id is None else self._instances.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def owner(self, topic_id: UUID, partition: int) -> str | None:
        return self._owners.get(topic_id, {}).get(partition)

    def topics_of(self, subscription: Subscription) -> frozenset[str]:
        """By name and by pattern; a pattern that is not resolved yet matches nothing."""
        resolved = self.patterns.get(subscription.pattern)
        return subscription.topics | resolved.topics if resolved else subscription.topics

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset().union(*map(self.topics_of, self._subscriptions))

    def subscribed_patterns(self) -> frozenset[str]:
        return frozenset(each.pattern for each in self._subscriptions if each.pattern)

    def preferred_assignor(self) -> str | None:
        """The one that most members ask for."""
        asked = Counter(each.server_assignor for each in self.members.values())
        del asked[None]
        return asked.most_common(1)[0][0] if asked else None

    @property
    def has_classic_members(self) -> bool:
        return self._classic_members > 0

    def all_classic_without(self, leaving: Iterable[str]) -> bool:
        """Whether those who stay, if any do, all speak the classic protocol."""
        gone = set(leaving)
        staying = [each for key, each in self.members.items() if key not in gone]
        return bool(staying) and all(each.classic for each in staying)

    def supports_classic(self, protocol_type: str, names: frozenset[str]) -> bool:
        """Whether one of these protocols is known to every member of the classic protocol."""
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        for member in self.members.values():
            if member.classic:
                names &= {each.name for each in member.classic.protocols}
        return bool(names)

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether something of its target is still owned by another member."""
        return any(
            self.owner(topic_id, each) not in (None, member.member_id)
            for topic_id, partitions in self.target.get(member.member_id, {}).items()
            for each in partitions
        )

    # Replay.

    def apply(self, record: ConsumerGroupRecord) -> None:
        match record:
            case ConsumerGroupMetadata():
                self._apply_epoch(record)
            case ConsumerGroupPartitionMetadata():
                self.has_partition_metadata = record.value is not None
            case ConsumerGroupMemberMetadata():
                self._apply_member(record)
            case ConsumerGroupTargetAssignmentMetadata():
                self._apply_target_epoch(record)
            case ConsumerGroupTargetAssignmentMember():
                self._apply_target(record)
            case ConsumerGroupCurrentMemberAssignment():
                self._apply_assignment(record)
            case ConsumerGroupRegularExpression():
                self._apply_pattern(record)

    def _apply_epoch(self, record: ConsumerGroupMetadata) -> None:
        self.epoch, self.metadata_hash = record.value or StoredEpoch(FIRST_EPOCH)

    def _apply_member(self, record: ConsumerGroupMemberMetadata) -> None:
        member = self.members.get(record.member_id) or ConsumerMember(record.member_id)
        self._forget(record.member_id)
        if record.value is not None:
            self._keep(member.with_stored(record.value))

    def _apply_target_epoch(self, record: ConsumerGroupTargetAssignmentMetadata) -> None:
        stored = record.value or StoredTargetEpoch(0)
        self.assignment_epoch, self.assignment_timestamp_ms = stored

    def _apply_target(self, record: ConsumerGroupTargetAssignmentMember) -> None:
        if record.value is None:
            self.target.pop(record.member_id, None)
        else:
            self.target[record.member_id] = record.value

    def _apply_assignment(self, record: ConsumerGroupCurrentMemberAssignment) -> None:
        member = self.members.get(record.member_id)
        if record.value is not None:
            member = member or ConsumerMember(record.member_id)
            self._forget(record.member_id)
            self._keep(member.with_assignment(record.value))
        elif member is not None:
            self._forget(record.member_id)
            left = replace(member, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH)
            self._keep(replace(left, state=MemberState.STABLE, assigned={}, pending_revocation={}))

    def _apply_pattern(self, record: ConsumerGroupRegularExpression) -> None:
        if record.value is None:
            self.patterns.pop(record.pattern, None)
        else:
            self.patterns[record.pattern] = record.value

    def _keep(self, member: ConsumerMember) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id
        self._subscriptions[member.subscription] += 1
        self._classic_members += member.classic is not None
        for owned in (member.assigned, member.pending_revocation):
            self._own(owned, member.member_id)

    def _forget(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        if member.instance_id is not None and self._instances[member.instance_id] == member_id:
            del self._instances[member.instance_id]
        self._subscriptions[member.subscription] -= 1
        if not self._subscriptions[member.subscription]:
            del self._subscriptions[member.subscription]
        self._classic_members -= member.classic is not None
        for owned in (member.assigned, member.pending_revocation):
            self._release(owned, member_id)

    def _own(self, owned: EpochedPartitions, member_id: str) -> None:
        for topic_id, partitions in owned.items():
            self._owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member_id))

    def _release(self, owned: EpochedPartitions, member_id: str) -> None:
        for topic_id, partitions in owned.items():
            owners = self._owners.get(topic_id, {})
            for partition in partitions:
                if owners.get(partition) == member_id:
                    del owners[partition]
            if not owners:
                self._owners.pop(topic_id, None)


def _stale(member: ConsumerMember, reason: str) -> KafkaError:
    code = ErrorCode.ILLEGAL_GENERATION if member.classic else ErrorCode.STALE_MEMBER_EPOCH
    return KafkaError(code, reason)


def _check_epochs(
    member: ConsumerMember, epoch: int, offsets: Iterable[CommittedPartition]
) -> None:
    """A late commit counts for what the member has owned since then without a break (KIP-1251)."""
    if epoch == member.epoch:
        return
    if epoch > member.epoch:
        raise _stale(member, f"epoch {epoch} is newer than {member.epoch}")
    for each in offsets:
        since = member.epoch_of(each.topic_id, each.partition)
        if since is None or epoch < since:
            raise _stale(member, f"{each.topic}-{each.partition} was not its own in {epoch}")
