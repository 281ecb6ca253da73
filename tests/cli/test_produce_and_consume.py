import json

import pytest

from tests.cli.command_line import CommandLine

READ = ("--from-beginning", "--stop-at-end")


def test_lines_written_are_read_back_with_an_exact_count(headrace: CommandLine, topic: str) -> None:
    lines = [f"line {number}" for number in range(1_000)]
    written = headrace.ok("produce", topic, stdin="\n".join(lines).encode())
    assert written.out == f"1000 records written to {topic}\n"
    read = headrace.ok("consume", topic, *READ)
    assert sorted(read.lines) == sorted(lines)
    assert read.err == f"1000 records read from {topic}\n"


def test_keys_go_where_kafkas_own_client_sends_them(headrace: CommandLine, topic: str) -> None:
    keys = ["order-123", "user_123", "user_42", "customer-123"]
    stdin = "".join(f"{key}:v\n" for key in keys).encode()
    headrace.ok("produce", topic, "--key-separator", ":", stdin=stdin)
    read = headrace.ok("consume", topic, *READ, "--json")
    routed = {record["key"]: record["partition"] for record in map(json.loads, read.lines)}
    assert routed == {"order-123": 1, "user_123": 2, "user_42": 1, "customer-123": 0}


@pytest.mark.parametrize(
    ("codec", "acks"),
    [
        ("none", "1"),
        ("none", "all"),
        ("gzip", "all"),
        ("snappy", "all"),
        ("lz4", "all"),
        ("zstd", "all"),
    ],
)
def test_every_codec_and_acknowledgement_can_be_chosen(
    headrace: CommandLine, topic: str, codec: str, acks: str
) -> None:
    options = ["--compression", codec, "--acks", acks, "--partition", "0"]
    headrace.ok("produce", topic, *options, stdin=b"hello\n" * 10)
    assert headrace.ok("consume", topic, *READ).lines == ["hello"] * 10


def test_without_acknowledgement_records_count_as_written_once_sent(
    headrace: CommandLine, topic: str
) -> None:
    """Nobody promises that they arrive: a broker that is not ready drops them in silence."""
    sent = headrace.ok("produce", topic, "--acks", "0", stdin=b"hello\n" * 10)
    assert sent.out == f"10 records written to {topic}\n"


def test_reading_stops_after_so_many_records(headrace: CommandLine, topic: str) -> None:
    headrace.ok("produce", topic, stdin=b"hello\n" * 10)
    assert headrace.ok("consume", topic, "--from-beginning", "--max", "7").lines == ["hello"] * 7


def test_json_lines_keep_every_part_of_a_record(headrace: CommandLine, topic: str) -> None:
    line = {
        "key": "k",
        "value_base64": "/v8=",
        "headers": [["a", "1"], ["a", None], ["b", {"base64": "/w=="}]],
        "timestamp": 1_705_276_800_000,
        "partition": 2,
    }
    headrace.ok("produce", topic, "--json", stdin=json.dumps(line).encode())
    (read,) = headrace.ok("consume", topic, *READ, "--json").lines
    expected = {"topic": topic, "offset": 0, "timestamp_type": "create", **line}
    assert json.loads(read) == expected


def test_the_shown_parts_stand_before_the_value(headrace: CommandLine, topic: str) -> None:
    line = b'{"key":"k","value":"v","timestamp":1705276800000,"partition":1,"headers":{"a":"b"}}'
    headrace.ok("produce", topic, "--json", stdin=line)
    shown = headrace.ok("consume", topic, *READ, "--show", "all").out
    assert shown == "CreateTime:1705276800000\tPartition:1\tOffset:0\ta:b\tk\tv\n"
    form = r"{time} {key}={value}\n"
    templated = headrace.ok("consume", topic, *READ, "--format", form).out
    assert templated == "2024-01-15T00:00:00.000Z k=v\n"


def test_a_record_that_fails_is_counted_and_the_others_are_written(
    headrace: CommandLine, topic: str
) -> None:
    stdin = b"a:1\nbroken\nb:2\n"
    finished = headrace("produce", topic, "--key-separator", ":", stdin=stdin)
    assert (finished.code, finished.out) == (1, "")
    assert "headrace: line 2: no key separator ':' in the line\n" in finished.err
    assert f"headrace: 2 records written to {topic}, 1 failed\n" in finished.err
    assert len(headrace.ok("consume", topic, *READ).lines) == 2


