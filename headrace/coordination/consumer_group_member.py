"""One member of a consumer group: who it is, what it reads, how far it has come to its target."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from headrace.coordination.consumer_group_records import (
    NO_REBALANCE_TIMEOUT,
    EpochedPartitions,
    Partitions,
    StoredAssignment,
    StoredClassicMember,
    StoredConsumerMember,
)
from headrace.coordination.group_member import MemberProtocol

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""A static member that left, and is expected back before its session ends."""


class MemberState(IntEnum):
    """How far a member is on its way to the target assignment."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> "MemberState":
        return cls.UNKNOWN


class ClassicMetadata(NamedTuple):
    """What a member brings that speaks the classic protocol inside a consumer group."""

    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]


class Subscription(NamedTuple):
    """What a member reads: topics by name, and those that a pattern matches."""

    topics: frozenset[str] = frozenset()
    pattern: str = ""


NO_SUBSCRIPTION = Subscription()


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """What it is pending to revoke it still owns: nobody else may have that yet."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscription: Subscription = NO_SUBSCRIPTION
    rebalance_timeout_ms: int = NO_REBALANCE_TIMEOUT
    server_assignor: str | None = None
    classic: ClassicMetadata | None = None
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: EpochedPartitions = field(default_factory=dict)
    pending_revocation: EpochedPartitions = field(default_factory=dict)

    @property
    def session_timeout_ms(self) -> int | None:
        """Its own, if it speaks the classic protocol; the others have the group's."""
        return None if self.classic is None else self.classic.session_timeout_ms

    def owned(self) -> dict[UUID, frozenset[int]]:
        """What nobody else may have: what it may keep, and what it has still to revoke."""
        kept, revoked = numbers(self.assigned), numbers(self.pending_revocation)
        none: frozenset[int] = frozenset()
        return {key: kept.get(key, none) | revoked.get(key, none) for key in {**kept, **revoked}}

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def epoch_of(self, topic_id: UUID, partition: int) -> int | None:
        """When it got a partition that it still owns."""
        for owned in (self.assigned, self.pending_revocation):
            epoch = owned.get(topic_id, _NONE).get(partition)
            if epoch is not None:
                return epoch
        return None

    def advanced(
        self,
        state: MemberState,
        epoch: int,
        assigned: EpochedPartitions,
        pending_revocation: EpochedPartitions,
    ) -> "ConsumerMember":
        """The next step; the epoch it comes from stays good until the answer has arrived."""
        return replace(
            self,
            state=state,
            epoch=epoch,
            previous_epoch=self.epoch,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )

    # The member as the log keeps it: in two records.

    def stored(self) -> StoredConsumerMember:
        classic = self.classic
        return StoredConsumerMember(
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            tuple(sorted(self.subscription.topics)),
            self.subscription.pattern,
            self.rebalance_timeout_ms,
            self.server_assignor,
            classic and StoredClassicMember(classic.session_timeout_ms, classic.protocols),
        )

    def with_stored(self, stored: StoredConsumerMember) -> "ConsumerMember":
        classic = stored.classic
        protocols = () if classic is None else classic.protocols
        return replace(
            self,
            instance_id=stored.instance_id,
            rack_id=stored.rack_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            subscription=Subscription(frozenset(stored.topics), stored.pattern or ""),
            rebalance_timeout_ms=stored.rebalance_timeout_ms,
            server_assignor=stored.server_assignor,
            classic=classic
            and ClassicMetadata(
                classic.session_timeout_ms, tuple(MemberProtocol(*each) for each in protocols)
            ),
        )

    def stored_assignment(self) -> StoredAssignment:
        return StoredAssignment(
            self.epoch, self.previous_epoch, self.state, self.assigned, self.pending_revocation
        )

    def with_assignment(self, stored: StoredAssignment) -> "ConsumerMember":
        return replace(
            self,
            epoch=stored.epoch,
            previous_epoch=stored.previous_epoch,
            state=MemberState(stored.state),
            assigned=stored.assigned,
            pending_revocation=stored.pending_revocation,
        )


_NONE: Mapping[int, int] = {}


def numbers(owned: EpochedPartitions) -> dict[UUID, frozenset[int]]:
    """The same partitions without their epochs."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}


def at_epoch(partitions: Partitions, epoch: int) -> dict[UUID, dict[int, int]]:
    """These partitions as owned since one epoch."""
    return {topic_id: dict.fromkeys(each, epoch) for topic_id, each in partitions.items() if each}
