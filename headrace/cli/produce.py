"""`headrace produce`: write records from standard input or a file."""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, parsed, verb
from headrace.cli.output import note
from headrace.cli.progress import Bar
from headrace.cli.record_input import JsonLines, Parse, TextLines, header
from headrace.client.librdkafka import check_reachable
from headrace.client.producer import Delivered, NewRecord, Producer
from headrace.errors import HeadraceError

app = verb()

# Records of a file or a pipe wait so long for company in their batch.
LINGER_MS = 5
# After the last line, how long its acknowledgement may take.
FLUSH_TIMEOUT_S = 120.0
# So many different reasons are printed; the rest is only counted.
MAX_REASONS = 5


class Compression(StrEnum):
    """Kafka's codecs."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """When the broker acknowledges."""

    ZERO = "0"
    ONE = "1"
    ALL = "all"


class Tally:
    """Every record is counted once: as written, or as failed with its reason."""

    def __init__(self) -> None:
        self.written = 0
        self.reasons: Counter[str] = Counter()

    def delivery(self, outcome: Delivered | HeadraceError) -> None:
        if isinstance(outcome, Delivered):
            self.written += 1
        else:
            self.failure(str(outcome))

    def failure(self, reason: str) -> None:
        # Bounded: a million bad lines must not keep a million reasons in memory.
        known = reason in self.reasons or len(self.reasons) < MAX_REASONS
        self.reasons[reason if known else "other reasons"] += 1

    @property
    def failed(self) -> int:
        return self.reasons.total()


Topic = Annotated[str, typer.Argument(help="Topic to write to.")]
File = Annotated[Path | None, typer.Argument(help="Read this file instead of standard input.")]
KeySeparator = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Each line is key, this text, value.")
]
NullMarker = Annotated[
    str | None, typer.Option(metavar="TEXT", help="A key or value equal to this text is null.")
]
JsonInput = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Each line is a JSON object with key, value, headers, timestamp, partition.",
    ),
]
FixedHeaders = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=VALUE", help="For every record; may be repeated."),
]
Partition = Annotated[
    int | None, typer.Option(min=0, help="Write to this partition, whatever the key.")
]
Codec = Annotated[Compression, typer.Option(help="Codec.")]
AcksWanted = Annotated[Acks, typer.Option(help="What to wait for.")]


@app.command()
def produce(  # noqa: PLR0913 - a command's parameters are its options
    topic: Topic,
    file: File = None,
    key_separator: KeySeparator = None,
    null_marker: NullMarker = None,
    as_json: JsonInput = False,
    headers: FixedHeaders = None,
    partition: Partition = None,
    compression: Codec = Compression.NONE,
    acks: AcksWanted = Acks.ALL,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Write records, one per line, and say how many were acknowledged.

    Example: printf 'user_42:hello\\nuser_7:hi\\n' | headrace produce orders --key-separator :
    """
    if as_json and (key_separator is not None or null_marker is not None):
        raise typer.BadParameter("--json lines carry their own keys and nulls")
    fixed = parsed(lambda: tuple(header(text) for text in headers or ()), "--header")
    separator = _bytes(key_separator)
    if separator == b"":
        raise typer.BadParameter("the separator is empty", param_hint="--key-separator")
    parse: Parse = TextLines(separator, _bytes(null_marker), fixed, partition)
    if as_json:
        parse = JsonLines(fixed, partition, time.time_ns() // 1_000_000)
    settings = {"acks": acks.value, "compression.type": compression.value}
    tally = Tally()
    with ExitStack() as stack:
        source = stack.enter_context(file.open("rb")) if file else sys.stdin.buffer
        typed = source.isatty()
        check_reachable(bootstrap)
        producer = Producer(bootstrap, {**settings, "linger.ms": 0 if typed else LINGER_MS})
        producer.require_topic(topic)
        size = file.stat().st_size if file else None
        bar = stack.enter_context(Bar(f"writing {topic}", size, unit_bytes=True, shown=not typed))
        _send_all(producer, topic, _records(source, parse, tally, bar), tally)
    _report(topic, tally)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode().decode("unicode_escape").encode("latin-1")


def _records(source: BinaryIO, parse: Parse, tally: Tally, bar: Bar) -> Iterator[NewRecord]:
    for number, line in enumerate(source, start=1):
        bar.advance(len(line))
        try:
            yield parse(line.removesuffix(b"\n").removesuffix(b"\r"))
        except ValueError as error:
            tally.failure(f"line {number}: {error}")


def _send_all(producer: Producer, topic: str, records: Iterator[NewRecord], tally: Tally) -> None:
    for record in records:
        try:
            producer.send(topic, record, tally.delivery)
        except HeadraceError as error:
            tally.failure(str(error))
    unsettled = producer.flush(FLUSH_TIMEOUT_S)
    for _ in range(unsettled):
        tally.failure(f"not acknowledged within {FLUSH_TIMEOUT_S:g} s")
    producer.close()


def _report(topic: str, tally: Tally) -> None:
    for reason, times in tally.reasons.items():
        note(f"headrace: {reason}" + (f" ({times} times)" if times > 1 else ""))
    if tally.failed:
        note(f"headrace: {tally.written} records written to {topic}, {tally.failed} failed")
        raise typer.Exit(1)
    typer.echo(f"{tally.written} records written to {topic}")
