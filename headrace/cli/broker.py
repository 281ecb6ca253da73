"""The broker command: settings from a file and the command line, then serve."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.serve import BrokerOptions, serve
from headrace.errors import StartRefused

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class LogLevel(Enum):
    """How much a broker says of what it does."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


@app.command()
def broker(
    data_dir: Annotated[
        str | None, typer.Option(help="Where the log lives; the setting log.dirs.")
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where clients connect; the setting listeners."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A file like Kafka's server.properties.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="One setting; may be repeated."),
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option(case_sensitive=False, help="What is said on standard error.")
    ] = LogLevel.INFO,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C; prints `ready HOST:PORT` when it serves.

    Example: headrace broker --data-dir ./data --listen 127.0.0.1:9092
    """
    assignments = tuple(settings or ())
    try:
        serve(BrokerOptions(data_dir, listen, config, assignments, log_level.value))
    except StartRefused as refusal:
        typer.echo(f"headrace: {refusal}", err=True)
        raise typer.Exit(1) from refusal


if __name__ == "__main__":
    app()
