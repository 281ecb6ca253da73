"""Every command of the command line, as one tree; a command's module is loaded when it runs."""

import importlib
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from headrace import __version__
from headrace.cli.main import COMMANDS


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
