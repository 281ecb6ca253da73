"""The rules of consumer groups, one by one, as Apache Kafka 4.3.1 answers them."""

from uuid import UUID

import pytest

from headrace.coordination.classic_group import ClassicGroup, GroupState
from headrace.coordination.consumer_group import ConsumerGroup, ConsumerGroupState
from headrace.coordination.consumer_group_heartbeat import HeartbeatAnswer
from headrace.coordination.consumer_group_member import MemberState
from headrace.coordination.consumer_group_records import (
    ConsumerGroupPartitionMetadata,
    ConsumerGroupRegularExpression,
)
from headrace.coordination.consumer_protocol import read_assignment, write_assignment
from headrace.coordination.group import (
    Committer,
    ConsumerGroupLimits,
    GroupLimits,
    GroupType,
    MigrationPolicy,
)
from headrace.coordination.group_member import MemberProtocol
from headrace.coordination.leave import Leaver
from headrace.coordination.machine import Decision
from headrace.coordination.offsets import OffsetToCommit
from headrace.errors import ErrorCode, KafkaError
from headrace.testing.group_log import GroupLog, subscription

SESSION_MS = 45_000
REBALANCE_MS = 30_000


def log_of(**settings: object) -> GroupLog:
    settings.setdefault("assignment_interval_ms", 0)
    consumer = ConsumerGroupLimits(**settings)  # type: ignore[arg-type]  # by keyword, in tests
    log = GroupLog(GroupLimits(initial_rebalance_delay_ms=0, consumer=consumer))
    log.topics.put("t", 4)
    return log


@pytest.fixture
def log() -> GroupLog:
    return log_of()


def topic_id(log: GroupLog, name: str = "t") -> UUID:
    return log.topics.topics[name].topic_id


def owned(log: GroupLog, *numbers: int) -> dict[UUID, frozenset[int]]:
    return {topic_id(log): frozenset(numbers)} if numbers else {}


def join(log: GroupLog, member_id: str, *topics: str, **changes: object) -> HeartbeatAnswer:
    wanted = frozenset(topics or ("t",))
    fields = {"rebalance_timeout_ms": REBALANCE_MS, "topics": wanted, "owned": {}}
    return log.beat(member_id, 0, **{**fields, **changes})


def classic_join(
    log: GroupLog, member_id: str = "", *, owns: tuple[int, ...] = (), **changes: object
) -> int:
    metadata = subscription("t", owned={"t": owns} if owns else {})
    protocols = (MemberProtocol("range", metadata),)
    return log.join(member_id, **{"protocols": protocols, **changes})


def numbers(answer: HeartbeatAnswer) -> list[int]:
    assert answer.assignment is not None
    return sorted(number for found in answer.assignment.values() for number in found)


def group(log: GroupLog) -> ConsumerGroup:
    found = log.machine.groups.find("g")
    assert isinstance(found, ConsumerGroup)
    return found


def refusal(log: GroupLog, member_id: str, epoch: int, **changes: object) -> ErrorCode:
    before = log.reloaded()
    with pytest.raises(KafkaError) as raised:
        log.beat(member_id, epoch, **changes)
    assert log.reloaded().groups.find("g") == before.groups.find("g"), "a refusal changed the group"
    return raised.value.code


def two_members(log: GroupLog) -> None:
    """m1 has 0 and 1, m2 has 2 and 3, both in epoch 3."""
    join(log, "m1")
    join(log, "m2")
    log.beat("m1", 2)
    log.beat("m1", 2, owned=owned(log, 0, 1))
    log.beat("m2", 3)
    assert group(log).state is ConsumerGroupState.STABLE


# Joining and reconciling.


def test_the_first_member_gets_everything_at_once(log: GroupLog) -> None:
    answer = join(log, "m1")
    assert (answer.member_epoch, answer.heartbeat_interval_ms) == (2, 5000)
    assert numbers(answer) == [0, 1, 2, 3]
    assert group(log).state is ConsumerGroupState.STABLE


