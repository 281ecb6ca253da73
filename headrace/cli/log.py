"""`headrace log`: read a broker's files offline."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from headrace.cli.options import noun
from headrace.cli.output import note
from headrace.errors import HeadraceError
from headrace.log.dump import DumpedBatch, Problem, dump, segment_paths
from headrace.log.filesystem import ReadOnlyFilesystem
from headrace.protocol.compression import CODECS
from headrace.protocol.records import Record

app = noun("Read a broker's files offline.")

Path = Annotated[
    str, typer.Argument(metavar="PATH", help="A segment, a partition's folder, or a data folder.")
]
Records = Annotated[
    bool, typer.Option("--records", help="Also every record with its key and value.")
]
JsonLines = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]
VerifyOnly = Annotated[bool, typer.Option("--verify-only", help="Print only what is damaged.")]


@app.command("dump")
def dump_log(
    path: Path,
    records: Records = False,
    as_json: JsonLines = False,
    verify_only: VerifyOnly = False,
) -> None:
    """Print batches as Kafka's DumpLogSegments does; check checksums, offsets and indexes.

    Exits with 1 if anything is damaged.

    Example: headrace log dump ./data/orders-0 --records
    """
    filesystem = ReadOnlyFilesystem()
    segments = segment_paths(filesystem, path)
    if not segments:
        raise HeadraceError(f"{path} holds no segment, which is a file such as {0:020}.log")
    totals: Counter[str] = Counter()
    shown_file = ""
    for item in dump(filesystem, path):
        if not as_json and not verify_only and item.file != shown_file:
            shown_file = item.file
            typer.echo(f"Dumping {shown_file}")
        for fields in _entries(item, totals, deep=records or verify_only):
            if "problem" in fields or not verify_only:
                typer.echo(json.dumps(fields) if as_json else _line(fields))
    note(
        f"{len(segments)} segments, {totals['batches']} batches, {totals['records']} records, "
        f"{totals['problems']} problems"
    )
    if totals["problems"]:
        raise typer.Exit(1)


def _entries(
    item: DumpedBatch | Problem, totals: "Counter[str]", *, deep: bool
) -> Iterator[dict[str, Any]]:
    """What to print of a batch or problem: one line each, and one for every record in depth."""
    if isinstance(item, Problem):
        totals["problems"] += 1
        yield _problem(item)
        return
    totals["batches"] += 1
    totals["records"] += item.batch.record_count
    yield _batch(item)
    if not deep or not item.crc_valid:
        return
    try:
        for sequence, record in enumerate(item.batch.records()):
            yield _record(item, sequence, record)
    except ValueError as error:
        totals["problems"] += 1
        yield _problem(Problem(item.file, item.position, str(error)))


def _problem(problem: Problem) -> dict[str, Any]:
    return {"problem": problem.reason, "file": problem.file, "position": problem.position}


def _batch(item: DumpedBatch) -> dict[str, Any]:
    batch = item.batch
    return {
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "count": batch.record_count,
        "baseSequence": batch.base_sequence,
        "lastSequence": batch.last_sequence,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "partitionLeaderEpoch": batch.partition_leader_epoch,
        "isTransactional": batch.is_transactional,
        "isControl": batch.is_control,
        "position": item.position,
        _time_name(item): batch.max_timestamp,
        "size": batch.size,
        "magic": batch.magic,
        "compresscodec": CODECS.get(batch.compression, str(batch.compression)),
        "crc": batch.crc,
        "isvalid": item.crc_valid,
    }


def _record(item: DumpedBatch, sequence: int, record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        _time_name(item): record.timestamp,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
        "sequence": -1 if item.batch.base_sequence < 0 else item.batch.base_sequence + sequence,
        "headerKeys": [name for name, _ in record.headers],
        "key": _text(record.key),
        "payload": _text(record.value),
    }


def _time_name(item: DumpedBatch) -> str:
    return "LogAppendTime" if item.batch.is_log_append_time else "CreateTime"


def _text(content: bytes | None) -> str | None:
    # Bytes that are not text are shown escaped, so that the line stays one line of text.
    return None if content is None else content.decode(errors="backslashreplace")


def _line(fields: dict[str, Any]) -> str:
    """Kafka's form: `name: value name: value`, a record after a bar."""
    if "problem" in fields:
        return f"problem: {fields['file']} at byte {fields['position']}: {fields['problem']}"
    shown = " ".join(f"{name}: {_shown(value)}" for name, value in fields.items())
    return f"| {shown}" if "offset" in fields else shown


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(value)}]"
    return "null" if value is None else str(value)
