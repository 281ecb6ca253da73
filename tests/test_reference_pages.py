"""docs/apis.md and docs/commands.md are written from the code: run this file to write them anew."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from headrace.cli.main import COMMANDS
from headrace.protocol.apis import APIS

DOCS = Path(__file__).parents[1] / "docs"

APIS_HEAD = """# APIs served

The ranges are those Apache Kafka 4.3 serves. A request for any other API or version closes the
connection, as it does there; ApiVersions alone is answered, with `UNSUPPORTED_VERSION`.

| key | API | versions |
|---|---|---|
"""

COMMANDS_HEAD = """# Commands

Every command has `--help`. `python -m headrace` is the same as `headrace`. A command ends with exit
code 0 only if it succeeded, with 1 and one sentence on standard error if not.
"""


def apis() -> str:
    rows = (
        f"| {api.key} | {api.name} | {api.min_version} to {api.max_version} |"
        for api in sorted(APIS.values())
    )
    return APIS_HEAD + "\n".join(rows) + "\n"


def commands() -> str:
    parts = [COMMANDS_HEAD]
    for name, (module, _) in COMMANDS.items():
        command = typer.main.get_command(importlib.import_module(module).app)
        inner = getattr(command, "commands", {})
        for words, leaf in ((f"{name} {word}", inner[word]) for word in inner):
            parts.append(_section(words, leaf))
        if not inner:
            parts.append(_section(name, command))
    return "\n".join(parts)


def _section(words: str, command: Any) -> str:
    # Written from the parameters, not from the help text, whose layout is the library's.
    rows = [f"| {_name(each)} | {each.help or ''} |" for each in command.params if _name(each)]
    text = "\n".join(line.strip() for line in (command.help or "").strip().splitlines())
    return "\n".join(
        [f"## `headrace {words}`\n", text, "", "| option | meaning |", "|---|---|", *rows, ""]
    )


def _name(parameter: Any) -> str:
    if parameter.name == "help":
        return ""
    options = [option for option in parameter.opts if option.startswith("-")]
    return ", ".join(f"`{option}`" for option in options) or f"`{parameter.name.upper()}`"


PAGES: dict[str, Callable[[], str]] = {"apis.md": apis, "commands.md": commands}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_says_what_the_code_says(name: str) -> None:
    assert (DOCS / name).read_text() == PAGES[name]()


if __name__ == "__main__":
    for page, written in PAGES.items():
        (DOCS / page).write_text(written())
