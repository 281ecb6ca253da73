"""The rules of classic groups one by one, each with the code that Kafka gives."""

import pytest

from headrace.coordination.classic_group import ClassicGroup, GroupState
from headrace.coordination.group import GroupLimits, GroupType
from headrace.coordination.group_member import MemberProtocol
from headrace.coordination.leave import Leaver
from headrace.errors import ErrorCode, KafkaError
from headrace.testing.group_log import GroupLog, subscription

RANGE = (MemberProtocol("range", b"r"),)
BOTH = (MemberProtocol("sticky", b"s"), MemberProtocol("range", b"r"))


def group_of(log: GroupLog) -> ClassicGroup:
    return log.machine.groups.classic("g")


def stable(
    log: GroupLog, *instances: str | None, protocols: tuple[MemberProtocol, ...] = RANGE
) -> list[str]:
    """A stable group with one member per instance id (None: dynamic); the first one leads."""
    tickets = [log.join(group_instance_id=each, protocols=protocols) for each in instances]
    log.advance(log.limits.initial_rebalance_delay_ms)
    members = [log.joined(each).member_id for each in tickets]
    generation = group_of(log).generation
    for member_id in reversed(members):
        log.sync(member_id, generation, {each: each.encode() for each in members})
    assert group_of(log).state is GroupState.STABLE
    return members


def test_members_that_come_together_meet_in_one_generation():
    log = GroupLog(GroupLimits(initial_rebalance_delay_ms=3000))
    first = log.join()
    log.advance(2999)
    second = log.join()
    assert log.parked == {first, second}
    log.advance(1)
    assert log.parked == {first, second}, "a new member extends the delay"
    log.advance(3000)
    assert not log.parked
    assert log.joined(first).generation_id == log.joined(second).generation_id == 1
    assert log.joined(first).leader == log.joined(second).leader == log.joined(first).member_id
    assert [each.member_id for each in log.joined(first).members] == ["m1", "m2"]
    assert log.joined(second).members == ()


def test_the_initial_delay_never_passes_the_rebalance_timeout():
    log = GroupLog(GroupLimits(initial_rebalance_delay_ms=3000))
    first = log.join(rebalance_timeout_ms=5000)
    for _ in range(4):
        log.advance(1500)
        log.join(rebalance_timeout_ms=5000)
    assert first in log.answers


def test_a_member_without_an_id_is_given_one_and_must_come_back_with_it():
    log = GroupLog()
    first = log.joined(log.join(knows_member_id_required=True))
    assert (first.error, first.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "m1")
    assert group_of(log).state is GroupState.EMPTY
    again = log.join("m1", knows_member_id_required=True)
    log.advance(0)
    assert log.joined(again).error is ErrorCode.NONE