def test_a_record_the_broker_refuses_fails_the_command(headrace: CommandLine, topic: str) -> None:
    headrace.ok("topics", "alter", topic, "--config", "max.message.bytes=1000")
    stdin = b"small\n" + b"x" * 5_000 + b"\n"
    finished = headrace("produce", topic, "--partition", "0", stdin=stdin)
    assert finished.code == 1
    assert "MESSAGE_TOO_LARGE" in finished.err


def test_reading_starts_at_an_offset_or_so_many_before_the_end(
    headrace: CommandLine, topic: str
) -> None:
    stdin = "".join(f"{number}\n" for number in range(10)).encode()
    headrace.ok("produce", topic, "--partition", "1", stdin=stdin)
    read = ("consume", topic, "--partition", "1", "--stop-at-end")
    assert headrace.ok(*read, "--offset", "7").lines == ["7", "8", "9"]
    assert headrace.ok(*read, "--offset", "-2").lines == ["8", "9"]
    assert headrace.ok(*read, "--offset", "99").lines == []
    assert headrace.ok(*read, "--offset", "-99").lines == [str(number) for number in range(10)]


def test_reading_starts_at_a_time(headrace: CommandLine, topic: str) -> None:
    records = [
        {"value": str(minute), "timestamp": f"2024-01-15T00:0{minute}:00Z", "partition": 0}
        for minute in range(5)
    ]
    stdin = "\n".join(map(json.dumps, records)).encode()
    headrace.ok("produce", topic, "--json", stdin=stdin)
    read = ("consume", topic, "--stop-at-end", "--from-time")
    assert headrace.ok(*read, "2024-01-15T00:03:00.000").lines == ["3", "4"]
    assert headrace.ok(*read, "1705276920").lines == ["2", "3", "4"]
    assert headrace.ok(*read, "15m").lines == []


def test_a_group_reads_each_record_once_over_several_runs(
    headrace: CommandLine, topic: str, group: str
) -> None:
    read = ("consume", topic, "--group", group, *READ)
    headrace.ok("produce", topic, stdin=b"1\n2\n3\n")
    assert sorted(headrace.ok(*read).lines) == ["1", "2", "3"]
    headrace.ok("produce", topic, stdin=b"4\n")
    assert headrace.ok(*read).lines == ["4"]
    assert headrace.ok(*read).lines == []


def test_a_topic_that_is_not_there_is_named(headrace: CommandLine) -> None:
    finished = headrace("consume", "no-such-topic", *READ)
    assert finished.code == 1
    assert "topic no-such-topic does not exist" in finished.err
    assert finished.err.count("\n") == 1


def test_a_partition_that_is_not_there_is_named(headrace: CommandLine, topic: str) -> None:
    finished = headrace("consume", topic, *READ, "--partition", "7")
    assert finished.code == 1
    assert f"topic {topic} has partitions 0 to 2, not 7" in finished.err


@pytest.mark.parametrize(
    "options",
    [
        ["--from-beginning", "--offset", "1"],
        ["--group", "g", "--partition", "1"],
        ["--group", "g", "--offset", "1"],
        ["--json", "--format", "{key}"],
        ["--format", "{kye}"],
        ["--show", "keys"],
        ["--from-time", "soon"],
        ["--max", "0"],
    ],
)
def test_options_that_contradict_are_refused(headrace: CommandLine, options: list[str]) -> None:
    finished = headrace("consume", "any", *options)
    assert (finished.code, finished.out) == (2, "")


def test_a_file_is_read_like_standard_input(
    headrace: CommandLine, topic: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("produce") / "lines.txt"
    file.write_bytes(b"one\r\ntwo\r\n")
    headrace.ok("produce", topic, str(file), "--header", "source=file")
    read = headrace.ok("consume", topic, *READ, "--show", "headers")
    assert sorted(read.lines) == ["source:file\tone", "source:file\ttwo"]
    missing = headrace("produce", topic, str(file) + ".gone")
    assert missing.code == 1
    assert "lines.txt.gone: No such file or directory" in missing.err
