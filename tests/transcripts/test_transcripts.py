"""Runs the transcripts beside this file: commands after `$ `, then exactly what they print.

In the expected output `...` stands for any text within a line. A command that fails ends with a
line `[exit N]`. Standard output and standard error are shown as a terminal shows them, in order of
arrival. Each transcript has its own folder and its own topics; lines that begin with # are prose.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

LIMIT_S = 60.0
FOLDER = Path(__file__).parent
TRANSCRIPTS = sorted(FOLDER.glob("*.txt"))


class Step(NamedTuple):
    """A command and what it must print."""

    line: int
    command: str
    expected: str


def steps(text: str) -> list[Step]:
    found: list[Step] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("$ "):
            found.append(Step(number, line.removeprefix("$ "), ""))
        elif found and not line.startswith("#") and line.strip():
            found[-1] = found[-1]._replace(expected=found[-1].expected + line + "\n")
    return found


def matches(expected: str, printed: str) -> bool:
    pattern = re.escape(expected).replace(re.escape("..."), "[^\n]*")
    return re.fullmatch(pattern, printed) is not None


def run(command: str, folder: Path, bootstrap: str) -> str:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HEADRACE_BOOTSTRAP": bootstrap,
    }
    finished = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    exit_line = f"[exit {finished.returncode}]\n" if finished.returncode else ""
    # Blank lines carry nothing a transcript must pin.
    return re.sub(r"\n{2,}", "\n", finished.stdout.lstrip("\n")) + exit_line


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda path: path.stem)
def test_commands_print_what_the_transcript_says(
    transcript: Path, tmp_path: Path, bootstrap: str
) -> None:
    found = steps(transcript.read_text())
    assert found
    for step in found:
        printed = run(step.command, tmp_path, bootstrap)
        where = f"{transcript.name} line {step.line}: {step.command}"
        assert matches(step.expected, printed), (
            f"{where}\nexpected\n{step.expected}\nprinted\n{printed}"
        )


def test_a_transcript_that_says_otherwise_fails() -> None:
    assert matches("created ...\n", "created topic a\n")
    assert not matches("created ...\n", "created topic a\nand more\n")
    assert not matches("a.b\n", "axb\n")
    (step,) = steps("# prose\n$ echo hi\nhi\n\n# more\n")
    assert step == (2, "echo hi", "hi\n")
