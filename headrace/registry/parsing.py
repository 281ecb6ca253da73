"""Schemas parsed with what they refer to, each once: parsing costs far more than remembering."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace

from headrace.registry.language import InvalidSchema, Language, ParsedSchema, Reference
from headrace.registry.refusals import Refusal, Refused
from headrace.registry.schema import LATEST, Schema, SchemaVersion
from headrace.registry.subject_names import beside
from headrace.registry.subjects import Subjects

# Confluent's default for the same cache.
MAX_REMEMBERED = 1_000
# A chain of references longer than this is a mistake, or an attack.
MAX_REFERENCES = 1_000

_Key = tuple[str, str, tuple[tuple[str, str], ...], bool]


class Parser:
    """Parses schemas of any language, resolving their references among the subjects."""

    def __init__(self, subjects: Subjects, languages: Mapping[str, Language]) -> None:
        self._subjects = subjects
        self.languages = languages
        self._remembered: OrderedDict[_Key, ParsedSchema] = OrderedDict()

    def parse(self, subject: str, schema: Schema, *, new: bool = False) -> ParsedSchema:
        """Raises 42201; a `new` schema may not refer to deleted versions."""
        references = tuple(self._references(subject, schema, new=new).items())
        key = (schema.language, schema.text, references, new)
        parsed = self._remembered.get(key)
        if parsed is None:
            parsed = self._parse(schema, dict(references), new=new)
            self._remembered[key] = parsed
            if len(self._remembered) > MAX_REMEMBERED:
                self._remembered.popitem(last=False)
        else:
            self._remembered.move_to_end(key)
        return parsed

    def stored(self, version: SchemaVersion) -> ParsedSchema:
        return self.parse(version.subject, version.schema)

    def settled(self, subject: str, references: tuple[Reference, ...]) -> tuple[Reference, ...]:
        """The references with "latest" as the version that it is now."""
        return tuple(self._settled(subject, each) for each in references)

    def language(self, name: str) -> Language:
        try:
            return self.languages[name]
        except KeyError:
            raise Refused(Refusal.INVALID_SCHEMA, f"Invalid schema type {name}") from None
        except ImportError as error:
            reason = f"Schemas of type {name} are not served by this installation: {error}"
            raise Refused(Refusal.INVALID_SCHEMA, reason) from error

    def _parse(self, schema: Schema, references: Mapping[str, str], *, new: bool) -> ParsedSchema:
        language = self.language(schema.language)
        try:
            return language.parse(schema.text, references, new=new)
        except InvalidSchema as error:
            reason = str(error)
        except RecursionError:
            reason = "it is nested too deeply"
        raise Refused(
            Refusal.INVALID_SCHEMA,
            f"Invalid schema of type {schema.language}, details: {reason}",
        )

    def _references(self, subject: str, schema: Schema, *, new: bool) -> dict[str, str]:
        """Name and text of all it refers to, directly or not, the depended on first."""
        found: dict[str, str] = {}
        visited: set[str] = set()
        # Each entry: a reference still to be looked at, or one whose own references are done.
        pending: list[tuple[str, Reference, SchemaVersion | None]] = [
            (subject, each, None) for each in reversed(schema.references)
        ]
        while pending:
            parent, reference, done = pending.pop()
            if done is not None:
                found[reference.name] = done.schema.text
                continue
            version = self._referred(parent, reference, new=new)
            if reference.name in visited:
                continue
            visited.add(reference.name)
            if len(visited) > MAX_REFERENCES:
                self._refuse(f"it refers to more than {MAX_REFERENCES} schemas")
            pending.append((parent, reference, version))
            pending += [
                (version.subject, each, None) for each in reversed(version.schema.references)
            ]
        return found

    def _referred(self, parent: str, reference: Reference, *, new: bool) -> SchemaVersion:
        subject = beside(parent, reference.subject)
        found = self._subjects.version(subject, reference.version, deleted=not new)
        if found is None:
            raise Refused(
                Refusal.INVALID_SCHEMA,
                f'No schema reference found for subject "{subject}" '
                f"and version {reference.version}",
            )
        return found

    def _settled(self, subject: str, reference: Reference) -> Reference:
        if reference.version != LATEST:
            return reference
        latest = self._subjects.latest(beside(subject, reference.subject))
        return reference if latest is None else replace(reference, version=latest.version)

    def _refuse(self, reason: str) -> None:
        raise Refused(Refusal.INVALID_SCHEMA, f"Invalid schema, details: {reason}")
