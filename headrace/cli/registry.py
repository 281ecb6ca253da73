"""The registry command: serve schemas over a Kafka cluster."""

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.broker import LogLevel
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, verb
from headrace.client.librdkafka import split_address

DEFAULT_LISTEN = "127.0.0.1:8081"

app = verb()


Listen = Annotated[str, typer.Option(metavar="HOST:PORT", help="Where clients connect.")]
Advertise = Annotated[
    str | None,
    typer.Option(metavar="HOST", help="The host by which other registries reach this one."),
]
Topic = Annotated[str, typer.Option(help="The topic that keeps the schemas.")]
Group = Annotated[str, typer.Option(help="The group of registries that share the topic.")]
UsersFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Users, a line each: NAME:HASH ROLE[=PREFIX] ..., roles read, write and admin.",
    ),
]
Certificate = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A PEM certificate: serve HTTPS.")
]
Key = Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate's private key.")]
Authority = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Who signed the other registries' certificates."),
]
HashPassword = Annotated[
    bool, typer.Option("--hash-password", help="Print the hash of a password and end.")
]
Level = Annotated[
    LogLevel, typer.Option(case_sensitive=False, help="What is said on standard error.")
]


@app.command()
def registry(  # noqa: PLR0913 - a command's parameters are its options
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    listen: Listen = DEFAULT_LISTEN,
    advertise: Advertise = None,
    topic: Topic = "_schemas",
    group: Group = "schema-registry",
    users: UsersFile = None,
    certificate: Certificate = None,
    key: Key = None,
    authority: Authority = None,
    hash_password: HashPassword = False,
    log_level: Level = LogLevel.INFO,
) -> None:
    """Run a schema registry until SIGTERM or Ctrl-C; prints `ready HOST:PORT` when it serves.

    Example: headrace registry --bootstrap localhost:9092 --listen 127.0.0.1:8081
    """
    if hash_password:
        from headrace.registry.http.access import hash_password as hashed

        typer.echo(hashed(typer.prompt("Password", hide_input=True, err=True)))
        return
    from headrace.registry.process import RegistrySettings, run_registry

    logging.basicConfig(
        level=log_level.value,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    host, port = _listener(listen)
    run_registry(
        RegistrySettings(
            bootstrap,
            host,
            port,
            topic=topic,
            group_id=group,
            advertised_host=advertise,
            users=users,
            certificate=certificate,
            key=key,
            authority=authority,
        )
    )


def _listener(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if port == "0":
        return host.strip("[]"), 0
    return split_address(text)


if __name__ == "__main__":
    app()
