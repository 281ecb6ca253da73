"""Whether the defaults of fields are values of their types, and end."""

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from headrace.registry.language import InvalidSchema
from headrace.registry.languages.avro_json import write_json
from headrace.registry.languages.avro_types import Array, AvroType, Field, Map, Record, Union

_INT: Final = range(-(2**31), 2**31)
_LONG: Final = range(-(2**63), 2**63)
# More of a default than this is not repeated in a message.
_MAX_QUOTED: Final = 100
_NOTHING: Final[frozenset[int]] = frozenset()


# The fields whose own defaults complete a value; None if it is no value of the type.
Completed = frozenset[int] | None


def require_valid_defaults(records: Iterable[Record]) -> None:
    """Raises InvalidSchema for the first field whose default is none."""
    relied: dict[int, frozenset[int]] = {}
    names: dict[int, str] = {}
    for record in records:
        for field in record.fields:
            if not field.has_default:
                continue
            names[id(field)] = f"{record.name.full}.{field.name}"
            completed = _Check().completed(field.type, field.default)
            if completed is None:
                value, label = write_json(field.default), field.type.label
                raise InvalidSchema(
                    f"the default {value[:_MAX_QUOTED]} of field {field.name!r} in record "
                    f"{record.name.full} is no {label[:_MAX_QUOTED]}"
                )
            relied[id(field)] = completed
    try:
        TopologicalSorter(relied).prepare()
    except CycleError as error:
        circle = ", ".join(names.get(each, "?") for each in error.args[1])
        raise InvalidSchema(f"a default contains itself without end: {circle}") from None


def is_valid_default(type_: AvroType, value: Any) -> bool:
    return _Check().completed(type_, value) is not None


class _Check:
    """One default against one type.

    It remembers what it saw: unions of records that hold such unions would else be tried in
    more ways than there is time for.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], Completed] = {}

    def completed(self, type_: AvroType, value: Any) -> Completed:
        if not isinstance(type_, Union | Array | Map | Record):
            return _NOTHING if _is_valid_scalar(type_.kind, value) else None
        key = (id(type_), id(value))
        if key not in self._seen:
            self._seen[key] = self._complex(type_, value)
        return self._seen[key]

    def _complex(self, type_: Union | Array | Map | Record, value: Any) -> Completed:
        match type_:
            case Union():
                tried = (self.completed(each, value) for each in type_.branches)
                return next((each for each in tried if each is not None), None)
            case Array():
                if not isinstance(value, list):
                    return None
                return _merged(self.completed(type_.items, each) for each in value)
        if not isinstance(value, dict):
            return None
        if isinstance(type_, Map):
            return _merged(self.completed(type_.values, each) for each in value.values())
        return _merged(self._field(each, value) for each in type_.fields)

    def _field(self, field: Field, value: dict[str, Any]) -> Completed:
        if field.name in value:
            return self.completed(field.type, value[field.name])
        # Its own default is checked where it stands.
        return frozenset((id(field),)) if field.has_default else None


def _merged(parts: Iterable[Completed]) -> Completed:
    merged: set[int] = set()
    for part in parts:
        if part is None:
            return None
        merged |= part
    return frozenset(merged)


def _is_valid_scalar(kind: str, value: Any) -> bool:
    match kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int":
            return type(value) is int and value in _INT
        case "long":
            return type(value) is int and value in _LONG
        case "float" | "double":
            return type(value) in (int, float)
    # Of strings, bytes, enums and fixed, Avro asks no more.
    return isinstance(value, str)
