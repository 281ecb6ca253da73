import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.client.consumer import Consumer
from tests.cli.command_line import CommandLine

JOIN_POLLS = 300


@pytest.fixture
def committed(headrace: CommandLine, topic: str, group: str) -> str:
    """A topic with ten records in each partition, of which the group has read all."""
    records = [
        {"value": str(n), "timestamp": f"2024-01-15T00:0{n}:00Z", "partition": partition}
        for partition in range(3)
        for n in range(10)
    ]
    headrace.ok("produce", topic, "--json", stdin="\n".join(map(json.dumps, records)).encode())
    read = headrace.ok("consume", topic, "--group", group, "--from-beginning", "--stop-at-end")
    assert len(read.lines) == 30
    return topic


@contextmanager
def member(bootstrap: str, group: str, topic: str) -> Iterator[None]:
    """A consumer that has joined the group."""
    with Consumer(bootstrap, group) as consumer:
        consumer.subscribe([topic])
        for _ in range(JOIN_POLLS):
            if consumer.assignment:
                break
            consumer.poll(max_records=1, timeout_s=0.1)
        assert len(consumer.assignment) == 3
        yield


def offsets(headrace: CommandLine, group: str) -> dict[int, int]:
    (described,) = headrace.ok("groups", "describe", group, "--json").json
    return {row["partition"]: row["current_offset"] for row in described["offsets"]}


def reset(headrace: CommandLine, group: str, *options: str) -> dict[int, int]:
    rows = headrace.ok("groups", "reset-offsets", group, *options, "--json").json
    return {row["partition"]: row["new_offset"] for row in rows}


def test_describe_prints_offsets_end_and_lag(
    headrace: CommandLine, committed: str, group: str
) -> None:
    headrace.ok("produce", committed, "--partition", "1", stdin=b"more\nand more\n")
    lines = headrace.ok("groups", "describe", group).lines
    assert lines[0].split() == [
        *("GROUP", "COORDINATOR", "ASSIGNMENT-STRATEGY", "TYPE", "EPOCH", "STATE", "MEMBERS")
    ]
    assert lines[1].split()[-2:] == ["Empty", "0"]
    assert lines[3].split()[:6] == [
        *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
    ]
    assert [line.split()[:6] for line in lines[4:]] == [
        [group, committed, "0", "10", "10", "0"],
        [group, committed, "1", "10", "12", "2"],
        [group, committed, "2", "10", "10", "0"],
    ]


def test_a_live_group_shows_its_members_and_refuses_changes(
    headrace: CommandLine, committed: str, group: str
) -> None:
    with member(headrace.bootstrap, group, committed):
        (described,) = headrace.ok("groups", "describe", group, "--json").json
        assert described["state"] == "Stable"
        assert described["assignor"] == "range"
        assert {row["client_id"] for row in described["offsets"]} == {"headrace"}
        (row,) = headrace.ok("groups", "describe", group, "--members").table
        assert row[-1] == ",".join(f"{committed}-{index}" for index in range(3))
        options = ["--topic", committed, "--to-earliest", "--execute"]
        refused = headrace("groups", "reset-offsets", group, *options)
        assert refused.code == 1
        assert f"group {group} is Stable: stop its consumers" in refused.err
        deleted = headrace("groups", "delete", group)
        assert deleted.code == 1
        assert "NON_EMPTY_GROUP" in deleted.err
    assert set(offsets(headrace, group).values()) == {10}


def test_a_reset_changes_nothing_unless_told_to_execute(
    headrace: CommandLine, committed: str, group: str
) -> None:
    options = ["groups", "reset-offsets", group, "--topic", committed, "--to-earliest"]
    dry = headrace.ok(*options)
    assert "dry run: nothing was changed; add --execute to do it" in dry.err
    assert offsets(headrace, group) == {0: 10, 1: 10, 2: 10}
    done = headrace.ok(*options, "--execute")
    assert done.out == dry.out
    assert done.err == ""
    assert offsets(headrace, group) == {0: 0, 1: 0, 2: 0}


