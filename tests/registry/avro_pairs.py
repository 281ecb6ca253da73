"""Avro schemas, what becomes of them when they evolve, and data of theirs, drawn at random."""

import contextlib
import copy
from random import Random
from typing import Any

Json = Any

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double", "int"),
    "float": ("double", "long"),
    "double": ("float",),
    "string": ("bytes",),
    "bytes": ("string",),
}
SYMBOLS = "ABCDEF"


class Schemas:
    """Draws schemas; short names are used once, so that namespaces may change freely."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.count = 0
        self.defined: list[str] = []

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def record(self, depth: int = 0) -> Json:
        name = self.name("R")
        written: dict[str, Json] = {"type": "record", "name": name, "fields": []}
        if depth == 0 and self.random.random() < 0.5:
            written["namespace"] = "n.s"
        for _ in range(self.random.randint(0 if depth else 1, 4)):
            written["fields"].append(self.field(depth + 1))
        if self.random.random() < 0.25:
            # The record within itself, where there is a way out.
            inner = self.random.choice((["null", name], {"type": "array", "items": name}))
            written["fields"].append({"name": self.name("f"), "type": inner})
        self.defined.append(name)
        return written

    def field(self, depth: int) -> Json:
        written = {"name": self.name("f"), "type": self.type(depth)}
        if self.random.random() < 0.4:
            value = default(written["type"], self.random)
            if value is not NotImplemented:
                written["default"] = value
        return written

    def type(self, depth: int) -> Json:
        roll = self.random.random()
        if depth > 3 or roll < 0.4:
            return self.random.choice(PRIMITIVES)
        if roll < 0.5:
            return {"type": "array", "items": self.type(depth + 1)}
        if roll < 0.6:
            return {"type": "map", "values": self.type(depth + 1)}
        if roll < 0.75:
            return self.union(depth)
        if roll < 0.8 and self.defined:
            return self.random.choice(self.defined)
        return self.named(depth)

    def named(self, depth: int) -> Json:
        roll = self.random.random()
        if roll < 0.4:
            return self.record(depth)
        if roll < 0.7:
            name = self.name("F")
            self.defined.append(name)
            return {"type": "fixed", "name": name, "size": self.random.randint(1, 3)}
        name = self.name("E")
        self.defined.append(name)
        symbols = self.random.sample(SYMBOLS, self.random.randint(1, 4))
        written = {"type": "enum", "name": name, "symbols": symbols}
        if self.random.random() < 0.3:
            written["default"] = self.random.choice(symbols)
        return written

    def union(self, depth: int) -> Json:
        branches: list[Json] = []
        for _ in range(self.random.randint(1, 4)):
            add_branch(branches, self.type(depth + 1))
        return branches or ["null"]


def add_branch(branches: list[Json], branch: Json) -> None:
    kinds = [kind_of(each) for each in branches]
    if not isinstance(branch, list) and kind_of(branch) not in kinds:
        branches.append(branch)


def kind_of(schema: Json) -> str:
    if not isinstance(schema, dict):
        return str(schema)
    return str(schema.get("name", schema["type"]))


def default(schema: Json, random: Random) -> Json:
    """A default for the type, or NotImplemented where a name would have to be looked up."""
    if isinstance(schema, list):
        return default(schema[0], random)
    if isinstance(schema, str):
        simple = {
            "null": None,
            "boolean": True,
            "int": 7,
            "long": 2**40,
            "float": 1.5,
            "double": -2.5,
            "bytes": "b",
            "string": "s",
        }
        return simple.get(schema, NotImplemented)
    match schema["type"]:
        case "array":
            return []
        case "map":
            return {}
        case "enum":
            return random.choice(schema["symbols"])
        case "fixed":
            return "x" * schema["size"]
        case "record":
            values = {each["name"]: default(each["type"], random) for each in schema["fields"]}
            return NotImplemented if NotImplemented in values.values() else values
    return default(schema["type"], random)


class Evolution:
    """Edits a schema as people do, well or badly."""

    def __init__(self, schemas: Schemas, schema: Json) -> None:
        self.schemas = schemas
        self.random = schemas.random
        self.schema = copy.deepcopy(schema)

    def evolved(self) -> Json:
        edits = (
            self.add_field,
            self.remove_field,
            self.rename_field,
            self.shuffle_fields,
            self.change_type,
            self.change_type,
            self.change_enum,
            self.change_fixed,
            self.rename_type,
            self.change_namespace,
            self.steal_alias,
        )
        for _ in range(self.random.randint(1, 3)):
            self.random.choice(edits)()
        return self.schema

    def of_type(self, kind: str) -> list[Json]:
        return [each for each in walk(self.schema) if each.get("type") == kind]

    def any_of(self, kind: str) -> Json | None:
        found = self.of_type(kind)
        return self.random.choice(found) if found else None

    def any_field(self) -> tuple[Json, int] | None:
        records = [each for each in self.of_type("record") if each["fields"]]
        if not records:
            return None
        fields = self.random.choice(records)["fields"]
        return fields, self.random.randrange(len(fields))

    def add_field(self) -> None:
        record = self.any_of("record")
        if record is not None:
            record["fields"].insert(0, self.schemas.field(3))

    def remove_field(self) -> None:
        if (chosen := self.any_field()) is not None:
            del chosen[0][chosen[1]]

    def rename_field(self) -> None:
        if (chosen := self.any_field()) is not None:
            field = chosen[0][chosen[1]]
            if self.random.random() < 0.6:
                field.setdefault("aliases", []).append(field["name"])
            field["name"] = self.schemas.name("f")

    def steal_alias(self) -> None:
        if (chosen := self.any_field()) is not None:
            other = self.random.choice(chosen[0])
            if other is not chosen[0][chosen[1]] and self.random.random() < 0.3:
                other.setdefault("aliases", []).append(chosen[0][chosen[1]]["name"])

    def shuffle_fields(self) -> None:
        record = self.any_of("record")
        if record is not None:
            self.random.shuffle(record["fields"])

    def change_type(self) -> None:
        if (chosen := self.any_field()) is not None:
            field = chosen[0][chosen[1]]
            field["type"] = self.changed(field["type"])
            field.pop("default", None)
            if self.random.random() < 0.3:
                value = default(field["type"], self.random)
                if value is not NotImplemented:
                    field["default"] = value

    def changed(self, schema: Json) -> Json:
        roll = self.random.random()
        if isinstance(schema, list):
            return self.changed_union(schema, roll)
        if roll < 0.3:
            return ["null", schema] if schema != "null" else ["null", "string"]
        if isinstance(schema, str):
            return self.random.choice(PROMOTED.get(schema, PRIMITIVES))
        for inner in ("items", "values"):
            if inner in schema:
                return schema | {inner: self.changed(schema[inner])}
        return schema if roll < 0.8 else self.schemas.type(3)

    def changed_union(self, branches: list[Json], roll: float) -> Json:
        branches = list(branches)
        index = self.random.randrange(len(branches))
        if roll < 0.3:
            add_branch(branches, self.schemas.type(3))
        elif roll < 0.5 and len(branches) > 1:
            del branches[index]
        elif roll < 0.7:
            changed = self.changed(branches.pop(index))
            add_branch(branches, changed)
        elif roll < 0.85:
            self.random.shuffle(branches)
        else:
            return branches[index]
        return branches or ["null"]

    def change_enum(self) -> None:
        enum = self.any_of("enum")
        if enum is None:
            return
        enum["symbols"] = self.random.sample(SYMBOLS, self.random.randint(1, 5))
        enum.pop("default", None)
        if self.random.random() < 0.5:
            enum["default"] = enum["symbols"][0]

    def change_fixed(self) -> None:
        fixed = self.any_of("fixed")
        if fixed is not None:
            fixed["size"] = self.random.randint(1, 3)

    def rename_type(self) -> None:
        named = [each for each in walk(self.schema) if "name" in each and "type" in each]
        named = [each for each in named if each["type"] in ("record", "enum", "fixed")]
        if not named:
            return
        chosen = self.random.choice(named)
        old, new = chosen["name"], self.schemas.name("N")
        chosen["name"] = new
        if self.random.random() < 0.7:
            chosen["aliases"] = [old]
        self.schema = renamed(self.schema, old, new)

    def change_namespace(self) -> None:
        if isinstance(self.schema, dict) and "name" in self.schema:
            self.schema["namespace"] = self.random.choice(("n.s", "other"))


def renamed(schema: Json, old: str, new: str) -> Json:
    """The schema where what referred to the old name refers to the new one."""
    if isinstance(schema, str):
        return new if schema == old else schema
    if isinstance(schema, list):
        return [renamed(each, old, new) for each in schema]
    for key in ("items", "values", "type"):
        if key in schema and not (key == "type" and "items" in schema):
            schema[key] = renamed(schema[key], old, new)
    for field in schema.get("fields", ()):
        field["type"] = renamed(field["type"], old, new)
    return schema


def walk(schema: Json) -> list[Json]:
    """Every object that is a type, and every field."""
    if isinstance(schema, list):
        return [found for each in schema for found in walk(each)]
    if not isinstance(schema, dict):
        return []
    found = [schema]
    for key in ("items", "values", "type"):
        found += walk(schema.get(key))
    for field in schema.get("fields", ()):
        found += walk(field["type"])
    return found


class Endless(Exception):
    """The schema has no data: a record holds itself, with no way out."""


class Data:
    """Draws data of a schema, going everywhere: each branch, each symbol, no list left empty."""

    def __init__(self, schema: Json, random: Random) -> None:
        self.random = random
        self.named: dict[str, Json] = {}
        self.schema = schema
        self._collect(schema, None)

    def draw(self) -> Any:
        for _ in range(50):
            with contextlib.suppress(Endless):
                return self._draw(self.schema, 0)
        raise Endless

    def _collect(self, schema: Json, space: str | None) -> None:
        if isinstance(schema, list):
            for each in schema:
                self._collect(each, space)
        elif isinstance(schema, dict):
            if "name" in schema:
                space = schema.get("namespace", space)
                schema = schema | {"namespace": space}
                self.named[schema["name"]] = schema
            for inner in ("items", "values"):
                self._collect(schema.get(inner), space)
            for field in schema.get("fields", ()):
                self._collect(field["type"], space)

    def _draw(self, schema: Json, depth: int) -> Any:
        if depth > 40:
            raise Endless
        if isinstance(schema, list):
            return self._branch(schema, depth)
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return self._primitive(schema)
            schema = self.named[schema.rpartition(".")[2]]
        match schema["type"]:
            case "record":
                fields = schema["fields"]
                return {each["name"]: self._draw(each["type"], depth + 1) for each in fields}
            case "enum":
                return self.random.choice(schema["symbols"])
            case "fixed":
                return b"x" * schema["size"]
            case "array":
                return [self._draw(schema["items"], depth + 1)] if depth < 8 else []
            case "map":
                return {"k": self._draw(schema["values"], depth + 1)} if depth < 8 else {}
        return self._primitive(schema["type"])

    def _branch(self, branches: list[Json], depth: int) -> Any:
        if depth > 5 and "null" in branches:
            return None
        branch = self.random.choice(branches)
        drawn = self._draw(branch, depth + 1)
        name = kind_of(branch).rpartition(".")[2]
        if name not in self.named or self.named[name]["type"] != "record":
            return drawn
        spaces = self.named[name]["namespace"]
        return (f"{spaces}.{name}" if spaces else name, drawn)

    def _primitive(self, kind: str) -> Any:
        return {
            "null": None,
            "boolean": True,
            "int": self.random.choice((0, -1, 2**31 - 1)),
            "long": self.random.choice((0, 2**62)),
            "float": 0.5,
            "double": 1.25,
            # What is no UTF-8 cannot be read as a string by fastavro, though Java takes it.
            "bytes": b"bytes",
            "string": "text",
        }[kind]


def pair(random: Random) -> tuple[Json, Json]:
    """A schema and what became of it."""
    schemas = Schemas(random)
    first = schemas.record() if random.random() < 0.85 else schemas.type(0)
    return first, Evolution(schemas, first).evolved()
