"""The results: one table of ratios on the terminal; JSON, a page and a chart on disk."""

import json
import os
import platform
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table as Grid

from bench.cells import Row

RESULTS = Path(__file__).parent / "results"


def show(rows: Iterable[Row]) -> None:
    grid = Grid(title="Headrace beside Apache Kafka (medians)")
    grid.add_column("cell")
    for heading in ("headrace", "kafka", "unit", "ratio", ""):
        grid.add_column(heading, justify="right")
    for row in rows:
        verdict = {True: "ahead", False: "[bold]behind[/bold]", None: ""}[row.ahead]
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
        values = (_number(row.median(system)) for system in ("headrace", "kafka"))
        grid.add_row(row.name, *values, row.unit, ratio, verdict)
    Console(width=120).print(grid)


def write(rows: list[Row], rounds: int) -> None:
    RESULTS.mkdir(exist_ok=True)
    document = {
        "machine": {"cpus": platform.machine(), "python": platform.python_version()},
        "rounds": rounds,
        "cells": [
            {
                "name": row.name,
                "unit": row.unit,
                "more_is_better": row.more_is_better,
                "values": row.values,
                "ratio": row.ratio,
            }
            for row in rows
        ],
    }
    (RESULTS / "results.json").write_text(json.dumps(document, indent=1) + "\n")
    (RESULTS / "results.md").write_text(_page(rows, rounds))
    _chart([row for row in rows if row.ratio is not None], RESULTS / "results.png")


def _page(rows: list[Row], rounds: int) -> str:
    lines = [
        f"Medians of {rounds} rounds, on {os.cpu_count()} cores.\n",
        "| cell | Headrace | Kafka | unit | ratio |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        ours, theirs = (_number(row.median(system)) for system in ("headrace", "kafka"))
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
        behind = " **behind**" if row.ahead is False else ""
        lines.append(f"| {row.name} | {ours} | {theirs} | {row.unit} | {ratio}{behind} |")
    return "\n".join(lines) + "\n"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"


def _chart(rows: list[Row], path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    # A bar to the right is always Headrace ahead, so what should be small is turned over.
    gains = [(row.ratio or 1) if row.more_is_better else 1 / (row.ratio or 1) for row in rows]
    figure, axes = pyplot.subplots(figsize=(10, 1 + 0.25 * len(rows)))
    colours = ["#2a7f62" if gain >= 1 else "#b5482f" for gain in gains]
    axes.barh([row.name for row in rows], gains, color=colours)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.set_xlabel("times better than Apache Kafka (logarithmic)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
