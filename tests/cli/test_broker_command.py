import socket
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from headrace.cli import broker
from headrace.cli.broker import app
from headrace.cli.serve import BrokerOptions, plain_options, texts
from headrace.errors import StartRefused
from headrace.log.filesystem import OsFilesystem

run = CliRunner().invoke


def test_options_win_over_set_and_set_over_the_file(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=3\nlog.dirs=/from/file\nlisteners=PLAINTEXT://:1\n")
    assignments = ("num.partitions=5", "log.dirs=/from/set")
    assert texts(BrokerOptions("/from/option", "h:2", file, assignments)) == {
        "num.partitions": "5",
        "log.dirs": "/from/option",
        "listeners": "PLAINTEXT://h:2",
    }


def test_a_listener_of_the_command_line_keeps_only_the_advertised_name_given_beside_it(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("advertised.listeners=OLD://elsewhere:1\n")
    assert "advertised.listeners" not in texts(BrokerOptions(None, "h:2", file, ()))
    told = "PLAINTEXT://public:9092"
    assignments = (f"advertised.listeners={told}",)
    assert texts(BrokerOptions(None, "h:2", file, assignments))["advertised.listeners"] == told
    assert texts(BrokerOptions(None, None, file, ()))["advertised.listeners"] == "OLD://elsewhere:1"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "num.partitons=3"], "num.partitions"),
        (["--set", "num.partitions=none"], "num.partitions"),
        (["--set", "num.partitions"], "NAME=VALUE"),
        (["--config", "/no/such/file"], "/no/such/file"),
    ],
)
def test_a_refused_start_is_one_sentence_and_exit_code_1(tmp_path, arguments, said):
    outcome = run(app, ["--data-dir", str(tmp_path / "data"), *arguments])
    assert outcome.exit_code == 1
    assert outcome.stdout == ""
    assert said in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_a_port_in_use_refuses_the_start_and_touches_no_file(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        directory = tmp_path / "data"
        outcome = run(app, ["--data-dir", str(directory), "--listen", f"127.0.0.1:{port}"])
    assert outcome.exit_code == 1
    assert "--listen" in outcome.stderr
    assert not directory.exists()


def test_a_directory_in_use_refuses_the_start_and_says_who_holds_it(tmp_path):
    lock = OsFilesystem().lock(str(tmp_path / ".lock"))
    try:
        outcome = run(app, ["--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"])
    finally:
        lock.release()
    assert outcome.exit_code == 1
    assert "in use by process" in outcome.stderr


def test_an_unknown_log_level_is_a_usage_error():
    assert run(app, ["--log-level", "loud"]).exit_code == 2


def test_a_file_that_is_no_file_is_a_refusal(tmp_path):
    with pytest.raises(StartRefused, match="cannot be read"):
        texts(BrokerOptions(config=tmp_path))


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--data-dir", "d", "--listen", "h:1", "--config", "c", "--log-level", "debug"],
        ["--set", "a=b", "--data-dir", "d", "--set", "c=d", "--data-dir", "e"],
        ["--data-dir", ""],
        ["--data-dir=d"],
        ["--data-dir", "--listen"],
        ["--data-dir"],
        ["--log-level", "loud"],
        ["--help", "me"],
        ["d"],
    ],
)
def test_plain_options_are_read_as_the_command_reads_them(monkeypatch, arguments):
    read: list[object] = []
    monkeypatch.setattr(broker, "serve", read.append)
    outcome = run(app, arguments)
    plain = plain_options(["broker", *arguments])
    assert plain is None or (outcome.exit_code, read) == (0, [plain])
    assert plain_options(["topics", *arguments]) is None


def test_a_broker_started_plainly_loads_no_command_line():
    script = (
        "import sys\n"
        "from headrace.cli.main import main\n"
        "sys.argv = ['headrace', 'broker', '--config', '/no/such/file']\n"
        "try:\n    main()\nexcept SystemExit as leaving:\n"
        "    sys.exit(f'{leaving.code} {\"typer\" in sys.modules}')\n"
    )
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert finished.stderr == (
        "headrace: /no/such/file cannot be read: No such file or directory\n1 False\n"
    )
