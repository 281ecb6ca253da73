"""Share groups of one partition of __consumer_offsets: what a heartbeat decides (KIP-932)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import NamedTuple, Protocol
from uuid import UUID

from headrace.coordination.group import GroupType, Now, ShareGroupLimits
from headrace.coordination.group_records import GroupRecord
from headrace.coordination.groups import GroupDecision, Groups
from headrace.coordination.machine import Decision
from headrace.coordination.rebalance import Timer, TimerKind
from headrace.coordination.share_group import ShareGroup, ShareMember, merged
from headrace.coordination.share_group_assignor import assign_simple
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
    StoredShareAssignment,
    StoredShareEpoch,
    StoredShareMember,
    StoredShareTarget,
)
from headrace.coordination.topics import Topic
from headrace.errors import ErrorCode, KafkaError

JOIN_EPOCH = 0
LEAVE_EPOCH = -1

_HASH_BYTES = 8
_NOTHING: GroupDecision = Decision()


class ShareHeartbeat(NamedTuple):
    """What a member says of itself; with no topics it subscribes to what it did."""

    group_id: str
    member_id: str
    member_epoch: int
    topics: Sequence[str] | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True)
class ShareHeartbeatAnswer:
    """What the member learns; no assignment: it is as it was.

    `stateless` are partitions of subscribed topics that have no share state yet: they are
    assigned once `state_made` was told that they have one, at `state_epoch`.
    """

    member_epoch: int
    assignment: Partitions | None = None
    stateless: Mapping[UUID, StateTopic] | None = None
    state_epoch: int = 0


class TopicsByName(Protocol):
    """The topics there are."""

    @property
    def topics(self) -> Mapping[str, Topic]: ...


class ShareGroups:
    """Decisions about share groups; the groups themselves live among all groups of the log."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def existing(self, group_id: str) -> ShareGroup:
        group = self._groups.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not isinstance(group, ShareGroup):
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group."
            )
        return group

    # Decisions.

    def heartbeat(
        self, request: ShareHeartbeat, catalog: TopicsByName, limits: ShareGroupLimits, now: Now
    ) -> tuple[ShareHeartbeatAnswer, GroupDecision]:
        check_request(request)
        if request.member_epoch == LEAVE_EPOCH:
            return self._leave(request)
        group = self._joined_or_existing(request)
        draft = _Draft(group, catalog)
        before = _member(group, request, limits)
        draft.subscribe(request, before)
        if draft.is_changed:
            draft.bump_epoch()
        draft.assign(now)
        member = draft.advance(request.member_id)
        self.touch(group.group_id, request.member_id, limits, now)
        shown = request.member_epoch == JOIN_EPOCH or member.assigned != before.assigned
        answer = ShareHeartbeatAnswer(
            member.epoch,
            member.assigned if shown else None,
            draft.stateless(),
            draft.group.epoch,
        )
        return answer, Decision(tuple(draft.records))

    def state_made(self, group_id: str, topics: Mapping[UUID, StateTopic]) -> GroupDecision:
        """These partitions have a share state now, so they can be assigned."""
        group = self._groups.find(group_id)
        if not isinstance(group, ShareGroup):
            return _NOTHING
        initialized = merged(group.states.initialized, topics)
        if initialized == group.states.initialized:
            return _NOTHING
        states = replace(group.states, initialized=initialized)
        return Decision(
            (
                ShareGroupStatePartitionMetadata(group_id, states),
                ShareGroupMetadata(
                    group_id, StoredShareEpoch(group.epoch + 1, group.metadata_hash)
                ),
            )
        )

    def begin_alter(self, group_id: str) -> tuple[int, GroupDecision]:
        """An administrator moves an empty group, or begins one: the epoch of the new states."""
        group = self._groups.find(group_id)
        if group is None:
            group = ShareGroup(group_id)
        elif not isinstance(group, ShareGroup):
            group = self.existing(group_id)
        group.check_delete()
        stored = StoredShareEpoch(group.epoch + 1, group.metadata_hash)
        return stored.epoch, Decision((ShareGroupMetadata(group_id, stored),))

    def state_deleted(self, group_id: str, topic_ids: Sequence[UUID]) -> GroupDecision:
        group = self._groups.find(group_id)
        if not isinstance(group, ShareGroup):
            return _NOTHING
        kept = {
            topic_id: topic
            for topic_id, topic in group.states.initialized.items()
            if topic_id not in topic_ids
        }
        if len(kept) == len(group.states.initialized):
            return _NOTHING
        states = replace(group.states, initialized=kept)
        return Decision((ShareGroupStatePartitionMetadata(group_id, states),))

    def topics_deleted(self, names: Sequence[str]) -> list[GroupRecord]:
        """Their share states are gone; who reads what follows with the next heartbeat."""
        records: list[GroupRecord] = []
        for group in self._groups:
            if isinstance(group, ShareGroup):
                states = group.states.initialized
                gone = [topic_id for topic_id, topic in states.items() if topic.name in names]
                records += self.state_deleted(group.group_id, gone).records
        return records

    def fire(self, timer: Timer) -> GroupDecision:
        """A session ended."""
        group = self._groups.find(timer.group_id)
        if timer.kind is not TimerKind.SESSION or not isinstance(group, ShareGroup):
            return _NOTHING
        if timer.member_id not in group.members:
            return _NOTHING
        return Decision(self._without(group, timer.member_id))

    def start(self, limits: ShareGroupLimits, now: Now) -> None:
        """After a load: members have one session timeout to show that they live."""
        for group in self._groups:
            if isinstance(group, ShareGroup):
                for member_id in group.members:
                    self.touch(group.group_id, member_id, limits, now)

    def touch(self, group_id: str, member_id: str, limits: ShareGroupLimits, now: Now) -> None:
        timer = Timer(TimerKind.SESSION, group_id, member_id)
        self._groups.deadlines.set(timer, now.monotonic_ms + limits.session_timeout_ms)

    # Replay.

    def replay(self, record: ShareGroupRecord) -> None:
        group = self._groups.find(record.group_id)
        if isinstance(record, ShareGroupMetadata) and record.value is None:
            self._groups.remove(record.group_id, GroupType.SHARE)
            return
        if not isinstance(group, ShareGroup):
            if record.value is None:
                return
            # A record of the new group comes before the epoch that makes it complete.
            group = ShareGroup(record.group_id)
            self._groups.put(group)
        group.apply(record)

    # The parts.

    def _joined_or_existing(self, request: ShareHeartbeat) -> ShareGroup:
        group = self._groups.find(request.group_id)
        if group is None and request.member_epoch == JOIN_EPOCH:
            return ShareGroup(request.group_id)
        if group is None:
            absent = f"Share group {request.group_id} not found."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, absent)
        return self.existing(request.group_id)

    def _leave(self, request: ShareHeartbeat) -> tuple[ShareHeartbeatAnswer, GroupDecision]:
        group = self.existing(request.group_id)
        group.member(request.member_id)
        self._groups.deadlines.cancel(Timer(TimerKind.SESSION, request.group_id, request.member_id))
        return ShareHeartbeatAnswer(LEAVE_EPOCH), Decision(self._without(group, request.member_id))

    def _without(self, group: ShareGroup, member_id: str) -> tuple[GroupRecord, ...]:
        group_id = group.group_id
        stored = StoredShareEpoch(group.epoch + 1, group.metadata_hash)
        return (
            ShareGroupCurrentMemberAssignment(group_id, member_id, None),
            ShareGroupTargetAssignmentMember(group_id, member_id, None),
            ShareGroupMemberMetadata(group_id, member_id, None),
            ShareGroupMetadata(group_id, stored),
        )


