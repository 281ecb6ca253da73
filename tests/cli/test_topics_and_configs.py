import uuid

import pytest

from headrace.client.admin import Admin
from tests.cli.command_line import CommandLine


def test_a_created_topic_is_listed_and_described(headrace: CommandLine, topic: str) -> None:
    assert [topic, "3", "1"] in headrace.ok("topics", "list").table
    (described,) = headrace.ok("topics", "describe", topic, "--json").json
    assert described["topic"] == topic
    assert [row["partition"] for row in described["partitions"]] == [0, 1, 2]
    assert {(row["earliest"], row["latest"]) for row in described["partitions"]} == {(0, 0)}
    assert len(described["topic_id"]) == 22


def test_describe_shows_offsets_and_the_settings_of_the_topic(headrace: CommandLine) -> None:
    name = f"t-{uuid.uuid4().hex[:12]}"
    options = ["--partitions", "1", "--config", "retention.ms=7d", "--config", "segment.bytes=1MiB"]
    created = headrace.ok("topics", "create", name, *options)
    assert created.out == f"created topic {name} with 1 partition(s), replication factor 1\n"
    headrace.ok("produce", name, stdin=b"a\nb\n")
    title, header, row = headrace.ok("topics", "describe", name).lines
    assert title.startswith(f"Topic: {name}  TopicId: ")
    assert "retention.ms=604800000" in title
    assert "segment.bytes=1048576" in title
    assert header.split() == ["PARTITION", "LEADER", "REPLICAS", "ISR", "EARLIEST", "LATEST"]
    assert row.split()[-2:] == ["0", "2"]


def test_creating_a_topic_twice_fails_unless_that_is_fine(
    headrace: CommandLine, topic: str
) -> None:
    again = headrace("topics", "create", topic)
    assert (again.code, again.out) == (1, "")
    assert again.err.startswith("headrace: TOPIC_ALREADY_EXISTS: ")
    assert again.err.count("\n") == 1
    assert headrace("topics", "create", topic, "--if-not-exists").code == 0


def test_a_bad_setting_is_refused_with_its_reason(headrace: CommandLine, topic: str) -> None:
    unknown = headrace("configs", "alter", "--topic", topic, "--add", "retention.msx=1")
    assert unknown.code == 1
    assert "INVALID_CONFIG" in unknown.err
    assert "retention.msx" in unknown.err
    bad = headrace("topics", "alter", topic, "--config", "cleanup.policy=shred")
    assert bad.code == 1
    assert "cleanup.policy" in bad.err


def test_more_partitions_come_with_a_warning_about_keys(headrace: CommandLine, topic: str) -> None:
    grown = headrace.ok("topics", "alter", topic, "--partitions", "5")
    assert grown.out == f"topic {topic} has 5 partitions, 2 of them new\n"
    assert "warning: keys are routed by hash" in grown.err
    assert [topic, "5", "1"] in headrace.ok("topics", "list").table


def test_fewer_partitions_are_refused(headrace: CommandLine, topic: str) -> None:
    shrunk = headrace("topics", "alter", topic, "--partitions", "2")
    assert shrunk.code == 1
    assert "INVALID_PARTITIONS" in shrunk.err
    assert "warning" not in shrunk.err


def test_a_deleted_topic_is_gone(headrace: CommandLine, topic: str) -> None:
    assert headrace.ok("topics", "delete", topic).out == f"deleted topic {topic}\n"
    assert topic not in headrace.ok("topics", "list").out
    missing = headrace("topics", "delete", topic)
    assert missing.code == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in missing.err
    assert headrace("topics", "delete", topic, "--if-exists").code == 0


def test_settings_are_set_shown_and_given_back(headrace: CommandLine, topic: str) -> None:
    alter = ["configs", "alter", "--topic", topic]
    changed = headrace.ok(*alter, "--add", "retention.ms=1h", "--add", "cleanup.policy=compact")
    assert changed.out == f"changed 2 setting(s) of topic {topic}\n"
    headrace.ok(*alter, "--delete", "retention.ms")
    rows = headrace.ok("configs", "describe", "--topic", topic, "--json").json
    shown = {row["name"]: row["value"] for row in rows if row["source"] == "DYNAMIC_TOPIC_CONFIG"}
    assert shown == {"cleanup.policy": "compact"}
    everything = headrace.ok("configs", "describe", "--topic", topic, "--all").table
    assert ["retention.ms", "604800000", "DEFAULT_CONFIG", "no", "no"] in everything


def test_a_brokers_settings_are_shown(headrace: CommandLine) -> None:
    (broker,) = Admin(headrace.bootstrap).cluster().brokers
    node_id = str(broker.node_id)
    rows = headrace.ok("configs", "describe", "--broker", node_id, "--all", "--json").json
    assert {"node.id", "log.retention.hours", "num.partitions"} <= {row["name"] for row in rows}


@pytest.mark.parametrize(
    "arguments",
    [
        ["configs", "describe"],
        ["configs", "describe", "--topic", "a", "--broker", "1"],
        ["configs", "alter", "--topic", "a"],
        ["configs", "alter", "--topic", "a", "--add", "retention.ms"],
        ["topics", "alter", "a"],
        ["topics", "create", "a", "--partitions", "0"],
        ["topics", "nonsense"],
    ],
)
def test_wrong_usage_is_told_apart_from_failure(
    headrace: CommandLine, arguments: list[str]
) -> None:
    finished = headrace(*arguments)
    assert (finished.code, finished.out) == (2, "")
    assert "Error: " in finished.err
