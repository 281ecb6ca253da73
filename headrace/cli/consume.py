"""`headrace consume`: read records to standard output."""

import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Annotated

import typer

from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, connect, parsed, verb
from headrace.cli.output import note
from headrace.cli.progress import Bar
from headrace.cli.quantities import instant_ms
from headrace.cli.reading import Remaining, Start, end_offsets, places, start_offsets
from headrace.cli.record_output import Format, json_line, plain, template
from headrace.client.admin import Isolation
from headrace.client.consumer import Consumer, EndReached, Received
from headrace.client.librdkafka import TopicPartition
from headrace.errors import ErrorCode, KafkaError

app = verb()

MAX_POLL_RECORDS = 1_000
# A poll ends at least this often, so that Ctrl-C is heard.
POLL_S = 0.2
# A group's offsets are committed this often while following.
COMMIT_INTERVAL_S = 1.0
# A member that has no partition by then, though it is to stop at the end, would wait for ever.
ASSIGNMENT_LIMIT_S = 60.0
SHOWABLE = ("timestamp", "partition", "offset", "headers", "key")


@dataclass(slots=True)
class Output:
    """Writes records to standard output and remembers what has left the process."""

    format: Format
    limit: int | None
    written: int = 0
    positions: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        return self.limit is not None and self.written >= self.limit

    def write(self, record: Received) -> None:
        sys.stdout.buffer.write(self.format(record))
        self.written += 1
        self.positions[TopicPartition(record.topic, record.partition)] = record.offset + 1

    def flush(self) -> None:
        sys.stdout.buffer.flush()


Topic = Annotated[str, typer.Argument(help="Topic to read.")]
FromBeginning = Annotated[
    bool, typer.Option("--from-beginning", help="Start at the earliest record.")
]
FromOffset = Annotated[
    int | None, typer.Option(help="Start at this offset; -5 is five before the end.")
]
FromTime = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Start at an ISO 8601 time (UTC), an epoch number, or 15m ago."
    ),
]
Partitions = Annotated[
    list[int] | None, typer.Option(min=0, help="Only this partition; may be repeated.")
]
GroupName = Annotated[
    str | None, typer.Option(help="Read as a member of this group and commit its offsets.")
]
StopAtEnd = Annotated[
    bool, typer.Option("--stop-at-end", help="Stop at what is the end now; else follow.")
]
Maximum = Annotated[
    int | None, typer.Option("--max", min=1, metavar="N", help="Stop after N records.")
]
Show = Annotated[
    str,
    typer.Option(
        metavar="FIELDS",
        help=f"What to print before the value, with commas: {', '.join(SHOWABLE)}; or all.",
    ),
]
Template = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="TEMPLATE",
        help="Such as '{time} {key} {value}\\n'; also topic, partition, offset, headers.",
    ),
]
JsonOutput = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]
IsolationWanted = Annotated[
    Isolation, typer.Option(help="Whether records of open and aborted transactions show.")
]


