"""A share group (KIP-932) as its records make it: members that may read the same partitions.

Invariants, after any history:
- a member's epoch is at most the target's, and that at most the group's;
- a member is assigned only partitions that have a share state.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from uuid import UUID

from headrace.coordination.group import Committer, GroupType
from headrace.coordination.group_records import CommittedOffset, GroupRecord
from headrace.coordination.share_group_records import (
    Partitions,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupMetadata,
    ShareGroupRecord,
    ShareGroupStatePartitionMetadata,
    ShareGroupTargetAssignmentMember,
    ShareGroupTargetAssignmentMetadata,
    StateTopic,
    StoredShareEpoch,
    StoredShareMember,
    StoredShareTarget,
    StoredStatePartitions,
)
from headrace.errors import ErrorCode, KafkaError

SHARE_PROTOCOL_TYPE = "share"
NO_STATE_PARTITIONS = StoredStatePartitions({}, {}, {})


class ShareGroupState(StrEnum):
    """Whether anyone is in it."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ShareMember:
    """One member: what it told of itself, and how far it has come."""

    member_id: str
    stored: StoredShareMember = field(default_factory=StoredShareMember)
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Partitions = field(default_factory=dict)


class ShareGroup:
    """See the module. `apply` is the only mutator; a decision applies to a copy."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ShareMember] = {}
        self.target: dict[str, Partitions] = {}
        self.states = NO_STATE_PARTITIONS

    def copy(self) -> "ShareGroup":
        twin = ShareGroup(self._group_id)
        vars(twin).update(vars(self))
        twin.members = dict(self.members)
        twin.target = dict(self.target)
        return twin

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShareGroup) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # a group changes

    def __repr__(self) -> str:
        return f"ShareGroup({vars(self)})"

    # What every kind of group offers.

    @property
    def group_id(self) -> str:
        return self._group_id

    @property
    def group_type(self) -> GroupType:
        return GroupType.SHARE

    @property
    def state_name(self) -> str:
        return (ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY).value

    @property
    def protocol_type_name(self) -> str:
        return SHARE_PROTOCOL_TYPE

    @property
    def is_empty(self) -> bool:
        return not self.members

    def check_commit(self, committer: Committer, offsets: Iterable[object] = ()) -> None:
        raise self._no_offsets()

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """There are none, which is no error."""

    def check_offset_delete(self) -> None:
        raise self._no_offsets()

    def check_delete(self) -> None:
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in member.stored.topics for member in self.members.values())

    def expiry_base_ms(self, committed: CommittedOffset) -> int | None:
        return None

    def tombstones(self) -> tuple[GroupRecord, ...]:
        group_id = self._group_id
        return (
            *(ShareGroupCurrentMemberAssignment(group_id, each, None) for each in self.members),
            *(ShareGroupTargetAssignmentMember(group_id, each, None) for each in self.target),
            ShareGroupTargetAssignmentMetadata(group_id, None),
            *(ShareGroupMemberMetadata(group_id, each, None) for each in self.members),
            ShareGroupStatePartitionMetadata(group_id, None),
            ShareGroupMetadata(group_id, None),
        )

    def _no_offsets(self) -> KafkaError:
        # Kafka says so too: what a share group has done is not an offset per partition.
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self._group_id} is a share group.")

    # What only a share group has.

    def member(self, member_id: str) -> ShareMember:
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self._group_id}.",
            )
        return member

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset(name for each in self.members.values() for name in each.stored.topics)

    def initialized(self, topic_id: UUID) -> frozenset[int]:
        """The partitions of a topic that have a share state."""
        found = self.states.initialized.get(topic_id)
        return frozenset() if found is None else found.partitions

    # Replay.

    def apply(self, record: ShareGroupRecord) -> None:
        match record:
            case ShareGroupMetadata():
                self.epoch, self.metadata_hash = record.value or StoredShareEpoch(0)
            case ShareGroupMemberMetadata():
                self._apply_member(record)
            case ShareGroupTargetAssignmentMetadata():
                stored = record.value or StoredShareTarget(0)
                self.assignment_epoch, self.assignment_timestamp_ms = stored
            case ShareGroupTargetAssignmentMember():
                self._apply_target(record)
            case ShareGroupCurrentMemberAssignment():
                self._apply_assignment(record)
            case ShareGroupStatePartitionMetadata():
                self.states = record.value or NO_STATE_PARTITIONS

    def _apply_member(self, record: ShareGroupMemberMetadata) -> None:
        if record.value is None:
            self.members.pop(record.member_id, None)
            return
        member = self.members.get(record.member_id) or ShareMember(record.member_id)
        self.members[record.member_id] = replace(member, stored=record.value)

    def _apply_target(self, record: ShareGroupTargetAssignmentMember) -> None:
        if record.value is None:
            self.target.pop(record.member_id, None)
        else:
            self.target[record.member_id] = record.value

    def _apply_assignment(self, record: ShareGroupCurrentMemberAssignment) -> None:
        stored = record.value
        member = self.members.get(record.member_id)
        if stored is None:
            if member is not None:
                self.members[record.member_id] = ShareMember(record.member_id, member.stored)
            return
        member = member or ShareMember(record.member_id)
        self.members[record.member_id] = replace(
            member,
            epoch=stored.epoch,
            previous_epoch=stored.previous_epoch,
            assigned=stored.assigned,
        )


def merged(
    states: Mapping[UUID, StateTopic], added: Mapping[UUID, StateTopic]
) -> dict[UUID, StateTopic]:
    """Share states of both, by topic."""
    found = dict(states)
    for topic_id, topic in added.items():
        known = found.get(topic_id)
        partitions = topic.partitions | (known.partitions if known else frozenset())
        found[topic_id] = StateTopic(topic.name, partitions)
    return found
