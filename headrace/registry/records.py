"""The records of the schemas topic, in the JSON keys and values of Confluent's registry."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.registry import configs, contracts
from headrace.registry.configs import Config, Mode
from headrace.registry.language import Reference
from headrace.registry.refusals import Refused
from headrace.registry.schema import AVRO, Schema, SchemaVersion, dashed, references_json

SCHEMA_MAGICS = (0, 1)
TENANT = "default"
# What reading a value of another shape than expected raises.
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


class BadRecord(ValueError):
    """A record that no registry understands; it is reported and skipped."""


@dataclass(frozen=True, slots=True)
class SchemaRecord:
    """A version was registered or soft deleted; without a value it is gone for good."""

    subject: str
    version: int
    value: SchemaVersion | None


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """The config of a subject or a context, or of everyone (None) was set, or taken back."""

    subject: str | None
    value: Config | None


@dataclass(frozen=True, slots=True)
class ModeRecord:
    """The mode of a subject or a context, or of everyone (None) was set, or taken back."""

    subject: str | None
    value: Mode | None


@dataclass(frozen=True, slots=True)
class SubjectDeleted:
    """All versions up to this one were soft deleted."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class SubjectCleared:
    """What was soft deleted in this scope is forgotten."""

    subject: str | None


@dataclass(frozen=True, slots=True)
class ContextRecord:
    """A context came to be, or is gone."""

    context: str
    exists: bool


@dataclass(frozen=True, slots=True)
class Noop:
    """Nothing; who reads it back knows that everything before it was read too."""


Record = (
    SchemaRecord
    | ConfigRecord
    | ModeRecord
    | SubjectDeleted
    | SubjectCleared
    | ContextRecord
    | Noop
)


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """Key and value of one record of the topic."""
    match record:
        case SchemaRecord(subject, version, value):
            key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
            return _json(key), None if value is None else _json(_schema_fields(value))
        case ConfigRecord(subject, config):
            return _subject_key("CONFIG", subject), _value(subject, config)
        case ModeRecord(subject, mode):
            return _subject_key("MODE", subject), _value(
                subject, None if mode is None else {"mode": str(mode)}
            )
        case SubjectDeleted(subject, version):
            return _subject_key("DELETE_SUBJECT", subject), _value(subject, {"version": version})
        case SubjectCleared(subject):
            return _subject_key("CLEAR_SUBJECT", subject), _value(subject, {})
        case ContextRecord(context, exists):
            fields = {"tenant": TENANT, "context": context}
            key_fields = {"keytype": "CONTEXT", **fields, "magic": 0}
            return _json(key_fields), _json(fields) if exists else None
        case Noop():
            return _json({"keytype": "NOOP", "magic": 0}), None


def decode(key: bytes | None, value: bytes | None, timestamp_ms: int) -> Record | None:
    """The record of a key and value; None for kinds this registry has no use for."""
    fields = _object(key, "key")
    try:
        return _decode(fields, value, timestamp_ms)
    except BadRecord:
        raise
    except (*MALFORMED, Refused) as error:
        raise BadRecord(f"{fields.get('keytype')} {fields.get('subject')}: {error!r}") from error


def _decode(key: Mapping[str, Any], value: bytes | None, timestamp_ms: int) -> Record | None:
    subject = _optional(key.get("subject"))
    content = None if value is None else _object(value, "value")
    match key["keytype"]:
        case "SCHEMA":
            return _schema_record(key, content, timestamp_ms)
        case "CONFIG":
            return ConfigRecord(subject, content if content is None else configs.config(content))
        case "MODE":
            return ModeRecord(
                subject, None if content is None else configs.parse_mode(content["mode"])
            )
        case "CONTEXT":
            return ContextRecord(_text(key["context"]), content is not None)
        case "DELETE_SUBJECT" if content is not None:
            return SubjectDeleted(_text(content["subject"]), _number(content["version"]))
        case "CLEAR_SUBJECT" if content is not None:
            return SubjectCleared(_optional(content.get("subject")))
        case "NOOP" | "DELETE_SUBJECT" | "CLEAR_SUBJECT" | "ASSOC":
            return None
        case kind:
            raise BadRecord(f"unknown kind of record {kind!r}")


def _schema_record(
    key: Mapping[str, Any], content: Mapping[str, Any] | None, timestamp_ms: int
) -> SchemaRecord:
    if key.get("magic") not in SCHEMA_MAGICS:
        raise BadRecord(f"a schema of magic {key.get('magic')!r}")
    subject, version = _text(key["subject"]), _number(key["version"])
    if content is None:
        return SchemaRecord(subject, version, None)
    schema = Schema(
        _optional(content.get("schemaType")) or AVRO,
        _text(content["schema"]),
        tuple(
            Reference(_text(each["name"]), _text(each["subject"]), _number(each["version"]))
            for each in content.get("references") or ()
        ),
        contracts.metadata(content.get("metadata")),
        contracts.rule_set(content.get("ruleSet")),
    )
    md5 = content.get("md5")
    guid = dashed(base64.b64decode(md5).hex()) if md5 else schema.guid
    deleted = bool(content.get("deleted", False))
    schema_id = _number(content["id"])
    return SchemaRecord(
        subject,
        version,
        SchemaVersion(subject, version, schema_id, schema, guid, deleted, timestamp_ms),
    )


def _schema_fields(value: SchemaVersion) -> dict[str, Any]:
    schema = value.schema
    fields: dict[str, Any] = {
        "subject": value.subject,
        "version": value.version,
        "id": value.schema_id,
        "schemaType": schema.language,
    }
    if schema.references:
        fields["references"] = references_json(schema.references)
    if schema.metadata is not None:
        fields["metadata"] = schema.metadata
    if schema.rule_set is not None:
        fields["ruleSet"] = schema.rule_set
    return {**fields, "schema": schema.text, "deleted": value.deleted}


def _subject_key(kind: str, subject: str | None) -> bytes:
    named = {} if subject is None else {"subject": subject}
    return _json({"keytype": kind, **named, "magic": 0})


def _value(subject: str | None, fields: Mapping[str, Any] | None) -> bytes | None:
    if fields is None:
        return None
    return _json({} if subject is None else {"subject": subject}, fields)


def _json(*objects: Mapping[str, Any]) -> bytes:
    whole = {name: value for fields in objects for name, value in fields.items()}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()


def _object(text: bytes | None, name: str) -> Mapping[str, Any]:
    try:
        # As a string: of bytes json would first guess the encoding.
        found = json.loads((text or b"").decode())
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"its {name} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadRecord(f"its {name} is not a JSON object")
    return found


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise TypeError(f"{given!r} is not a string")
    return given


def _optional(given: object) -> str | None:
    return None if given is None else _text(given)


def _number(given: object) -> int:
    if not isinstance(given, int) or isinstance(given, bool):
        raise TypeError(f"{given!r} is not a number")
    return given