def check_request(request: ShareHeartbeat) -> None:
    """Refuse what Kafka refuses, in Kafka's words and order."""
    _refuse_if(not request.member_id.strip(), "MemberId can't be empty.")
    _refuse_if(not request.group_id.strip(), "GroupId can't be empty.")
    rack_id = request.rack_id
    _refuse_if(rack_id is not None and not rack_id.strip(), "RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        _refuse_if(not request.topics, "SubscribedTopicNames must be set in first request.")
    _refuse_if(request.member_epoch < LEAVE_EPOCH, "MemberEpoch is invalid.")


def _refuse_if(wrong: bool, message: str) -> None:
    if wrong:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _member(group: ShareGroup, request: ShareHeartbeat, limits: ShareGroupLimits) -> ShareMember:
    """The member as it is known, or a new one; refuses one whose epoch cannot be."""
    if request.member_epoch == JOIN_EPOCH:
        known = group.members.get(request.member_id)
        if known is None and len(group.members) >= limits.max_size:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {limits.max_size} members.",
            )
        return known or ShareMember(request.member_id)
    member = group.member(request.member_id)
    if request.member_epoch > member.epoch:
        raise _fenced("greater", request.member_epoch, f"({member.epoch})")
    if request.member_epoch < member.epoch and request.member_epoch != member.previous_epoch:
        previous = f"and it does not match the previous member epoch ({member.previous_epoch})"
        raise _fenced("smaller", request.member_epoch, f"({member.epoch}), {previous}")
    return member


