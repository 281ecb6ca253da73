"""Avro types written as JSON: as Apache Avro for Java writes them, and in normal form."""

import math
from typing import Any, Final

from headrace.registry.language import InvalidSchema
from headrace.registry.languages.avro_defaults import is_valid_default
from headrace.registry.languages.avro_json import require_shallow, write_json
from headrace.registry.languages.avro_parser import MAX_TYPE_DEPTH
from headrace.registry.languages.avro_types import (
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Name,
    Named,
    Record,
    Union,
)

_LOGICAL_KINDS: Final = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "timestamp-nanos": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "local-timestamp-nanos": "long",
    "big-decimal": "bytes",
}
_UUID_BYTES: Final = 16


def canonical(root: AvroType, known: set[str], *, normal: bool = False) -> str:
    """The schema's text, with the types of the `known` names only named; raises InvalidSchema."""
    text = write_json(_Writer(set(known), normal=normal).type(root, None, 0))
    require_shallow(text)
    return text


class _Writer:
    """Defines each name where it is first met, and names it from then on."""

    def __init__(self, known: set[str], *, normal: bool) -> None:
        self._known = known
        self._normal = normal

    def type(self, type_: AvroType, space: str | None, depth: int) -> Any:
        if depth > MAX_TYPE_DEPTH:
            raise InvalidSchema(f"written out, types are nested more than {MAX_TYPE_DEPTH} deep")
        match type_:
            case Named():
                return self._named(type_, space, depth)
            case Union():
                return [self.type(each, space, depth + 1) for each in type_.branches]
            case Array():
                inner = {"items": self.type(type_.items, space, depth + 1)}
            case Map():
                inner = {"values": self.type(type_.values, space, depth + 1)}
            case _:
                if not type_.props:
                    return type_.kind
                inner = {}
        return {"type": type_.kind, **inner, **self._props(type_)}

    def _named(self, named: Named, space: str | None, depth: int) -> Any:
        name = named.name
        if name.full in self._known:
            return name.within(space)
        self._known.add(name.full)
        is_error = isinstance(named, Record) and named.is_error and not self._normal
        written: dict[str, Any] = {"type": "error" if is_error else named.kind, "name": name.short}
        if name.space != space:
            written["namespace"] = name.space or ""
        if named.doc or (named.doc is not None and not self._normal):
            written["doc"] = named.doc
        match named:
            case Record():
                written["fields"] = [self._field(each, name.space, depth) for each in named.fields]
            case Enum():
                written["symbols"] = list(named.symbols)
                if named.default is not None:
                    written["default"] = named.default
            case Fixed():
                written["size"] = named.size
        written |= self._props(named)
        if named.aliases:
            written["aliases"] = self._aliases(named)
        return written

    def _field(self, field: Field, space: str | None, depth: int) -> dict[str, Any]:
        written = {"name": field.name, "type": self.type(field.type, space, depth + 1)}
        if field.doc is not None:
            written["doc"] = field.doc
        if field.has_default:
            written["default"] = (
                _sorted(_normal_default(field.type, field.default))
                if self._normal
                else field.default
            )
        if field.order != "ascending":
            written["order"] = field.order
        if field.aliases:
            written["aliases"] = sorted(field.aliases) if self._normal else list(field.aliases)
        return written | (_sorted(field.props) if self._normal else field.props)

    def _aliases(self, named: Named) -> list[str]:
        aliases = list(named.aliases)
        if self._normal:
            aliases.sort(key=lambda alias: _alias_key(alias, named.name.space))
        return [_alias(each, named.name.space) for each in aliases]

    def _props(self, type_: AvroType) -> dict[str, Any]:
        if not self._normal:
            return type_.props
        props: dict[str, Any] = _sorted(type_.props)
        first = {key: props[key] for key in _logical_props(type_)}
        return first | props


def _alias_key(alias: Name, space: str | None) -> str:
    return f".{alias.short}" if alias.space is None and space is not None else alias.full


def _alias(alias: Name, space: str | None) -> str:
    # Java writes an alias without a namespace in a way that it reads back as one within the
    # namespace; the dot keeps what was meant.
    return f".{alias.short}" if alias.space is None and space is not None else alias.within(space)


def _logical_props(type_: AvroType) -> tuple[str, ...]:
    """What the normal form writes first: the attributes of a logical type that is one."""
    logical = type_.props.get("logicalType")
    if logical == "decimal":
        if not _is_decimal(type_):
            return ()
        with_scale = type_.props.get("scale", 0) != 0
        return ("logicalType", "precision", "scale")[: 3 if with_scale else 2]
    if logical == "uuid":
        valid = type_.kind == "string" or _size(type_) == _UUID_BYTES
    else:
        valid = isinstance(logical, str) and _LOGICAL_KINDS.get(logical) == type_.kind
    return ("logicalType",) if valid else ()


def _is_decimal(type_: AvroType) -> bool:
    precision, scale = type_.props.get("precision"), type_.props.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision:
        return False
    size = _size(type_)
    if size is None:
        return type_.kind == "bytes" and precision > 0
    return 0 < precision <= math.floor(math.log10(2) * (8 * size - 1))


def _size(type_: AvroType) -> int | None:
    return type_.size if isinstance(type_, Fixed) else None


def _normal_default(type_: AvroType, value: Any) -> Any:
    """A whole number that is the default of a float or double, as the fraction that it means."""
    match type_:
        case Union():
            taken = (each for each in type_.branches if is_valid_default(each, value))
            branch = next(taken, None)
            return value if branch is None else _normal_default(branch, value)
        case Array() if isinstance(value, list):
            return [_normal_default(type_.items, each) for each in value]
        case Map() if isinstance(value, dict):
            return {key: _normal_default(type_.values, each) for key, each in value.items()}
        case Record() if isinstance(value, dict):
            fields = type_.by_name
            return {
                key: _normal_default(fields[key].type, each) if key in fields else each
                for key, each in value.items()
            }
    if type_.kind in ("float", "double") and type(value) is int and abs(value) < 2**63:
        return float(value)
    return value


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(each) for each in value] if isinstance(value, list) else value
