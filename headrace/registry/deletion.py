"""Deleting versions, subjects and contexts: softly first, then for good."""

from headrace.registry.decision import Decision
from headrace.registry.records import (
    ConfigRecord,
    ContextRecord,
    ModeRecord,
    Record,
    SchemaRecord,
    SubjectDeleted,
)
from headrace.registry.refusals import Refusal, Refused
from headrace.registry.schema import SchemaVersion
from headrace.registry.settings_changes import require_writable
from headrace.registry.subject_names import SubjectName
from headrace.registry.subjects import Subjects


def delete_version(
    subjects: Subjects, subject: str, number: int, *, permanent: bool
) -> Decision[int]:
    """The number of the version that is deleted."""
    found = _existing(subjects, subject, number, permanent=permanent)
    require_writable(subjects, subject)
    place = (subject, found.version)
    if subjects.referrers(place, deleted=permanent):
        raise Refused(Refusal.REFERENCE_EXISTS, *place)
    if not permanent:
        return Decision((SchemaRecord(*place, found.soft_deleted()),), found.version)
    if not found.deleted:
        raise Refused(Refusal.VERSION_NOT_SOFT_DELETED, *place)
    records: list[Record] = [SchemaRecord(*place, None)]
    if len(subjects.versions(subject, deleted=True)) == 1:
        records += _settings_gone(subjects, subject)
    return Decision(tuple(records), found.version)


def delete_subject(subjects: Subjects, subject: str, *, permanent: bool) -> Decision[list[int]]:
    """The numbers of the versions that are deleted."""
    if not subjects.has(subject, deleted=True):
        raise Refused(Refusal.SUBJECT_NOT_FOUND, subject)
    if not permanent and not subjects.has(subject, deleted=False):
        raise Refused(Refusal.SUBJECT_SOFT_DELETED, subject)
    require_writable(subjects, subject)
    versions = subjects.versions(subject, deleted=permanent)
    for each in versions:
        _require_no_outsider(subjects, each, permanent=permanent)
        if permanent and not each.deleted:
            raise Refused(Refusal.SUBJECT_NOT_SOFT_DELETED, subject)
    numbers = [each.version for each in versions]
    if not permanent:
        return Decision((SubjectDeleted(subject, numbers[-1]),), numbers)
    # The newest first: whoever stops in between leaves no gap below.
    gone = [SchemaRecord(subject, number, None) for number in reversed(numbers)]
    return Decision((*gone, *_settings_gone(subjects, subject)), numbers)


def delete_context(subjects: Subjects, scope: str) -> Decision[None]:
    context = SubjectName.parse(scope).context
    if subjects.has(scope, deleted=True):
        raise Refused(Refusal.CONTEXT_NOT_EMPTY, scope)
    return Decision((ContextRecord(context, exists=False),), None)


def _existing(subjects: Subjects, subject: str, number: int, *, permanent: bool) -> SchemaVersion:
    found = subjects.version(subject, number, deleted=True)
    if found is None:
        if not subjects.has(subject, deleted=True):
            raise Refused(Refusal.SUBJECT_NOT_FOUND, subject)
        raise Refused(Refusal.VERSION_NOT_FOUND, number)
    if found.deleted and not permanent:
        raise Refused(Refusal.VERSION_SOFT_DELETED, subject, found.version)
    return found


def _require_no_outsider(subjects: Subjects, version: SchemaVersion, *, permanent: bool) -> None:
    place = (version.subject, version.version)
    for context, schema_id in subjects.referrers(place, deleted=permanent):
        for each in subjects.places(schema_id, context, deleted=permanent):
            if each.subject != version.subject:
                raise Refused(Refusal.REFERENCE_EXISTS, *place)


def _settings_gone(subjects: Subjects, subject: str) -> list[Record]:
    records: list[Record] = []
    if subjects.mode(subject) is not None:
        records.append(ModeRecord(subject, None))
    if subjects.config(subject) is not None:
        records.append(ConfigRecord(subject, None))
    return records
