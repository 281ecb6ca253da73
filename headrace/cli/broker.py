"""The broker command: settings from a file and the command line, then serve."""

import logging
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from headrace.errors import SettingError, StartRefused

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
    from headrace.broker.process import run_broker
    from headrace.broker.settings import BrokerSettings
    from headrace.settings import load

    logging.basicConfig(
        level=log_level.value,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    try:
        texts = _texts(config, settings or [], data_dir, listen)
        run_broker(load(BrokerSettings, texts))
    except StartRefused as refusal:
        typer.echo(f"headrace: {refusal}", err=True)
        raise typer.Exit(1) from refusal


def _texts(
    config: Path | None, assignments: list[str], data_dir: str | None, listen: str | None
) -> dict[str, str]:
    """Settings by name: the file's, then --set, then the options of their own."""
    from headrace.broker.settings import read_properties

    texts: dict[str, str] = {}
    if config is not None:
        try:
            texts |= read_properties(config)
        except OSError as error:
            raise StartRefused(f"{config} cannot be read: {error.strerror}") from error
    for assignment in assignments:
        name, sign, value = assignment.partition("=")
        if not sign:
            raise SettingError(assignment, "give it as --set NAME=VALUE")
        texts[name.strip()] = value.strip()
    if data_dir is not None:
        texts["log.dirs"] = data_dir
    if listen is not None:
        texts["listeners"] = f"PLAINTEXT://{listen}"
        # The file's advertised.listeners may name a listener that is no more.
        texts.pop("advertised.listeners", None)
    return texts


if __name__ == "__main__":
    app()
