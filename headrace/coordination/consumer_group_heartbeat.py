"""The rules of a heartbeat of the consumer protocol: join, stay, change one's mind, leave."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from headrace.coordination.consumer_group_draft import Draft
from headrace.coordination.consumer_group_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
    Subscription,
    numbers,
)
from headrace.coordination.consumer_group_records import NO_REBALANCE_TIMEOUT, Partitions
from headrace.errors import ErrorCode, KafkaError

CLIENT_MEMBER_IDS_SINCE = 1

WAITING_BEATS = 10
"""How often a member that waits for a partition or a target asks in one heartbeat interval.

Kafka lets it wait for its next turn, which is half of the time that a rebalance takes.
"""


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """One ConsumerGroupHeartbeat: what is None has not changed since the last one.

    `new_member_id` is the id of a member that comes without one, as only version 0 allows.
    """

    group_id: str
    member_id: str
    member_epoch: int
    new_member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = NO_REBALANCE_TIMEOUT
    topics: frozenset[str] | None = None
    pattern: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None
    version: int = CLIENT_MEMBER_IDS_SINCE

    @property
    def is_leave(self) -> bool:
        return self.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH)

    @property
    def is_join(self) -> bool:
        return self.member_epoch == JOIN_EPOCH

    @property
    def is_full(self) -> bool:
        """It says everything, as after an answer that may have been lost."""
        has_subscription = self.topics is not None or self.pattern is not None
        return (
            self.rebalance_timeout_ms != NO_REBALANCE_TIMEOUT
            and has_subscription
            and self.owned is not None
        )


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The answer; no assignment: it is the one the member knows."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


def check_request(request: HeartbeatRequest, assignors: tuple[str, ...]) -> None:
    """Refuse what Kafka refuses, in Kafka's words and order."""
    needs_id = request.version >= CLIENT_MEMBER_IDS_SINCE or request.member_epoch > 0
    _refuse_if(
        (needs_id or request.member_epoch == LEAVE_EPOCH) and not request.member_id.strip(),
        "MemberId can't be empty.",
    )
    _refuse_if(not request.group_id.strip(), "GroupId can't be empty.")
    _refuse_if(_is_blank(request.instance_id), "InstanceId can't be empty.")
    _refuse_if(_is_blank(request.rack_id), "RackId can't be empty.")
    if request.is_join:
        _check_join(request)
    elif request.member_epoch == STATIC_LEAVE_EPOCH:
        _refuse_if(request.instance_id is None, "InstanceId can't be null.")
    _refuse_if(request.member_epoch < STATIC_LEAVE_EPOCH, "MemberEpoch is invalid.")
    asked = request.server_assignor
    if asked is not None and asked not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {asked} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def _check_join(request: HeartbeatRequest) -> None:
    _refuse_if(
        request.rebalance_timeout_ms == NO_REBALANCE_TIMEOUT,
        "RebalanceTimeoutMs must be provided in first request.",
    )
    _refuse_if(
        request.owned is None or bool(request.owned),
        "TopicPartitions must be empty when (re-)joining.",
    )
    _refuse_if(
        request.topics is None and request.pattern is None,
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    )


def _is_blank(text: str | None) -> bool:
    return text is not None and not text.strip()


def _refuse_if(wrong: bool, message: str) -> None:
    if wrong:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def beat(
    draft: Draft, request: HeartbeatRequest, topics_changed: Callable[[Draft], bool]
) -> HeartbeatAnswer:
    """A member joins or stays: it is written down, the group assigned, the member reconciled."""
    check_size(draft, request.member_id)
    member = _member(draft, request)
    updated = _updated(member, request)
    changed = draft.subscribe(updated)
    rematched = draft.resolve_patterns()
    if changed or rematched or topics_changed(draft):
        draft.bump_epoch()
    draft.assign()
    moved = draft.reconcile(updated.member_id, request.owned, subscription_changed=changed)
    draft.extend_session(moved)
    tell = request.is_join or request.is_full or moved.assigned != member.assigned
    return HeartbeatAnswer(
        moved.member_id,
        moved.epoch,
        _interval_ms(draft, moved),
        numbers(moved.assigned) if tell else None,
    )


