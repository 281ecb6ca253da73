"""kio's message classes as plain rows: what each version holds, and all versions together."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from itertools import groupby
from types import NoneType, UnionType
from typing import Any, NamedTuple, cast, get_args, get_origin

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map

from headrace.protocol.primitives import ZERO_UUID

_MILLISECOND = timedelta(milliseconds=1)

# kio's types of fixed width, as struct's characters. Times and error codes are plain integers here.
FIXED: Mapping[str, str] = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
_TIMES = frozenset(("timedelta_i32", "timedelta_i64", "datetime_i64"))


class Message:
    """A request, a response or a struct within: attributes, equal when they are equal."""

    __slots__ = ("__dict__",)

    def __init__(self, **fields: Any) -> None:
        self.__dict__ = fields

    # Attributes come from schemas, so to the type checker each one is Any.
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the message has no field {name}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Message({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


class Row(NamedTuple):
    """One field of one version of a struct."""

    name: str
    kafka_type: str
    entity: Any
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: Any


class Struct(NamedTuple):
    """A struct in one version, with its fields in the order of the wire."""

    rows: tuple[Row, ...]
    is_flexible: bool


class Shape(NamedTuple):
    """A struct over all its versions: every name with its default, and the shapes below it."""

    defaults: Mapping[str, Any]
    nullable: frozenset[str]
    nested: Mapping[str, "Shape"]


def versions(api_key: int) -> range:
    """The versions kio knows; an unknown API raises KeyError."""
    known = sorted(schema_name_map[api_key_map[api_key]])
    return range(known[0], known[-1] + 1)


@cache
def entity(api_key: int, version: int, *, request: bool) -> type:
    load: Any = load_request_schema if request else load_response_schema
    loaded: type = load(api_key, version)
    return loaded


@cache
def struct_of(entity: Any) -> Struct:
    return Struct(tuple(map(_row, fields(entity))), entity.__flexible__)


@cache
def shape_of(api_key: int, *, request: bool) -> Shape:
    newest_first = reversed(versions(api_key))
    return _shape(entity(api_key, version, request=request) for version in newest_first)


def _shape(entities: Iterable[type]) -> Shape:
    defaults: dict[str, Any] = {}
    nullable: set[str] = set()
    below: dict[str, list[type]] = {}
    for newest_first in entities:
        for row in struct_of(newest_first).rows:
            defaults.setdefault(row.name, row.default)
            if row.is_nullable:
                nullable.add(row.name)
            if row.entity is not None:
                below.setdefault(row.name, []).append(row.entity)
    nested = {name: _shape(types) for name, types in below.items()}
    return Shape(defaults, frozenset(nullable), nested)


def runs(rows: tuple[Row, ...]) -> Iterator[tuple[bool, list[Row]]]:
    """The untagged fields in order, neighbours of fixed width together."""
    for fixed, run in groupby(
        (row for row in rows if row.tag is None),
        lambda row: row.kafka_type in FIXED and not row.is_array,
    ):
        yield fixed, list(run)


def _row(field: "Field[Any]") -> Row:
    inner, is_array, is_nullable = _unwrap(field.type)
    nested = inner if is_dataclass(inner) else None
    kafka_type = "struct" if nested is not None else field.metadata["kafka_type"]
    name = field.name
    if kafka_type in _TIMES and not name.endswith("_ms"):
        name += "_ms"
    if kafka_type == "uuid" or kafka_type in FIXED:
        is_nullable = is_nullable and is_array
    default = _default(field, kafka_type, is_array=is_array, entity=nested)
    return Row(name, kafka_type, nested, is_array, is_nullable, field.metadata.get("tag"), default)


def _unwrap(annotation: Any) -> tuple[Any, bool, bool]:
    is_nullable = False
    if get_origin(annotation) is UnionType:
        is_nullable = NoneType in get_args(annotation)
        (annotation,) = (arg for arg in get_args(annotation) if arg is not NoneType)
    if get_origin(annotation) is not tuple:
        return annotation, False, is_nullable
    # Of an array only the whole may be null; kio marks the uuids in it, which are zero instead.
    return _unwrap(get_args(annotation)[0])[0], True, is_nullable


def _default(field: "Field[Any]", kafka_type: str, *, is_array: bool, entity: Any) -> Any:
    if field.default is not MISSING:
        return plain(field.default, kafka_type, is_array=is_array)
    if is_array:
        return ()
    if entity is not None:
        return Message(**{row.name: row.default for row in struct_of(entity).rows})
    if kafka_type == "bool":
        return False
    if kafka_type in FIXED:
        return 0
    return {"uuid": ZERO_UUID, "string": "", "bytes": b"", "records": None}[kafka_type]


def plain(value: Any, kafka_type: str, *, is_array: bool = False) -> Any:
    """kio's value as Headrace's: integers for times and codes, messages for structs."""
    if value is None and is_array:
        return None
    if value is None:
        # Kafka writes an absent time as -1, and an absent uuid as zeros.
        return {"uuid": ZERO_UUID, "datetime_i64": -1}.get(kafka_type)
    if isinstance(value, tuple):
        return tuple(plain(item, kafka_type) for item in value)
    if isinstance(value, timedelta):
        return value // _MILLISECOND
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        rows = struct_of(cast(Any, type(value))).rows
        return Message(
            **{
                row.name: plain(getattr(value, field.name), row.kafka_type, is_array=row.is_array)
                for row, field in zip(rows, fields(value), strict=True)
            }
        )
    return value
