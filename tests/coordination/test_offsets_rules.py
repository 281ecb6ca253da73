"""The rules of committed offsets one by one, each with the code that Kafka gives."""

from typing import Any
from uuid import UUID

import pytest

from headrace.coordination.classic_group import GroupState
from headrace.coordination.coordinator import DeletedGroup
from headrace.coordination.group import Committer, GroupLimits
from headrace.coordination.group_member import MemberProtocol
from headrace.coordination.group_records import CommittedOffset
from headrace.coordination.leave import Leaver
from headrace.coordination.offsets import OffsetToCommit, TopicPartitions
from headrace.errors import ErrorCode, KafkaError
from headrace.testing.group_log import START_MS, GroupLog, subscription

SIMPLE = Committer("g")
DAY_MS = 24 * 3_600_000


def commit(
    log: GroupLog, *offsets: OffsetToCommit, committer: Committer = SIMPLE, **more: Any
) -> tuple[ErrorCode, ...]:
    return log.commit(log.machine.offsets.commit(committer, offsets, log.now, **more))


def commit_in_transaction(
    log: GroupLog, producer_id: int, *offsets: OffsetToCommit
) -> tuple[ErrorCode, ...]:
    outcome = log.machine.offsets.commit_transactional(
        Committer("g", transactional=True), offsets, log.now
    )
    return log.commit(outcome, producer_id)


def fetched(
    log: GroupLog, partition: int = 0, topic: str = "t", *, require_stable: bool = False
) -> int | ErrorCode | None:
    asked = [TopicPartitions(topic, [partition])]
    ((_, (found,)),) = log.machine.offsets.fetch("g", asked, require_stable=require_stable)
    return found.error if found.error else found.committed and found.committed.offset


def consumer(log: GroupLog, *topics: str) -> str:
    protocols = (MemberProtocol("range", subscription(*topics)),)
    ticket = log.join(protocols=protocols)
    log.advance(0)
    member_id = log.joined(ticket).member_id
    log.sync(member_id, 1, {member_id: b"A"})
    return member_id


