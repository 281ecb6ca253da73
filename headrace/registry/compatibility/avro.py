"""Whether data of one Avro schema can be read with another: the rules of Apache Avro.

The verdicts are those of Apache Avro's SchemaCompatibility, but for three things. Where types
refer to themselves it may remember a verdict that rested on a guess found wrong later; here a
guess found wrong is taken back. Where a reader's field matches two of the writer's by name and
alias it gives up with an exception; here that breaks like anything else. And where two of the
reader's fields claim one of the writer's, only one gets its value, and which one depends on the
library; here both need a default.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headrace.registry.language import Incompatibility
from headrace.registry.languages.avro_types import (
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Record,
    Union,
)

# A reader's type, and what the writer may have written instead.
PROMOTIONS: Final = {
    "long": frozenset(("int",)),
    "float": frozenset(("int", "long")),
    "double": frozenset(("int", "long", "float")),
    "bytes": frozenset(("string",)),
    "string": frozenset(("bytes",)),
}
_PROMOTED_TO: Final = {
    kind: [reader for reader, taken in PROMOTIONS.items() if kind in taken]
    for kind in ("int", "long", "float", "string", "bytes")
}
# Comparisons of two types; a record of 10,000 fields takes as many. Unions of thousands of
# records would take longer than anyone waits.
MAX_COMPARISONS: Final = 500_000
# Breakages told of one pair of schemas.
MAX_FOUND: Final = 1_000
# Records within records that an explanation of a missing branch goes into.
_MAX_EXPLAINED: Final = 10
# Symbols, and branches, named in one sentence.
_MAX_LISTED: Final = 10


def incompatibilities(reader: AvroType, writer: AvroType) -> list[Incompatibility]:
    """Why data of the writer cannot be read with the reader's schema; empty if it can."""
    verdicts = _Verdicts()
    try:
        if verdicts.readable(reader, writer):
            return []
        return _Breakages(verdicts, explain=True).found(reader, writer, _ROOT, MAX_FOUND)
    except _TooMany:
        return [
            Incompatibility(
                "COMPARISON_TOO_LARGE",
                "/",
                f"The schemas are too large to compare: it takes more than {MAX_COMPARISONS} "
                "comparisons of types",
            )
        ]


def writer_fields(writer: Record, field: Field) -> list[Field]:
    """Those of the writer's fields that the reader's field is, by its name or its aliases."""
    names = dict.fromkeys((field.name, *field.aliases))
    return [writer.by_name[each] for each in names if each in writer.by_name]


def is_contested(reader: Record, field: Field, matching: Field) -> bool:
    """Whether the field, with no default to fall back on, shares its match with another field."""
    return not field.has_default and len(reader.claims.get(matching.name, ())) > 1


class _TooMany(Exception):
    """More comparisons than MAX_COMPARISONS."""


class _Verdicts:
    """Which pairs of types are readable: the largest set of named pairs that holds together.

    A pair of named types is taken as readable until one of its parts is found not to be, and
    then those that rested on it are looked at again; so types that refer to themselves need no
    recursion, however long the chain of names.
    """

    def __init__(self) -> None:
        self._unreadable: set[tuple[Named, Named]] = set()
        self._seen: set[tuple[Named, Named]] = set()
        self._resting: dict[tuple[Named, Named], set[tuple[Named, Named]]] = {}
        self._pending: list[tuple[Named, Named]] = []
        self._current: tuple[Named, Named] | None = None
        self._comparisons = 0

    def readable(self, reader: AvroType, writer: AvroType) -> bool:
        while self._compatible(reader, writer):
            if not self._pending:
                return True
            before = len(self._unreadable)
            self._settle()
            if len(self._unreadable) == before:
                return True
        self._settle()
        return False

    def _settle(self) -> None:
        while self._pending:
            pair = self._pending.pop()
            if pair in self._unreadable:
                continue
            self._current = pair
            if not self._parts_compatible(*pair):
                self._unreadable.add(pair)
                self._pending += self._resting.pop(pair, ())
        self._current = None

    def _compatible(self, reader: AvroType, writer: AvroType) -> bool:
        self._comparisons += 1
        if self._comparisons > MAX_COMPARISONS:
            raise _TooMany
        if isinstance(writer, Union):
            return all(self._compatible(reader, each) for each in writer.branches)
        if isinstance(reader, Union):
            return any(self._compatible(each, writer) for each in _candidates(reader, writer))
        if reader.kind != writer.kind:
            return writer.kind in PROMOTIONS.get(reader.kind, ())
        match reader, writer:
            case Named(), Named():
                return self._named_compatible(reader, writer)
            case Array(), Array():
                return self._compatible(reader.items, writer.items)
            case Map(), Map():
                return self._compatible(reader.values, writer.values)
        return True

    def _named_compatible(self, reader: Named, writer: Named) -> bool:
        if not same_name(reader, writer):
            return False
        match reader, writer:
            case Fixed(), Fixed():
                return reader.size == writer.size
            case Enum(), Enum():
                return reader.default is not None or writer.symbol_set <= reader.symbol_set
        pair = (reader, writer)
        if pair in self._unreadable:
            return False
        if self._current is not None:
            self._resting.setdefault(pair, set()).add(self._current)
        if pair not in self._seen:
            self._seen.add(pair)
            self._pending.append(pair)
        return True

    def _parts_compatible(self, reader: Named, writer: Named) -> bool:
        return (
            isinstance(reader, Record)
            and isinstance(writer, Record)
            and all(self._field_compatible(each, reader, writer) for each in reader.fields)
        )

    def _field_compatible(self, field: Field, reader: Record, writer: Record) -> bool:
        matching = writer_fields(writer, field)
        if not matching:
            self._comparisons += 1
            return field.has_default
        if len(matching) > 1 or is_contested(reader, field, matching[0]):
            return False
        return self._compatible(field.type, matching[0].type)