@app.command()
def consume(  # noqa: PLR0913 - a command's parameters are its options
    topic: Topic,
    from_beginning: FromBeginning = False,
    offset: FromOffset = None,
    from_time: FromTime = None,
    partition: Partitions = None,
    group: GroupName = None,
    stop_at_end: StopAtEnd = False,
    maximum: Maximum = None,
    show: Show = "",
    form: Template = None,
    as_json: JsonOutput = False,
    isolation: IsolationWanted = Isolation.READ_COMMITTED,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Read records, following what comes unless told to stop.

    Example: headrace consume orders --from-beginning --stop-at-end --json
    """
    start = Start(from_beginning, offset, _time(from_time))
    _check(start, partition, group)
    output = Output(_format(show, form, as_json=as_json), maximum)
    settings = {"isolation.level": isolation.value}
    if group is not None:
        settings["auto.offset.reset"] = "earliest" if from_beginning else "latest"
    admin = connect(bootstrap)
    wanted = places(admin, topic, partition or ())
    with Consumer(bootstrap, group, settings) as consumer:
        if group is not None:
            consumer.subscribe([topic])
            ends = end_offsets(admin, wanted, isolation) if stop_at_end else None
            _read_as_member(consumer, output, ends)
        else:
            starts = start_offsets(admin, wanted, start)
            remaining = None
            if stop_at_end:
                remaining = Remaining(starts, end_offsets(admin, wanted, isolation))
            consumer.assign(starts)
            _read(consumer, output, remaining)
    note(f"{output.written} records read from {topic}")


def _time(text: str | None) -> int | None:
    if text is None:
        return None
    return parsed(lambda: instant_ms(text, time.time_ns() // 1_000_000), "--from-time")


def _check(start: Start, partitions: Collection[int] | None, group: str | None) -> None:
    if start.given > 1:
        raise typer.BadParameter("give one of --from-beginning, --offset and --from-time")
    if group is None:
        return
    if partitions:
        raise typer.BadParameter("a group chooses the partitions: give --group or --partition")
    if start.given and not start.from_beginning:
        raise typer.BadParameter(
            "a group starts where it committed: use `headrace groups reset-offsets` to move it"
        )


def _format(show: str, form: str | None, *, as_json: bool) -> Format:
    if as_json + (form is not None) + bool(show) > 1:
        raise typer.BadParameter("give one of --json, --format and --show")
    if as_json:
        return json_line
    if form is not None:
        return parsed(lambda: template(form), "--format")
    shown = SHOWABLE if show == "all" else tuple(filter(None, show.split(",")))
    for name in shown:
        if name not in SHOWABLE:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(SHOWABLE)}, all")
    return plain(shown)


def _read(consumer: Consumer, output: Output, remaining: Remaining | None) -> None:
    """Read partitions of our own choice, up to where they ended or for ever."""

    def take(event: Received | EndReached) -> None:
        if isinstance(event, EndReached):
            if remaining is not None:
                remaining.at_end(event.place)
            return
        place = TopicPartition(event.topic, event.partition)
        if remaining is None or remaining.wants(place, event.offset):
            output.write(event)

    with _bar(output) as bar:
        while (remaining is None or remaining) and not output.full:
            _step(consumer, output, take, bar)


def _read_as_member(
    consumer: Consumer, output: Output, ends: dict[TopicPartition, int] | None
) -> None:
    """Read what the group gives us; commit only what has been written out."""
    ended: set[TopicPartition] = set()

    def take(event: Received | EndReached) -> None:
        if isinstance(event, EndReached):
            ended.add(event.place)
            return
        output.write(event)
        place = TopicPartition(event.topic, event.partition)
        if ends is not None and event.offset + 1 >= ends.get(place, 0):
            ended.add(place)

    committed_at = started_at = time.monotonic()
    try:
        with _bar(output) as bar:
            while not output.full and not (ends and _all_ended(consumer, ended, started_at)):
                _step(consumer, output, take, bar)
                if time.monotonic() - committed_at > COMMIT_INTERVAL_S:
                    _commit(consumer, output)
                    committed_at = time.monotonic()
    finally:
        _commit(consumer, output)


def _step(
    consumer: Consumer,
    output: Output,
    take: Callable[[Received | EndReached], None],
    bar: Bar,
) -> None:
    before = output.written
    most = MAX_POLL_RECORDS
    if output.limit is not None:
        most = min(most, output.limit - output.written)
    for event in consumer.poll(max_records=most, timeout_s=POLL_S):
        take(event)
    # A batch at a time: as quick as a full buffer in bulk, and at once when records trickle.
    output.flush()
    bar.advance(output.written - before)


def _all_ended(consumer: Consumer, ended: set[TopicPartition], started_at: float) -> bool:
    assigned = consumer.assignment
    if not assigned and time.monotonic() - started_at > ASSIGNMENT_LIMIT_S:
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"the group gave this member no partition in {ASSIGNMENT_LIMIT_S:g} s: "
            "it has at least as many other members as the topic has partitions",
        )
    return bool(assigned) and assigned <= ended


def _commit(consumer: Consumer, output: Output) -> None:
    positions, output.positions = output.positions, {}
    consumer.commit(positions)


def _bar(output: Output) -> Bar:
    # On a terminal the records themselves show the progress.
    return Bar("reading", output.limit, unit_bytes=False, shown=not sys.stdout.isatty())
