"""The schemas of every API: what each version holds, and what all versions hold together.

Each file in ``schemas/`` is one API, written from kio's classes by tests/protocol/kio_schemas.py
and held to them by a test. kio itself is not imported here: its classes take some 40 ms an API to
load, on the loop, when a client first asks for it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from headrace.protocol.primitives import ZERO_UUID

SCHEMAS: Final = Path(__file__).with_name("schemas")

# Types of fixed width, as struct's characters. Times and error codes are plain integers.
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
_IMPLICIT_DEFAULTS: Mapping[str, Any] = {
    **dict.fromkeys(FIXED, 0),
    "bool": False,
    "uuid": ZERO_UUID,
    "string": "",
    "bytes": b"",
    "records": None,
}


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
    struct: "Struct | None"
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: Any


class Struct(NamedTuple):
    """A struct in one version, with its fields in the order of the wire."""

    name: str
    rows: tuple[Row, ...]
    is_flexible: bool


class Shape(NamedTuple):
    """A struct over all its versions: every name with its default, and the shapes below it."""

    defaults: Mapping[str, Any]
    nullable: frozenset[str]
    nested: Mapping[str, "Shape"]


def file_name(api_key: int, api_name: str) -> str:
    return f"{api_key:02}_{api_name}.json"


def versions(api_key: int) -> range:
    """The versions that are known; an unknown API raises KeyError."""
    known = _structs(api_key, request=True)
    return range(min(known), max(known) + 1)


def struct_of(api_key: int, version: int, *, request: bool) -> Struct:
    return _structs(api_key, request=request)[version]


@cache
def shape_of(api_key: int, *, request: bool) -> Shape:
    known = _structs(api_key, request=request)
    return _shape(known[version] for version in sorted(known, reverse=True))


def _shape(newest_first: Iterable[Struct]) -> Shape:
    defaults: dict[str, Any] = {}
    nullable: set[str] = set()
    below: dict[str, list[Struct]] = {}
    for struct in newest_first:
        for row in struct.rows:
            defaults.setdefault(row.name, row.default)
            if row.is_nullable:
                nullable.add(row.name)
            if row.struct is not None:
                below.setdefault(row.name, []).append(row.struct)
    nested = {name: _shape(structs) for name, structs in below.items()}
    return Shape(defaults, frozenset(nullable), nested)


def runs(rows: tuple[Row, ...]) -> Iterator[tuple[bool, list[Row]]]:
    """The untagged fields in order, neighbours of fixed width together."""
    for fixed, run in groupby(
        (row for row in rows if row.tag is None),
        lambda row: row.kafka_type in FIXED and not row.is_array,
    ):
        yield fixed, list(run)


@cache
def _files() -> Mapping[int, Path]:
    return {int(path.name.split("_", 1)[0]): path for path in SCHEMAS.glob("*.json")}


@cache
def _structs(api_key: int, *, request: bool) -> Mapping[int, Struct]:
    schema = json.loads(_files()[api_key].read_text())
    structs: dict[int, Struct] = {}
    for group in schema["request" if request else "response"]:
        first, last = group["versions"]
        struct = _struct(group["name"], group["fields"], is_flexible=group["flexible"])
        structs.update(dict.fromkeys(range(first, last + 1), struct))
    return structs


def _struct(name: str, fields: Sequence[Mapping[str, Any]], *, is_flexible: bool) -> Struct:
    return Struct(name, tuple(_row(field, is_flexible) for field in fields), is_flexible)


def _row(field: Mapping[str, Any], is_flexible: bool) -> Row:
    struct = None
    if "fields" in field:
        struct = _struct(field["type"], field["fields"], is_flexible=is_flexible)
    is_array = field.get("array", False)
    return Row(
        field["name"],
        "struct" if struct is not None else field["type"],
        struct,
        is_array,
        field.get("nullable", False),
        field.get("tag"),
        field["default"] if "default" in field else _implicit_default(field, struct, is_array),
    )


def _implicit_default(field: Mapping[str, Any], struct: Struct | None, is_array: bool) -> Any:
    if is_array:
        return ()
    if struct is not None:
        return Message(**{row.name: row.default for row in struct.rows})
    return _IMPLICIT_DEFAULTS[field["type"]]
