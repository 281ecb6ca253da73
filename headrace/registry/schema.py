"""A schema as it is registered: its content, its identity, and its place under a subject."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from headrace.registry import contracts
from headrace.registry.contracts import Metadata, RuleSet
from headrace.registry.language import Reference

AVRO = "AVRO"
LATEST = -1


@dataclass(frozen=True, slots=True)
class Schema:
    """What makes a schema itself: two equal ones have one id in a context."""

    language: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None

    @property
    def guid(self) -> str:
        """The MD5 of the content as a UUID; the same in every registry of Confluent's kind."""
        digest = hashlib.md5(self.text.encode("utf-8", "surrogatepass"), usedforsecurity=False)
        for reference in self.references:
            digest.update(reference.name.encode() + reference.subject.encode())
            digest.update(reference.version.to_bytes(4, "big", signed=True))
        digest.update(contracts.metadata_hash(self.metadata))
        digest.update(contracts.rules_hash(self.rule_set))
        return dashed(digest.hexdigest())


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A schema under a subject; timestamp_ms is when it was written, if it was."""

    subject: str
    version: int
    schema_id: int
    schema: Schema
    guid: str
    deleted: bool = False
    timestamp_ms: int | None = None

    def soft_deleted(self) -> "SchemaVersion":
        return replace(self, deleted=True)


def dashed(digits: str) -> str:
    """32 hexadecimal digits as a UUID is written."""
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def references_json(references: tuple[Reference, ...]) -> list[dict[str, Any]]:
    return [
        {"name": each.name, "subject": each.subject, "version": each.version} for each in references
    ]
