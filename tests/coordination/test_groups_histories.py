"""Random histories of classic groups: what must hold after every step, and after a restart."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.coordination.classic_group import ClassicGroup, GroupState
from headrace.coordination.coordinator import Coordinator
from headrace.coordination.group import Committer, GroupLimits
from headrace.coordination.group_member import MemberProtocol
from headrace.coordination.group_records import StoredGroup
from headrace.coordination.leave import Leaver
from headrace.coordination.offsets import OffsetToCommit
from headrace.coordination.rebalance import JoinAnswer, Timer, TimerKind
from headrace.errors import ErrorCode, KafkaError
from headrace.testing.group_log import GroupLog

PROTOCOLS = (
    (MemberProtocol("range", b"a"),),
    (MemberProtocol("sticky", b"a"), MemberProtocol("range", b"b")),
    (MemberProtocol("range", b"c"), MemberProtocol("sticky", b"d")),
    (MemberProtocol("other", b"e"),),
)
STEPS = ("join", "join", "join", "rejoin", "sync", "leave", "beat", "wait", "commit", "settle")

steps = st.tuples(
    st.sampled_from((*STEPS, "restart")), st.integers(0, 7), st.sampled_from((None, "i", "j"))
)
limits = st.builds(
    GroupLimits,
    initial_rebalance_delay_ms=st.sampled_from((0, 3000)),
    max_size=st.sampled_from((2, 100)),
)


class History:
    """Clients that remember what they were told, and sometimes act on stale memory."""

    def __init__(self, limits: GroupLimits) -> None:
        self.log = GroupLog(limits)
        self.generations: list[int] = [0]
        self.seen: set[int] = set()

    def known(self) -> list[JoinAnswer]:
        """What clients believe of themselves: every id that was ever handed out."""
        return [each for each in self.log.answers.values() if isinstance(each, JoinAnswer)]

    def take(self, kind: str, number: int, instance: str | None) -> None:
        known = self.known()
        believed = known[-1 - number % len(known)] if known else JoinAnswer("nobody")
        getattr(self, kind)(number, instance, believed)
        self.check()

    def join(self, number: int, instance: str | None, _: JoinAnswer) -> None:
        self.log.join(
            group_instance_id=instance,
            protocols=PROTOCOLS[number % 4],
            knows_member_id_required=number > 3,
            knows_skip_assignment=number % 2 == 0,
        )

    def rejoin(self, number: int, instance: str | None, believed: JoinAnswer) -> None:
        group = self.group()
        member = group.members.get(believed.member_id) if group else None
        self.log.join(
            believed.member_id or "stranger",
            group_instance_id=member.group_instance_id if member else instance,
            protocols=PROTOCOLS[number % 3],
        )

    def sync(self, _: int, __: str | None, believed: JoinAnswer) -> None:
        assignments = {each.member_id: each.member_id.encode() for each in believed.members}
        self.log.sync(believed.member_id, believed.generation_id, assignments)

    def leave(self, number: int, instance: str | None, believed: JoinAnswer) -> None:
        self.log.leave(Leaver(believed.member_id if number > 2 else "", instance))

    def beat(self, _: int, __: str | None, believed: JoinAnswer) -> None:
        self.log.heartbeat(believed.member_id, believed.generation_id)

    def wait(self, number: int, _: str | None, __: JoinAnswer) -> None:
        self.log.advance((0, 1, 3000, 5000, 9999, 10_001, 60_001, 300_001)[number])

    def commit(self, number: int, _: str | None, believed: JoinAnswer) -> None:
        committer = Committer("g", believed.member_id, None, believed.generation_id)
        try:
            outcome = self.log.machine.offsets.commit(
                committer, [OffsetToCommit("t", 0, number)], self.log.now
            )
        except KafkaError:
            return
        self.log.commit(outcome)

    def settle(self, *_: object) -> None:
        """Everyone behaves: members rejoin if they must, and all sync."""
        self.log.advance(3000)
        group = self.group()
        for member in list(group.members.values()) if group else ():
            if group and group.state is GroupState.PREPARING_REBALANCE and not member.join_ticket:
                self.log.join(
                    member.member_id,
                    group_instance_id=member.group_instance_id,
                    protocols=member.protocols,
                )
        group = self.group()
        for member_id in list(group.members) if group else ():
            if group and group.state is GroupState.COMPLETING_REBALANCE:
                assignments = {each: each.encode() for each in group.members}
                self.log.sync(member_id, group.generation, assignments)

    def restart(self, *_: object) -> None:
        self.log.restart()
        self.generations.append(0)

    def group(self) -> ClassicGroup | None:
        group = self.log.machine.groups.find("g")
        assert group is None or isinstance(group, ClassicGroup)
        return group

    def check(self) -> None:
        group = self.group()
        if group is None:
            assert not self.log.parked
            return
        self.check_shape(group)
        self.check_counts(group)
        self.check_tickets(group)
        self.check_deadlines(group)
        self.check_answers()
        assert group.generation >= self.generations[-1]
        self.generations[-1] = group.generation
        self.check_reload()

    def check_reload(self) -> None:
        again = self.log.reloaded()
        assert again.offsets.snapshot() == self.log.machine.offsets.snapshot()
        assert settled(self.log.machine).items() <= settled(again).items()

    def check_shape(self, group: ClassicGroup) -> None:
        assert (group.leader in group.members) if group.members else group.leader is None
        assert all(key == each.member_id for key, each in group.members.items())
        instances = Counter(each.group_instance_id for each in group.members.values())
        assert all(count == 1 for instance, count in instances.items() if instance)
        assert group.pending_syncs <= group.members.keys()
        assert group.pending_joins.isdisjoint(group.members)
        if group.state is GroupState.EMPTY:
            assert not group.members
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            assert group.members
            assert all(each.metadata(group.protocol) for each in group.members.values())

    def check_counts(self, group: ClassicGroup) -> None:
        """What the group counts as it goes is what counting its members gives."""
        members = list(group.members.values())
        waiting = [each for each in members if each.join_ticket is not None]
        assert group.awaiting_joins == len(waiting)
        assert group.all_joined == (not group.pending_joins and len(waiting) == len(members))
        for name in ("range", "sticky", "other"):
            everyone = all(name in each.names for each in members)
            assert group.members.all_support(name) == everyone
        for instance in ("i", "j"):
            holders = [each.member_id for each in members if each.group_instance_id == instance]
            assert group.static_member_id(instance) == next(iter(holders), None)

    def check_tickets(self, group: ClassicGroup) -> None:
        joins = [each.join_ticket for each in group.members.values() if each.join_ticket]
        syncs = [each.sync_ticket for each in group.members.values() if each.sync_ticket]
        assert Counter(joins + syncs) == Counter(self.log.parked)
        assert not joins or group.state is GroupState.PREPARING_REBALANCE
        assert not syncs or group.state is GroupState.COMPLETING_REBALANCE

    def check_deadlines(self, group: ClassicGroup) -> None:
        deadlines = self.log.machine.groups.deadlines
        for member in group.members.values():
            timer = Timer(TimerKind.SESSION, "g", member.member_id)
            assert member.satisfies_heartbeat or timer in deadlines
        for member_id in group.pending_joins:
            assert Timer(TimerKind.SESSION, "g", member_id) in deadlines
        if group.state is GroupState.PREPARING_REBALANCE:
            assert Timer(TimerKind.JOIN, "g") in deadlines
        if group.pending_syncs:
            assert Timer(TimerKind.SYNC, "g") in deadlines

    def check_answers(self) -> None:
        """A generation has one leader, who alone learns who its members are."""
        for ticket, answer in self.log.answers.items():
            if ticket in self.seen:
                continue
            self.seen.add(ticket)
            if isinstance(answer, JoinAnswer) and answer.error is ErrorCode.NONE:
                assert not answer.members or answer.leader == answer.member_id
                if answer.members:
                    ids = {each.member_id for each in answer.members}
                    assert answer.member_id in ids


def settled(machine: Coordinator) -> dict[str, StoredGroup]:
    """Groups between two rebalances, as the log must give them back."""
    return {
        group.group_id: group.stored()
        for group in machine.groups
        if isinstance(group, ClassicGroup)
        and group.state in (GroupState.STABLE, GroupState.EMPTY)
        and group.generation
    }


@settings(max_examples=max(150, settings().max_examples))
@given(limits, st.lists(steps, max_size=40))
def test_no_history_breaks_an_invariant(chosen, history):
    clients = History(chosen)
    for kind, number, instance in history:
        clients.take(kind, number, instance)


@given(st.lists(steps, max_size=30))
def test_silence_answers_every_parked_client_and_empties_the_group(history):
    clients = History(GroupLimits(initial_rebalance_delay_ms=3000))
    for kind, number, instance in history:
        clients.take(kind, number, instance)
    for _ in range(6):
        clients.log.advance(400_000)
        clients.check()
    assert not clients.log.parked
    group = clients.group()
    assert group is None or group.state is GroupState.EMPTY
    assert not clients.log.machine.groups.deadlines
