"""Groups of the newer kinds in `headrace groups`: share groups and consumer groups (KIP-848)."""

import pytest

from headrace.client.consumer import Consumer
from headrace.client.wire import Api, Connection
from tests.cli.command_line import CommandLine
from tests.cli.share_member import share_member

JOIN_POLLS = 300


def fill(headrace: CommandLine, topic: str, partition: int, count: int) -> None:
    lines = "".join(f"{n}\n" for n in range(count)).encode()
    headrace.ok("produce", topic, "--partition", str(partition), stdin=lines)


def listed(headrace: CommandLine, group: str, *options: str) -> list[list[str]]:
    return [row for row in headrace.ok("groups", "list", *options).table if row[0] == group]


def test_a_share_group_is_listed_with_its_type(
    headrace: CommandLine, topic: str, group: str
) -> None:
    with share_member(headrace.bootstrap, group, topic, partitions=3):
        assert listed(headrace, group) == [[group, "Share", "Stable"]]
        assert listed(headrace, group, "--type", "share", "--state", "stable")
        assert not listed(headrace, group, "--type", "Classic", "--type", "Consumer")
        deleted = headrace("groups", "delete", group)
        assert (deleted.code, "NON_EMPTY_GROUP" in deleted.err) == (1, True)
    assert listed(headrace, group) == [[group, "Share", "Empty"]]
    headrace.ok("groups", "delete", group)
    assert listed(headrace, group) == []
    assert headrace("groups", "describe", group).code == 1


def test_a_share_group_shows_its_members_start_offsets_and_lag(
    headrace: CommandLine, topic: str, group: str
) -> None:
    with share_member(headrace.bootstrap, group, topic, partitions=3) as member:
        member.touch((0, 2))
        fill(headrace, topic, 0, 10)
        fill(headrace, topic, 2, 5)
        member.accept(0, 4)
        member.accept(2, 5)
        state, shown, gap, header, *rows = headrace.ok("groups", "describe", group).lines
        assert state.split()[2:] == ["ASSIGNMENT-STRATEGY", "TYPE", "EPOCH", "STATE", "MEMBERS"]
        assert shown.split()[2:4] == ["simple", "Share"]
        assert shown.split()[-2:] == ["Stable", "1"]
        assert gap == ""
        assert header.split() == ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"]
        assert [(*row.split()[:3], row.split()[4]) for row in rows] == [
            (group, topic, "0", "6"),
            (group, topic, "1", "-"),
            (group, topic, "2", "0"),
        ]
        (found,) = headrace.ok("groups", "describe", group, "--json").json
        assert (found["kind"], found["state"], found["assignor"]) == ("Share", "Stable", "simple")
        (one,) = found["members"]
        assert one["member_id"] == member.member_id
        assert one["epoch"] == found["epoch"] == member.epoch
        assert one["assignment"] == [[topic, index] for index in range(3)]
        # Kafka writes down a new start only with the next acknowledgement, but counts at once.
        assert found["offsets"][0].pop("start_offset") in (0, 4)
        assert found["offsets"][:2] == [
            {"group": group, "topic": topic, "partition": 0, "lag": 6},
            {"group": group, "topic": topic, "partition": 1, "start_offset": None, "lag": None},
        ]
        (row,) = headrace.ok("groups", "describe", group, "--members").table
        assert row[1] == member.member_id
        assert row[-1] == ",".join(f"{topic}-{index}" for index in range(3))


def test_groups_of_several_kinds_are_described_together(
    headrace: CommandLine, topic: str, group: str
) -> None:
    other = f"{group}-classic"
    fill(headrace, topic, 1, 3)
    headrace.ok("consume", topic, "--group", other, "--from-beginning", "--stop-at-end")
    with share_member(headrace.bootstrap, group, topic, partitions=3) as member:
        member.touch([1])
        fill(headrace, topic, 1, 2)
        member.accept(1, 1)
        lines = headrace.ok("groups", "describe", group, other).lines
    assert [line.split()[3] for line in lines[1:3]] == ["Share", "Classic"]
    classic, share = (
        next(at for at, line in enumerate(lines) if column in line)
        for column in ("CURRENT-OFFSET", "START-OFFSET")
    )
    assert [other, topic, "1", "3"] in [line.split()[:4] for line in lines[classic:share]]
    rows = [line.split() for line in lines[share:]]
    assert [row[-1] for row in rows if row[1:3] == [topic, "1"]] == ["1"]


def test_the_offsets_of_a_share_group_are_not_reset_as_if_it_committed_them(
    headrace: CommandLine, topic: str, group: str
) -> None:
    with share_member(headrace.bootstrap, group, topic, partitions=3):
        pass
    options = ["--topic", topic, "--to-earliest", "--execute"]
    refused = headrace("groups", "reset-offsets", group, *options)
    assert refused.code == 1
    assert f"group {group} is a share group" in refused.err


def test_a_consumer_group_shows_epoch_members_and_assignment(
    headrace: CommandLine, topic: str, group: str
) -> None:
    fill(headrace, topic, 1, 3)
    settings = {"group.protocol": "consumer", "group.instance.id": "here"}
    with Consumer(headrace.bootstrap, group, settings) as consumer:
        consumer.subscribe([topic])
        for _ in range(JOIN_POLLS):
            if len(consumer.assignment) == 3:
                break
            consumer.poll(max_records=1, timeout_s=0.1)
        assert listed(headrace, group) == [[group, "Consumer", "Stable"]]
        (found,) = headrace.ok("groups", "describe", group, "--json").json
        assert (found["kind"], found["state"], found["assignor"]) == (
            *("Consumer", "Stable"),
            "uniform",
        )
        (member,) = found["members"]
        assert member["instance_id"] == "here"
        assert member["assignment"] == [[topic, index] for index in range(3)]
        assert member["epoch"] == found["epoch"] == found["assignment_epoch"] > 0
        assert {row["consumer_id"] for row in found["offsets"]} == {member["member_id"]}
        (row,) = headrace.ok("groups", "describe", group, "--members").table
        assert row[-2:] == [str(member["epoch"]), ",".join(f"{topic}-{n}" for n in range(3))]


@pytest.mark.parametrize(("highest", "state"), [(4, "Empty"), (3, "Unknown")])
def test_an_older_kafka_that_knows_no_types_has_classic_groups(
    headrace: CommandLine,
    topic: str,
    group: str,
    highest: int,
    state: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask_versions = Connection._ask_versions

    def older(connection: Connection) -> dict[int, tuple[int, int]]:
        kept = dict(ask_versions(connection))
        kept[Api.LIST_GROUPS] = (0, highest)
        for api in (Api.CONSUMER_GROUP_DESCRIBE, Api.SHARE_GROUP_DESCRIBE):
            del kept[api]
        return kept

    fill(headrace, topic, 1, 3)
    headrace.ok("consume", topic, "--group", group, "--from-beginning", "--stop-at-end")
    monkeypatch.setattr(Connection, "_ask_versions", older)
    assert listed(headrace, group) == [[group, "Classic", state]]
    (found,) = headrace.ok("groups", "describe", group, "--json").json
    assert (found["kind"], found["state"], found["epoch"]) == ("Classic", "Empty", None)
    assert [row["lag"] for row in found["offsets"]] == [0]
