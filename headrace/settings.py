"""Settings as tables: one row per setting, read from strings, checked, described as Kafka does."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Any, TypeVar, dataclass_transform

from headrace.errors import SettingError

S = TypeVar("S")
Check = Callable[[Any], str | None]

SAME_AS_TOPIC = object()

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
# What Double.MAX_VALUE is to Kafka's defaults.
DOUBLE_MAX = 1.7976931348623157e308


class Kind(IntEnum):
    """Kafka's types of configuration, with their numbers in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Source(IntEnum):
    """Where a value comes from, with Kafka's numbers in DescribeConfigs."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    GROUP_CONFIG = 8


class Importance(Enum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Dynamic(Enum):
    """Whether a running broker takes a new value, and for whom (Kafka's update modes)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


@dataclass(frozen=True, slots=True)
class Row:
    """One setting: all that a parser, a document or DescribeConfigs needs to know of it."""

    name: str
    kind: Kind
    default: Any
    doc: str
    importance: Importance = Importance.MEDIUM
    check: Check | None = None
    dynamic: Dynamic = Dynamic.READ_ONLY
    synonyms: tuple["Synonym", ...] = ()
    attribute: str = ""
    inert: bool = False
    # Taken but not described, as Kafka's internal configurations are.
    internal: bool = False

    def parse(self, text: str) -> Any:
        """The value that the text stands for, checked; raises SettingError."""
        try:
            value = PARSERS[self.kind](text.strip())
        except ValueError as error:
            raise SettingError(self.name, f"invalid value {text!r}: {error}") from None
        self.verify(value)
        return value

    def verify(self, value: Any) -> None:
        reason = self.check(value) if self.check is not None else None
        if reason is not None:
            raise SettingError(self.name, f"invalid value {show(value)!r}: {reason}")

    @property
    def sensitive(self) -> bool:
        return self.kind is Kind.PASSWORD


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker-level name whose value, times a factor, is a topic setting's default."""

    name: str
    kind: Kind | None = None
    default: Any = SAME_AS_TOPIC
    factor: int = 1
    importance: Importance = Importance.MEDIUM
    dynamic: Dynamic = Dynamic.CLUSTER_WIDE
    check: Check | None = None

    def row(self, topic: Row) -> Row:
        """The broker's own row of this name."""
        return Row(
            name=self.name,
            kind=self.kind or topic.kind,
            default=topic.default if self.default is SAME_AS_TOPIC else self.default,
            doc=f"What topics take as {topic.name} unless they say otherwise: {topic.doc}",
            importance=self.importance,
            check=self.check or (topic.check if self.factor == 1 else None),
            dynamic=self.dynamic,
        )


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError("must be true or false")
    return lowered == "true"


def _integer(bits: int) -> Callable[[str], int]:
    limit = 1 << (bits - 1)

    def parse(text: str) -> int:
        # Python would also take 1_000 and other alphabets' digits; Java and its tools do not.
        digits = text[1:] if text[:1] in "+-" else text
        if not (digits.isascii() and digits.isdigit()):
            raise ValueError("must be a whole number")
        value = int(text)
        if not -limit <= value < limit:
            raise ValueError(f"must fit in {bits} bits")
        return value

    return parse


def _double(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("must be a number") from None
    if "_" in text or value != value:
        raise ValueError("must be a number")
    return value


def _list(text: str) -> tuple[str, ...]:
    # Kafka, too, takes a word that is said twice as said once.
    return tuple(dict.fromkeys(part.strip() for part in text.split(","))) if text else ()


PARSERS: Mapping[Kind, Callable[[str], Any]] = MappingProxyType(
    {
        Kind.BOOLEAN: _boolean,
        Kind.STRING: str,
        Kind.INT: _integer(32),
        Kind.SHORT: _integer(16),
        Kind.LONG: _integer(64),
        Kind.DOUBLE: _double,
        Kind.LIST: _list,
        Kind.CLASS: str,
        Kind.PASSWORD: str,
    }
)


def show(value: Any) -> str:
    """A value as Kafka prints it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return "1.7976931348623157E308" if value == DOUBLE_MAX else repr(value)
    return str(value)


def at_least(low: float) -> Check:
    def check(value: Any) -> str | None:
        return None if value is None or value >= low else f"must be at least {low}"

    return check


def between(low: float, high: float, *, besides: float | None = None) -> Check:
    """Within two bounds, both allowed; `besides` is one more value that is."""

    def check(value: Any) -> str | None:
        if value is None or value == besides or low <= value <= high:
            return None
        return f"must be from {low} to {high}" + ("" if besides is None else f", or {besides}")

    return check


def one_of(*allowed: str) -> Check:
    def check(value: Any) -> str | None:
        return None if value in allowed else f"must be one of {', '.join(allowed)}"

    return check


def list_of(*allowed: str, empty: bool = False) -> Check:
    """A list of these words; of any words when none is named."""

    def check(value: Any) -> str | None:
        if not value:
            return None if empty or value is None else "must not be empty"
        if "" in value:
            return "must not have an empty part"
        if allowed and not set(value) <= set(allowed):
            return f"must be of {', '.join(allowed)}"
        return None

    return check


KINDS = {bool: Kind.BOOLEAN, str: Kind.STRING, int: Kind.LONG, float: Kind.DOUBLE, tuple: Kind.LIST}


def setting(
    *,
    name: str,
    default: Any,
    doc: str,
    kind: Kind | None = None,
    **facts: Any,
) -> Any:
    """A field of a settings class; `facts` are Row's other fields."""
    row = Row(name=name, kind=kind or KINDS[type(default)], default=default, doc=doc, **facts)
    return field(default=default, metadata={"row": row})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(setting, field))
def settings(cls: type[S]) -> type[S]:
    """Makes a frozen dataclass whose fields made by setting() are rows."""
    made: type[S] = dataclass(frozen=True, kw_only=True)(cls)
    return made


def rows(cls: type[Any]) -> tuple[Row, ...]:
    """Every row of a settings class, those without an attribute (inert, derived) last."""
    return tuple(_own_rows(cls)) + tuple(getattr(cls, "EXTRA_ROWS", ()))


def _own_rows(cls: type[Any]) -> Iterator[Row]:
    for item in fields(cls):
        row = item.metadata.get("row")
        if row is not None:
            yield _named(row, item.name)


def _named(row: Row, attribute: str) -> Row:
    if not row.attribute:
        # The one time a row learns its attribute: setting() runs before the class knows names.
        object.__setattr__(row, "attribute", attribute)
    return row


def by_name(cls: type[Any]) -> Mapping[str, Row]:
    """The rows of a settings class by name, made once per class."""
    found = _BY_NAME.get(cls)
    if found is None:
        found = _BY_NAME[cls] = MappingProxyType({row.name: row for row in rows(cls)})
    return found


_BY_NAME: dict[type[Any], Mapping[str, Row]] = {}


def find(cls: type[Any], name: str) -> Row:
    """The row of a name; SettingError, with the nearest known name, if there is none."""
    table = by_name(cls)
    row = table.get(name)
    if row is not None:
        return row
    prefixes: Mapping[str, Row] = getattr(cls, "PREFIX_ROWS", {})
    for prefix, open_row in prefixes.items():
        if name.startswith(prefix):
            return replace(open_row, name=name)
    near = get_close_matches(name, list(table), n=1)
    raise SettingError(name, "unknown name" + (f"; did you mean {near[0]}?" if near else ""))


def parse(cls: type[Any], mapping: Mapping[str, str]) -> dict[str, Any]:
    """Values by attribute from texts by name; an unknown name or a bad value is a SettingError."""
    values: dict[str, Any] = {}
    for name, text in mapping.items():
        row = find(cls, name)
        value = row.parse(text)
        if row.attribute:
            values[row.attribute] = value
    return values


def load(cls: type[S], mapping: Mapping[str, str]) -> S:
    """An instance from texts by name; it keeps them as `stated`, if it has such a field."""
    values = parse(cls, mapping)
    if "stated" in cls.__dataclass_fields__:  # type: ignore[attr-defined]
        values["stated"] = MappingProxyType(dict(mapping))
    return cls(**values)


@dataclass(frozen=True, slots=True)
class Layers:
    """What was said about a broker's settings, strongest first; texts by name."""

    dynamic_broker: Mapping[str, str] = field(default_factory=dict)
    dynamic_default: Mapping[str, str] = field(default_factory=dict)
    static: Mapping[str, str] = field(default_factory=dict)

    def merged(self) -> dict[str, str]:
        """One text per name: what a broker with these layers goes by."""
        return {**self.static, **self.dynamic_default, **self.dynamic_broker}

    def stated(self, names: Iterable[str]) -> Iterator[tuple[str, str, Source]]:
        """Every layer's say about these names, in Kafka's order."""
        names = tuple(names)
        for texts, source in (
            (self.dynamic_broker, Source.DYNAMIC_BROKER_CONFIG),
            (self.dynamic_default, Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.static, Source.STATIC_BROKER_CONFIG),
        ):
            for name in names:
                if name in texts:
                    yield name, texts[name], source


@dataclass(frozen=True, slots=True)
class DescribedSynonym:
    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class Described:
    """One setting as DescribeConfigs answers it."""

    name: str
    value: str | None
    kind: Kind
    source: Source
    read_only: bool
    sensitive: bool
    synonyms: tuple[DescribedSynonym, ...]
    doc: str

    @property
    def is_default(self) -> bool:
        return self.source is Source.DEFAULT_CONFIG


def describe(
    row: Row, value: Any, synonyms: Iterable[tuple[str, str | None, Source]], *, read_only: bool
) -> Described:
    """A row with its value and everything said about it; the first synonym is the one in force."""
    said = tuple(
        DescribedSynonym(name, None if row.sensitive else text, source)
        for name, text, source in synonyms
    )
    return Described(
        name=row.name,
        value=None if row.sensitive or value is None else show(value),
        kind=row.kind,
        source=said[0].source if said else Source.DEFAULT_CONFIG,
        read_only=read_only,
        sensitive=row.sensitive,
        synonyms=said,
        doc=row.doc,
    )
