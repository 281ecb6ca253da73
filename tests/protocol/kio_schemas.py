"""What kio's classes say about each message, and the files in headrace/protocol/schemas made of it.

Run ``python -m tests.protocol.kio_schemas`` after a new kio to write the files anew.
"""

import json
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map

from headrace.protocol.primitives import ZERO_UUID
from headrace.protocol.schemas import FIXED, SCHEMAS, Message, file_name

_MILLISECOND = timedelta(milliseconds=1)
_TIMES = frozenset(("timedelta_i32", "timedelta_i64", "datetime_i64"))


class KioRow(NamedTuple):
    """One field of one of kio's classes, in our terms."""

    name: str
    kafka_type: str
    entity: Any
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: Any
    has_default: bool


def entity(api_key: int, version: int, *, request: bool) -> Any:
    load: Any = load_request_schema if request else load_response_schema
    return load(api_key, version)


@cache
def rows_of(entity: Any) -> tuple[KioRow, ...]:
    return tuple(map(_row, fields(entity)))


def _row(field: "Field[Any]") -> KioRow:
    inner, is_array, is_nullable = _unwrap(field.type)
    nested = inner if is_dataclass(inner) else None
    kafka_type = "struct" if nested is not None else field.metadata["kafka_type"]
    name = field.name
    if kafka_type in _TIMES and not name.endswith("_ms"):
        name += "_ms"
    if kafka_type == "uuid" or kafka_type in FIXED:
        is_nullable = is_nullable and is_array
    default = _default(field, kafka_type, is_array=is_array, entity=nested)
    tag = field.metadata.get("tag")
    has_default = default != _implicit_default(kafka_type, is_array=is_array, entity=nested)
    return KioRow(name, kafka_type, nested, is_array, is_nullable, tag, default, has_default)


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
    return _implicit_default(kafka_type, is_array=is_array, entity=entity)


def _implicit_default(kafka_type: str, *, is_array: bool, entity: Any) -> Any:
    if is_array:
        return ()
    if entity is not None:
        return Message(**{row.name: row.default for row in rows_of(entity)})
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
        kio_class: Any = type(value)
        rows = rows_of(kio_class)
        return Message(
            **{
                row.name: plain(getattr(value, field.name), row.kafka_type, is_array=row.is_array)
                for row, field in zip(rows, fields(value), strict=True)
            }
        )
    return value


def api_schema(api_key: int) -> dict[str, Any]:
    return {
        "key": api_key,
        "name": api_key_map[api_key],
        "request": list(_groups(api_key, request=True)),
        "response": list(_groups(api_key, request=False)),
    }


def _groups(api_key: int, *, request: bool) -> Iterator[dict[str, Any]]:
    """One group for neighbouring versions that hold the same."""
    group: dict[str, Any] = {}
    for version in sorted(schema_name_map[api_key_map[api_key]]):
        loaded = entity(api_key, version, request=request)
        same = {
            "name": loaded.__name__,
            "flexible": loaded.__flexible__,
            "fields": _fields(loaded),
        }
        if {key: group.get(key) for key in same} == same:
            group["versions"][1] = version
            continue
        if group:
            yield group
        group = {"versions": [version, version], **same}
    yield group


def _fields(loaded: Any) -> list[dict[str, Any]]:
    return [_field(row) for row in rows_of(loaded)]


def _field(row: KioRow) -> dict[str, Any]:
    field: dict[str, Any] = {"name": row.name, "type": row.kafka_type}
    if row.entity is not None:
        field["type"] = row.entity.__name__
    if row.is_array:
        field["array"] = True
    if row.is_nullable:
        field["nullable"] = True
    if row.tag is not None:
        field["tag"] = row.tag
    if row.has_default:
        field["default"] = row.default
    if row.entity is not None:
        field["fields"] = _fields(row.entity)
    return field


def schema_files() -> dict[str, str]:
    """Every file's name and text."""
    return {file_name(key, name): _text(api_schema(key)) for key, name in api_key_map.items()}


def _text(schema: dict[str, Any]) -> str:
    """JSON with a line for each field at the top of a message, so that a change can be read."""
    lines = [f'{{"key": {schema["key"]}, "name": "{schema["name"]}",']
    for kind, end in (("request", "],"), ("response", "]}")):
        lines.append(f' "{kind}": [')
        groups = schema[kind]
        for group in groups:
            head = json.dumps({key: group[key] for key in ("versions", "name", "flexible")})
            lines.append(f'  {head[:-1]}, "fields": [')
            lines.append(",\n".join(f"   {json.dumps(field)}" for field in group["fields"]))
            lines.append("  ]}" if group is groups[-1] else "  ]},")
        lines.append(f" {end}")
    return "\n".join(line for line in lines if line) + "\n"


def write_schema_files() -> None:
    SCHEMAS.mkdir(exist_ok=True)
    for name, text in schema_files().items():
        (SCHEMAS / name).write_text(text)


if __name__ == "__main__":
    write_schema_files()
