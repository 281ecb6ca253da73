"""What a measurement is: a named cell with a unit, and whether more or less of it is better."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of one system in one round."""

    name: str
    value: float
    unit: str
    more_is_better: bool = True


@dataclass(slots=True)
class Row:
    """A cell's values in every round, by system."""

    name: str
    unit: str
    more_is_better: bool
    values: dict[str, list[float]] = field(default_factory=dict)

    def median(self, system: str) -> float | None:
        values = self.values.get(system)
        return median(values) if values else None

    @property
    def ratio(self) -> float | None:
        """Headrace's median divided by Kafka's, whichever way is better."""
        ours, theirs = self.median("headrace"), self.median("kafka")
        return ours / theirs if ours is not None and theirs else None

    @property
    def ahead(self) -> bool | None:
        ratio = self.ratio
        if ratio is None:
            return None
        return ratio >= 1 if self.more_is_better else ratio <= 1


class Table:
    """Rows in the order their cells were first seen."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}

    def add(self, system: str, cell: Cell) -> None:
        row = self._rows.setdefault(cell.name, Row(cell.name, cell.unit, cell.more_is_better))
        row.values.setdefault(system, []).append(cell.value)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
