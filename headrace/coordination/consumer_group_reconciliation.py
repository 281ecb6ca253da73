"""How a member comes from what it owns to what it shall own, one heartbeat at a time.

STABLE -> UNREVOKED_PARTITIONS    it must first give up partitions, and stays in its epoch until
                                  a heartbeat shows that it did
       -> UNRELEASED_PARTITIONS   it is in the target epoch, and waits for partitions that others
                                  have not given up
       -> STABLE                  it owns its target

A partition is handed to a member only when nobody owns it, so no two members ever own the same one.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from uuid import UUID

from headrace.coordination.consumer_group_member import ConsumerMember, MemberState, at_epoch
from headrace.coordination.consumer_group_records import EpochedPartitions, Partitions
from headrace.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True)
class Goal:
    """Where a member shall get to, and what it may have on the way.

    `owner` says which member has a partition; `owned` is what the member itself reports, None if
    it reports nothing; `subscribed` are the topics it reads now, which its target may lag behind.
    """

    epoch: int
    target: Partitions
    subscribed: Collection[UUID]
    owner: Callable[[UUID, int], str | None]
    owned: Partitions | None = None
    subscription_changed: bool = False


def reconciled(member: ConsumerMember, goal: Goal) -> ConsumerMember:
    """The member after one more step, or as it is if there is no step to take."""
    match member.state:
        case MemberState.STABLE if member.epoch == goal.epoch:
            return _kept_to_subscription(member, goal)
        case MemberState.UNREVOKED_PARTITIONS if _still_owns(goal, member.pending_revocation):
            return _kept_to_subscription(member, goal)
        case MemberState.UNKNOWN if goal.owned is None or goal.owned:
            # A newer coordinator left it in a state nobody here knows: begin from nothing.
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. "
                "The member must abandon all its partitions and rejoin.",
            )
        case _:
            return _next_step(member, goal)


def _kept_to_subscription(member: ConsumerMember, goal: Goal) -> ConsumerMember:
    """What a member does not subscribe to any more it gives up before there is a new target."""
    if not goal.subscription_changed:
        return member
    unwanted = {
        topic_id: partitions
        for topic_id, partitions in member.assigned.items()
        if topic_id not in goal.subscribed
    }
    if not unwanted:
        return member
    kept = {key: value for key, value in member.assigned.items() if key not in unwanted}
    pending = dict(member.pending_revocation)
    for topic_id, partitions in unwanted.items():
        pending[topic_id] = {**pending.get(topic_id, {}), **partitions}
    if _still_owns(goal, pending):
        return member.advanced(MemberState.UNREVOKED_PARTITIONS, member.epoch, kept, pending)
    return member.advanced(member.state, member.epoch, kept, member.pending_revocation)


def _next_step(member: ConsumerMember, goal: Goal) -> ConsumerMember:
    kept: dict[UUID, dict[int, int]] = {}
    revoked: dict[UUID, dict[int, int]] = {}
    added: dict[UUID, frozenset[int]] = {}
    unreleased = False
    for topic_id in {**goal.target, **member.assigned}:
        wanted = goal.target.get(topic_id, frozenset()) if topic_id in goal.subscribed else ()
        assigned = member.assigned.get(topic_id, {})
        kept[topic_id] = {each: epoch for each, epoch in assigned.items() if each in wanted}
        revoked[topic_id] = {each: epoch for each, epoch in assigned.items() if each not in wanted}
        missing = [each for each in wanted if each not in assigned]
        # What it is about to revoke itself is free to stay.
        free = [each for each in missing if goal.owner(topic_id, each) in (None, member.member_id)]
        unreleased |= len(free) < len(missing)
        added[topic_id] = frozenset(free)
    revoked = _filled(revoked)
    if revoked and _still_owns(goal, revoked):
        return member.advanced(
            MemberState.UNREVOKED_PARTITIONS, member.epoch, _filled(kept), revoked
        )
    for topic_id, partitions in at_epoch(added, goal.epoch).items():
        kept[topic_id].update(partitions)
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    return member.advanced(state, goal.epoch, _filled(kept), {})


def _still_owns(goal: Goal, partitions: EpochedPartitions) -> bool:
    """A member that reports nothing is taken to own all it ever did."""
    if goal.owned is None:
        return True
    return any(
        not goal.owned.get(topic_id, frozenset()).isdisjoint(each)
        for topic_id, each in partitions.items()
    )


def _filled(partitions: dict[UUID, dict[int, int]]) -> dict[UUID, dict[int, int]]:
    return {topic_id: each for topic_id, each in partitions.items() if each}
