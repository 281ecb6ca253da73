"""A classic group as a value: members, generation, state, and which moves between states are legal.

Invariants of every value:
- a group with members has one leader, who is a member; a group without members has none;
- an instance id belongs to at most one member;
- joins are parked only while PreparingRebalance, syncs only while CompletingRebalance;
- an Empty group has no members.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from headrace.coordination.group import CommittedPartition, Committer, GroupType
from headrace.coordination.group_member import Member, MemberProtocol
from headrace.coordination.group_members import Members
from headrace.coordination.group_records import (
    NO_TIMESTAMP,
    CommittedOffset,
    GroupMetadata,
    StoredGroup,
)
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.primitives import Reader

CONSUMER_PROTOCOL_TYPE = "consumer"


class GroupState(StrEnum):
    """Where a classic group is between two generations."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


NEXT: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.DEAD: frozenset(),
}


@dataclass(frozen=True, slots=True)
class InitialDelay:
    """How long a new group still waits for more members before its first generation."""

    delay_ms: int
    remaining_ms: int


@dataclass(frozen=True, slots=True)
class ClassicGroup:
    """See the module; `members` keeps the order in which members came."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    previous_state: GroupState = GroupState.DEAD
    state_timestamp_ms: int = NO_TIMESTAMP
    protocol_type: str | None = None
    protocol: str | None = None
    generation: int = 0
    leader: str | None = None
    members: Members = field(default_factory=Members)
    pending_joins: frozenset[str] = frozenset()
    pending_syncs: frozenset[str] = frozenset()
    subscribed_topics: frozenset[str] | None = None
    new_member_added: bool = False
    initial_delay: InitialDelay | None = None

    # What every kind of group offers.

    @property
    def group_type(self) -> GroupType:
        return GroupType.CLASSIC

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type_name(self) -> str:
        return self.protocol_type or ""

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    def check_commit(
        self, committer: Committer, offsets: Iterable[CommittedPartition] = ()
    ) -> None:
        if committer.generation < 0 and self.is_empty:
            # An administrator, or a consumer that assigns its partitions itself.
            return
        identified = committer.member_id or committer.group_instance_id is not None
        if committer.generation >= 0 or identified:
            self.check_member(committer.member_id, committer.group_instance_id)
            if committer.generation != self.generation:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"it is {self.generation}")
        elif not committer.transactional and not self.is_empty:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members")
        if not committer.transactional and self.state is GroupState.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """A classic group shows its offsets to anyone."""

    def check_offset_delete(self) -> None:
        if not self.is_empty and self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def check_delete(self) -> None:
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            # Not knowing what its members read, assume the worst of a consumer group.
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    def expiry_base_ms(self, committed: CommittedOffset) -> int | None:
        if self.protocol_type is None:
            return committed.commit_timestamp_ms
        if self.is_empty:
            emptied = self.state_timestamp_ms
            return committed.commit_timestamp_ms if emptied == NO_TIMESTAMP else emptied
        knows_topics = self.subscribed_topics is not None
        if knows_topics and self.protocol_type == CONSUMER_PROTOCOL_TYPE and self.is_stable:
            return committed.commit_timestamp_ms
        return None

    def tombstones(self) -> tuple[GroupMetadata, ...]:
        return (GroupMetadata(self.group_id, None),)

    # What only a classic group has.

    @property
    def is_stable(self) -> bool:
        return self.state is GroupState.STABLE

    @property
    def can_rebalance(self) -> bool:
        return GroupState.PREPARING_REBALANCE in NEXT[self.state]

    @property
    def awaiting_joins(self) -> int:
        return self.members.joining

    @property
    def all_joined(self) -> bool:
        return not self.pending_joins and self.members.joining == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def static_member_id(self, group_instance_id: str) -> str | None:
        return self.members.of_instance(group_instance_id)

    def check_member(self, member_id: str, group_instance_id: str | None) -> None:
        member = self.members.get(member_id)
        if member is not None and (
            group_instance_id is None or group_instance_id == member.group_instance_id
        ):
            return
        if group_instance_id is not None and self.static_member_id(group_instance_id) is not None:
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"{group_instance_id} has a new member")
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, member_id)

    def supports(self, protocol_type: str, protocols: tuple[MemberProtocol, ...]) -> bool:
        if self.is_empty:
            return bool(protocol_type) and bool(protocols)
        return self.protocol_type == protocol_type and any(
            self.members.all_support(each.name) for each in protocols
        )

    def selected_protocol(self) -> str:
        """The protocol that everyone supports and most members prefer."""
        candidates = self.members.supported()
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    # Each of these gives the group as it will be.

    def moved(self, state: GroupState, wall_ms: int) -> "ClassicGroup":
        if state not in NEXT[self.state]:
            raise ValueError(f"group {self.group_id} cannot move from {self.state} to {state}")
        return replace(self, state=state, previous_state=self.state, state_timestamp_ms=wall_ms)

    def with_member(self, member: Member, *, protocol_type: str | None = None) -> "ClassicGroup":
        return replace(
            self,
            members=self.members.having(member),
            protocol_type=self.protocol_type if self.members else protocol_type,
            leader=self.leader or member.member_id,
            pending_joins=self.pending_joins - {member.member_id},
        )

    def updated(self, member: Member) -> "ClassicGroup":
        return replace(self, members=self.members.having(member))

    def without_members(self, member_ids: frozenset[str]) -> "ClassicGroup":
        members = Members(
            each for each in self.members.values() if each.member_id not in member_ids
        )
        return replace(
            self,
            members=members,
            leader=next(iter(members), None) if self.leader in member_ids else self.leader,
            pending_joins=self.pending_joins - member_ids,
            pending_syncs=self.pending_syncs - member_ids,
        )

    def with_replaced(self, old_member_id: str, member: Member) -> "ClassicGroup":
        """A static member that came back under a new id keeps its place, and its lead."""
        members = Members(
            member if each.member_id == old_member_id else each for each in self.members.values()
        )
        leader = member.member_id if self.leader == old_member_id else self.leader
        return replace(
            self, members=members, leader=leader, pending_syncs=self.pending_syncs - {old_member_id}
        )

    def next_generation(self, wall_ms: int) -> "ClassicGroup":
        state = GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY
        started = replace(
            self.moved(state, wall_ms),
            generation=self.generation + 1,
            protocol=self.selected_protocol() if self.members else None,
            pending_syncs=frozenset(),
            initial_delay=None,
            new_member_added=False,
        )
        return replace(started, subscribed_topics=started.read_subscriptions())

    def with_selected_protocol(self) -> "ClassicGroup":
        chosen = replace(self, protocol=self.selected_protocol())
        return replace(chosen, subscribed_topics=chosen.read_subscriptions())

    def read_subscriptions(self) -> frozenset[str] | None:
        """The topics that the members of a consumer group read; None if nobody here can tell."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        if not self.members:
            return frozenset()
        try:
            return frozenset(
                topic
                for member in self.members.values()
                for topic in _subscribed_topics(member.metadata(self.protocol))
            )
        except ValueError:
            return None

    # The group as the log keeps it.

    def stored(self) -> StoredGroup:
        return StoredGroup(
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.leader,
            self.state_timestamp_ms,
            tuple(member.stored(self.protocol) for member in self.members.values()),
        )

    @classmethod
    def from_stored(cls, group_id: str, stored: StoredGroup) -> "ClassicGroup":
        members = Members(Member.from_stored(each, stored.protocol) for each in stored.members)
        loaded = cls(
            group_id,
            state=GroupState.STABLE if members else GroupState.EMPTY,
            state_timestamp_ms=stored.state_timestamp_ms,
            protocol_type=stored.protocol_type or None,
            protocol=stored.protocol,
            generation=stored.generation,
            leader=(stored.leader or next(iter(members))) if members else None,
            members=members,
        )
        return replace(loaded, subscribed_topics=loaded.read_subscriptions())


def _subscribed_topics(subscription: bytes) -> list[str]:
    """Version 0 of the consumer protocol's subscription begins every later version too."""
    reader = Reader(subscription)
    reader.int16()
    return reader.array(reader.string) or []
