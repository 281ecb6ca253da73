"""Subjects, versions, ids, configs and modes: state rebuilt by replaying the schemas topic."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from headrace.registry import configs
from headrace.registry.compatibility.levels import Level
from headrace.registry.configs import Config, Mode
from headrace.registry.language import Reference
from headrace.registry.records import (
    ConfigRecord,
    ContextRecord,
    ModeRecord,
    Noop,
    Record,
    SchemaRecord,
    SubjectCleared,
    SubjectDeleted,
)
from headrace.registry.schema import LATEST, SchemaVersion
from headrace.registry.subject_names import (
    DEFAULT_CONTEXT,
    GLOBAL_CONTEXT,
    GLOBAL_SCOPE,
    SubjectName,
    beside,
    context_of,
    covers,
)

K = TypeVar("K")
V = TypeVar("V")

Place = tuple[str, int]
DEFAULT_CONFIG: Config = {"compatibilityLevel": str(Level.BACKWARD)}


class RejectedRecord(ValueError):
    """A record that contradicts those before it; it is reported and skipped."""


@dataclass(slots=True)
class _Context:
    """Ids are given per context; `places` says where an id stands, `ids` whose GUID it is."""

    places: dict[int, dict[str, int]] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    max_id: int = 0


class Subjects:
    """The registry's state; replay is the only mutator, the same live and at load."""

    def __init__(self) -> None:
        self._subjects: dict[str, dict[int, SchemaVersion]] = {}
        self._by_context: dict[str, _Context] = {}
        self._referrers: dict[Place, set[tuple[str, int]]] = {}
        self._configs: dict[str | None, Config] = {}
        self._modes: dict[str | None, Mode] = {}
        self._contexts: dict[str, bool] = {}

    def replay(self, record: Record) -> None:
        """Apply one record; raises RejectedRecord, nothing changed, if it cannot be true."""
        match record:
            case SchemaRecord(subject, version, value):
                if value is None:
                    self._remove(subject, version)
                else:
                    self._put(value)
            case SubjectDeleted(subject, last):
                self._delete_softly(subject, last)
            case SubjectCleared(scope):
                self._clear(scope)
            case ConfigRecord(scope, config):
                _set(self._configs, scope, config)
            case ModeRecord(scope, mode):
                _set(self._modes, scope, mode)
            case ContextRecord(context, exists):
                _set(self._contexts, context, exists or None)
            case Noop():
                pass

    # Versions

    def version(self, subject: str, number: int, *, deleted: bool = False) -> SchemaVersion | None:
        """One version, or the latest that is not deleted."""
        if number == LATEST:
            return self.latest(subject)
        found = self._subjects.get(subject, {}).get(number)
        return found if found is not None and (deleted or not found.deleted) else None

    def latest(self, subject: str) -> SchemaVersion | None:
        alive = self.versions(subject)
        return alive[-1] if alive else None

    def versions(self, subject: str, *, deleted: bool = False) -> list[SchemaVersion]:
        """The subject's versions, oldest first."""
        found = self._subjects.get(subject, {})
        return [found[number] for number in sorted(found) if deleted or not found[number].deleted]

    def has(self, scope: str | None, *, deleted: bool) -> bool:
        """Whether the subject, or any in the context, has versions."""
        if scope is not None and SubjectName.parse(scope).subject:
            return bool(self.versions(scope, deleted=deleted))
        return any(
            covers(scope, subject) and self.versions(subject, deleted=deleted)
            for subject in self._subjects
        )

    def names(self) -> list[str]:
        """Every subject, in order."""
        return sorted(self._subjects)

    def all_versions(self, *, deleted: bool) -> Iterator[SchemaVersion]:
        for subject in self.names():
            yield from self.versions(subject, deleted=deleted)

    @property
    def counts(self) -> tuple[int, int]:
        """How many subjects and how many versions there are, deleted ones too."""
        return len(self._subjects), sum(len(each) for each in self._subjects.values())

    # Ids

    def by_id(self, schema_id: int, scope: str | None) -> SchemaVersion | None:
        """A schema by its id, seen from a subject or a context.

        A subject of the default context that does not have the id itself is looked for in the
        others, and then any subject of its context will do.
        """
        name = SubjectName.parse(scope or "")
        found = self._placed(schema_id, name)
        if found is not None or not name.subject or name.context != DEFAULT_CONTEXT:
            return found
        for context in self._contexts:
            found = self._placed(schema_id, SubjectName(context, name.subject))
            if found is not None:
                return found
        return self._placed(schema_id, SubjectName(name.context, ""))

    def places(self, schema_id: int, context: str, *, deleted: bool) -> list[SchemaVersion]:
        """Every version that has this id in this context."""
        found = self._context(context).places.get(schema_id, {})
        versions = (self._subjects[subject][number] for subject, number in sorted(found.items()))
        return [each for each in versions if deleted or not each.deleted]

    def id_of(self, guid: str, context: str) -> int | None:
        """The id that a schema of this content has in the context, if it stands anywhere."""
        known = self._context(context)
        schema_id = known.ids.get(guid)
        return schema_id if schema_id in known.places else None

    def max_id(self, context: str) -> int:
        return self._context(context).max_id

    def referrers(self, place: Place, *, deleted: bool) -> list[tuple[str, int]]:
        """Context and id of every schema that refers to this version."""
        return [
            (context, schema_id)
            for context, schema_id in sorted(self._referrers.get(place, ()))
            if self.places(schema_id, context, deleted=deleted)
        ]

    # Contexts, configs, modes

    @property
    def contexts(self) -> list[str]:
        return [DEFAULT_CONTEXT, *sorted(self._contexts)]

    def has_context(self, context: str) -> bool:
        return context == DEFAULT_CONTEXT or context in self._contexts

    def config(self, scope: str | None) -> Config | None:
        """The scope's own config; only the global ones have a default."""
        own = self._configs.get(scope)
        if own is not None:
            return {**own, **({} if "compatibilityLevel" in own else DEFAULT_CONFIG)}
        return DEFAULT_CONFIG if _is_global(scope) else None

    def stored_config(self, scope: str | None) -> Config | None:
        return self._configs.get(scope)

    def config_in_force(self, scope: str | None) -> Config:
        """The config a subject is held to: its own, else its context's, else the global one."""
        for each in _scopes(scope):
            if each in self._configs:
                found = self.config(each) or DEFAULT_CONFIG
                if each == scope and scope is not None:
                    return configs.inheriting(found, self.config(None) or DEFAULT_CONFIG)
                return found
        return DEFAULT_CONFIG

    def mode(self, scope: str | None) -> Mode | None:
        """The scope's own mode; only the global ones have a default."""
        own = self._modes.get(scope)
        return own or (Mode.READWRITE if _is_global(scope) else None)

    def mode_in_force(self, scope: str | None) -> Mode:
        for each in _scopes(scope):
            if each in self._modes:
                return self._modes[each]
        return Mode.READWRITE

    def scopes_with_mode(self) -> list[str]:
        return [scope for scope in self._modes if scope is not None]

    def aliases(self) -> list[tuple[str, str]]:
        """Each alias and the subject it stands for."""
        return [
            (scope, beside(scope, config["alias"]))
            for scope, config in self._configs.items()
            if scope is not None and config.get("alias")
        ]

    # Replaying

    def _delete_softly(self, subject: str, last: int) -> None:
        for each in self.versions(subject):
            if each.version <= last:
                self._put(each.soft_deleted())

    def _clear(self, scope: str | None) -> None:
        for each in list(self.all_versions(deleted=True)):
            if each.deleted and covers(scope, each.subject):
                self._remove(each.subject, each.version)

    def _put(self, value: SchemaVersion) -> None:
        name = context_of(value.subject)
        context = self._by_context.get(name)
        if context is None:
            context = self._by_context[name] = _Context()
        holder = self._any_place(context, value.schema_id)
        if holder is not None and holder.schema.text != value.schema.text:
            raise RejectedRecord(
                f"{value.subject} version {value.version} has id {value.schema_id}, which is "
                f"taken by {holder.subject} version {holder.version}"
            )
        before = self._subjects.get(value.subject, {}).get(value.version)
        if before is not None and before.schema_id != value.schema_id:
            self._remove(before.subject, before.version)
        self._subjects.setdefault(value.subject, {})[value.version] = value
        places = context.places.setdefault(value.schema_id, {})
        # A deleted version gives way to one of the same schema that is there.
        if not value.deleted or value.subject not in places:
            places[value.subject] = value.version
        context.ids[value.guid] = value.schema_id
        context.max_id = max(context.max_id, value.schema_id)
        for reference in value.schema.references:
            place = _referred(value.subject, reference)
            self._referrers.setdefault(place, set()).add((name, value.schema_id))

    def _remove(self, subject: str, number: int) -> None:
        versions = self._subjects.get(subject, {})
        gone = versions.pop(number, None)
        if gone is None:
            return
        if not versions:
            del self._subjects[subject]
        context = self._by_context[context_of(subject)]
        self._leave(context, gone, versions)
        if gone.schema_id in context.places:
            return
        for reference in gone.schema.references:
            place = _referred(subject, reference)
            referrers = self._referrers.get(place, set())
            referrers.discard((context_of(subject), gone.schema_id))
            if not referrers:
                self._referrers.pop(place, None)

    def _leave(
        self, context: _Context, gone: SchemaVersion, others: dict[int, SchemaVersion]
    ) -> None:
        places = context.places.get(gone.schema_id, {})
        if places.get(gone.subject) == gone.version:
            del places[gone.subject]
            # The subject may have had the same schema under another version number.
            twins = [n for n, each in others.items() if each.schema_id == gone.schema_id]
            if twins:
                places[gone.subject] = max(twins)
        if not places:
            context.places.pop(gone.schema_id, None)

    def _context(self, context: str) -> _Context:
        return self._by_context.get(context) or _Context()

    def _any_place(self, context: _Context, schema_id: int) -> SchemaVersion | None:
        for subject, number in context.places.get(schema_id, {}).items():
            return self._subjects[subject][number]
        return None

    def _placed(self, schema_id: int, name: SubjectName) -> SchemaVersion | None:
        context = self._context(name.context)
        if not name.subject:
            return self._any_place(context, schema_id)
        subject = str(name)
        number = context.places.get(schema_id, {}).get(subject)
        return None if number is None else self._subjects[subject][number]


def _referred(subject: str, reference: Reference) -> Place:
    return beside(subject, reference.subject), reference.version


def _scopes(scope: str | None) -> Iterator[str | None]:
    """Where a setting of the scope is looked for, nearest first."""
    yield scope
    if scope is not None:
        name = SubjectName.parse(scope)
        yield name.scope or None
    yield GLOBAL_SCOPE


def _is_global(scope: str | None) -> bool:
    return scope is None or SubjectName.parse(scope).context == GLOBAL_CONTEXT


def _set(settings: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        settings.pop(key, None)
    else:
        settings[key] = value
