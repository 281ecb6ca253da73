"""Changing configs and modes."""

from collections.abc import Mapping
from typing import Any

from headrace.registry import configs
from headrace.registry.configs import Config, Mode
from headrace.registry.decision import Decision
from headrace.registry.records import (
    ConfigRecord,
    ModeRecord,
    Record,
    SchemaRecord,
    SubjectCleared,
)
from headrace.registry.refusals import Refusal, Refused
from headrace.registry.subject_names import GLOBAL_SCOPE, covers, is_context, scope_of
from headrace.registry.subjects import Subjects


def require_writable(subjects: Subjects, scope: str | None) -> None:
    if subjects.mode_in_force(scope).read_only:
        raise Refused(
            Refusal.NOT_PERMITTED,
            f"Subject {scope or 'null'} in context {scope_of(scope or '')} is in read-only mode",
        )


def set_config(
    subjects: Subjects, scope: str | None, request: Mapping[str, Any]
) -> Decision[Config]:
    """The config as it will be."""
    config = configs.updated(subjects.stored_config(scope), request)
    require_writable(subjects, scope)
    return Decision((ConfigRecord(scope, config),), config)


def delete_config(subjects: Subjects, scope: str | None) -> Decision[Config]:
    """The config that was."""
    config = subjects.config(scope)
    if config is None:
        raise Refused(Refusal.SUBJECT_NOT_FOUND, scope)
    require_writable(subjects, scope)
    return Decision((ConfigRecord(scope, None),), config)


def set_mode(
    subjects: Subjects, scope: str | None, mode: Mode | None, *, force: bool
) -> Decision[None]:
    """To import, a scope must be empty; what was soft deleted there is forgotten."""
    if mode is Mode.FORWARD and scope != GLOBAL_SCOPE:
        raise Refused(Refusal.FORWARD_NOT_GLOBAL)
    records: list[Record] = []
    if mode is Mode.IMPORT and subjects.mode_in_force(scope) is not Mode.IMPORT and not force:
        records += _emptied(subjects, scope)
    return Decision((*records, ModeRecord(scope, mode)), None)


def delete_mode(subjects: Subjects, scope: str | None, *, recursive: bool) -> Decision[Mode | None]:
    """The mode that was; a context's mode may take those of its subjects with it."""
    mode = subjects.mode(scope)
    if mode is None and not recursive:
        raise Refused(Refusal.SUBJECT_NOT_FOUND, scope)
    records = [ModeRecord(scope, None)]
    if recursive and is_context(scope):
        context = scope_of(scope or "")
        records += [
            ModeRecord(each, None)
            for each in subjects.scopes_with_mode()
            if each != scope and covers(context, each)
        ]
    return Decision(tuple(records), mode)


def _emptied(subjects: Subjects, scope: str | None) -> list[Record]:
    if subjects.has(scope, deleted=False):
        raise Refused(Refusal.NOT_PERMITTED, "Cannot import since found existing subjects")
    records: list[Record] = []
    for each in subjects.all_versions(deleted=True):
        if not covers(scope, each.subject):
            continue
        if subjects.referrers((each.subject, each.version), deleted=True):
            raise Refused(Refusal.REFERENCE_EXISTS, each.subject, each.version)
        records.append(SchemaRecord(each.subject, each.version, None))
    return [*records, SubjectCleared(scope)]