def test_a_commit_without_a_group_makes_a_simple_one():
    log = GroupLog()
    assert commit(log, OffsetToCommit("t", 0, 5, 3, "note")) == (ErrorCode.NONE,)
    expected = CommittedOffset(5, 3, "note", START_MS)
    assert log.machine.offsets.snapshot() == {"g": {("t", 0): expected}}
    group = log.machine.groups.classic("g")
    assert (group.state, group.protocol_type_name) == (GroupState.EMPTY, "")
    assert log.reloaded().offsets.snapshot() == {"g": {("t", 0): expected}}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, None),
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": -1}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "", "generation": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_id": "unknown"}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"group_id": "unknown", "knows_group_not_found": False}, ErrorCode.ILLEGAL_GENERATION),
        ({"group_id": "unknown", "transactional": True}, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_only_a_member_of_the_generation_commits_for_a_group(changes, error):
    log = GroupLog()
    member_id = consumer(log, "t")
    asked = {"group_id": "g", "member_id": member_id, "generation": 1, **changes}
    if error is None:
        commit(log, OffsetToCommit("t", 0, 5), committer=Committer(**asked))
        assert fetched(log) == 5
        return
    with pytest.raises(KafkaError) as refusal:
        commit(log, OffsetToCommit("t", 0, 5), committer=Committer(**asked))
    assert refusal.value.code is error
    assert log.machine.offsets.snapshot() == {}


def test_a_commit_before_the_sync_is_told_of_the_rebalance():
    log = GroupLog()
    ticket = log.join()
    log.advance(0)
    member = Committer("g", log.joined(ticket).member_id, None, 1)
    with pytest.raises(KafkaError, match="REBALANCE_IN_PROGRESS"):
        commit(log, OffsetToCommit("t", 0, 5), committer=member)


def test_a_member_commits_while_others_gather_and_stays_alive_by_it():
    log = GroupLog()
    member_id = consumer(log, "t")
    log.join(protocols=(MemberProtocol("range", subscription("t")),))
    assert log.heartbeat(member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(5):
        log.advance(6000)
        commit(log, OffsetToCommit("t", 0, 5), committer=Committer("g", member_id, None, 1))
    assert member_id in log.machine.groups.classic("g").members


@pytest.mark.parametrize(("text", "fits"), [("x" * 10, True), ("x" * 11, False), ("😀" * 6, False)])
def test_metadata_is_limited_as_java_counts(text, fits):
    log = GroupLog(GroupLimits(offset_metadata_max_bytes=10))
    errors = commit(log, OffsetToCommit("t", 0, 1, -1, text), OffsetToCommit("t", 1, 2))
    code = ErrorCode.NONE if fits else ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert errors == (code, ErrorCode.NONE)
    assert fetched(log, 0) == (1 if fits else None)
    assert fetched(log, 1) == 2


def test_pending_offsets_show_only_after_a_commit():
    log = GroupLog()
    commit(log, OffsetToCommit("t", 0, 1))
    commit_in_transaction(log, 7, OffsetToCommit("t", 0, 9))
    assert fetched(log) == 1
    assert fetched(log, require_stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert fetched(log, 1, require_stable=True) is None
    log.end_transaction(7, committed=True)
    assert fetched(log, require_stable=True) == 9


def test_an_aborted_transaction_leaves_no_trace():
    log = GroupLog()
    commit(log, OffsetToCommit("t", 0, 1))
    commit_in_transaction(log, 7, OffsetToCommit("t", 0, 9), OffsetToCommit("u", 0, 9))
    log.end_transaction(7, committed=False)
    assert fetched(log, require_stable=True) == 1
    assert fetched(log, topic="u", require_stable=True) is None


def test_a_later_plain_commit_is_not_undone_by_a_marker():
    log = GroupLog()
    commit_in_transaction(log, 7, OffsetToCommit("t", 0, 9))
    commit(log, OffsetToCommit("t", 0, 20))
    log.end_transaction(7, committed=True)
    assert fetched(log) == 20
    assert log.reloaded().offsets.snapshot() == log.machine.offsets.snapshot()


def test_a_topic_made_anew_does_not_inherit_offsets():
    log = GroupLog()
    old, new = UUID(int=1), UUID(int=2)
    commit(log, OffsetToCommit("t", 0, 5, topic_id=old))
    for asked, offset in ((old, 5), (new, None), (UUID(int=0), 5)):
        topics = [TopicPartitions("t", [0], asked)]
        ((_, (found,)),) = log.machine.offsets.fetch("g", topics, require_stable=False)
        assert (found.committed and found.committed.offset) == offset


def test_offsets_of_topics_that_members_read_cannot_be_deleted():
    log = GroupLog()
    member_id = consumer(log, "t")
    member = Committer("g", member_id, None, 1)
    commit(log, OffsetToCommit("t", 0, 1), OffsetToCommit("u", 0, 1), committer=member)
    asked = [TopicPartitions("t", [0]), TopicPartitions("u", [0, 1])]
    outcome = log.machine.offsets.delete("g", asked)
    none = ErrorCode.NONE
    assert log.commit(outcome) == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, none, none)
    assert log.machine.offsets.snapshot()["g"].keys() == {("t", 0)}


def test_deleting_offsets_needs_a_group_of_consumers_or_an_empty_one():
    log = GroupLog()
    with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
        log.machine.offsets.delete("g", [])
    log.join(protocol_type="connect")
    with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
        log.machine.offsets.delete("g", [])


def test_deleting_pending_offsets_ends_them():
    log = GroupLog()
    commit_in_transaction(log, 7, OffsetToCommit("t", 0, 9))
    log.commit(log.machine.offsets.delete("g", [TopicPartitions("t", [0])]))
    log.end_transaction(7, committed=True)
    assert fetched(log) is None


def test_a_deleted_topic_takes_its_offsets_along():
    log = GroupLog()
    commit(log, OffsetToCommit("t", 0, 1), OffsetToCommit("u", 0, 1))
    commit_in_transaction(log, 7, OffsetToCommit("t", 3, 9))
    log.run(lambda: log.machine.delete_topics(["t"]))
    log.end_transaction(7, committed=True)
    assert log.machine.offsets.snapshot()["g"].keys() == {("u", 0)}


def test_groups_are_deleted_with_their_offsets_only_when_empty():
    log = GroupLog()
    member_id = consumer(log, "t")
    commit(log, OffsetToCommit("t", 0, 1), committer=Committer("g", member_id, None, 1))
    answers, decision = log.machine.delete_groups(["g", "unknown"])
    assert answers == (
        DeletedGroup("g", ErrorCode.NON_EMPTY_GROUP),
        DeletedGroup("unknown", ErrorCode.GROUP_ID_NOT_FOUND),
    )
    assert not decision.records
    log.leave(Leaver(member_id))
    answers, decision = log.machine.delete_groups(["g"])
    assert answers == (DeletedGroup("g", ErrorCode.NONE),)
    log.run(lambda: decision)
    for machine in (log.machine, log.reloaded()):
        assert machine.groups.find("g") is None
        assert machine.offsets.snapshot() == {}


def expire(log: GroupLog) -> None:
    log.run(lambda: log.machine.expire(log.now))


def test_offsets_of_a_simple_group_expire_from_their_commit():
    log = GroupLog()
    commit(log, OffsetToCommit("t", 0, 1))
    log.advance(DAY_MS)
    commit(log, OffsetToCommit("t", 1, 1))
    log.advance(7 * DAY_MS - 1 - DAY_MS)
    expire(log)
    assert len(log.machine.offsets.snapshot()["g"]) == 2
    log.advance(1)
    expire(log)
    assert log.machine.offsets.snapshot()["g"].keys() == {("t", 1)}
    log.advance(DAY_MS)
    expire(log)
    assert log.machine.groups.find("g") is None
    assert log.reloaded().groups.find("g") is None


def test_offsets_of_an_empty_group_expire_from_when_it_became_empty():
    log = GroupLog()
    member_id = consumer(log, "t")
    commit(log, OffsetToCommit("t", 0, 1), committer=Committer("g", member_id, None, 1))
    for _ in range(20):
        log.advance(9000)
        log.heartbeat(member_id, 1)
    log.leave(Leaver(member_id))
    log.advance(7 * DAY_MS - 1)
    expire(log)
    assert fetched(log) == 1
    log.advance(1)
    expire(log)
    assert log.machine.groups.find("g") is None


def test_a_living_group_keeps_the_offsets_of_what_it_reads():
    log = GroupLog()
    member_id = consumer(log, "t")
    member = Committer("g", member_id, None, 1)
    commit(log, OffsetToCommit("t", 0, 1), OffsetToCommit("u", 0, 1), committer=member)
    log.limits = GroupLimits(initial_rebalance_delay_ms=0, offsets_retention_ms=5000)
    log.restart()
    log.advance(5000)
    expire(log)
    assert log.machine.offsets.snapshot()["g"].keys() == {("t", 0)}
    assert log.machine.groups.find("g") is not None


def test_a_pending_offset_keeps_its_partition_and_its_group():
    log = GroupLog()
    commit(log, OffsetToCommit("t", 0, 1))
    commit_in_transaction(log, 7, OffsetToCommit("t", 0, 2))
    log.advance(8 * DAY_MS)
    expire(log)
    assert fetched(log) == 1


def test_an_old_clients_retention_overrules_the_brokers():
    log = GroupLog()
    commit(log, OffsetToCommit("t", 0, 1), retention_ms=1000)
    assert log.reloaded().offsets.snapshot() == log.machine.offsets.snapshot()
    log.advance(999)
    expire(log)
    assert fetched(log) == 1
    log.advance(1)
    expire(log)
    assert fetched(log) is None