def test_a_reset_by_each_rule(headrace: CommandLine, committed: str, group: str) -> None:
    everything = ("--topic", committed)
    every = {0, 1, 2}
    rules = {
        ("--to-earliest",): 0,
        ("--to-latest",): 10,
        ("--to-current",): 10,
        ("--to-offset", "4"): 4,
        ("--to-offset", "400"): 10,
        ("--shift-by", "-3"): 7,
        ("--to-datetime", "2024-01-15T00:05:00.000"): 5,
        ("--by-duration", "1d"): 10,
        ("--by-duration", "PT1H"): 10,
    }
    for rule, expected in rules.items():
        assert reset(headrace, group, *everything, *rule) == dict.fromkeys(every, expected), rule


def test_a_reset_of_single_partitions(headrace: CommandLine, committed: str, group: str) -> None:
    assert reset(headrace, group, "--topic", f"{committed}:2", "--to-offset", "1") == {2: 1}
    assert reset(headrace, group, "--topic", f"{committed}:0,1", "--to-earliest") == {0: 0, 1: 0}
    inline = ["--topic", f"{committed}:2:3", "--topic", f"{committed}:0:5", "--execute"]
    assert reset(headrace, group, *inline) == {0: 5, 2: 3}
    assert offsets(headrace, group) == {0: 5, 1: 10, 2: 3}


def test_an_exported_reset_is_done_from_its_file(
    headrace: CommandLine, committed: str, group: str, tmp_path: Path
) -> None:
    options = ["groups", "reset-offsets", group]
    exported = headrace.ok(*options, "--all-topics", "--shift-by", "-4", "--export")
    assert exported.lines == [f"{committed},{index},6" for index in range(3)]
    file = tmp_path / "offsets.csv"
    file.write_text(exported.out)
    headrace.ok(*options, "--from-file", str(file), "--execute")
    assert offsets(headrace, group) == {0: 6, 1: 6, 2: 6}


def test_a_group_that_never_committed_can_be_given_offsets(
    headrace: CommandLine, topic: str, group: str
) -> None:
    headrace.ok("produce", topic, "--partition", "1", stdin=b"a\nb\n")
    new = ["--topic", f"{topic}:1", "--to-latest", "--execute"]
    assert reset(headrace, group, *new) == {1: 2}
    assert offsets(headrace, group) == {1: 2}
    shifted = headrace("groups", "reset-offsets", group, "--topic", topic, "--shift-by", "1")
    assert shifted.code == 1
    assert f"{topic}-0 has no committed offset to shift from" in shifted.err


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--topic", "t"],
        ["--to-earliest"],
        ["--topic", "t", "--to-earliest", "--to-latest"],
        ["--topic", "t", "--all-topics", "--to-earliest"],
        ["--topic", "t:1:5", "--to-earliest"],
        ["--topic", "t:x", "--to-earliest"],
        ["--topic", "t", "--to-datetime", "soon"],
        ["--topic", "t", "--by-duration", "long"],
        ["--topic", "t", "--to-earliest", "--execute", "--dry-run"],
    ],
)
def test_a_reset_asked_badly_is_refused(headrace: CommandLine, options: list[str]) -> None:
    finished = headrace("groups", "reset-offsets", "g", *options)
    assert (finished.code, finished.out) == (2, "")


def test_groups_are_listed_and_deleted(headrace: CommandLine, committed: str, group: str) -> None:
    assert group in [row[0] for row in headrace.ok("groups", "list", "--state", "Empty").table]
    assert group not in headrace.ok("groups", "list", "--state", "Stable").out
    assert headrace.ok("groups", "delete", group).out == f"deleted group {group}\n"
    assert group not in headrace.ok("groups", "list").out
    missing = headrace("groups", "describe", group)
    assert missing.code == 1
    assert f"group {group} does not exist" in missing.err
    assert headrace("groups", "delete", group).code == 1
