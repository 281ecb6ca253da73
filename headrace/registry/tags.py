"""Tags written into a schema's own text, on the record or the field that a path names."""

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from headrace.registry.refusals import Refusal, Refused
from headrace.registry.schema import AVRO, Schema

TAGS = "confluent:tags"
NAMED_WITH_FIELDS = ("record", "error")

# What is tagged: its kind ("sr_record", "sr_field") and its path.
Entity = tuple[str, str]


def retagged(
    schema: Schema, added: Mapping[Entity, set[str]], removed: Mapping[Entity, set[str]]
) -> str:
    """The text with some tags more and some less; raises 42201 if there is no such place."""
    if not added and not removed:
        return schema.text
    if schema.language != AVRO:
        raise Refused(
            Refusal.INVALID_SCHEMA, f"Schemas of type {schema.language} cannot be tagged here"
        )
    missing = {*added, *removed}
    tree = json.loads(schema.text)

    def visit(entity: Entity, place: dict[str, Any]) -> None:
        if entity in missing:
            missing.discard(entity)
            tags = {*place.get(TAGS, ()), *added.get(entity, ())} - removed.get(entity, set())
            place.pop(TAGS, None)
            if tags:
                place[TAGS] = sorted(tags)

    _walk(tree, "", visit)
    for _, path in sorted(missing):
        raise Refused(Refusal.INVALID_SCHEMA, f"No entity at the path {path} can be tagged")
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":"))


def found(schema: Schema, wanted: Collection[str]) -> list[dict[str, Any]]:
    """Where the text has any of these tags (`*`: any at all), and which."""
    places: list[dict[str, Any]] = []

    def visit(entity: Entity, place: dict[str, Any]) -> None:
        tags = place.get(TAGS, ())
        if tags and ("*" in wanted or not set(wanted).isdisjoint(tags)):
            kind, path = entity
            shown = {"entityPath": path, "entityType": kind}
            places.append({"schemaEntity": shown, "tags": list(tags)})

    if schema.language == AVRO:
        _walk(json.loads(schema.text), "", visit)
    return places


def entities(given: object) -> dict[Entity, set[str]]:
    """The places and tags of a request."""
    found: dict[Entity, set[str]] = {}
    try:
        for each in given or ():  # type: ignore[attr-defined]
            entity = each["schemaEntity"]
            key = (str(entity["entityType"]).lower(), str(entity["entityPath"]))
            found.setdefault(key, set()).update(str(tag) for tag in each["tags"])
    except (TypeError, KeyError) as error:
        raise Refused(Refusal.BAD_REQUEST, f"Tags are not understood: {error!r}") from error
    return found


def _walk(node: Any, namespace: str, visit: Callable[[Entity, dict[str, Any]], None]) -> None:
    """Visit every record and field; each is named by its full name, as Avro spells it."""
    if isinstance(node, list):
        for branch in node:
            _walk(branch, namespace, visit)
    if not isinstance(node, dict):
        return
    if node.get("type") in NAMED_WITH_FIELDS:
        name = node["name"]
        if "." in name:
            namespace = name.rpartition(".")[0]
        else:
            namespace = node.get("namespace", namespace)
            name = f"{namespace}.{name}" if namespace else name
        visit(("sr_record", name), node)
        for field in node["fields"]:
            visit(("sr_field", f"{name}.{field['name']}"), field)
            _walk(field["type"], namespace, visit)
        return
    for inner in ("type", "items", "values"):
        if isinstance(node.get(inner), dict | list):
            _walk(node[inner], namespace, visit)
