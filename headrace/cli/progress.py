"""A progress bar for bulk work, on standard error and only where a person looks at it."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# Work done between two redraws; a redraw for every record would cost more than the record.
STEP = 1 << 16


class Bar:
    """Counts work done; drawn only if `shown` and standard error is a terminal."""

    def __init__(self, label: str, total: int | None, *, unit_bytes: bool, shown: bool) -> None:
        self._label = label
        self._total = total
        self._unit_bytes = unit_bytes
        self._shown = shown and sys.stderr.isatty()
        self._pending = 0
        self._drawn: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Self:
        if self._shown:
            self._drawn = self._draw()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._drawn is not None:
            progress, task = self._drawn
            progress.advance(task, self._pending)
            progress.stop()

    def advance(self, amount: int) -> None:
        if self._drawn is None:
            return
        self._pending += amount
        if self._pending >= (STEP if self._unit_bytes else 1):
            progress, task = self._drawn
            progress.advance(task, self._pending)
            self._pending = 0

    def _draw(self) -> "tuple[Progress, TaskID]":
        # rich is loaded only for a bar that is drawn: it costs as much as all other imports.
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TransferSpeedColumn,
        )

        amounts = (
            (DownloadColumn(), TransferSpeedColumn())
            if self._unit_bytes
            else (MofNCompleteColumn(),)
        )
        progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            *amounts,
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        progress.start()
        return progress, progress.add_task(self._label, total=self._total)
