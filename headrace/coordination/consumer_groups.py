"""Every consumer group of one partition of __consumer_offsets, whoever speaks to it.

Invariants, after any history:
- no partition is given to a member before every other has shown that it gave it up, or was fenced;
- while members send heartbeats, all of them come to own their target;
- every member has a session deadline, and one to revoke by while it has something to revoke;
- replaying the records gives the same groups.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any
from uuid import UUID

from headrace.coordination import consumer_group_classic as classic
from headrace.coordination.classic_group import ClassicGroup
from headrace.coordination.consumer_group import ConsumerGroup
from headrace.coordination.consumer_group_draft import Draft, Surroundings, TopicCatalog
from headrace.coordination.consumer_group_heartbeat import (
    HeartbeatAnswer,
    HeartbeatRequest,
    beat,
    check_request,
    leave_for_a_while,
    leaver,
)
from headrace.coordination.consumer_group_member import (
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
)
from headrace.coordination.consumer_group_migration import downgraded, may_downgrade, upgraded
from headrace.coordination.consumer_group_records import (
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupRecord,
)
from headrace.coordination.group import GroupType, MigrationPolicy, Now
from headrace.coordination.groups import GroupDecision, Groups
from headrace.coordination.join import JoinRequest
from headrace.coordination.leave import Leaver, LeaverAnswer
from headrace.coordination.machine import Decision
from headrace.coordination.metadata_records import GROUP_RESOURCE
from headrace.coordination.rebalance import (
    Answer,
    JoinAnswer,
    SyncAnswer,
    Timer,
    TimerKind,
)
from headrace.coordination.sync import SyncRequest
from headrace.coordination.topics import Topic
from headrace.errors import ErrorCode, KafkaError

_NOTHING: GroupDecision = Decision()


class NoTopics:
    """A catalog with nothing in it."""

    version = 0
    topics: Mapping[str, Topic] = MappingProxyType({})

    def find(self, topic_id: UUID) -> Topic | None:
        return None

    def configs_of(self, resource_type: int, name: str) -> Mapping[str, str]:
        return {}


OVERRIDES = {
    "consumer.session.timeout.ms": "session_timeout_ms",
    "consumer.heartbeat.interval.ms": "heartbeat_interval_ms",
    "consumer.assignment.interval.ms": "assignment_interval_ms",
}
"""What a group may set for itself, checked when it is set."""


class ConsumerGroups:
    """See the module. `topics` is asked anew for each decision; replay does not need it."""

    def __init__(self, groups: Groups, topics: Callable[[], TopicCatalog] = NoTopics) -> None:
        self._groups = groups
        self._limits = groups.limits.consumer
        self._topics = topics
        # Soft: for which version of the catalog a group was found to be up to date.
        self._checked: dict[str, int] = {}

    def existing(self, group_id: str) -> ConsumerGroup:
        group = self._groups.find(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        reason = "not found." if group is None else "is not a consumer group."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}")

    def assignor_of(self, group: ConsumerGroup) -> str:
        """The assignor that most members ask for, or the default."""
        asked = group.preferred_assignor()
        return asked if asked in self._limits.assignors else self._limits.assignors[0]

    # Decisions about members of the consumer protocol.

    def heartbeat(
        self, request: HeartbeatRequest, now: Now
    ) -> tuple[HeartbeatAnswer, GroupDecision]:
        check_request(request, self._limits.assignors)
        if request.is_leave:
            return self._leave(request, now)
        draft, answers = self._joined(request.group_id, now, create=request.is_join)
        answer = beat(draft, request, self._topics_changed)
        return answer, Decision(tuple(draft.records), tuple(answers))

    def _leave(self, request: HeartbeatRequest, now: Now) -> tuple[HeartbeatAnswer, GroupDecision]:
        draft = self._draft(request.group_id, now)
        member = leaver(draft, request)
        answer = HeartbeatAnswer(request.member_id, request.member_epoch)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            leave_for_a_while(draft, member)
            return answer, Decision(tuple(draft.records))
        return answer, self._fence(draft, [member.member_id])

    # Decisions about members of the classic protocol.

    def join(self, request: JoinRequest, ticket: int, now: Now) -> GroupDecision:
        draft = self._draft(request.group_id, now)
        try:
            self._check_classic_join(request)
            joined = classic.join(draft, request, self._topics_changed, self._is_downgrade)
        except KafkaError as refusal:
            # The id that a newcomer is asked to come back with rides in the message.
            required = refusal.code is ErrorCode.MEMBER_ID_REQUIRED
            member_id = refusal.message if required else request.member_id
            return Decision(effects=(Answer(ticket, JoinAnswer(member_id, refusal.code)),))
        answer = Answer(ticket, classic.join_answer(joined.member))
        if joined.replaced is None:
            return Decision(tuple(draft.records), (answer,))
        decision = self._downgrade(draft, [], rebalance=joined.subscription_changed)
        return Decision(decision.records, (*decision.effects, answer))

    def sync(self, request: SyncRequest, ticket: int, now: Now) -> GroupDecision:
        draft = self._draft(request.group_id, now)
        try:
            answer = classic.sync(draft, request)
        except KafkaError as refusal:
            answer = SyncAnswer(refusal.code)
        return Decision(effects=(Answer(ticket, answer),))

    def classic_heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: Now
    ) -> ErrorCode:
        draft = self._draft(group_id, now)
        try:
            return classic.heartbeat(draft, member_id, instance_id, generation)
        except KafkaError as refusal:
            return refusal.code

    def classic_leave(
        self, group_id: str, leavers: Sequence[Leaver], now: Now
    ) -> tuple[tuple[LeaverAnswer, ...], GroupDecision]:
        draft = self._draft(group_id, now)
        answers: list[LeaverAnswer] = []
        gone: dict[str, None] = {}
        for each in leavers:
            try:
                member_id = classic.leaving(draft, each).member_id
                gone[member_id] = None
                answers.append(LeaverAnswer(member_id, each.group_instance_id, ErrorCode.NONE))
            except KafkaError as refusal:
                answers.append(LeaverAnswer(*each, refusal.code))
        return tuple(answers), self._fence(draft, list(gone)) if gone else _NOTHING

    # Time.

    def fire(self, timer: Timer, now: Now) -> GroupDecision:
        """A member let a deadline pass: it is fenced, if the deadline still means anything."""
        group = self._groups.find(timer.group_id)
        if not isinstance(group, ConsumerGroup):
            return _NOTHING
        member = group.members.get(timer.member_id)
        if member is None:
            return _NOTHING
        if timer.kind is TimerKind.REVOCATION and not _is_revoking(member):
            return _NOTHING
        return self._fence(Draft(group, self._around(timer.group_id, now)), [timer.member_id])

    def start(self, now: Now) -> None:
        """After a load: members have one session timeout to show that they live."""
        for group in self._groups:
            if not isinstance(group, ConsumerGroup):
                continue
            draft = Draft(group, self._around(group.group_id, now))
            for member in group.members.values():
                draft.extend_session(member)
                if _is_revoking(member):
                    timeout_ms = member.rebalance_timeout_ms
                    draft.set_timer(TimerKind.REVOCATION, timeout_ms, member.member_id)

    # Replay.

    def replay(self, record: ConsumerGroupRecord) -> None:
        group = self._groups.find(record.group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return
            # Offsets alone make a classic group, until the log says what it was.
            group = ConsumerGroup(record.group_id)
            self._groups.put(group)
        group.apply(record)
        if record.value is not None:
            return
        if isinstance(record, ConsumerGroupMetadata):
            self._groups.remove(record.group_id, GroupType.CONSUMER)
            self._checked.pop(record.group_id, None)
        elif isinstance(record, ConsumerGroupMemberMetadata):
            for kind in TimerKind:
                self._groups.deadlines.cancel(Timer(kind, record.group_id, record.member_id))

    # The parts.

    def _around(self, group_id: str, now: Now) -> Surroundings:
        catalog = self._topics()
        configs = catalog.configs_of(GROUP_RESOURCE, group_id)
        limits = self._limits
        if configs:
            own: dict[str, Any] = {
                OVERRIDES[name]: int(configs[name]) for name in OVERRIDES.keys() & configs.keys()
            }
            limits = replace(limits, **own)
        return Surroundings(catalog, limits, self._groups.deadlines, now)

    def _draft(self, group_id: str, now: Now) -> Draft:
        return Draft(self.existing(group_id), self._around(group_id, now))

    def _joined(self, group_id: str, now: Now, *, create: bool) -> tuple[Draft, Sequence[Answer]]:
        """The group to join: there, new, or made of an empty or a live classic one."""
        group, around = self._groups.find(group_id), self._around(group_id, now)
        if group is None and not create:
            reason = f"Consumer group {group_id} not found."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, reason)
        if not create or isinstance(group, ConsumerGroup):
            return Draft(self.existing(group_id), around), ()
        if group is None:
            return Draft(ConsumerGroup(group_id), around), ()
        if not isinstance(group, ClassicGroup):
            return Draft(self.existing(group_id), around), ()
        if not group.is_empty:
            return upgraded(group, around)
        draft = Draft(ConsumerGroup(group_id), around)
        draft.records.extend(group.tombstones())
        return draft, ()

    def _check_classic_join(self, request: JoinRequest) -> None:
        if self._limits.migration_policy is MigrationPolicy.DISABLED:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "group migration is disabled")
        limits = self._groups.limits
        shortest, longest = limits.min_session_timeout_ms, limits.max_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= longest:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)

    def _topics_changed(self, draft: Draft) -> bool:
        """Whether the topics that a group reads are not those of its epoch any more."""
        group, version = draft.group, draft.around.topics.version
        if self._checked.get(group.group_id) == version and not draft.records:
            return False
        if draft.metadata_hash() != group.metadata_hash:
            return True
        self._checked[group.group_id] = version
        return False

    def _is_downgrade(self, draft: Draft, replaced: ConsumerMember) -> bool:
        """Whether the last member of the consumer protocol gives its place to a classic one."""
        members = len(draft.group.members)
        if replaced.classic is not None:
            return False
        others = draft.group.all_classic_without([replaced.member_id]) or members == 1
        limits = self._groups.limits
        allowed = self._limits.migration_policy.downgrades
        return others and allowed and members <= limits.max_size

    def _fence(self, draft: Draft, member_ids: Sequence[str]) -> GroupDecision:
        staying = len(draft.group.members) - len(member_ids)
        max_size = self._groups.limits.max_size
        if may_downgrade(draft, member_ids, staying=staying, max_size=max_size):
            return self._downgrade(draft, member_ids, rebalance=True)
        draft.fence(member_ids)
        return Decision(tuple(draft.records))

    def _downgrade(self, draft: Draft, leaving: Sequence[str], *, rebalance: bool) -> GroupDecision:
        for member_id in leaving:
            draft.remove(member_id)
        group = draft.group
        converted = self._groups.converted(
            downgraded(group, draft.around), draft.around.now, rebalance=rebalance
        )
        records = (*draft.records, *group.tombstones(), *converted.records)
        return Decision(records, converted.effects)


def _is_revoking(member: ConsumerMember) -> bool:
    return member.state is MemberState.UNREVOKED_PARTITIONS and member.epoch >= 0
