"""Schemas as requests bring them and as answers show them, in the form that `format` asks for."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headrace.registry import contracts, tags
from headrace.registry.http.exchange import MAX_INTEGER, Request
from headrace.registry.language import Reference
from headrace.registry.refusals import Refusal, Refused
from headrace.registry.registration import NEXT_VERSION, NO_ID, Registration
from headrace.registry.registry import Registry
from headrace.registry.schema import AVRO, LATEST, Schema, SchemaVersion, references_json
from headrace.registry.subject_names import DEFAULT_CONTEXT, beside, context_of


def registration(subject: str, request: Request) -> Registration:
    """The schema of a request's body, to be registered or found under the subject."""
    body = request.json()
    rules = contracts.rule_set(body.get("ruleSet"))
    contracts.require_valid_rules(rules)
    schema = Schema(
        _text(body, "schemaType") or AVRO,
        _text(body, "schema"),
        _references(body.get("references")),
        contracts.metadata(body.get("metadata")),
        rules,
    )
    return Registration(
        subject,
        schema,
        _number(body, "id", NO_ID),
        _number(body, "version", NEXT_VERSION),
        normalize=request.flag("normalize"),
        force=request.flag("force"),
    )


def retagging(version: SchemaVersion, request: Request) -> Registration:
    """The version's schema with the tags, metadata and rules that a request's body changes."""
    body = request.json()
    schema = version.schema
    added, removed = tags.entities(body.get("tagsToAdd")), tags.entities(body.get("tagsToRemove"))
    rules = contracts.rule_set(body.get("ruleSet"))
    merged, dropped = contracts.rule_set(body.get("rulesToMerge")), body.get("rulesToRemove")
    if merged is not None or dropped is not None:
        if rules is not None:
            raise Refused(
                Refusal.INVALID_RULE_SET,
                "ruleSet should be omitted if specifying rulesToMerge or rulesToRemove",
            )
        rules = contracts.merged_rules(schema.rule_set, merged)
        rules = contracts.without_rules(rules, dropped or ())
    contracts.require_valid_rules(rules)
    number = _number(body, "newVersion", NEXT_VERSION)
    metadata = contracts.metadata(body.get("metadata")) or schema.metadata
    changed = replace(
        schema,
        text=tags.retagged(schema, added, removed),
        metadata=contracts.with_version(metadata, number),
        rule_set=rules,
    )
    return Registration(version.subject, changed, version=number)


def version_json(registry: Registry, version: SchemaVersion, request: Request) -> dict[str, Any]:
    """A version with all that is known of it."""
    fields = {
        "subject": version.subject,
        "version": version.version,
        "id": version.schema_id,
        **_content(registry, version, request),
    }
    return {**fields, **_written(version)}


def registered_json(registry: Registry, version: SchemaVersion, request: Request) -> dict[str, Any]:
    """A version as the answer to its registration."""
    return {
        "version": version.version,
        "id": version.schema_id,
        **_content(registry, version, request),
    }


def found_json(registry: Registry, version: SchemaVersion, request: Request) -> dict[str, Any]:
    """A version as the answer to who looked it up by its schema."""
    return {"subject": version.subject, **registered_json(registry, version, request)}


def schema_json(registry: Registry, version: SchemaVersion, request: Request) -> dict[str, Any]:
    """A schema as the answer to who asked by id."""
    fields: dict[str, Any] = {
        "subject": version.subject,
        "version": version.version,
        **_content(registry, version, request),
    }
    if request.flag("fetchMaxId"):
        fields["maxId"] = registry.subjects.max_id(context_of(version.subject))
    return {**fields, **_written(version)}


def formatted(registry: Registry, version: SchemaVersion, request: Request) -> str:
    """The text in the asked form; a form that its language does not know is the usual one."""
    match request.text("format").strip().lower():
        case "serialized":
            return registry.parser.stored(version).serialized()
        case "resolved":
            return registry.parser.stored(version).resolved()
        case _:
            return version.schema.text


def _content(registry: Registry, version: SchemaVersion, request: Request) -> dict[str, Any]:
    schema = version.schema
    fields: dict[str, Any] = {"guid": version.guid, "schemaType": schema.language}
    if schema.references:
        fields["references"] = references_json(_shown_references(version, request))
    if schema.metadata is not None:
        fields["metadata"] = schema.metadata
    if schema.rule_set is not None:
        fields["ruleSet"] = schema.rule_set
    fields["schema"] = formatted(registry, version, request)
    wanted = request.query.get("findTags")
    tagged = tags.found(schema, wanted) if wanted else []
    return {**fields, "schemaTags": tagged} if tagged else fields


def _written(version: SchemaVersion) -> dict[str, Any]:
    if version.timestamp_ms is None:
        return {}
    return {"ts": version.timestamp_ms, "deleted": version.deleted}


def _shown_references(version: SchemaVersion, request: Request) -> tuple[Reference, ...]:
    references = version.schema.references
    qualified = request.text("referenceFormat") == "qualified"
    if not qualified or context_of(version.subject) == DEFAULT_CONTEXT:
        return references
    return tuple(
        Reference(each.name, beside(version.subject, each.subject), each.version)
        for each in references
    )


def _references(given: object) -> tuple[Reference, ...]:
    if given is None:
        return ()
    if not isinstance(given, list):
        raise Refused(Refusal.BAD_REQUEST, "references must be an array")
    return tuple(_reference(each) for each in given)


def _reference(given: object) -> Reference:
    if not isinstance(given, Mapping):
        raise Refused(Refusal.BAD_REQUEST, "a reference must be an object")
    name, subject = _text(given, "name"), _text(given, "subject")
    version = _number(given, "version", 0)
    if not name or not subject or (version < 1 and version != LATEST):
        raise Refused(Refusal.INVALID_SCHEMA, f"Invalid reference: {dict(given)}")
    return Reference(name, subject, version)


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Refused(Refusal.BAD_REQUEST, f"{name} must be a string")
    return value


def _number(fields: Mapping[str, Any], name: str, default: int) -> int:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value <= MAX_INTEGER:
        raise Refused(Refusal.BAD_REQUEST, f"{name} must be a whole number up to 2^31-1")
    return value
