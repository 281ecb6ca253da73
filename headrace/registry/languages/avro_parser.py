"""Avro schemas read from their JSON, as strictly as Apache Avro for Java does."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from headrace.registry.language import InvalidSchema
from headrace.registry.languages.avro_defaults import require_valid_defaults
from headrace.registry.languages.avro_json import read_json
from headrace.registry.languages.avro_names import require_full_name, require_name
from headrace.registry.languages.avro_types import (
    NO_DEFAULT,
    PRIMITIVES,
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
    Unresolved,
)

# Types within types; whoever reaches it can name the inner ones.
MAX_TYPE_DEPTH: Final = 64
MAX_FIXED_SIZE: Final = 2**31 - 9

_SCHEMA_RESERVED: Final = frozenset(
    ["doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"]
)
_ENUM_RESERVED: Final = _SCHEMA_RESERVED | {"default"}
_FIELD_RESERVED: Final = frozenset(["default", "doc", "name", "order", "type", "aliases"])
_ORDERS: Final = frozenset(("ascending", "descending", "ignore"))
_JAVA_DOUBLE: Final = re.compile(r"[+-]?(NaN|Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)[dDfF]?")


@dataclass(frozen=True, slots=True)
class Parsed:
    """A schema's root, what it declares, and what its references declare."""

    root: AvroType
    declared: dict[str, Named]
    referred: dict[str, Named]


