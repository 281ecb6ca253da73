"""Avro's types as values: what a parsed schema is made of."""

from dataclasses import dataclass, field
from typing import Any, Final

PRIMITIVES: Final = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
)
COMPLEX: Final = frozenset(("record", "enum", "array", "map", "union", "fixed"))
# A field's default when it has none: null is a default like any other.
NO_DEFAULT: Final = object()


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a record, enum or fixed, in its namespace."""

    short: str
    space: str | None
    full: str

    @classmethod
    def of(cls, text: str, space: str | None) -> "Name":
        """A name with a dot brings its own namespace; the empty namespace is none."""
        own, dot, short = text.rpartition(".")
        space = (own if dot else space) or None
        return cls(short, space, short if space is None else f"{space}.{short}")

    def within(self, space: str | None) -> str:
        """As it is written where `space` is the namespace."""
        if self.space is None or self.space != space:
            return self.full
        return self.full if self.short in PRIMITIVES or self.short in COMPLEX else self.short


@dataclass(slots=True, eq=False)
class AvroType:
    """A type; `props` are the attributes Avro keeps but gives no meaning."""

    kind: str
    props: dict[str, Any]

    @property
    def label(self) -> str:
        """As a sentence names it."""
        return self.kind


@dataclass(slots=True, eq=False)
class Array(AvroType):
    items: AvroType


@dataclass(slots=True, eq=False)
class Map(AvroType):
    values: AvroType


@dataclass(slots=True, eq=False)
class Union(AvroType):
    branches: list[AvroType]
    # The branches by short name, by "alias" and the full name it stands for, and, of those
    # without a name, by "type" and the kind.
    index: dict[str, list[AvroType]] = field(default_factory=dict)

    def settle(self, branches: list[AvroType]) -> None:
        """Once all names are known."""
        self.branches = branches
        for branch in branches:
            keys = [f"type {branch.kind}"]
            if isinstance(branch, Named):
                keys = [branch.name.short, *(f"alias {each.full}" for each in branch.aliases)]
            for key in keys:
                self.index.setdefault(key, []).append(branch)

    @property
    def label(self) -> str:
        return f"[{', '.join(each.label for each in self.branches)}]"


@dataclass(slots=True, eq=False)
class Named(AvroType):
    """A type that others may refer to by its name."""

    name: Name
    doc: str | None
    aliases: tuple[Name, ...]

    @property
    def label(self) -> str:
        return f"{self.kind} {self.name.full}"


@dataclass(slots=True, eq=False)
class Field:
    name: str
    type: AvroType
    doc: str | None
    default: Any
    order: str
    aliases: tuple[str, ...]
    props: dict[str, Any]

    @property
    def has_default(self) -> bool:
        return self.default is not NO_DEFAULT


@dataclass(slots=True, eq=False)
class Record(Named):
    """Its fields are set once they are parsed, since they may refer to the record itself."""

    is_error: bool
    fields: list[Field] = field(default_factory=list)
    by_name: dict[str, Field] = field(default_factory=dict)
    # A name, or an alias, and the fields that have it.
    claims: dict[str, list[str]] = field(default_factory=dict)

    def add(self, added: Field) -> None:
        self.fields.append(added)
        self.by_name[added.name] = added
        for name in dict.fromkeys((added.name, *added.aliases)):
            self.claims.setdefault(name, []).append(added.name)


@dataclass(slots=True, eq=False)
class Enum(Named):
    symbols: tuple[str, ...]
    default: str | None
    symbol_set: frozenset[str]


@dataclass(slots=True, eq=False)
class Fixed(Named):
    size: int


@dataclass(slots=True, eq=False)
class Unresolved(AvroType):
    """A name whose definition comes later in the text; none is left in a parsed schema."""

    full: str
    where: str