def _candidates(reader: Union, writer: AvroType) -> Iterator[AvroType]:
    """The branches that may take the writer's type; unions of thousands of records are found."""
    if isinstance(writer, Named):
        yield from reader.index.get(writer.name.short, ())
        yield from reader.index.get(f"alias {writer.name.full}", ())
        return
    for kind in (writer.kind, *_PROMOTED_TO.get(writer.kind, ())):
        yield from reader.index.get(f"type {kind}", ())


def same_name(reader: Named, writer: Named) -> bool:
    """Namespaces do not count, unless an alias of the reader has one."""
    if reader.name.short == writer.name.short:
        return True
    return any(alias.full == writer.name.full for alias in reader.aliases)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a breakage is: a path for programs, and the words for it."""

    path: str
    words: str

    def down(self, step: str, words: str = "") -> "_Place":
        return _Place(f"{self.path}/{step}", words or self.words)

    def broken(self, kind: str, reason: str) -> Incompatibility:
        return Incompatibility(kind, self.path or "/", f"{self.words}: {reason}")


_ROOT: Final = _Place("", "The schema")


@dataclass(frozen=True, slots=True)
class _Inside:
    """A pair of named types that the report goes on with."""

    reader: Named
    writer: Named
    place: _Place


_Found = Iterator[Incompatibility | _Inside]


class _Breakages:
    """Tells what breaks, each pair of named types once."""

    def __init__(self, verdicts: _Verdicts, *, explain: bool) -> None:
        self._verdicts = verdicts
        # Whether a union that lacks a branch says why the nearest one does not do.
        self._explain = explain
        # The pairs being told of, each within the one before.
        self._open: list[tuple[Named, Named]] = []

    def found(
        self, reader: AvroType, writer: AvroType, place: _Place, limit: int
    ) -> list[Incompatibility]:
        found: dict[Incompatibility, None] = {}
        visited: set[tuple[Named, Named]] = set()
        stack = [self._types(reader, writer, place)]
        while stack and len(found) < limit:
            step = next(stack[-1], None)
            if step is None:
                stack.pop()
                del self._open[len(stack) - 1 :]
            elif isinstance(step, Incompatibility):
                found[step] = None
            elif (step.reader, step.writer) not in visited and self._goes_on(len(stack)):
                visited.add((step.reader, step.writer))
                self._open.append((step.reader, step.writer))
                stack.append(self._named(step.reader, step.writer, step.place))
        return list(found)

    def _goes_on(self, depth: int) -> bool:
        return self._explain or depth <= _MAX_EXPLAINED

    def _types(self, reader: AvroType, writer: AvroType, place: _Place) -> _Found:
        if isinstance(writer, Union):
            yield from self._writer_union(reader, writer, place)
        elif isinstance(reader, Union):
            yield from self._reader_union(reader, writer, place)
        elif reader.kind != writer.kind:
            if writer.kind not in PROMOTIONS.get(reader.kind, ()):
                yield place.broken("TYPE_MISMATCH", _mismatch(reader, writer))
        else:
            match reader, writer:
                case Named(), Named():
                    yield _Inside(reader, writer, place)
                case Array(), Array():
                    yield from self._types(reader.items, writer.items, place.down("items"))
                case Map(), Map():
                    yield from self._types(reader.values, writer.values, place.down("values"))

    def _writer_union(self, reader: AvroType, writer: Union, place: _Place) -> _Found:
        for index, branch in enumerate(writer.branches):
            where = place.down(str(index))
            if isinstance(reader, Union):
                yield from self._reader_union(reader, branch, where)
            else:
                yield from self._types(reader, branch, where)

    def _reader_union(self, reader: Union, writer: AvroType, place: _Place) -> _Found:
        if self._verdicts.readable(reader, writer):
            return
        nearest = _nearest(reader, writer)
        if (nearest, writer) in self._open:
            # The pair within itself: what breaks it is being told.
            return
        reason = f"no branch of the reader's union {_listed(reader)} takes the writer's "
        why = ""
        if nearest is not None and self._explain:
            inner = _Breakages(self._verdicts, explain=False)
            why = "".join(
                f"; in {nearest.label}, at {each.path}: {each.message}"
                for each in inner.found(nearest, writer, _ROOT, 1)
            )
        yield place.broken("MISSING_UNION_BRANCH", reason + writer.label + why)

    def _named(self, reader: Named, writer: Named, place: _Place) -> _Found:
        if not same_name(reader, writer):
            yield place.down("name").broken(
                "NAME_MISMATCH",
                f"the writer's {writer.label} is {reader.label} to the reader, which has no "
                f"alias {writer.name.full}",
            )
        match reader, writer:
            case Fixed(), Fixed():
                if reader.size != writer.size:
                    yield place.down("size").broken(
                        "FIXED_SIZE_MISMATCH",
                        f"{reader.label} has {reader.size} bytes, but the writer wrote "
                        f"{writer.size}",
                    )
            case Enum(), Enum():
                yield from _symbols(reader, writer, place)
            case Record(), Record():
                for index, field in enumerate(reader.fields):
                    words = f"The field '{field.name}' of {reader.label}"
                    where = place.down("fields").down(str(index), words)
                    yield from self._field(field, (reader, writer), where)

    def _field(self, field: Field, records: tuple[Record, Record], place: _Place) -> _Found:
        reader, writer = records
        matching = writer_fields(writer, field)
        if len(matching) == 1:
            if is_contested(reader, field, matching[0]):
                names = ", ".join(reader.claims[matching[0].name])
                yield place.broken(
                    "READER_FIELD_AMBIGUOUS",
                    f"it has no default value, and the writer's field {matching[0].name} is more "
                    f"than one of the reader's by name and aliases: {names}",
                )
            yield from self._types(field.type, matching[0].type, place.down("type"))
        elif matching:
            names = ", ".join(each.name for each in matching)
            yield place.broken(
                "READER_FIELD_AMBIGUOUS",
                f"by its name and its aliases it is more than one of the writer's fields: {names}",
            )
        elif not field.has_default:
            reason = "it has no default value, and the writer's schema has no such field"
            if isinstance(field.type, Enum) and field.type.default is not None:
                # Apache Avro compares the enum with the whole record here, and says so.
                reason += "; the default of its enum stands for unknown symbols only"
                yield place.down("type").broken("TYPE_MISMATCH", reason)
            else:
                yield place.broken("READER_FIELD_MISSING_DEFAULT_VALUE", reason)


def _symbols(reader: Enum, writer: Enum, place: _Place) -> Iterator[Incompatibility]:
    missing = sorted(writer.symbol_set - reader.symbol_set)
    if missing and reader.default is None:
        more = f" and {len(missing) - _MAX_LISTED} more" if len(missing) > _MAX_LISTED else ""
        yield place.down("symbols").broken(
            "MISSING_ENUM_SYMBOLS",
            f"{reader.label} has no default and lacks symbols that the writer may have written: "
            f"[{', '.join(missing[:_MAX_LISTED])}]{more}",
        )


def _mismatch(reader: AvroType, writer: AvroType) -> str:
    taken = sorted(PROMOTIONS.get(reader.kind, ()))
    besides = f"; besides itself it takes {' and '.join(taken)} only" if taken else ""
    return f"what was written as {writer.label} cannot be read as {reader.label}{besides}"


def _nearest(reader: Union, writer: AvroType) -> AvroType | None:
    """The branch that the writer's type was meant for: the one of its kind, by name if it has."""
    for candidate in _candidates(reader, writer):
        if candidate.kind == writer.kind:
            return candidate
    return next((each for each in reader.branches if each.kind == writer.kind), None)


def _listed(union: Union) -> str:
    labels = [each.label for each in union.branches]
    more = f", and {len(labels) - _MAX_LISTED} more" if len(labels) > _MAX_LISTED else ""
    return f"[{', '.join(labels[:_MAX_LISTED])}{more}]"
