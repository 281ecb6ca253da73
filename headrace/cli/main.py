"""The entry of the command line: which command lives in which module, and how errors leave."""

import importlib
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from headrace import __version__
from headrace.errors import HeadraceError

# Command, its module (which has `app: typer.Typer`) and its line in `headrace --help`. A module
# is imported only when its command runs, so that help is quick and the broker loads no client.
COMMANDS: dict[str, tuple[str, str]] = {
    "broker": ("headrace.cli.broker", "Run a broker."),
    "registry": ("headrace.cli.registry", "Run a schema registry."),
    "topics": ("headrace.cli.topics", "Create, list, describe, alter and delete topics."),
    "configs": ("headrace.cli.configs", "Show and change settings of topics and brokers."),
    "produce": ("headrace.cli.produce", "Write records from standard input or a file."),
    "consume": ("headrace.cli.consume", "Read records to standard output."),
    "groups": ("headrace.cli.groups", "Show consumer groups, reset their offsets, delete them."),
    "transactions": ("headrace.cli.transactions", "Find, show and abort transactions."),
    "log": ("headrace.cli.log", "Read a broker's files offline."),
}

EXIT_FAILED = 1


class LazyCommands(TyperGroup):
    """Lists commands from the table; imports one only to run it."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name][1])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, stub, rest = super().resolve_command(ctx, args)
        if name is None or stub is None:
            return name, stub, rest
        command = typer.main.get_command(importlib.import_module(COMMANDS[name][0]).app)
        command.name = name
        return name, command, rest


app = typer.Typer(
    cls=LazyCommands,
    name="headrace",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def headrace(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Event streaming in one install: a durable log that speaks Kafka's protocol.

    Example: headrace broker --data-dir ./data --listen 127.0.0.1:9092
    """


def main() -> None:
    """Run the command line: errors are one sentence on standard error and exit code 1."""
    try:
        app()
    except HeadraceError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))


def _fail(sentence: str) -> None:
    typer.echo(f"headrace: {sentence}", err=True)
    sys.exit(EXIT_FAILED)
