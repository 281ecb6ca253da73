import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from typer.main import get_command

from headrace import __version__
from headrace.cli import main
from tests.cli.command_line import CommandLine

WAIT_S = 30.0
NOBODY = "127.0.0.1:1"


def commands() -> Iterator[tuple[str, ...]]:
    """Every command there is, groups opened."""
    for name in main.COMMANDS:
        group = get_command(__import__(main.COMMANDS[name][0], fromlist=["app"]).app)
        below = getattr(group, "commands", None)
        if below:
            yield from ((name, verb) for verb in below)
        else:
            yield (name,)


def modules_after(*arguments: str) -> set[str]:
    """What a run of the command line had imported in the end."""
    script = (
        "import sys, json\n"
        "from headrace.cli.main import main\n"
        f"sys.argv = ['headrace', *{list(arguments)!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "sys.stderr.write(json.dumps(sorted(sys.modules)))\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=WAIT_S
    )
    return set(json.loads(finished.stderr))


def test_help_lists_every_command_and_loads_none() -> None:
    loaded = modules_after("--help")
    assert not {"confluent_kafka", "rich", "headrace.broker.process", "kio"} & loaded
    listed = CommandLine(NOBODY).ok("--help").out
    for name, (_, summary) in main.COMMANDS.items():
        assert name in listed
        assert summary in listed


def test_the_broker_command_loads_no_client() -> None:
    loaded = modules_after("broker", "--help")
    assert "confluent_kafka" not in loaded
    assert "headrace.cli.broker" in loaded


@pytest.mark.parametrize("command", list(commands()), ids=" ".join)
def test_every_command_has_help_with_an_example(command: tuple[str, ...]) -> None:
    shown = CommandLine(NOBODY).ok(*command, "--help").out
    assert "Example: " in shown
    assert f"headrace {' '.join(command)}" in " ".join(shown.split())


def test_the_version_is_printed() -> None:
    assert CommandLine(NOBODY).ok("--version").out == f"headrace {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "list"],
        ["configs", "describe", "--topic", "a"],
        ["produce", "a"],
        ["consume", "a"],
        ["groups", "list"],
        ["transactions", "list"],
    ],
)
def test_a_broker_that_is_not_there_is_one_clear_sentence(arguments: list[str]) -> None:
    finished = CommandLine(NOBODY)(*arguments)
    assert (finished.code, finished.out) == (1, "")
    assert finished.err == (
        f"headrace: no Kafka broker answers at {NOBODY} (connection refused): start one with "
        "`headrace broker`, or pass its address with --bootstrap HOST:PORT\n"
    )


def test_an_address_without_sense_is_refused() -> None:
    finished = CommandLine("localhost:http")("topics", "list")
    assert finished.code == 1
    assert "'http' is not a port" in finished.err


def test_a_listener_that_does_not_speak_kafka_is_told_apart() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        asking = subprocess.Popen(
            [sys.executable, "-m", "headrace", "transactions", "list"],
            env={**os.environ, "HEADRACE_BOOTSTRAP": f"127.0.0.1:{port}"},
            stderr=subprocess.PIPE,
            text=True,
        )
        client, _ = server.accept()
        with client:
            client.recv(1024)
            client.sendall(b"\x00\x00\x00\x08HTTP/1.1")
            _, err = asking.communicate(timeout=WAIT_S)
    assert asking.returncode == 1
    assert "does not speak Kafka's protocol" in err


@contextmanager
def hears_ctrl_c() -> Iterator[None]:
    """Processes started here hear Ctrl-C, even if the tests run in a shell's background.

    Such a shell has its children ignore it, and their children inherit that.
    """
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, inherited)


@contextmanager
def follow(bootstrap: str, topic: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A consumer that follows the topic from its beginning, in a process of its own."""
    with hears_ctrl_c():
        following = subprocess.Popen(
            [sys.executable, "-m", "headrace", "consume", topic, "--from-beginning"],
            # Python must buffer as it does for a user, so that forgetting to flush would show.
            env={**os.environ, "HEADRACE_BOOTSTRAP": bootstrap, "PYTHONUNBUFFERED": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    # Whatever goes wrong, its pipes end, and with them the reads that wait for them.
    too_late = threading.Timer(WAIT_S, following.kill)
    too_late.start()
    try:
        with following:
            yield following
    finally:
        too_late.cancel()


def test_following_prints_records_as_they_come_and_ends_at_ctrl_c(
    headrace: CommandLine, topic: str
) -> None:
    headrace.ok("produce", topic, stdin=b"first\n")
    with follow(headrace.bootstrap, topic) as following:
        assert following.stdout is not None
        assert following.stderr is not None
        assert following.stdout.readline() == b"first\n"
        headrace.ok("produce", topic, stdin=b"second\n")
        assert following.stdout.readline() == b"second\n"
        following.send_signal(signal.SIGINT)
        assert following.wait(WAIT_S) == 130
        assert b"Traceback" not in following.stderr.read()


def test_a_reader_that_goes_away_ends_the_command_quietly(
    headrace: CommandLine, topic: str
) -> None:
    headrace.ok("produce", topic, stdin=b"x\n" * 50_000)
    with follow(headrace.bootstrap, topic) as following:
        assert following.stdout is not None
        assert following.stderr is not None
        assert following.stdout.readline() == b"x\n"
        following.stdout.close()
        assert following.wait(WAIT_S) != 0
        assert following.stderr.read() == b""


def test_a_bar_is_drawn_only_where_a_person_looks(headrace: CommandLine, topic: str) -> None:
    reader, terminal = os.openpty()
    command = [sys.executable, "-m", "headrace", "produce", topic]
    with open(reader, "rb", buffering=0) as shown, open(terminal, "wb", buffering=0) as tty:
        subprocess.run(
            command,
            env={**os.environ, "HEADRACE_BOOTSTRAP": headrace.bootstrap, "TERM": "xterm"},
            input=b"x\n" * 10,
            stdout=subprocess.DEVNULL,
            stderr=tty,
            check=True,
            timeout=WAIT_S,
        )
        drawn = shown.read(65_536)
    assert f"writing {topic}".encode() in drawn
    piped = headrace.ok("produce", topic, stdin=b"x\n" * 10)
    assert piped.err == ""


def test_help_is_quick() -> None:
    """Generous, for machines under load: alone it takes less than 0.1 s."""
    took = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "headrace", "--help"], stdout=subprocess.DEVNULL, check=True
        )
        took.append(time.perf_counter() - started)
    assert min(took) < 0.3
