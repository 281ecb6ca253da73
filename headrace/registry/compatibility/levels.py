"""Compatibility levels: which versions a new schema is compared with, and in which direction."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from headrace.registry.language import Incompatibility, Language, ParsedSchema

DIFFERENT_LANGUAGE = Incompatibility(
    "SCHEMA_TYPE_CHANGED", "/", "Incompatible because of different schema type"
)
# More of an old schema than this is not repeated in a message.
MAX_QUOTED = 10_000


class Level(StrEnum):
    """What a new version owes the versions before it."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def transitive(self) -> bool:
        return self.endswith("_TRANSITIVE")

    @property
    def backward(self) -> bool:
        """The new schema must read what the old ones wrote."""
        return self.startswith(("BACKWARD", "FULL"))

    @property
    def forward(self) -> bool:
        """The old schemas must read what the new one writes."""
        return self.startswith(("FORWARD", "FULL"))


@dataclass(frozen=True, slots=True)
class Previous:
    """An earlier version a new schema is compared with."""

    version: int
    parsed: ParsedSchema


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why a new schema does not go with one earlier version; `reader` is "new" or "old"."""

    previous: Previous
    found: tuple[tuple[str, Incompatibility], ...]


def compared(level: Level, count: int) -> range:
    """Of versions 0 to count - 1, oldest first, those compared with, the newest first."""
    if level is Level.NONE or not count:
        return range(0)
    return range(count - 1, -1 if level.transitive else count - 2, -1)


def conflict(
    level: Level, language: Language, new: ParsedSchema, previous: Sequence[Previous]
) -> Conflict | None:
    """The conflict with the newest version, oldest given first, that the new schema breaks with."""
    for index in compared(level, len(previous)):
        found = tuple(_found(level, language, new, previous[index].parsed))
        if found:
            return Conflict(previous[index], found)
    return None


def messages(level: Level, found: Conflict) -> list[str]:
    """The conflict in the sentences of the REST API: what breaks, then against what."""
    sentences = [_sentence(reader, each) for reader, each in found.found]
    old = found.previous.parsed.text
    quoted = old if len(old) <= MAX_QUOTED else f"<truncated> {old[:MAX_QUOTED]}..."
    return [
        *sentences,
        f"{{oldSchemaVersion: {found.previous.version}}}",
        f"{{oldSchema: '{quoted}'}}",
        f"{{compatibility: '{level}'}}",
    ]


def _found(
    level: Level, language: Language, new: ParsedSchema, old: ParsedSchema
) -> Iterator[tuple[str, Incompatibility]]:
    if new.language != old.language:
        yield "new", DIFFERENT_LANGUAGE
        return
    if level.forward:
        for each in language.incompatibilities(old, new):
            yield "old", each
    if level.backward:
        for each in language.incompatibilities(new, old):
            yield "new", each


def _sentence(reader: str, found: Incompatibility) -> str:
    writer = "old" if reader == "new" else "new"
    return (
        f"{{errorType:'{found.kind}', description:'{found.message}', path:'{found.path}', "
        f"reader:'{reader}', writer:'{writer}'}}"
    )
