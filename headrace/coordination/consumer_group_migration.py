"""How a live group passes from the classic to the consumer protocol, and back.

Upward, the members become classic members of a consumer group, with what they own as their target;
downward, the target becomes what each member was last assigned. Either way the next rebalance
moves only what has to move.
"""

from collections.abc import Iterable

from headrace.coordination.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, GroupState
from headrace.coordination.consumer_group import ConsumerGroup
from headrace.coordination.consumer_group_classic import assignment_bytes, by_id
from headrace.coordination.consumer_group_draft import Draft, Surroundings, TopicCatalog
from headrace.coordination.consumer_group_member import (
    ClassicMetadata,
    ConsumerMember,
    Subscription,
    at_epoch,
    numbers,
)
from headrace.coordination.consumer_group_records import (
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
    StoredEpoch,
    StoredTargetEpoch,
)
from headrace.coordination.consumer_protocol import read_assignment, read_subscription
from headrace.coordination.group_member import Member
from headrace.coordination.group_members import Members
from headrace.coordination.group_records import GroupMetadata
from headrace.coordination.rebalance import Answer, JoinAnswer, SyncAnswer
from headrace.errors import ErrorCode, KafkaError

KNOWN_ASSIGNORS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""What these tell their members besides is what each owned, which the target remembers too.

Kafka refuses any such message, and so every group of librdkafka's cooperative-sticky.
"""


def upgraded(classic: ClassicGroup, around: Surroundings) -> tuple[Draft, list[Answer]]:
    """The classic group as a consumer group, and what those who wait in it are told."""
    _check_upgrade(classic, around)
    draft = Draft(ConsumerGroup(classic.group_id), around)
    draft.records.append(GroupMetadata(classic.group_id, None))
    members = [_upgraded_member(classic, each, around.topics) for each in classic.members.values()]
    group_id, generation = classic.group_id, classic.generation
    for member in members:
        draft.add(ConsumerGroupMemberMetadata(group_id, member.member_id, member.stored()))
    stored = StoredEpoch(generation, draft.metadata_hash())
    draft.add(ConsumerGroupMetadata(group_id, stored))
    for member in members:
        target = numbers(member.assigned)
        draft.add(ConsumerGroupTargetAssignmentMember(group_id, member.member_id, target))
    draft.add(ConsumerGroupTargetAssignmentMetadata(group_id, StoredTargetEpoch(generation)))
    for member in members:
        draft.store_assignment(member)
        draft.extend_session(member)
    return draft, _turned_away(classic)


def _check_upgrade(classic: ClassicGroup, around: Surroundings) -> None:
    if not around.limits.migration_policy.upgrades:
        reason = "online upgrade is disabled"
    elif classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        reason = "the group does not use the consumer embedded protocol"
    elif len(classic.members) > around.limits.max_size:
        reason = "the group size exceeds the consumer group maximum size"
    else:
        return
    raise _no_upgrade(classic, reason)


def _no_upgrade(classic: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}.",
    )


def _upgraded_member(
    classic: ClassicGroup, member: Member, catalog: TopicCatalog
) -> ConsumerMember:
    metadata = member.metadata(classic.protocol) or member.protocols[0].metadata
    try:
        subscription = read_subscription(metadata)
        assignment = read_assignment(member.assignment)
    except ValueError as error:
        raise _no_upgrade(classic, "the embedded consumer protocol is malformed") from error
    if assignment.user_data and classic.protocol not in KNOWN_ASSIGNORS:
        raise _no_upgrade(
            classic,
            "an unsupported custom assignor is in use. Please refer to the documentation or "
            "switch to a default assignor before re-attempting the upgrade",
        )
    return ConsumerMember(
        member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscription=Subscription(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
        epoch=classic.generation,
        previous_epoch=classic.generation,
        assigned=at_epoch(by_id(assignment.partitions, catalog), classic.generation),
    )


def _turned_away(classic: ClassicGroup) -> list[Answer]:
    """Whoever waits joins again, and finds a consumer group."""
    error, answers = ErrorCode.REBALANCE_IN_PROGRESS, []
    for member in classic.members.values():
        if member.join_ticket is not None:
            answers.append(Answer(member.join_ticket, JoinAnswer(member.member_id, error)))
        if member.sync_ticket is not None:
            answers.append(Answer(member.sync_ticket, SyncAnswer(error)))
    return answers


def may_downgrade(draft: Draft, leaving: Iterable[str], *, staying: int, max_size: int) -> bool:
    """Whether without those who leave the group is one of classic members alone."""
    return (
        draft.group.all_classic_without(leaving)
        and draft.around.limits.migration_policy.downgrades
        and staying <= max_size
    )


def downgraded(group: ConsumerGroup, around: Surroundings) -> ClassicGroup:
    """A consumer group of classic members as a classic group."""
    members = Members(
        _downgraded_member(group, member, around.topics) for member in group.members.values()
    )
    classic = ClassicGroup(
        group.group_id,
        state=GroupState.STABLE,
        state_timestamp_ms=around.now.wall_ms,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=group.epoch,
        leader=next(iter(members)),
        members=members,
    )
    return classic.with_selected_protocol()


def _downgraded_member(
    group: ConsumerGroup, member: ConsumerMember, catalog: TopicCatalog
) -> Member:
    classic = member.classic or ClassicMetadata(0, ())
    target = group.target.get(member.member_id, {})
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        classic.session_timeout_ms,
        classic.protocols,
        assignment_bytes(member, target, catalog),
    )
