"""Random histories of consumer groups: clients that lag, lose answers, die and come back.

A client here consumes what it was told to from the moment it hears of it until it has revoked it,
which is the most that a real one does.
"""

from collections.abc import Iterator
from contextlib import suppress
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.coordination.consumer_group import ConsumerGroup, ConsumerGroupState
from headrace.coordination.consumer_group_heartbeat import HeartbeatAnswer
from headrace.coordination.consumer_protocol import read_assignment
from headrace.coordination.group import ConsumerGroupLimits, GroupLimits, MigrationPolicy
from headrace.coordination.group_member import MemberProtocol
from headrace.coordination.leave import Leaver
from headrace.errors import ErrorCode, KafkaError
from headrace.testing.group_log import GroupLog, subscription

Owned = set[tuple[UUID, int]]

HEARTBEAT_MS = 5000
SESSION_MS = 45_000
NAMES = ("t0", "t1", "other")
SUBSCRIPTIONS = (("t0",), ("t0", "t1"), ("t0", "t1", "missing"), ())
PATTERNS = ("t.*", "t[0-9]", "other|t0")
LOST = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}


def by_topic(owned: Owned) -> dict[UUID, frozenset[int]]:
    return {key: frozenset(number for topic, number in owned if topic == key) for key, _ in owned}


class Client:
    """One consumer, as it knows itself."""

    def __init__(self, history: "History", number: int) -> None:
        self.history = history
        self.log = history.log
        self.number = number
        self.born = 0
        self.instance_id = f"i{number}" if number % 3 == 2 else None
        self.topics: tuple[str, ...] | None = SUBSCRIPTIONS[number % 2]
        self.pattern: str | None = None
        self.forget()

    @property
    def member_id(self) -> str:
        return f"c{self.number}-{self.born}"

    def forget(self) -> None:
        self.epoch = 0
        self.joined = False
        self.full = True
        self.consuming: Owned = set()
        self.wanted: Owned = set()

    def beat(self, *, lose_answer: bool = False) -> None:
        try:
            answer = self.ask()
        except KafkaError as refusal:
            self.refused(refusal)
            return
        self.joined = True
        if lose_answer:
            # It sends everything again, from where it was.
            self.full = True
        else:
            self.told(answer)

    def ask(self) -> HeartbeatAnswer:
        says_all = self.full or not self.joined
        pattern = self.pattern if self.pattern is not None else ("" if says_all else None)
        return self.log.beat(
            self.member_id,
            self.epoch if self.joined else 0,
            instance_id=self.instance_id,
            rebalance_timeout_ms=60_000 if says_all else -1,
            topics=frozenset(self.topics or ()) if says_all else None,
            pattern=pattern if says_all else None,
            owned=by_topic(self.consuming) if self.joined else {},
        )

    def told(self, answer: HeartbeatAnswer) -> None:
        self.epoch = answer.member_epoch
        self.full = False
        if answer.assignment is not None:
            self.wanted = {
                (key, each) for key, found in answer.assignment.items() for each in found
            }
            self.consuming |= self.wanted

    def refused(self, refusal: KafkaError) -> None:
        if refusal.code in LOST:
            self.die()
        else:
            assert refusal.code is ErrorCode.UNRELEASED_INSTANCE_ID, refusal

    def revoke(self) -> None:
        self.consuming &= self.wanted

    def die(self) -> None:
        self.forget()
        self.born += 1

    def leave(self) -> None:
        if not self.joined:
            return
        epoch = -2 if self.instance_id else -1
        # Whoever was fenced has nothing to leave any more.
        with suppress(KafkaError):
            self.log.beat(self.member_id, epoch, instance_id=self.instance_id)
        self.die()

    def change(self, number: int) -> None:
        self.topics, self.pattern = SUBSCRIPTIONS[number % 4], None
        if number > 4:
            self.pattern = PATTERNS[number % 3]
        self.full = True


class ClassicClient(Client):
    """A consumer of the classic protocol, with a cooperative assignor."""

    def forget(self) -> None:
        super().forget()
        self.must_join = True
        self.known_id = ""

    @property
    def member_id(self) -> str:
        return self.known_id

    def beat(self, *, lose_answer: bool = False) -> None:
        if self.must_join:
            self.join(lose_answer)
            return
        error = self.log.heartbeat(self.member_id, self.epoch)
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.must_join = True
        elif error is not ErrorCode.NONE:
            assert error in LOST | {ErrorCode.ILLEGAL_GENERATION}
            self.forget()

    def join(self, lose_answer: bool) -> None:
        names = {topic.topic_id: name for name, topic in self.log.topics.topics.items()}
        owned = {names[key]: each for key, each in by_topic(self.consuming).items() if key in names}
        metadata = subscription(*(self.topics or ()), owned=owned)
        protocols = (MemberProtocol("cooperative-sticky", metadata),)
        answer = self.log.joined(self.log.join(self.known_id, protocols=protocols))
        if answer.error is not ErrorCode.NONE:
            self.forget()
            return
        self.known_id = answer.member_id
        self.joined = True
        if lose_answer:
            return
        synced = self.log.synced(self.log.sync(self.known_id, answer.generation_id))
        if synced.error is not ErrorCode.NONE:
            return
        self.epoch = answer.generation_id
        found = read_assignment(synced.assignment).partitions
        ids = {name: topic.topic_id for name, topic in self.log.topics.topics.items()}
        self.wanted = {(ids[name], each) for name, numbers in found.items() for each in numbers}
        self.consuming |= self.wanted
        # With a cooperative assignor it revokes the rest, and then joins again.
        self.must_join = False

    def revoke(self) -> None:
        if self.consuming - self.wanted:
            self.must_join = True
        super().revoke()

    def leave(self) -> None:
        if self.known_id:
            self.log.leave(Leaver(self.known_id))
        self.forget()

    def change(self, number: int) -> None:
        self.topics = SUBSCRIPTIONS[number % 4]
        self.must_join = True


