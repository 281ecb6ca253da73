"""`headrace transactions`: find, show and abort transactions."""

import time
from typing import Annotated

import typer

from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, connect, noun, parsed
from headrace.cli.output import print_table
from headrace.cli.quantities import duration_ms, iso_time
from headrace.cli.reading import places
from headrace.client.librdkafka import TopicPartition
from headrace.client.transaction_admin import OpenTransaction, TransactionAdmin
from headrace.client.wire import Wire
from headrace.errors import ErrorCode, KafkaError

app = noun("Find, show and abort transactions.")

# Kafka's transaction.max.timeout.ms: no coordinator lets a transaction live longer.
LONGEST_TRANSACTION = "15m"

Topic = Annotated[
    str | None, typer.Option("--topic", metavar="TOPIC", help="Only partitions of this topic.")
]
OlderThan = Annotated[
    str, typer.Option(metavar="DURATION", help="Only if it wrote nothing for so long.")
]


@app.command("list")
def list_transactions(
    state: Annotated[
        list[str] | None,
        typer.Option(help="Only in this state, such as Ongoing; may be repeated."),
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List transactional ids and the state of each.

    Example: headrace transactions list --state Ongoing
    """
    with Wire(bootstrap) as wire:
        rows = [
            (row.transactional_id, row.coordinator, row.producer_id, row.state)
            for row in TransactionAdmin(wire).transactions(states=state or ())
        ]
    columns = ("TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "STATE")
    print_table(columns, rows, as_json=as_json)


@app.command()
def describe(
    transactional_ids: Annotated[
        list[str], typer.Argument(metavar="TRANSACTIONAL-ID...", help="Which ones.")
    ],
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show what a transactional id has open, since when and where.

    Example: headrace transactions describe payments-1
    """
    with Wire(bootstrap) as wire:
        found = [TransactionAdmin(wire).describe(name) for name in transactional_ids]
    rows = [
        (
            row.transactional_id,
            row.coordinator,
            row.producer_id,
            row.producer_epoch,
            row.state,
            row.timeout_ms,
            iso_time(row.started_ms) if row.started_ms >= 0 else None,
            [str(place) for place in row.partitions],
        )
        for row in found
    ]
    columns = (
        "TRANSACTIONAL-ID",
        "COORDINATOR",
        "PRODUCER-ID",
        "PRODUCER-EPOCH",
        "STATE",
        "TIMEOUT-MS",
        "STARTED",
        "PARTITIONS",
    )
    print_table(columns, rows, as_json=as_json)


@app.command("find-hanging")
def find_hanging(
    topic: Topic = None,
    older_than: OlderThan = LONGEST_TRANSACTION,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Find transactions open on a partition that no coordinator will end.

    Example: headrace transactions find-hanging --topic orders
    """
    limit_ms = parsed(lambda: duration_ms(older_than), "--older-than")
    wanted = _partitions(bootstrap, topic)
    with Wire(bootstrap) as wire:
        found = TransactionAdmin(wire).hanging(
            wanted, older_than_ms=limit_ms, now_ms=time.time_ns() // 1_000_000
        )
    rows = [
        (
            *row.place,
            row.producer_id,
            row.producer_epoch,
            row.start_offset,
            iso_time(row.last_timestamp_ms),
        )
        for row in found
    ]
    columns = ("TOPIC", "PARTITION", "PRODUCER-ID", "PRODUCER-EPOCH", "START-OFFSET", "LAST-WRITE")
    print_table(columns, rows, as_json=as_json)


@app.command()
def abort(
    transactional_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[TRANSACTIONAL-ID]", help="Abort what it has open and fence its producer."
        ),
    ] = None,
    topic: Annotated[str | None, typer.Option(help="Topic of a hanging transaction.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Its partition.")] = None,
    start_offset: Annotated[
        int | None, typer.Option(min=0, help="Its first offset, as find-hanging shows it.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Abort a transaction by its id, or a hanging one by where it began.

    Example: headrace transactions abort --topic orders --partition 2 --start-offset 1817
    """
    if transactional_id is not None:
        if (topic, partition, start_offset) != (None, None, None):
            raise typer.BadParameter("give a transactional id, or where the transaction began")
        with Wire(bootstrap) as wire:
            TransactionAdmin(wire).terminate(transactional_id)
        typer.echo(f"aborted {transactional_id} and fenced its producer")
        return
    if topic is None or partition is None or start_offset is None:
        raise typer.BadParameter(
            "give a transactional id, or all of --topic, --partition and --start-offset"
        )
    aborted = _abort_at(bootstrap, TopicPartition(topic, partition), start_offset)
    typer.echo(
        f"aborted the transaction of producer {aborted.producer_id} on {aborted.place} "
        f"from offset {start_offset}"
    )


def _abort_at(bootstrap: str, place: TopicPartition, start_offset: int) -> OpenTransaction:
    with Wire(bootstrap) as wire:
        transactions = TransactionAdmin(wire)
        for found in transactions.open_transactions([place]):
            if found.start_offset == start_offset:
                transactions.abort(found)
                return found
    raise KafkaError(
        ErrorCode.INVALID_TXN_STATE, f"no transaction on {place} is open from offset {start_offset}"
    )


def _partitions(bootstrap: str, topic: str | None) -> list[TopicPartition]:
    admin = connect(bootstrap)
    if topic is not None:
        return places(admin, topic, ())
    return [
        TopicPartition(found.name, partition.index)
        for found in admin.topics()
        for partition in found.partitions
    ]
