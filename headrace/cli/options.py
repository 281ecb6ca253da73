"""Options that many commands share, and how a command reaches the cluster."""

from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from headrace.client.admin import Admin
from headrace.client.librdkafka import check_reachable

T = TypeVar("T")

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        envvar="HEADRACE_BOOTSTRAP",
        metavar="HOST:PORT[,...]",
        help="Address of the cluster.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
DEFAULT_BOOTSTRAP = "localhost:9092"


def noun(summary: str) -> typer.Typer:
    """A group of commands about one noun."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    # With a callback a group stays a group, even if it has one command only.
    @app.callback(help=summary)
    def group() -> None:
        pass

    return app


def verb() -> typer.Typer:
    """A command of its own."""
    return typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def connect(bootstrap: str) -> Admin:
    """An Admin of a cluster that is known to listen."""
    check_reachable(bootstrap)
    return Admin(bootstrap)


def parsed(parse: Callable[[], T], option: str) -> T:
    """What parse returns; its ValueError is a mistake in how this option was used."""
    try:
        return parse()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
