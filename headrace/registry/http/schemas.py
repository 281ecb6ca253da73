"""Routes of schemas by id and GUID, and of all schemas."""

import uuid
from typing import Any

from headrace.registry.http import formats
from headrace.registry.http.exchange import Answer, Request, page, whole_number
from headrace.registry.http.subjects import with_prefix
from headrace.registry.refusals import Refusal, Refused
from headrace.registry.registry import Registry
from headrace.registry.schema import SchemaVersion
from headrace.registry.subject_names import SubjectName, context_of

MAX_SCHEMAS = 1_000


def list_schemas(registry: Registry, request: Request) -> Answer:
    deleted = request.flag("deleted")
    aliases = _aliases(registry) if request.flag("aliases") else {}
    prefix = request.text("subjectPrefix")
    names = set(with_prefix(registry, prefix))
    for subject, its_aliases in aliases.items():
        if any(alias.startswith(prefix) for alias in its_aliases):
            names.add(subject)
    found: list[SchemaVersion] = []
    for name in sorted(filter(request.readable, names)):
        versions = registry.subjects.versions(name, deleted=deleted)
        found += versions[-1:] if request.flag("latestOnly") else versions
    rule_type = request.text("ruleType")
    if rule_type:
        found = [each for each in found if _has_rule(each, rule_type)]
    shown = page(request, found, limit=MAX_SCHEMAS)
    return Answer([_listed(registry, each, request, aliases) for each in shown])


def get_by_id(registry: Registry, request: Request) -> Answer:
    version = _by_id(registry, request, Refused(Refusal.ID_NOT_FOUND, request.values["id"]))
    return Answer(formats.schema_json(registry, version, request))


def get_schema_by_id(registry: Registry, request: Request) -> Answer:
    version = _by_id(registry, request, Refused(Refusal.ID_NOT_FOUND, request.values["id"]))
    return Answer(formats.formatted(registry, version, request))


def subjects_of_id(registry: Registry, request: Request) -> Answer:
    return Answer(page(request, [each.subject for each in _places(registry, request)]))


def versions_of_id(registry: Registry, request: Request) -> Answer:
    places = page(request, _places(registry, request))
    return Answer([{"subject": each.subject, "version": each.version} for each in places])


def get_by_guid(registry: Registry, request: Request) -> Answer:
    guid = _guid(request)
    for context in registry.subjects.contexts:
        number = registry.subjects.id_of(guid, context)
        if number is not None:
            version = registry.subjects.by_id(number, SubjectName(context, "").scope)
            if version is not None:
                content = formats.schema_json(registry, version, request)
                # The schema of a GUID is nobody's in particular.
                return Answer({**_without(content, "subject", "version"), "guid": guid})
    raise Refused(Refusal.ID_NOT_FOUND, request.values["guid"])


def ids_of_guid(registry: Registry, request: Request) -> Answer:
    guid = _guid(request)
    ids = [
        {"context": context, "id": number}
        for context in registry.subjects.contexts
        if (number := registry.subjects.id_of(guid, context)) is not None
    ]
    return Answer(ids)


def types(registry: Registry, _: Request) -> Answer:
    return Answer(sorted(registry.parser.languages, key=("JSON", "PROTOBUF", "AVRO").index))


def _by_id(registry: Registry, request: Request, missing: Refused) -> SchemaVersion:
    schema_id = whole_number(request.values["id"])
    found = registry.subjects.by_id(schema_id, request.text("subject"))
    if found is None or not _readable(registry, found, request):
        raise missing
    return found


def _places(registry: Registry, request: Request) -> list[SchemaVersion]:
    version = _by_id(registry, request, Refused(Refusal.SCHEMA_NOT_FOUND))
    context = context_of(version.subject)
    return registry.subjects.places(version.schema_id, context, deleted=request.flag("deleted"))


def _readable(registry: Registry, version: SchemaVersion, request: Request) -> bool:
    """A schema may be read by its id if one of the subjects it stands under may."""
    context = context_of(version.subject)
    places = registry.subjects.places(version.schema_id, context, deleted=True)
    return any(request.readable(each.subject) for each in places)


def _guid(request: Request) -> str:
    try:
        return str(uuid.UUID(request.values["guid"]))
    except ValueError:
        raise Refused(Refusal.ID_NOT_FOUND, request.values["guid"]) from None


def _aliases(registry: Registry) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for alias, subject in registry.subjects.aliases():
        found.setdefault(subject, []).append(alias)
    return found


def _listed(
    registry: Registry, version: SchemaVersion, request: Request, aliases: dict[str, list[str]]
) -> dict[str, Any]:
    fields = formats.version_json(registry, version, request)
    its_aliases = aliases.get(version.subject)
    return {**fields, "aliases": its_aliases} if its_aliases else fields


def _has_rule(version: SchemaVersion, rule_type: str) -> bool:
    lists = [rules for rules in (version.schema.rule_set or {}).values() if isinstance(rules, list)]
    return any(rule.get("type") == rule_type for rules in lists for rule in rules)


def _without(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}