class History:
    """A group, its topics and its clients."""

    def __init__(self, *, classic: bool, assignor: str = "uniform", interval_ms: int = 0) -> None:
        limits = ConsumerGroupLimits(
            assignment_interval_ms=interval_ms,
            assignors=(assignor,),
            migration_policy=MigrationPolicy.UPGRADE,
        )
        self.log = GroupLog(GroupLimits(initial_rebalance_delay_ms=0, consumer=limits))
        self.log.topics.put("t0", 4)
        self.clients: list[Client] = [Client(self, number) for number in range(4)]
        if classic:
            self.clients += [ClassicClient(self, number) for number in (4, 6)]

    @property
    def group(self) -> ConsumerGroup | None:
        found = self.log.machine.groups.find("g")
        return found if isinstance(found, ConsumerGroup) else None

    def live(self) -> Iterator[Client]:
        """Those the group still counts on; whoever was fenced has no right to what it does."""
        group = self.group
        for client in self.clients:
            member = group.members.get(client.member_id) if group else None
            if member is not None and client.joined and member.epoch >= 0:
                yield client

    def take(self, kind: str, number: int) -> None:
        client = self.clients[number % len(self.clients)]
        match kind:
            case "beat":
                self.speak(client)
            case "lose":
                self.speak(client, lose_answer=True)
            case "revoke":
                client.revoke()
            case "leave":
                client.leave()
            case "die":
                client.die()
            case "change":
                client.change(number)
            case "grow" | "delete":
                self.change_topic(NAMES[number % 3], number % 3 + 1 if kind == "grow" else None)
            case "wait":
                self.log.advance((500, 5000, 30_000, 70_000)[number % 4])
            case "restart":
                self.log.restart()
        self.check()

    def change_topic(self, name: str, more: int | None) -> None:
        known = self.log.topics.topics.get(name)
        if more is None:
            self.log.topics.delete(name)
        else:
            self.log.topics.put(name, (known.partitions if known else 0) + more)

    def speak(self, client: Client, *, lose_answer: bool = False) -> None:
        # A classic member alone would have a classic group, which is another story.
        if isinstance(client, ClassicClient) and (self.group is None or self.group.is_empty):
            return
        client.beat(lose_answer=lose_answer)

    def check(self) -> None:
        owners: dict[tuple[UUID, int], str] = {}
        for client in self.live():
            for each in client.consuming:
                assert each not in owners, f"{each} has {owners[each]} and {client.member_id}"
                owners[each] = client.member_id
        group = self.group
        if group is None:
            return
        assert group.assignment_epoch <= group.epoch
        for member in group.members.values():
            assert member.epoch <= group.assignment_epoch
            for topic_id, numbers in member.owned().items():
                for number in numbers:
                    assert group.owner(topic_id, number) == member.member_id

    def settle(self) -> None:
        """Everyone beats and revokes in time: nobody dies, nothing is lost."""
        for _ in range(30):
            for client in self.clients:
                # Not before its next turn has it revoked what it was told to in its last one.
                client.revoke()
                self.speak(client)
                self.check()
                self.log.advance(HEARTBEAT_MS // len(self.clients))


kinds = st.sampled_from(
    ("beat",) * 8
    + ("revoke",) * 4
    + ("lose", "lose", "leave", "die", "change", "grow", "delete")
    + ("wait", "wait", "restart")
)
steps = st.lists(st.tuples(kinds, st.integers(0, 11)), max_size=60)


@settings(max_examples=60)
@given(steps, st.booleans(), st.sampled_from(("uniform", "range")), st.sampled_from((0, 1000)))
def test_no_partition_ever_has_two_owners_and_all_of_them_find_one(
    history: list[tuple[str, int]], classic: bool, assignor: str, interval_ms: int
) -> None:
    run = History(classic=classic, assignor=assignor, interval_ms=interval_ms)
    for kind, number in history:
        run.take(kind, number)
    run.settle()
    group = run.group
    assert group is not None
    assert group.state is ConsumerGroupState.STABLE
    assert {each.member_id for each in run.live()} == group.members.keys()
    consumed: Owned = set()
    for client in run.live():
        assert client.consuming == client.wanted
        consumed |= client.consuming
    topics = run.log.topics.topics
    read = [topics[name] for name in group.subscribed_topics() if name in topics]
    assert consumed == {
        (each.topic_id, number) for each in read for number in range(each.partitions)
    }


@given(steps, st.booleans())
def test_replay_rebuilds_the_same_group(history: list[tuple[str, int]], classic: bool) -> None:
    run = History(classic=classic)
    for kind, number in history:
        run.take(kind, number)
    assert run.log.reloaded().groups.find("g") == run.group


@given(steps)
def test_every_member_has_a_session_deadline(history: list[tuple[str, int]]) -> None:
    run = History(classic=True)
    for kind, number in history:
        run.take(kind, number)
    if run.group is not None:
        run.log.advance(2 * SESSION_MS)
        assert run.group.is_empty
