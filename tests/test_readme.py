"""What the README shows is run: its commands, its Python, the files it links to."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing import LocalBroker

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
WAIT_S = 60.0


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with LocalBroker() as broker:
        yield broker.bootstrap


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def test_the_commands_run_as_printed(bootstrap: str) -> None:
    environment = {**os.environ, "HEADRACE_BOOTSTRAP": bootstrap}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    commands = [line[2:] for block in blocks("console") for line in block.splitlines()]
    assert len(commands) == 4
    outputs = [
        subprocess.check_output(
            command, shell=True, cwd=ROOT, env=environment, text=True, timeout=WAIT_S
        )
        for command in commands
    ]
    assert outputs[2].count('"order"') == 3


@pytest.mark.parametrize("snippet", blocks("python"))
def test_the_python_runs_as_printed(bootstrap: str, snippet: str) -> None:
    subprocess.run(
        [sys.executable, "-c", snippet.replace("localhost:9092", bootstrap)],
        check=True,
        timeout=WAIT_S,
    )


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)]+)\)", TEXT))))
def test_links_lead_somewhere(target: str) -> None:
    assert (ROOT / target).exists()


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", TEXT, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