def _fenced(comparison: str, epoch: int, known: str) -> KafkaError:
    return KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {comparison} member epoch ({epoch}) than the one known by "
        f"the group coordinator {known}. The member must abandon all its partitions and rejoin.",
    )


class _Draft:
    """A group in the course of one decision: each record is applied to a copy."""

    def __init__(self, group: ShareGroup, catalog: TopicsByName) -> None:
        self.group = group.copy()
        self.records: list[GroupRecord] = []
        self._topics = catalog.topics
        self._subscription_changed = False

    def add(self, record: ShareGroupRecord) -> None:
        self.group.apply(record)
        self.records.append(record)

    @property
    def is_changed(self) -> bool:
        """Whether the members, what they read or the topics differ from those of the epoch."""
        return self._subscription_changed or self.group.metadata_hash != self._hash()

    def subscribe(self, request: ShareHeartbeat, before: ShareMember) -> None:
        topics = before.stored.topics if request.topics is None else tuple(sorted(request.topics))
        stored = StoredShareMember(
            request.rack_id if request.rack_id is not None else before.stored.rack_id,
            request.client_id,
            request.client_host,
            topics,
        )
        known = self.group.members.get(request.member_id)
        if known is None or known.stored != stored:
            self._subscription_changed = known is None or known.stored.topics != topics
            self.add(ShareGroupMemberMetadata(self.group.group_id, request.member_id, stored))

    def bump_epoch(self) -> None:
        self._forget_deleted_topics()
        stored = StoredShareEpoch(self.group.epoch + 1, self._hash())
        self.add(ShareGroupMetadata(self.group.group_id, stored))

    def assign(self, now: Now) -> None:
        """Make a target for the newest epoch; it costs little, so no interval is kept."""
        group = self.group
        if group.assignment_epoch >= group.epoch:
            return
        found = self._found()
        subscriptions = {
            member.member_id: [
                found[each].topic_id for each in member.stored.topics if each in found
            ]
            for member in group.members.values()
        }
        ready = {topic.topic_id: group.initialized(topic.topic_id) for topic in found.values()}
        for member_id, target in assign_simple(subscriptions, ready, group.target).items():
            if group.target.get(member_id) != target:
                self.add(ShareGroupTargetAssignmentMember(group.group_id, member_id, target))
        made = StoredShareTarget(group.epoch, now.wall_ms)
        self.add(ShareGroupTargetAssignmentMetadata(group.group_id, made))

    def advance(self, member_id: str) -> ShareMember:
        """Nothing has to be revoked first, so a member is at its target at once."""
        group, member = self.group, self.group.members[member_id]
        if member.epoch != group.assignment_epoch:
            target = group.target.get(member_id, {})
            stored = StoredShareAssignment(group.assignment_epoch, member.epoch, target)
            self.add(ShareGroupCurrentMemberAssignment(group.group_id, member_id, stored))
        return group.members[member_id]

    def stateless(self) -> dict[UUID, StateTopic]:
        missing = {}
        for topic in self._found().values():
            partitions = frozenset(range(topic.partitions)) - self.group.initialized(topic.topic_id)
            if partitions:
                missing[topic.topic_id] = StateTopic(topic.name, partitions)
        return missing

    def _forget_deleted_topics(self) -> None:
        states = self.group.states
        known = {topic.topic_id for topic in self._topics.values()}
        kept = {key: topic for key, topic in states.initialized.items() if key in known}
        if len(kept) < len(states.initialized):
            changed = replace(states, initialized=kept)
            self.add(ShareGroupStatePartitionMetadata(self.group.group_id, changed))

    def _found(self) -> dict[str, Topic]:
        names = sorted(self.group.subscribed_topics())
        return {name: self._topics[name] for name in names if name in self._topics}

    def _hash(self) -> int:
        """Any change of the topics changes it; what it is made of is nobody else's concern."""
        found = self._found()
        hashed = blake2b(digest_size=_HASH_BYTES)
        for topic in found.values():
            hashed.update(f"{topic.name}/{topic.partitions}/".encode())
            hashed.update(topic.topic_id.bytes)
        return int.from_bytes(hashed.digest(), "big", signed=True) if found else 0