def parse(text: str, references: Mapping[str, str], *, strict: bool) -> Parsed:
    """Raises InvalidSchema; `strict` as for a schema that is new."""
    referred: dict[str, Named] = {}
    for name, reference in references.items():
        try:
            # What is registered already is read as it was written.
            parser = _Parser(referred, strict=False)
            parser.parse(reference)
        except InvalidSchema as error:
            raise InvalidSchema(f"in the reference {name!r}: {error}") from error
        referred |= parser.declared
    parser = _Parser(referred, strict=strict)
    return Parsed(parser.parse(text), parser.declared, referred)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the parser is: the path in the text, and the namespace that holds there."""

    path: str
    space: str | None
    depth: int

    def down(self, step: str) -> "_Place":
        return _Place(f"{self.path}/{step}", self.space, self.depth + 1)

    def refuse(self, reason: str) -> InvalidSchema:
        return InvalidSchema(f"{reason} (at {self.path or '/'})")


class _Parser:
    def __init__(self, referred: Mapping[str, Named], *, strict: bool) -> None:
        self.declared: dict[str, Named] = {}
        self._referred = referred
        self._strict = strict
        self._records: list[Record] = []
        self._wrappers: list[Array | Map] = []
        self._unions: list[tuple[Union, _Place]] = []

    def parse(self, text: str) -> AvroType:
        place = _Place("", None, 0)
        root = self._resolved(self._type(read_json(text), place))
        for wrapper in self._wrappers:
            if isinstance(wrapper, Array):
                wrapper.items = self._resolved(wrapper.items)
            else:
                wrapper.values = self._resolved(wrapper.values)
        for union, where in self._unions:
            union.settle([self._resolved(each) for each in union.branches])
            _require_distinct(union, where)
        for record in self._records:
            for field in record.fields:
                field.type = self._resolved(field.type)
        if self._strict:
            require_valid_defaults(self._records)
        return root

    def _type(self, node: Any, place: _Place) -> AvroType:
        if place.depth > MAX_TYPE_DEPTH:
            raise place.refuse(f"types are nested more than {MAX_TYPE_DEPTH} deep")
        if isinstance(node, str):
            return self._find(node, place)
        if isinstance(node, list):
            branches = [self._type(each, place.down(str(i))) for i, each in enumerate(node)]
            union = Union("union", {}, branches)
            self._unions.append((union, place))
            return union
        if not isinstance(node, dict):
            raise place.refuse(f"{str(node)[:50]} is no schema: a name, an object or an array is")
        return self._object(node, place)

    def _object(self, node: dict[str, Any], place: _Place) -> AvroType:
        kind = node.get("type")
        if not isinstance(kind, str):
            raise place.refuse("the schema has no type that is a string")
        if kind in PRIMITIVES:
            return AvroType(kind, _props(node, _SCHEMA_RESERVED))
        match kind:
            case "record" | "error":
                return self._record(node, place)
            case "enum":
                return self._enum(node, place)
            case "fixed":
                return self._fixed(node, place)
            case "array":
                items = self._type(_required(node, "items", "array", place), place.down("items"))
                return self._wrapped(Array(kind, _props(node, _SCHEMA_RESERVED), items))
            case "map":
                values = self._type(_required(node, "values", "map", place), place.down("values"))
                return self._wrapped(Map(kind, _props(node, _SCHEMA_RESERVED), values))
        return self._find(kind, place)

    def _wrapped(self, wrapper: Array | Map) -> AvroType:
        self._wrappers.append(wrapper)
        return wrapper

    def _record(self, node: dict[str, Any], place: _Place) -> AvroType:
        name = self._name(node, place)
        aliases = self._aliases(node, name, place)
        is_error = node["type"] == "error"
        record = Record(
            "record", _props(node, _SCHEMA_RESERVED), name, _text(node, "doc"), aliases, is_error
        )
        self._declare(record, place)
        fields = node.get("fields")
        if not isinstance(fields, list):
            raise place.refuse(f"the record {name.full} has no fields")
        inside = replace(place, space=name.space)
        for index, each in enumerate(fields):
            where = replace(inside, path=f"{place.path}/fields/{index}")
            field = self._field(each, where)
            if field.name in record.by_name:
                raise where.refuse(f"the record {name.full} has two fields named {field.name!r}")
            record.add(field)
        self._records.append(record)
        return record

    def _field(self, node: Any, place: _Place) -> Field:
        if not isinstance(node, dict) or not isinstance(node.get("name"), str):
            raise place.refuse("the field has no name")
        name = require_name(node["name"], "the field name", place.path, strict=self._strict)
        type_ = self._type(_required(node, "type", f"field {name}", place), place.down("type"))
        order = node.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in _ORDERS:
            raise place.refuse(f"the order of field {name!r} is none of {', '.join(_ORDERS)}")
        default = node.get("default", NO_DEFAULT)
        if isinstance(default, str) and type_.kind in ("float", "double"):
            if not _JAVA_DOUBLE.fullmatch(default):
                raise place.refuse(f"the default of field {name!r} is no number: {default!r}")
            default = float(default.rstrip("dDfF"))
        return Field(
            name,
            type_,
            _text(node, "doc"),
            default,
            order.lower(),
            _alias_texts(node, place),
            _props(node, _FIELD_RESERVED),
        )

    def _enum(self, node: dict[str, Any], place: _Place) -> AvroType:
        name = self._name(node, place)
        given = node.get("symbols")
        if not isinstance(given, list):
            raise place.refuse(f"the enum {name.full} has no symbols")
        symbols = tuple(
            require_name(each, "the symbol", f"{place.path}/symbols/{i}", strict=self._strict)
            for i, each in enumerate(given)
        )
        symbol_set = frozenset(symbols)
        if len(symbol_set) < len(symbols):
            twice = Counter(symbols).most_common(1)[0][0]
            raise place.refuse(f"the enum {name.full} has the symbol {twice!r} twice")
        default = _text(node, "default")
        if default is not None and default not in symbol_set:
            raise place.refuse(f"the default {default!r} of enum {name.full} is not among symbols")
        props, doc = _props(node, _ENUM_RESERVED), _text(node, "doc")
        aliases = self._aliases(node, name, place)
        return self._declare(
            Enum("enum", props, name, doc, aliases, symbols, default, symbol_set), place
        )

    def _fixed(self, node: dict[str, Any], place: _Place) -> AvroType:
        name = self._name(node, place)
        size = node.get("size")
        if type(size) is not int or not 0 <= size <= MAX_FIXED_SIZE:
            raise place.refuse(f"the fixed {name.full} has no size from 0 to {MAX_FIXED_SIZE}")
        props, doc = _props(node, _SCHEMA_RESERVED), _text(node, "doc")
        aliases = self._aliases(node, name, place)
        return self._declare(Fixed("fixed", props, name, doc, aliases, size), place)

    def _name(self, node: dict[str, Any], place: _Place) -> Name:
        text = _text(node, "name")
        if text is None:
            raise place.refuse(f"the {node['type']} has no name")
        space = _text(node, "namespace")
        name = Name.of(text, place.space if space is None else space)
        require_full_name(name, place.path, strict=self._strict)
        return name

    def _aliases(self, node: dict[str, Any], name: Name, place: _Place) -> tuple[Name, ...]:
        aliases = [Name.of(each, name.space) for each in _alias_texts(node, place)]
        for alias in aliases:
            require_name(alias.short, "the alias", place.path, strict=self._strict)
        return tuple(dict.fromkeys(aliases))

    def _declare(self, named: Named, place: _Place) -> Named:
        """The type by that name: an enum or fixed may be repeated word for word."""
        full = named.name.full
        known = self.declared.get(full)
        if known is None and self._strict:
            known = self._referred.get(full)
        if known is None:
            self.declared[full] = named
            return named
        if not _repeats(known, named):
            raise place.refuse(f"the name {full} is defined twice")
        return known

    def _find(self, name: str, place: _Place) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name, {})
        full = name if place.space is None or "." in name else f"{place.space}.{name}"
        return self._known(full) or self._known(name) or Unresolved("record", {}, full, place.path)

    def _known(self, full: str) -> Named | None:
        return self.declared.get(full) or self._referred.get(full)

    def _resolved(self, type_: AvroType) -> AvroType:
        if not isinstance(type_, Unresolved):
            return type_
        found = self._known(type_.full)
        if found is None:
            raise InvalidSchema(
                f"the name {type_.full!r} is not defined (at {type_.where or '/'}): "
                "neither in the schema nor in its references"
            )
        return found


def _require_distinct(union: Union, place: _Place) -> None:
    seen: set[str] = set()
    for branch in union.branches:
        if isinstance(branch, Union):
            raise place.refuse("a union holds a union")
        name = branch.name.full if isinstance(branch, Named) else branch.kind
        if name in seen:
            raise place.refuse(f"the union has {name} twice")
        seen.add(name)


def _repeats(known: Named, named: Named) -> bool:
    if known.props:
        return False
    if isinstance(known, Enum) and isinstance(named, Enum):
        return known.symbols == named.symbols
    return isinstance(known, Fixed) and isinstance(named, Fixed) and known.size == named.size


def _required(node: dict[str, Any], key: str, what: str, place: _Place) -> Any:
    if key not in node:
        raise place.refuse(f"the {what} has no {key}")
    return node[key]


def _text(node: dict[str, Any], key: str) -> str | None:
    value = node.get(key)
    return value if isinstance(value, str) else None


def _alias_texts(node: dict[str, Any], place: _Place) -> tuple[str, ...]:
    aliases = node.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(each, str) for each in aliases):
        raise place.refuse("aliases is not an array of strings")
    return tuple(dict.fromkeys(aliases))


def _props(node: dict[str, Any], reserved: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in node.items() if key not in reserved}