def test_a_pending_member_that_stays_away_is_forgotten_after_its_session_timeout():
    log = GroupLog()
    log.join(knows_member_id_required=True)
    log.advance(10_000)
    assert log.joined(log.join("m1")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_id_is_no_static_members_id():
    log = GroupLog()
    stable(log, "i")
    pending = log.joined(log.join(protocols=RANGE, knows_member_id_required=True)).member_id
    answer = log.joined(log.join(pending, protocols=RANGE, group_instance_id="i"))
    assert answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(group_of(log).members) == 1


def test_a_rebalance_waits_for_pending_members():
    log = GroupLog()
    leader, _ = stable(log, None, None)
    log.join(knows_member_id_required=True)
    rejoin = log.join(leader)
    log.join("m2", protocols=RANGE)
    assert rejoin in log.parked
    log.advance(10_000)
    assert rejoin in log.answers


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"group_id": "unknown", "member_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (MemberProtocol("other", b""),)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_id": "new", "protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_id": "new", "protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "x", "group_instance_id": "i"}, ErrorCode.FENCED_INSTANCE_ID),
        ({"member_id": "x", "group_instance_id": "j"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_refused_join_changes_nothing(changes, error):
    log = GroupLog()
    stable(log, "i", None)
    before = group_of(log)
    answer = log.joined(log.join(**{"protocols": RANGE, **changes}))
    assert answer.error is error
    assert answer.member_id == changes.get("member_id", "")
    assert group_of(log) == before


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "x", "group_instance_id": "i"}, ErrorCode.FENCED_INSTANCE_ID),
        ({"group_instance_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_refused_sync_changes_nothing(changes, error):
    log = GroupLog()
    stable(log, "i", None)
    before = group_of(log)
    asked = {"member_id": "m2", "generation": 1, **changes}
    assert log.synced(log.sync(**asked)).error is error
    assert group_of(log) == before


def test_a_follower_that_syncs_first_waits_for_the_leaders_assignment():
    log = GroupLog()
    tickets = [log.join(), log.join()]
    log.advance(0)
    leader, follower = (log.joined(each).member_id for each in tickets)
    waiting = log.sync(follower, 1)
    assert waiting in log.parked
    assert len(log.log) == 0, "nothing is written before there is an assignment"
    led = log.sync(leader, 1, {leader: b"L", follower: b"F"})
    assert log.synced(waiting).assignment == b"F"
    assert log.synced(led).assignment == b"L"
    assert len(log.log) == 1
    assert log.synced(log.sync(follower, 1)).assignment == b"F", "a late sync gets it again"


def test_whoever_does_not_sync_is_removed_after_the_rebalance_timeout():
    log = GroupLog()
    tickets = [log.join(session_timeout_ms=100_000), log.join(session_timeout_ms=100_000)]
    log.advance(0)
    leader = log.joined(tickets[0]).member_id
    log.sync(leader, 1)
    log.advance(59_999)
    assert group_of(log).state is GroupState.STABLE
    log.advance(1)
    assert list(group_of(log).members) == [leader]
    assert log.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "x", "instance_id": "i"}, ErrorCode.FENCED_INSTANCE_ID),
        ({"instance_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_a_heartbeat_is_answered_by_what_the_group_knows(changes, error):
    log = GroupLog()
    stable(log, "i", None)
    assert log.heartbeat(**{"member_id": "m2", "generation": 1, **changes}) is error


def test_heartbeats_keep_a_member_and_silence_removes_it():
    log = GroupLog()
    alive, silent = stable(log, None, None)
    for _ in range(3):
        log.advance(4000)
        log.heartbeat(alive, 1)
    assert list(group_of(log).members) == [alive]
    assert log.heartbeat(silent, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert log.heartbeat(alive, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_whose_join_is_parked_needs_no_heartbeat_unless_it_is_new():
    log = GroupLog()
    leader, follower = stable(log, None, None)
    rejoin = log.join(leader, rebalance_timeout_ms=400_000)
    new = log.join(rebalance_timeout_ms=400_000)
    for _ in range(60):
        log.heartbeat(follower, 1)
        log.advance(5000)
    assert log.joined(new).error is ErrorCode.UNKNOWN_MEMBER_ID, "a new member may be gone"
    assert rejoin in log.parked


def test_the_leader_forces_a_rebalance_and_an_unchanged_follower_does_not():
    log = GroupLog()
    leader, follower = stable(log, None, None)
    same = log.joined(log.join(follower, protocols=RANGE))
    assert (same.error, same.generation_id, same.leader) == (ErrorCode.NONE, 1, leader)
    assert group_of(log).state is GroupState.STABLE
    changed = log.join(follower, protocols=BOTH)
    assert changed in log.parked
    log.join(leader, protocols=RANGE)
    assert log.joined(changed).generation_id == 2


def test_a_leader_that_does_not_rejoin_is_replaced():
    log = GroupLog()
    leader, follower = stable(log, None, None)
    rejoin = log.join(follower, protocols=BOTH)
    for _ in range(12):
        log.heartbeat(leader, 1)
        log.advance(5000)
    answer = log.joined(rejoin)
    assert answer.leader == follower
    assert [each.member_id for each in answer.members] == [follower]


def test_the_protocol_is_one_all_support_and_most_prefer():
    log = GroupLog()
    tickets = [log.join(protocols=each) for each in (BOTH, BOTH[::-1], BOTH)]
    log.advance(0)
    assert {log.joined(each).protocol_name for each in tickets} == {"sticky"}
    log = GroupLog()
    tickets = [log.join(protocols=each) for each in (BOTH, RANGE, BOTH)]
    log.advance(0)
    assert {log.joined(each).protocol_name for each in tickets} == {"range"}


def test_a_rebalance_refuses_parked_syncs():
    log = GroupLog()
    tickets = [log.join(), log.join()]
    log.advance(0)
    waiting = log.sync(log.joined(tickets[1]).member_id, 1)
    log.join()
    assert log.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_takes_no_more_members_than_its_limit():
    log = GroupLog(GroupLimits(initial_rebalance_delay_ms=0, max_size=2))
    members = stable(log, None, None)
    refused = log.joined(log.join())
    assert (refused.error, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert list(group_of(log).members) == members


def test_a_group_above_a_lowered_limit_rebalances_after_the_load():
    log = GroupLog()
    first, second, third = stable(log, None, None, None)
    log.limits = GroupLimits(initial_rebalance_delay_ms=0, max_size=2)
    log.restart()
    assert log.heartbeat(first, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    tickets = [log.join(each, protocols=RANGE) for each in (first, second, third)]
    assert log.joined(tickets[2]).error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_static_member_restarts_without_a_rebalance():
    log = GroupLog()
    leader, old = stable(log, "i", "j")
    answer = log.joined(log.join(group_instance_id="j", protocols=RANGE))
    assert (answer.error, answer.generation_id, answer.leader) == (ErrorCode.NONE, 1, leader)
    assert not answer.skip_assignment
    assert not answer.members
    assert group_of(log).state is GroupState.STABLE
    assert log.heartbeat(leader, 1, instance_id="i") is ErrorCode.NONE
    assert log.heartbeat(old, 1, instance_id="j") is ErrorCode.FENCED_INSTANCE_ID
    assert log.heartbeat(old, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    synced = log.synced(log.sync(answer.member_id, 1, group_instance_id="j"))
    assert synced.assignment == old.encode(), "it keeps its assignment"
    log.restart()
    assert log.heartbeat(answer.member_id, 1, instance_id="j") is ErrorCode.NONE


def test_a_static_leader_that_restarts_is_told_to_skip_the_assignment():
    log = GroupLog()
    old, _ = stable(log, "i", "j")
    new = log.joined(log.join(group_instance_id="i", protocols=RANGE))
    assert (new.leader, new.skip_assignment) == (new.member_id, True)
    assert len(new.members) == 2
    older = log.joined(
        log.join(group_instance_id="i", protocols=RANGE, knows_skip_assignment=False)
    )
    assert (older.leader, older.skip_assignment) == (new.member_id, False)
    assert not older.members
    assert old != new.member_id


def test_a_static_member_that_changes_the_protocol_causes_a_rebalance():
    log = GroupLog()
    stable(log, "i", protocols=BOTH)
    again = log.join(group_instance_id="i", protocols=RANGE)
    assert log.joined(again).generation_id == 2
    assert log.joined(again).protocol_name == "range"


def test_a_static_member_that_restarts_before_the_sync_causes_a_rebalance():
    log = GroupLog()
    tickets = [log.join(group_instance_id=each) for each in ("i", "j")]
    log.advance(0)
    waiting = log.sync(log.joined(tickets[1]).member_id, 1, group_instance_id="j")
    log.join(group_instance_id="j")
    assert log.synced(waiting).error is ErrorCode.FENCED_INSTANCE_ID
    assert group_of(log).state is GroupState.PREPARING_REBALANCE


def test_a_second_process_with_the_same_instance_id_fences_the_parked_first():
    log = GroupLog(GroupLimits(initial_rebalance_delay_ms=3000))
    first = log.join(group_instance_id="i")
    second = log.join(group_instance_id="i")
    assert log.joined(first).error is ErrorCode.FENCED_INSTANCE_ID
    log.advance(6000)
    assert log.joined(second).error is ErrorCode.NONE


def test_a_static_member_survives_a_rebalance_it_misses_until_its_session_ends():
    log = GroupLog()
    leader, absent = stable(log, None, "i")
    rejoin = log.join(leader, rebalance_timeout_ms=7000, protocols=RANGE)
    for _ in range(14):
        log.heartbeat(absent, 1, instance_id="i")
        log.advance(4500)
    assert {each.member_id for each in log.joined(rejoin).members} == {leader, absent}


def test_whoever_leaves_while_it_waits_is_told_that_it_is_no_member():
    log = GroupLog()
    tickets = [log.join(), log.join()]
    log.advance(0)
    member_id = log.joined(tickets[1]).member_id
    waiting = log.sync(member_id, 1)
    log.leave(Leaver(member_id))
    assert log.synced(waiting).error is ErrorCode.UNKNOWN_MEMBER_ID
    leader = log.joined(tickets[0]).member_id
    log.join(knows_member_id_required=True)
    waiting = log.join(leader)
    log.leave(Leaver(leader))
    assert log.joined(waiting).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_members_are_answered_one_by_one():
    log = GroupLog()
    stable(log, "i", "j", None)
    pending = log.joined(log.join(protocols=RANGE, knows_member_id_required=True)).member_id
    answers = log.leave(
        Leaver("", "i"),
        Leaver("x", "j"),
        Leaver("m3"),
        Leaver(pending),
        Leaver("nobody"),
        Leaver("", "unknown"),
        Leaver(""),
    )
    assert [each.error.name for each in answers] == [
        "NONE",
        "FENCED_INSTANCE_ID",
        "NONE",
        "NONE",
        "UNKNOWN_MEMBER_ID",
        "UNKNOWN_MEMBER_ID",
        "UNKNOWN_MEMBER_ID",
    ]
    assert list(group_of(log).members) == ["m2"]
    assert group_of(log).state is GroupState.PREPARING_REBALANCE


def test_leaving_an_unknown_group_is_an_unknown_member_and_no_group_id_is_invalid():
    log = GroupLog()
    (answer,) = log.leave(Leaver("m"), group_id="unknown")
    assert answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(KafkaError, match="INVALID_GROUP_ID"):
        log.leave(Leaver("m"), group_id="")


def test_the_last_member_to_leave_empties_the_group_and_the_log_says_so():
    log = GroupLog()
    (member,) = stable(log, None)
    log.leave(Leaver(member))
    group = group_of(log)
    assert (group.state, group.generation, group.leader) == (GroupState.EMPTY, 2, None)
    log.restart()
    again = group_of(log)
    assert (again.state, again.generation, again.protocol_type) == (
        GroupState.EMPTY,
        2,
        "consumer",
    )


def test_members_found_in_the_log_have_one_session_timeout_to_show_themselves():
    log = GroupLog()
    alive, silent = stable(log, None, None)
    log.restart()
    log.advance(9000)
    assert log.heartbeat(alive, 1) is ErrorCode.NONE
    log.advance(1000)
    assert silent not in group_of(log).members
    assert alive in group_of(log).members


def test_a_retry_of_a_parked_request_takes_its_place():
    log = GroupLog()
    leader, follower = stable(log, None, None)
    first = log.join(leader)
    second = log.join(leader)
    assert log.joined(first).error is ErrorCode.REBALANCE_IN_PROGRESS
    log.join(follower)
    assert log.joined(second).generation_id == 2
    lost = log.sync(follower, 2)
    retried = log.sync(follower, 2)
    assert log.synced(lost).error is ErrorCode.REBALANCE_IN_PROGRESS
    log.sync(leader, 2, {follower: b"F"})
    assert log.synced(retried).assignment == b"F"


def test_a_group_of_another_kind_refuses_classic_members():
    class Other:
        group_id = "g"
        group_type = GroupType.SHARE

    log = GroupLog()
    log.machine.groups.put(Other())  # type: ignore[arg-type]
    assert log.joined(log.join()).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert log.synced(log.sync("m", 1)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert log.heartbeat("m", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    (answer,) = log.leave(Leaver("m"))
    assert answer.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_knows_the_topics_its_consumers_read():
    log = GroupLog()
    protocols = (MemberProtocol("range", subscription("a", "b")),)
    stable(log, None, protocols=protocols)
    assert group_of(log).subscribed_topics == frozenset("ab")
    log.restart()
    assert group_of(log).subscribed_topics == frozenset("ab")
    unreadable = GroupLog()
    stable(unreadable, None, protocols=RANGE)
    assert group_of(unreadable).subscribed_topics is None
    assert group_of(unreadable).is_subscribed_to("anything")
