"""How commands speak: tables and JSON on standard output, notes on standard error."""

import json
import sys
from collections.abc import Sequence
from typing import Any

import typer

GAP = "  "


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, as_json: bool) -> None:
    """Aligned columns that never wrap, so that awk and people can read them; or JSON objects."""
    if as_json:
        names = [column.lower().replace("-", "_") for column in columns]
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    cells = [list(columns), *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for number, line in enumerate(cells):
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        text = GAP.join(padded).rstrip()
        typer.echo(typer.style(text, bold=True) if number == 0 and sys.stdout.isatty() else text)


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def note(sentence: str) -> None:
    """Something the user should know that is not the output."""
    typer.echo(sentence, err=True)


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value) or "-"
    return str(value)
