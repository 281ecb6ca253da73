"""What a write does: the records it adds to the topic, and the answer once they are there."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace.registry.records import Record

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Decision(Generic[A]):
    """Made without changing anything; with no records, the answer already stands."""

    records: tuple[Record, ...]
    answer: A