def _interval_ms(draft: Draft, member: ConsumerMember) -> int:
    interval_ms = draft.around.limits.heartbeat_interval_ms
    group = draft.group
    waits = (
        member.state is MemberState.UNRELEASED_PARTITIONS or group.epoch > group.assignment_epoch
    )
    return max(interval_ms // WAITING_BEATS, 1) if waits else interval_ms


def check_size(draft: Draft, member_id: str) -> None:
    limit = draft.around.limits.max_size
    if len(draft.group.members) >= limit and member_id not in draft.group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {limit} members.",
        )


def _member(draft: Draft, request: HeartbeatRequest) -> ConsumerMember:
    """The member as it was, which for a newcomer is nothing but its id."""
    member_id = request.member_id or request.new_member_id
    group = draft.group
    if request.instance_id is not None:
        if request.is_join:
            return join_static(draft, request.instance_id, member_id, is_classic=False)
        member = known_static(draft, request.instance_id, member_id)
    elif request.is_join:
        return group.members.get(member_id) or ConsumerMember(member_id)
    else:
        member = group.member(member_id)
    _check_epoch(member, request)
    return member


def join_static(
    draft: Draft, instance_id: str, member_id: str, *, is_classic: bool
) -> ConsumerMember:
    """A new static member, or one that takes the place of its former self."""
    former = draft.group.static_member(instance_id)
    if former is None:
        return draft.group.members.get(member_id) or ConsumerMember(member_id)
    if not is_classic and former.classic is None and former.epoch != STATIC_LEAVE_EPOCH:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group "
            f"because the instance id is owned by {former.member_id} member.",
        )
    member = replace(former, member_id=member_id, epoch=0, previous_epoch=0)
    draft.replace(former, member)
    return member


def known_static(draft: Draft, instance_id: str, member_id: str) -> ConsumerMember:
    member = draft.group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}.",
        )
    return member


def _check_epoch(member: ConsumerMember, request: HeartbeatRequest) -> None:
    epoch = request.member_epoch
    # The answer with the newer epoch may have been lost: the last one is still good then.
    lost = epoch == member.previous_epoch and _is_subset(request.owned, member)
    if epoch == member.epoch or (epoch < member.epoch and lost):
        return
    compared = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {compared} member epoch ({epoch}) than the one known by "
        f"the group coordinator ({member.epoch}). The member must abandon all its partitions and "
        "rejoin.",
    )


def _is_subset(owned: Partitions | None, member: ConsumerMember) -> bool:
    return owned is not None and all(
        each in member.assigned.get(topic_id, ())
        for topic_id, partitions in owned.items()
        for each in partitions
    )


def _updated(member: ConsumerMember, request: HeartbeatRequest) -> ConsumerMember:
    topics, pattern = member.subscription
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack_id=request.rack_id or member.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if timeout_ms == NO_REBALANCE_TIMEOUT else timeout_ms
        ),
        server_assignor=request.server_assignor or member.server_assignor,
        subscription=Subscription(
            topics if request.topics is None else request.topics,
            pattern if request.pattern is None else request.pattern,
        ),
        classic=None,
    )


def leaver(draft: Draft, request: HeartbeatRequest) -> ConsumerMember:
    """Who leaves, if it may."""
    if request.instance_id is None:
        return draft.group.member(request.member_id)
    return known_static(draft, request.instance_id, request.member_id)


def leave_for_a_while(draft: Draft, member: ConsumerMember) -> None:
    """A static member keeps what it has until it is back or its session ends."""
    draft.store_assignment(replace(member, epoch=STATIC_LEAVE_EPOCH, pending_revocation={}))