def test_a_partition_changes_hands_only_after_its_owner_showed_that_it_revoked_it(
    log: GroupLog,
) -> None:
    join(log, "m1")
    assert numbers(join(log, "m2")) == []
    assert group(log).members["m2"].state is MemberState.UNRELEASED_PARTITIONS
    revoking = log.beat("m1", 2)
    assert (revoking.member_epoch, numbers(revoking)) == (2, [0, 1])
    assert group(log).members["m1"].state is MemberState.UNREVOKED_PARTITIONS
    assert log.beat("m2", 3).assignment is None
    assert log.beat("m1", 2, owned=owned(log, 0, 1, 2)).member_epoch == 2
    assert log.beat("m1", 2, owned=owned(log, 0, 1)).member_epoch == 3
    assert numbers(log.beat("m2", 3)) == [2, 3]
    assert group(log).state is ConsumerGroupState.STABLE


def test_a_heartbeat_that_changes_nothing_writes_nothing(log: GroupLog) -> None:
    join(log, "m1")
    written = len(log.log)
    answer = log.beat("m1", 2)
    assert (answer.member_epoch, answer.assignment, len(log.log)) == (2, None, written)


def test_a_full_heartbeat_is_told_the_assignment_again(log: GroupLog) -> None:
    join(log, "m1")
    again = log.beat(
        "m1", 2, rebalance_timeout_ms=1, topics=frozenset({"t"}), owned=owned(log, 0, 1, 2, 3)
    )
    assert numbers(again) == [0, 1, 2, 3]


def test_a_new_target_waits_for_the_assignment_interval() -> None:
    log = log_of(assignment_interval_ms=1000)
    join(log, "m1")
    log.advance(999)
    assert join(log, "m2").member_epoch == 2
    assert group(log).state is ConsumerGroupState.ASSIGNING
    log.advance(1)
    assert log.beat("m2", 2).member_epoch == 3
    assert group(log).state is ConsumerGroupState.RECONCILING


def test_whoever_waits_is_told_to_ask_more_often() -> None:
    log = log_of(assignment_interval_ms=1000)
    assert join(log, "m1").heartbeat_interval_ms == 5000
    assert join(log, "m2").heartbeat_interval_ms == 500, "it waits for a target"
    log.advance(1000)
    assert log.beat("m2", 2).heartbeat_interval_ms == 500, "it waits for partitions"
    assert log.beat("m1", 2).heartbeat_interval_ms == 5000
    log.beat("m1", 2, owned=owned(log, 0, 1))
    assert log.beat("m2", 3).heartbeat_interval_ms == 5000


def test_the_assignor_that_most_members_ask_for_is_taken(log: GroupLog) -> None:
    log.topics.put("u", 4)
    for member_id, assignor in (("m1", "range"), ("m2", "range"), ("m3", "uniform")):
        join(log, member_id, "t", "u", server_assignor=assignor)
    assert log.machine.consumer_groups.assignor_of(group(log)) == "range"
    targets = [set(group(log).target[each].values()) for each in ("m1", "m2", "m3")]
    assert targets == [{frozenset({0, 1})}, {frozenset({2})}, {frozenset({3})}]


def test_what_a_member_unsubscribes_from_it_gives_up_before_there_is_a_new_target() -> None:
    log = log_of(assignment_interval_ms=1000)
    join(log, "m1")
    answer = log.beat("m1", 2, topics=frozenset())
    assert (answer.member_epoch, numbers(answer)) == (2, [])
    assert group(log).members["m1"].state is MemberState.UNREVOKED_PARTITIONS


def test_a_full_group_takes_nobody_else() -> None:
    log = log_of(max_size=1)
    join(log, "m1")
    with pytest.raises(KafkaError) as raised:
        join(log, "m2")
    assert raised.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert join(log, "m1").member_epoch == 2


# Fencing.


