"""Members of the classic protocol inside a consumer group: the coordinator leads them.

To such a member the group looks like a classic one with a leader somewhere else: its epoch is its
generation, a join is a heartbeat that says everything, a sync fetches what the join decided.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID

from headrace.coordination.classic_group import CONSUMER_PROTOCOL_TYPE
from headrace.coordination.consumer_group import ConsumerGroup
from headrace.coordination.consumer_group_draft import Draft, TopicCatalog
from headrace.coordination.consumer_group_heartbeat import check_size, join_static, known_static
from headrace.coordination.consumer_group_member import (
    ClassicMetadata,
    ConsumerMember,
    MemberState,
    Subscription,
    numbers,
)
from headrace.coordination.consumer_group_records import Partitions
from headrace.coordination.consumer_protocol import (
    ConsumerSubscription,
    TopicNames,
    read_subscription,
    write_assignment,
)
from headrace.coordination.join import JoinRequest
from headrace.coordination.leave import Leaver
from headrace.coordination.rebalance import JoinAnswer, SyncAnswer, Timer, TimerKind
from headrace.coordination.sync import SyncRequest
from headrace.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True)
class Joined:
    """How a join went; `replaced` is set when the member took a static member's place."""

    member: ConsumerMember
    subscription_changed: bool
    replaced: ConsumerMember | None


def join(
    draft: Draft,
    request: JoinRequest,
    topics_changed: Callable[[Draft], bool],
    is_downgrade: Callable[[Draft, ConsumerMember], bool],
) -> Joined:
    """Subscribe the member, and unless the group is about to become classic, assign to it."""
    member_id = request.member_id or request.new_member_id
    check_size(draft, member_id)
    _check_protocols(draft.group, member_id, request)
    is_dynamic = request.group_instance_id is None
    if is_dynamic and not request.member_id and request.knows_member_id_required:
        raise KafkaError(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    subscription = _subscription(request)
    former = draft.group.static_member(request.group_instance_id)
    downgrade = former is not None and is_downgrade(draft, former)
    member = _member(draft, request, member_id)
    updated = _updated(member, request, subscription)
    changed = draft.subscribe(updated)
    rematched = draft.resolve_patterns()
    if changed or rematched or topics_changed(draft):
        draft.bump_epoch()
    if not downgrade:
        draft.assign()
    owned = by_id(subscription.owned, draft.around.topics)
    moved = updated
    if not (downgrade and changed):
        moved = draft.reconcile(member_id, owned, subscription_changed=changed)
    if not downgrade:
        draft.cancel_timer(TimerKind.JOIN, member_id)
        draft.extend_session(moved)
        draft.set_timer(TimerKind.SYNC, request.rebalance_timeout_ms, member_id)
    return Joined(moved, changed, former if downgrade else None)


def join_answer(member: ConsumerMember) -> JoinAnswer:
    return JoinAnswer(
        member.member_id,
        generation_id=member.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=_protocol_name(member),
    )


def sync(draft: Draft, request: SyncRequest) -> SyncAnswer:
    member = _classic_member(draft, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    for asked, known in (
        (request.protocol_type, CONSUMER_PROTOCOL_TYPE),
        (request.protocol_name, _protocol_name(member)),
    ):
        if asked is not None and asked != known:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"it is {known}")
    behind = draft.group.epoch > member.epoch
    if behind and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _expect_join(draft, member)
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    draft.cancel_timer(TimerKind.SYNC, member.member_id)
    draft.extend_session(member)
    assignment = assignment_bytes(member, numbers(member.assigned), draft.around.topics)
    return SyncAnswer(ErrorCode.NONE, request.protocol_type, request.protocol_name, assignment)


def heartbeat(draft: Draft, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """It must join again to catch up, to show what it revoked, or to fetch what has become free."""
    member = _classic_member(draft, member_id, instance_id)
    _check_generation(member, generation)
    draft.extend_session(member)
    group = draft.group
    is_released = member.state is MemberState.UNRELEASED_PARTITIONS and (
        not group.waits_for_others(member)
    )
    is_unrevoked = member.state is MemberState.UNREVOKED_PARTITIONS
    if member.epoch < group.epoch or is_unrevoked or is_released:
        _expect_join(draft, member)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def leaving(draft: Draft, leaver: Leaver) -> ConsumerMember:
    """Who leaves, of either protocol; administrators name a static member by its instance alone."""
    if leaver.group_instance_id is None:
        return draft.group.member(leaver.member_id)
    if leaver.member_id:
        return known_static(draft, leaver.group_instance_id, leaver.member_id)
    member = draft.group.static_member(leaver.group_instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, leaver.group_instance_id)
    return member


# Between names and ids.


def by_id(partitions: TopicNames, catalog: TopicCatalog) -> dict[UUID, frozenset[int]]:
    topics = catalog.topics
    return {topics[name].topic_id: each for name, each in partitions.items() if name in topics}


def by_name(partitions: Partitions, catalog: TopicCatalog) -> dict[str, frozenset[int]]:
    found = ((catalog.find(topic_id), each) for topic_id, each in partitions.items())
    return {topic.name: each for topic, each in found if topic is not None}


def assignment_bytes(
    member: ConsumerMember, partitions: Partitions, catalog: TopicCatalog
) -> bytes:
    """In the version the member speaks."""
    protocols = member.classic.protocols if member.classic else ()
    version = read_subscription(protocols[0].metadata).version if protocols else 0
    return write_assignment(by_name(partitions, catalog), version)


# The parts.


def _check_protocols(group: ConsumerGroup, member_id: str, request: JoinRequest) -> None:
    names = frozenset(each.name for each in request.protocols)
    if not group.supports_classic(request.protocol_type, names):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Member {member_id}'s protocols are not supported.",
        )


def _subscription(request: JoinRequest) -> ConsumerSubscription:
    try:
        return read_subscription(request.protocols[0].metadata)
    except ValueError as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error


def _member(draft: Draft, request: JoinRequest, member_id: str) -> ConsumerMember:
    if request.group_instance_id is None:
        return draft.group.members.get(member_id) or ConsumerMember(member_id)
    if request.member_id:
        return known_static(draft, request.group_instance_id, member_id)
    return join_static(draft, request.group_instance_id, member_id, is_classic=True)


def _updated(
    member: ConsumerMember, request: JoinRequest, subscription: ConsumerSubscription
) -> ConsumerMember:
    return replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        # The classic protocol has no patterns: the client matches them itself.
        subscription=Subscription(subscription.topics),
        classic=ClassicMetadata(request.session_timeout_ms, request.protocols),
    )


def _classic_member(draft: Draft, member_id: str, instance_id: str | None) -> ConsumerMember:
    if instance_id is None:
        return _checked_classic(draft.group.member(member_id))
    return _checked_classic(known_static(draft, instance_id, member_id))


def _checked_classic(member: ConsumerMember) -> ConsumerMember:
    if member.classic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {member.member_id} does not use the classic protocol.",
        )
    return member


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"it is {member.epoch}")


def _protocol_name(member: ConsumerMember) -> str:
    """Any will do, for the coordinator assigns; Kafka takes the first."""
    return member.classic.protocols[0].name if member.classic else ""


def _expect_join(draft: Draft, member: ConsumerMember) -> None:
    timer = Timer(TimerKind.JOIN, draft.group.group_id, member.member_id)
    if timer not in draft.around.deadlines:
        draft.set_timer(TimerKind.JOIN, member.rebalance_timeout_ms, member.member_id)
