"""`headrace configs`: show and change settings of topics and brokers."""

from typing import Annotated

import typer

from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, connect, noun, parsed
from headrace.cli.output import print_table
from headrace.cli.quantities import assignments
from headrace.client.admin import ConfigKind

app = noun("Show and change settings of topics and brokers.")

TopicName = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="Of this topic.")]
BrokerId = Annotated[
    str | None,
    typer.Option("--broker", metavar="ID", help="Of this broker, by node id."),
]


@app.command()
def describe(
    topic: TopicName = None,
    broker: BrokerId = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Also settings that have their default value.")
    ] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show settings in force and where each comes from.

    Example: headrace configs describe --topic orders --all
    """
    kind, name = _resource(topic, broker)
    rows = [
        (entry.name, entry.value, entry.source, entry.read_only, entry.sensitive)
        for entry in connect(bootstrap).configs(kind, name)
        if show_all or entry.source != "DEFAULT_CONFIG"
    ]
    print_table(("NAME", "VALUE", "SOURCE", "READ-ONLY", "SENSITIVE"), rows, as_json=as_json)


@app.command()
def alter(
    topic: TopicName = None,
    broker: BrokerId = None,
    add: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="Set a value; may be repeated. 7d and 1GiB are understood."
        ),
    ] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Give a setting back to its default; may be repeated."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Change settings, all of them or none.

    Example: headrace configs alter --topic orders --add retention.ms=7d --delete segment.bytes
    """
    kind, name = _resource(topic, broker)
    changes = parsed(lambda: assignments(add or ()), "--add")
    removed = delete or []
    if not changes and not removed:
        raise typer.BadParameter("give --add or --delete")
    connect(bootstrap).alter_configs(kind, name, add=changes, delete=removed)
    typer.echo(f"changed {len(changes) + len(removed)} setting(s) of {kind} {name}")


def _resource(topic: str | None, broker: str | None) -> tuple[ConfigKind, str]:
    if topic is not None and broker is None:
        return ConfigKind.TOPIC, topic
    if broker is not None and topic is None:
        return ConfigKind.BROKER, broker
    raise typer.BadParameter("give either --topic or --broker")