def test_an_epoch_that_was_never_given_is_fenced(log: GroupLog) -> None:
    two_members(log)
    assert refusal(log, "m1", 4) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refusal(log, "m1", 1) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refusal(log, "m9", 3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(log, "m1", 3, group_id="other") is ErrorCode.GROUP_ID_NOT_FOUND


def test_the_previous_epoch_is_good_while_its_answer_may_have_been_lost(log: GroupLog) -> None:
    two_members(log)
    assert log.beat("m1", 2, owned=owned(log, 0)).member_epoch == 3
    assert refusal(log, "m1", 2, owned=owned(log, 0, 2)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refusal(log, "m1", 2) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_silent_member_is_fenced_and_its_partitions_go_to_the_others(log: GroupLog) -> None:
    two_members(log)
    log.advance(SESSION_MS - 1)
    log.beat("m1", 3)
    log.advance(1)
    assert group(log).members.keys() == {"m1"}
    assert numbers(log.beat("m1", 3)) == [0, 1, 2, 3]
    assert refusal(log, "m2", 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_revoke_in_time_is_fenced(log: GroupLog) -> None:
    join(log, "m1")
    join(log, "m2")
    log.beat("m1", 2)
    log.advance(REBALANCE_MS - 1)
    log.beat("m1", 2)
    assert group(log).members.keys() == {"m1", "m2"}
    log.advance(1)
    assert group(log).members.keys() == {"m2"}


def test_a_group_may_have_timeouts_of_its_own(log: GroupLog) -> None:
    log.topics.group_configs["g"] = {
        "consumer.session.timeout.ms": "50000",
        "consumer.heartbeat.interval.ms": "7000",
        "consumer.assignment.interval.ms": "3000",
    }
    assert join(log, "m1").heartbeat_interval_ms == 7000
    log.advance(2999)
    assert join(log, "m2").member_epoch == 2
    log.advance(SESSION_MS + 1)
    assert group(log).members.keys() == {"m1", "m2"}
    log.advance(2000)
    assert group(log).members.keys() == {"m2"}


def test_a_restart_gives_every_member_a_new_session(log: GroupLog) -> None:
    two_members(log)
    log.advance(SESSION_MS - 1)
    log.restart()
    log.advance(SESSION_MS - 1)
    assert len(group(log).members) == 2
    log.advance(1)
    assert group(log).is_empty


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"owned": None}, ErrorCode.INVALID_REQUEST),
        ({"topics": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"pattern": "(?=t)"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_a_malformed_join_is_refused(
    log: GroupLog, changes: dict[str, object], code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as raised:
        join(log, str(changes.pop("member_id", "m1")), **changes) if (
            "member_epoch" not in changes
        ) else log.beat("m1", int(str(changes["member_epoch"])))
    assert raised.value.code is code
    assert log.machine.groups.find("g") is None


def test_version_0_is_given_a_member_id(log: GroupLog) -> None:
    assert join(log, "", version=0, new_member_id="made").member_id == "made"


# Leaving and static members.


def test_who_leaves_is_gone_at_once(log: GroupLog) -> None:
    two_members(log)
    assert log.beat("m1", -1).member_epoch == -1
    assert numbers(log.beat("m2", 3)) == [0, 1, 2, 3]
    log.beat("m2", -1)
    assert group(log).state is ConsumerGroupState.EMPTY
    assert not log.machine.groups.deadlines, "whoever is gone has no deadline"


def test_a_static_member_keeps_its_partitions_while_it_is_away(log: GroupLog) -> None:
    join(log, "m1", instance_id="i")
    assert log.beat("m1", -2, instance_id="i").member_epoch == -2
    assert numbers(join(log, "m2")) == []
    assert numbers(join(log, "m3", instance_id="i")) == [0, 1]
    assert group(log).members.keys() == {"m2", "m3"}
    assert refusal(log, "m1", 2, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_comes_back_in_time_causes_no_rebalance(log: GroupLog) -> None:
    join(log, "m1", instance_id="i")
    log.beat("m1", -2, instance_id="i")
    back = join(log, "m2", instance_id="i")
    assert (back.member_epoch, numbers(back)) == (2, [0, 1, 2, 3])
    assert group(log).epoch == 2


def test_a_static_member_that_stays_away_is_fenced(log: GroupLog) -> None:
    join(log, "m1", instance_id="i")
    log.beat("m1", -2, instance_id="i")
    log.advance(SESSION_MS)
    assert group(log).is_empty


def test_an_instance_that_is_in_use_is_not_given_away(log: GroupLog) -> None:
    join(log, "m1", instance_id="i")
    with pytest.raises(KafkaError) as raised:
        join(log, "m2", instance_id="i")
    assert raised.value.code is ErrorCode.UNRELEASED_INSTANCE_ID
    assert refusal(log, "m2", 2, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
    assert refusal(log, "m1", 2, instance_id="j") is ErrorCode.UNKNOWN_MEMBER_ID


# Topics and patterns.


def test_new_partitions_and_deleted_topics_bump_the_epoch(log: GroupLog) -> None:
    join(log, "m1", "t", "u")
    log.topics.put("t", 5)
    grown = log.beat("m1", 2)
    assert (grown.member_epoch, numbers(grown)) == (3, [0, 1, 2, 3, 4])
    log.topics.put("u", 1)
    made = log.beat("m1", 3)
    assert (made.member_epoch, numbers(made)) == (4, [0, 0, 1, 2, 3, 4])
    log.topics.delete("t")
    assert numbers(log.beat("m1", 4)) == [0]
    assert group(log).epoch == 5


def test_a_topic_nobody_reads_changes_nothing(log: GroupLog) -> None:
    join(log, "m1")
    log.topics.put("elsewhere", 3)
    written = len(log.log)
    assert log.beat("m1", 2).member_epoch == 2
    assert len(log.log) == written


def test_a_pattern_takes_in_topics_as_they_come(log: GroupLog) -> None:
    assert numbers(join(log, "m1", topics=None, pattern="t.?")) == [0, 1, 2, 3]
    log.topics.put("t2", 1)
    assert log.beat("m1", 2).member_epoch == 2, "matched anew too soon"
    log.advance(1000)
    assert numbers(log.beat("m1", 2)) == [0, 0, 1, 2, 3]
    assert group(log).is_subscribed_to("t2")
    log.beat("m1", -1)
    assert not group(log).patterns


def test_a_pattern_is_matched_anew_after_its_interval() -> None:
    log = log_of(regex_refresh_interval_ms=10_000)
    join(log, "m1", topics=None, pattern="t.?")
    before = group(log).patterns["t.?"]
    log.advance(10_001)
    log.beat("m1", 2)
    assert group(log).patterns["t.?"].timestamp_ms == before.timestamp_ms + 10_001
    assert group(log).epoch == 2


def test_a_pattern_is_left_alone_while_no_topic_changes(log: GroupLog) -> None:
    join(log, "m1", topics=None, pattern="t.?")
    written = len(log.log)
    log.advance(5000)
    log.beat("m1", 2)
    assert len(log.log) == written


def test_changing_a_pattern_drops_the_old_one(log: GroupLog) -> None:
    join(log, "m1", topics=None, pattern="t")
    log.beat("m1", 2, pattern="x.*")
    assert group(log).patterns.keys() == {"x.*"}
    log.beat("m1", 2, pattern="", topics=frozenset({"t"}), owned={})
    assert not group(log).patterns


def test_what_older_coordinators_wrote_about_topics_is_cleared_away(log: GroupLog) -> None:
    join(log, "m1")
    log.run(lambda: Decision((ConsumerGroupPartitionMetadata("g", ()),)))
    join(log, "m2")
    assert not group(log).has_partition_metadata


# Offsets.


def commit(log: GroupLog, member_id: str, epoch: int, *partitions: int, **changes: object) -> None:
    offsets = [OffsetToCommit("t", each, 5, topic_id=topic_id(log)) for each in partitions]
    fields = {"member_id": member_id, "generation": epoch, **changes}
    committer = Committer("g", **fields)  # type: ignore[arg-type]  # by keyword, in tests
    log.commit(log.machine.offsets.commit(committer, offsets, log.now))


@pytest.mark.parametrize(
    ("member_id", "epoch", "partition", "code"),
    [
        ("m1", 4, 0, ErrorCode.STALE_MEMBER_EPOCH),
        ("m1", 2, 3, ErrorCode.STALE_MEMBER_EPOCH),
        ("m2", 2, 3, ErrorCode.STALE_MEMBER_EPOCH),
        ("m9", 3, 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, 0, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_commit_from_the_wrong_epoch_is_refused(
    log: GroupLog, member_id: str, epoch: int, partition: int, code: ErrorCode
) -> None:
    two_members(log)
    with pytest.raises(KafkaError) as raised:
        commit(log, member_id, epoch, partition)
    assert raised.value.code is code


def test_a_late_commit_counts_for_what_was_owned_all_along(log: GroupLog) -> None:
    two_members(log)
    commit(log, "m1", 3, 0)
    commit(log, "m1", 2, 0, 1)
    assert set(log.machine.offsets.snapshot()["g"]) == {("t", 0), ("t", 1)}


def test_a_transaction_from_the_wrong_epoch_is_told_so_in_words_it_knows(log: GroupLog) -> None:
    two_members(log)
    offsets = [OffsetToCommit("t", 3, 5, topic_id=topic_id(log))]
    for member_id, epoch in (("m1", 4), ("m1", 2)):
        committer = Committer("g", member_id, generation=epoch, transactional=True)
        with pytest.raises(KafkaError) as raised:
            log.machine.offsets.commit_transactional(committer, offsets, log.now)
        assert raised.value.code is ErrorCode.ILLEGAL_GENERATION
    anonymous = Committer("g", transactional=True)
    log.commit(log.machine.offsets.commit_transactional(anonymous, offsets, log.now), 7)


def test_a_client_without_epochs_may_not_commit_for_a_member_that_has_one(log: GroupLog) -> None:
    join(log, "m1")
    with pytest.raises(KafkaError) as raised:
        commit(log, "m1", 2, 0, knows_group_not_found=False)
    assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_an_offset_fetch_needs_the_members_epoch(log: GroupLog) -> None:
    join(log, "m1")
    group(log).check_offset_fetch(None, -1)
    group(log).check_offset_fetch("m1", 2)
    for member_id, epoch, code in (
        ("m1", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("m2", 2, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(KafkaError) as raised:
            group(log).check_offset_fetch(member_id, epoch)
        assert raised.value.code is code


def test_only_an_empty_group_may_be_deleted(log: GroupLog) -> None:
    join(log, "m1", "t", pattern="t.*")
    commit(log, "m1", 2, 0)
    answers, _ = log.machine.delete_groups(["g"])
    assert [each.error for each in answers] == [ErrorCode.NON_EMPTY_GROUP]
    log.beat("m1", -1)
    answers, decision = log.machine.delete_groups(["g"])
    assert [each.error for each in answers] == [ErrorCode.NONE]
    log.run(lambda: decision)
    assert log.machine.groups.find("g") is None
    assert log.reloaded().groups.find("g") is None


# From the classic protocol to the consumer protocol, and back.


def classic_pair(log: GroupLog) -> tuple[str, str]:
    """A stable classic group of two members with two partitions each."""
    first, second = classic_join(log), classic_join(log)
    log.advance(0)
    leader, other = (log.joined(each).member_id for each in (first, second))
    generation = log.joined(first).generation_id
    assignments = {
        leader: write_assignment({"t": frozenset({0, 1})}, 0),
        other: write_assignment({"t": frozenset({2, 3})}, 0),
    }
    log.sync(leader, generation, assignments)
    log.sync(other, generation)
    return leader, other


def test_a_classic_group_becomes_a_consumer_group_without_losing_what_is_owned(
    log: GroupLog,
) -> None:
    leader, other = classic_pair(log)
    generation = 1
    answer = join(log, "k1")
    assert numbers(answer) == []
    assert group(log).epoch == generation + 1
    kept = {
        each: sorted(group(log).members[each].owned()[topic_id(log)]) for each in (leader, other)
    }
    assert kept == {leader: [0, 1], other: [2, 3]}
    assert log.heartbeat(leader, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = log.joined(classic_join(log, leader, owns=(0, 1)))
    synced = log.synced(log.sync(leader, rejoined.generation_id))
    assert (rejoined.generation_id, read_assignment(synced.assignment).partitions) == (
        generation + 1,
        {"t": frozenset({0, 1})},
    )
    classic_join(log, other, owns=(2, 3))
    classic_join(log, other, owns=(2,))
    assert numbers(log.beat("k1", answer.member_epoch)) == [3]
    assert log.reloaded().groups.find("g") == group(log)


def test_whoever_waits_in_a_classic_group_is_sent_back_to_join_the_consumer_group(
    log: GroupLog,
) -> None:
    leader, other = classic_pair(log)
    waiting = classic_join(
        log,
        leader,
        session_timeout_ms=11_000,
        protocols=(MemberProtocol("range", subscription("t", "u")),),
    )
    join(log, "k1")
    assert log.joined(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert not log.parked
    log.advance(9000)
    assert {leader, other} <= group(log).members.keys(), "a deadline of the classic group fired"


def test_an_upgrade_gives_classic_members_a_new_session(log: GroupLog) -> None:
    members = set(classic_pair(log))
    log.advance(9000)
    join(log, "k1")
    log.advance(9999)
    assert members <= group(log).members.keys()
    log.advance(1)
    assert not members & group(log).members.keys()


@pytest.mark.parametrize(
    ("policy", "upgrades"),
    [("disabled", False), ("downgrade", False), ("upgrade", True), ("bidirectional", True)],
)
def test_the_migration_policy_says_whether_a_live_group_may_change(
    policy: str, upgrades: bool
) -> None:
    log = log_of(migration_policy=MigrationPolicy(policy))
    classic_pair(log)
    if upgrades:
        join(log, "k1")
        assert group(log).group_type is GroupType.CONSUMER
        return
    with pytest.raises(KafkaError) as raised:
        join(log, "k1")
    assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(("protocol", "upgrades"), [("mine", False), ("cooperative-sticky", True)])
def test_only_a_custom_assignors_message_stands_in_the_way_of_an_upgrade(
    log: GroupLog, protocol: str, upgrades: bool
) -> None:
    ticket = classic_join(log, protocols=(MemberProtocol(protocol, subscription("t")),))
    log.advance(0)
    member_id = log.joined(ticket).member_id
    assignment = write_assignment({"t": frozenset({0})}, 0)[:-4] + b"\0\0\0\x01x"
    log.sync(member_id, 1, {member_id: assignment})
    if upgrades:
        join(log, "k1")
        assert group(log).members[member_id].owned() == owned(log, 0)
        return
    with pytest.raises(KafkaError) as raised:
        join(log, "k1")
    assert "custom assignor" in raised.value.message


def test_the_last_consumer_member_leaves_a_classic_group_behind(log: GroupLog) -> None:
    leader, other = classic_pair(log)
    join(log, "k1")
    log.beat("k1", -1)
    classic = log.machine.groups.classic("g")
    assert classic.members.keys() == {leader, other}
    assert classic.state is GroupState.PREPARING_REBALANCE
    reloaded = log.reloaded().groups.find("g")
    assert isinstance(reloaded, ClassicGroup)
    assert reloaded.members.keys() == {leader, other}
    assert log.heartbeat(leader, classic.generation) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_members_classic_successor_downgrades_without_a_rebalance(log: GroupLog) -> None:
    join(log, "k1", instance_id="i")
    ticket = classic_join(log, group_instance_id="i")
    member_id = log.joined(ticket).member_id
    classic = log.machine.groups.classic("g")
    assert (classic.state, classic.generation) == (GroupState.STABLE, 2)
    synced = log.synced(log.sync(member_id, 2, group_instance_id="i"))
    assert read_assignment(synced.assignment).partitions == {"t": frozenset({0, 1, 2, 3})}


def test_without_downgrade_classic_members_stay_in_the_consumer_group() -> None:
    log = log_of(migration_policy=MigrationPolicy.UPGRADE)
    classic_pair(log)
    join(log, "k1")
    log.beat("k1", -1)
    assert len(group(log).members) == 2


def test_an_empty_group_takes_the_protocol_of_whoever_comes(log: GroupLog) -> None:
    join(log, "m1")
    log.beat("m1", -1)
    ticket = classic_join(log)
    log.advance(0)
    member_id = log.joined(ticket).member_id
    log.sync(member_id, 1, {member_id: b""})
    assert isinstance(log.machine.groups.find("g"), ClassicGroup)
    assert isinstance(log.reloaded().groups.find("g"), ClassicGroup)
    log.leave(Leaver(member_id))
    join(log, "m2")
    assert isinstance(log.reloaded().groups.find("g"), ConsumerGroup)


# Members of the classic protocol inside a consumer group.


def test_a_classic_member_is_led_by_the_coordinator(log: GroupLog) -> None:
    join(log, "k1")
    joined = log.joined(classic_join(log))
    member_id = joined.member_id
    assert (joined.leader, joined.generation_id, joined.protocol_name) == ("", 3, "range")
    assert read_assignment(log.synced(log.sync(member_id, 3)).assignment).partitions == {}
    assert log.heartbeat(member_id, 3) is ErrorCode.NONE
    log.beat("k1", 2)
    log.beat("k1", 2, owned=owned(log, 0, 1))
    assert log.heartbeat(member_id, 3) is ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = log.joined(classic_join(log, member_id))
    synced = log.synced(log.sync(member_id, rejoined.generation_id))
    assert read_assignment(synced.assignment).partitions == {"t": frozenset({2, 3})}
    commit(log, member_id, 3, 2, knows_group_not_found=False)


@pytest.mark.parametrize(
    ("member", "generation", "code"),
    [
        ("c", 9, ErrorCode.ILLEGAL_GENERATION),
        ("nobody", 3, ErrorCode.UNKNOWN_MEMBER_ID),
        ("k1", 2, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_classic_request_for_the_wrong_member_is_refused(
    log: GroupLog, member: str, generation: int, code: ErrorCode
) -> None:
    join(log, "k1")
    known = log.joined(classic_join(log)).member_id
    member_id = known if member == "c" else member
    assert log.heartbeat(member_id, generation) is code
    assert log.synced(log.sync(member_id, generation)).error is code
    if member == "nobody":
        assert [each.error for each in log.leave(Leaver(member_id))] == [code]


@pytest.mark.parametrize("silent_in", ["join", "sync", "session"])
def test_a_classic_member_that_falls_silent_is_fenced(log: GroupLog, silent_in: str) -> None:
    join(log, "k1")
    member_id = log.joined(
        classic_join(log, rebalance_timeout_ms=8000, session_timeout_ms=9000)
    ).member_id
    if silent_in != "sync":
        log.sync(member_id, 3)
    if silent_in == "join":
        join(log, "k2")
        assert log.heartbeat(member_id, 3) is ErrorCode.REBALANCE_IN_PROGRESS
    log.advance(7999)
    if silent_in != "session":
        log.heartbeat(member_id, 3)
    assert member_id in group(log).members
    log.advance(1 if silent_in != "session" else 1001)
    assert member_id not in group(log).members


@pytest.mark.parametrize("leaver", [Leaver("k1", "i"), Leaver("", "i"), Leaver("k1")])
def test_an_administrator_may_remove_members_of_either_protocol(
    log: GroupLog, leaver: Leaver
) -> None:
    join(log, "k1", instance_id="i")
    join(log, "k2")
    (answer,) = log.leave(leaver)
    assert (answer.member_id, answer.error) == ("k1", ErrorCode.NONE)
    assert group(log).members.keys() == {"k2"}
    unknown = [Leaver("k9"), Leaver("", "j"), Leaver("k9", "i")]
    assert {each.error for each in log.leave(*unknown)} == {ErrorCode.UNKNOWN_MEMBER_ID}


def test_the_protocols_of_a_classic_member_must_fit_the_others(log: GroupLog) -> None:
    join(log, "k1")
    classic_join(log)
    other = (MemberProtocol("roundrobin", subscription("t")),)
    assert log.joined(classic_join(log, protocols=other)).error is (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    short = classic_join(log, session_timeout_ms=1)
    assert log.joined(short).error is ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_new_classic_member_is_asked_to_come_back_with_an_id(log: GroupLog) -> None:
    join(log, "k1")
    answer = log.joined(classic_join(log, knows_member_id_required=True))
    assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id
    assert answer.member_id not in group(log).members


def test_records_of_a_group_that_is_gone_are_passed_over(log: GroupLog) -> None:
    log.run(lambda: Decision((ConsumerGroupRegularExpression("g", "t.*", None),)))
    assert log.machine.groups.find("g") is None
