"""`headrace topics`: create, list, describe, alter, delete."""

from typing import Annotated, Any

import typer

from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, connect, noun, parsed
from headrace.cli.output import note, print_json, print_table
from headrace.cli.quantities import assignments
from headrace.client.admin import EARLIEST, LATEST, Admin, ConfigKind, NewTopic, Topic
from headrace.client.librdkafka import TopicPartition
from headrace.errors import ErrorCode, KafkaError

app = noun("Create, list, describe, alter and delete topics.")

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Names = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of topics.")]
Configs = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        metavar="NAME=VALUE",
        help="A topic setting; may be repeated. 7d and 1GiB are understood.",
    ),
]


@app.command()
def create(
    name: Name,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, help="How many partitions; the broker's default if not given."),
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option(min=1, help="Copies of each partition; the broker's default.")
    ] = None,
    config: Configs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the topic is there already.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Create a topic.

    Example: headrace topics create orders --partitions 6 --config retention.ms=7d
    """
    configs = parsed(lambda: assignments(config or ()), "--config")
    admin = connect(bootstrap)
    try:
        admin.create_topic(NewTopic(name, partitions, replication_factor, configs))
    except KafkaError as error:
        if not if_not_exists or error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        typer.echo(f"topic {name} exists already")
        return
    made = admin.describe_topics([name])[0]
    copies = _replication(made)
    typer.echo(
        f"created topic {name} with {len(made.partitions)} partition(s), "
        f"replication factor {copies}"
    )
    if replication_factor is not None and replication_factor != copies:
        note(
            f"warning: replication factor {replication_factor} was asked for, {copies} is in force"
        )


@app.command("list")
def list_topics(
    internal: Annotated[
        bool, typer.Option("--internal", help="Also topics whose names begin with __.")
    ] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List topics.

    Example: headrace topics list --json
    """
    rows = [
        (topic.name, len(topic.partitions), _replication(topic))
        for topic in connect(bootstrap).topics()
        if internal or not topic.internal
    ]
    print_table(("TOPIC", "PARTITIONS", "REPLICATION"), rows, as_json=as_json)


@app.command()
def describe(
    names: Names,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show partitions, offsets and the settings that differ from the default.

    Example: headrace topics describe orders
    """
    admin = connect(bootstrap)
    described = [_description(admin, topic) for topic in admin.describe_topics(names)]
    if as_json:
        print_json(described)
        return
    for number, topic in enumerate(described):
        if number:
            typer.echo()
        _print_description(topic)


@app.command()
def alter(
    name: Name,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="How many partitions in all; can only grow.")
    ] = None,
    config: Configs = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Give a setting back to its default; may be repeated."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Add partitions, or change settings.

    Example: headrace topics alter orders --partitions 12 --config cleanup.policy=compact
    """
    configs = parsed(lambda: assignments(config or ()), "--config")
    if partitions is None and not configs and not delete_config:
        raise typer.BadParameter("give --partitions, --config or --delete-config")
    admin = connect(bootstrap)
    if configs or delete_config:
        admin.alter_configs(ConfigKind.TOPIC, name, add=configs, delete=delete_config or ())
        typer.echo(f"changed {len(configs) + len(delete_config or ())} setting(s) of topic {name}")
    if partitions is not None:
        _grow(admin, name, partitions)


@app.command()
def delete(
    names: Names,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Succeed if a topic is not there.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete topics with everything in them.

    Example: headrace topics delete orders payments
    """
    admin = connect(bootstrap)
    for name in names:
        try:
            admin.delete_topic(name)
        except KafkaError as error:
            if not if_exists or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            typer.echo(f"topic {name} does not exist")
        else:
            typer.echo(f"deleted topic {name}")


def _grow(admin: Admin, name: str, partitions: int) -> None:
    before = len(admin.describe_topics([name])[0].partitions)
    admin.add_partitions(name, partitions)
    typer.echo(f"topic {name} has {partitions} partitions, {partitions - before} of them new")
    note(
        "warning: keys are routed by hash modulo the number of partitions, so from now on a key "
        f"of {name} may go to another partition than its earlier records: order by key holds "
        "only among records written before the change, and among those written after it"
    )


def _replication(topic: Topic) -> int:
    return max((len(partition.replicas) for partition in topic.partitions), default=0)


def _description(admin: Admin, topic: Topic) -> dict[str, Any]:
    places = [TopicPartition(topic.name, partition.index) for partition in topic.partitions]
    earliest = admin.offsets(places, EARLIEST)
    latest = admin.offsets(places, LATEST)
    configs = {
        entry.name: entry.value
        for entry in admin.configs(ConfigKind.TOPIC, topic.name)
        if entry.source == "DYNAMIC_TOPIC_CONFIG"
    }
    partitions = [
        {
            "partition": partition.index,
            "leader": partition.leader,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
            "earliest": earliest[place],
            "latest": latest[place],
        }
        for place, partition in zip(places, topic.partitions, strict=True)
    ]
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "internal": topic.internal,
        "replication_factor": _replication(topic),
        "configs": configs,
        "partitions": partitions,
    }


def _print_description(topic: dict[str, Any]) -> None:
    configs = ",".join(f"{name}={value}" for name, value in topic["configs"].items())
    typer.echo(
        f"Topic: {topic['topic']}  TopicId: {topic['topic_id']}  "
        f"PartitionCount: {len(topic['partitions'])}  "
        f"ReplicationFactor: {topic['replication_factor']}  Configs: {configs or '-'}"
    )
    columns = ("PARTITION", "LEADER", "REPLICAS", "ISR", "EARLIEST", "LATEST")
    rows = [list(partition.values()) for partition in topic["partitions"]]
    print_table(columns, rows, as_json=False)
