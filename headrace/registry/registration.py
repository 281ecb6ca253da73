"""Registering a schema and finding one that is registered: the rules, without writing."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.registry import contracts
from headrace.registry.compatibility import levels
from headrace.registry.compatibility.levels import Level, Previous
from headrace.registry.configs import Config, Mode, has_defaults
from headrace.registry.decision import Decision
from headrace.registry.language import ParsedSchema
from headrace.registry.parsing import Parser
from headrace.registry.records import ContextRecord, Record, SchemaRecord
from headrace.registry.refusals import Refusal, Refused
from headrace.registry.schema import LATEST, Schema, SchemaVersion
from headrace.registry.subject_names import DEFAULT_CONTEXT, SubjectName, context_of, scope_of
from headrace.registry.subjects import Subjects

FIRST_VERSION = 1
# How a request says that the registry is to choose.
NO_ID = -1
NEXT_VERSION = 0


@dataclass(frozen=True, slots=True)
class Registration:
    """A schema to be registered or found under a subject."""

    subject: str
    schema: Schema
    schema_id: int = NO_ID
    version: int = NEXT_VERSION
    normalize: bool = False
    force: bool = False


class Registrar:
    """Decides registrations and finds schemas, over the state of the moment."""

    def __init__(self, subjects: Subjects, parser: Parser) -> None:
        self._subjects = subjects
        self._parser = parser

    def already(self, wanted: Registration) -> SchemaVersion | None:
        """What a registration would find in place; it needs no leave to be written."""
        config = self._subjects.config_in_force(wanted.subject)
        return self._already(replace(wanted, normalize=self._normalizes(wanted, config)), config)

    def register(self, wanted: Registration) -> Decision[SchemaVersion]:
        """Raises what Confluent's registry raises: mode, schema, compatibility, id, version."""
        subject = wanted.subject
        config = self._subjects.config_in_force(subject)
        wanted = replace(wanted, normalize=self._normalizes(wanted, config))
        found = self._already(wanted, config)
        if found is not None:
            return Decision((), found)
        mode = self._subjects.mode_in_force(subject)
        _require_mode(wanted, mode)
        versions = self._subjects.versions(subject, deleted=True)
        next_version = versions[-1].version + 1 if versions else FIRST_VERSION
        if not mode.importing:
            wanted = self._completed(wanted, config, next_version)
        schema, parsed = self._canonical(wanted, mode, new=wanted.schema_id < 0)
        wanted = replace(wanted, schema=schema)
        schema_id = self._known_id(wanted)
        if wanted.version == NEXT_VERSION:
            found = self._same(wanted, schema_id)
            if found is not None:
                return Decision((), found)
        if not mode.importing and not wanted.force:
            self._require_compatible(wanted, parsed, config)
        if wanted.version > 0 and wanted.version != next_version and not mode.importing:
            raise Refused(Refusal.INVALID_SCHEMA, "Version is not one more than previous version")
        number = wanted.version if wanted.version > 0 else next_version
        return self._decided(wanted, schema_id, number)

    def find(self, wanted: Registration, *, deleted: bool = False) -> SchemaVersion | None:
        """The version of the subject that has this schema."""
        config = self._subjects.config_in_force(wanted.subject)
        wanted = replace(wanted, normalize=self._normalizes(wanted, config))
        found = self._look_up(wanted, deleted=deleted)
        latest = self._subjects.latest(wanted.subject)
        if found is not None or latest is None:
            return found
        inherited = _with_contracts(wanted.schema, latest, config)
        if inherited == wanted.schema:
            return None
        return self._look_up(replace(wanted, schema=inherited), deleted=deleted)

    def find_anywhere(self, wanted: Registration, *, deleted: bool) -> SchemaVersion | None:
        """As find; a subject of the default context is looked for in every other one too."""
        found = self.find(wanted, deleted=deleted)
        name = SubjectName.parse(wanted.subject)
        if found is not None or name.context != DEFAULT_CONTEXT:
            return found
        for context in self._subjects.contexts[1:]:
            qualified = replace(wanted, subject=str(SubjectName(context, name.subject)))
            try:
                found = self.find(qualified, deleted=deleted)
            except Refused:
                # In that context its references may lead nowhere.
                continue
            if found is not None:
                return found
        return None

    def conflicts(self, wanted: Registration, previous: list[SchemaVersion]) -> list[str]:
        """Why the schema does not go with these versions, oldest first; raises 42201."""
        config = self._subjects.config_in_force(wanted.subject)
        wanted = replace(wanted, normalize=self._normalizes(wanted, config))
        if not wanted.schema.text.strip():
            raise Refused(Refusal.INVALID_SCHEMA, "Empty schema")
        mode = self._subjects.mode_in_force(wanted.subject)
        schema, parsed = self._canonical(wanted, mode, new=True)
        return self._conflicts(replace(wanted, schema=schema), parsed, config, previous)

    def _already(self, wanted: Registration, config: Config) -> SchemaVersion | None:
        if has_defaults(config) or not wanted.schema.text.strip():
            return None
        if wanted.version == LATEST:
            latest = self._subjects.latest(wanted.subject)
            found = self._look_up(wanted, deleted=False)
            return found if latest is not None and found == latest else None
        found = self._look_up(wanted, deleted=False)
        if found is None or wanted.schema_id not in (NO_ID, found.schema_id):
            return None
        return found if wanted.version in (NEXT_VERSION, found.version) else None

    def _look_up(self, wanted: Registration, *, deleted: bool) -> SchemaVersion | None:
        if not wanted.schema.text.strip():
            return None
        mode = self._subjects.mode_in_force(wanted.subject)
        schema, parsed = self._canonical(wanted, mode, new=False)
        wanted = replace(wanted, schema=schema)
        found = self._same_content(wanted, deleted=deleted)
        return found or self._equivalent(wanted, parsed, deleted=deleted)

    def _same(self, wanted: Registration, schema_id: int) -> SchemaVersion | None:
        found = self._same_content(wanted, deleted=False)
        if found is None:
            parsed = self._parser.parse(wanted.subject, wanted.schema)
            found = self._equivalent(wanted, parsed, deleted=False)
        return found if found is not None and schema_id in (NO_ID, found.schema_id) else None

    def _same_content(self, wanted: Registration, *, deleted: bool) -> SchemaVersion | None:
        schema_id = self._subjects.id_of(wanted.schema.guid, context_of(wanted.subject))
        if schema_id is None:
            return None
        found = self._subjects.by_id(schema_id, wanted.subject)
        if found is None or found.subject != wanted.subject or found.schema != wanted.schema:
            return None
        return found if deleted or not found.deleted else None

    def _equivalent(
        self, wanted: Registration, parsed: ParsedSchema, *, deleted: bool
    ) -> SchemaVersion | None:
        """A version that says the same in another way: references named or written out."""
        for each in reversed(self._subjects.versions(wanted.subject, deleted=deleted)):
            if self._matches(wanted, parsed, each):
                return each
        return None

    def _matches(self, wanted: Registration, parsed: ParsedSchema, old: SchemaVersion) -> bool:
        if wanted.schema.language != old.schema.language:
            return False
        if not _same_contracts(wanted.schema, old):
            return False
        if old.schema.references and not wanted.schema.references:
            return self._parser.stored(old).resolved() == parsed.resolved()
        return (
            wanted.schema.text == old.schema.text
            and wanted.schema.references == self._parser.settled(old.subject, old.schema.references)
        )

    def _completed(self, wanted: Registration, config: Config, next_version: int) -> Registration:
        """With what a request may leave out: the schema, its metadata and its rules."""
        latest = self._subjects.latest(wanted.subject)
        schema = wanted.schema
        if not schema.text.strip():
            if latest is None:
                raise Refused(Refusal.INVALID_SCHEMA, "Empty schema")
            old = latest.schema
            schema = replace(
                schema, language=old.language, text=old.text, references=old.references
            )
        schema = _with_contracts(schema, latest, config)
        if wanted.version != NEXT_VERSION or contracts.stated_version(schema.metadata):
            versioned = contracts.with_version(schema.metadata, next_version)
            schema = replace(schema, metadata=versioned)
        return replace(wanted, schema=schema)

    def _canonical(
        self, wanted: Registration, mode: Mode, *, new: bool
    ) -> tuple[Schema, ParsedSchema]:
        if not wanted.schema.text.strip():
            raise Refused(Refusal.INVALID_SCHEMA, "Empty schema")
        parsed = self._parser.parse(wanted.subject, wanted.schema, new=new)
        if wanted.normalize and not mode.importing:
            parsed = parsed.normalized()
        references = self._parser.settled(wanted.subject, wanted.schema.references)
        return replace(wanted.schema, text=parsed.text, references=references), parsed

    def _known_id(self, wanted: Registration) -> int:
        known = self._subjects.id_of(wanted.schema.guid, context_of(wanted.subject))
        if known is not None and wanted.schema_id in (NO_ID, known):
            return known
        return wanted.schema_id

    def _require_compatible(
        self, wanted: Registration, parsed: ParsedSchema, config: Config
    ) -> None:
        previous = self._subjects.versions(wanted.subject)
        found = self._conflicts(wanted, parsed, config, previous)
        if found:
            details = f"[{', '.join(found)}]"
            raise Refused(Refusal.INCOMPATIBLE, wanted.subject, details)

    def _conflicts(
        self,
        wanted: Registration,
        parsed: ParsedSchema,
        config: Config,
        previous: list[SchemaVersion],
    ) -> list[str]:
        level = Level(config["compatibilityLevel"])
        group = config.get("compatibilityGroup")
        if group is not None:
            mine = _property(wanted.schema.metadata, group)
            previous = [each for each in previous if _property(each.schema.metadata, group) == mine]
        # Only what is compared is parsed: with 1,000 versions that is the difference.
        compared = sorted(levels.compared(level, len(previous)))
        found = levels.conflict(
            level,
            self._parser.language(wanted.schema.language),
            parsed,
            [
                Previous(previous[index].version, self._parser.stored(previous[index]))
                for index in compared
            ],
        )
        return [] if found is None else levels.messages(level, found)

    def _decided(
        self, wanted: Registration, schema_id: int, number: int
    ) -> Decision[SchemaVersion]:
        subject, context = wanted.subject, context_of(wanted.subject)
        if schema_id >= 0:
            self._require_free_id(wanted, schema_id)
        else:
            schema_id = self._subjects.max_id(context) + 1
        version = SchemaVersion(subject, number, schema_id, wanted.schema, wanted.schema.guid)
        records: list[Record] = []
        if not self._subjects.has_context(context):
            records.append(ContextRecord(context, exists=True))
        for old in self._subjects.versions(subject, deleted=True):
            # The schema comes back: its deleted self would only be in the way.
            same = old.deleted and old.schema_id == schema_id and old.version < number
            if same and not self._subjects.referrers((subject, old.version), deleted=True):
                records.append(SchemaRecord(subject, old.version, None))
        records.append(SchemaRecord(subject, number, version))
        return Decision(tuple(records), version)

    def _require_free_id(self, wanted: Registration, schema_id: int) -> None:
        scope = scope_of(wanted.subject)
        holder = self._subjects.by_id(schema_id, scope)
        if holder is not None and holder.schema != wanted.schema:
            raise Refused(
                Refusal.NOT_PERMITTED,
                f"Overwrite new schema with id {schema_id} in context {scope} is not permitted.",
            )

    def _normalizes(self, wanted: Registration, config: Config) -> bool:
        return wanted.normalize or bool(config.get("normalize"))


def _require_mode(wanted: Registration, mode: Mode) -> None:
    about = f"Subject {wanted.subject} in context {scope_of(wanted.subject)} is"
    if mode.read_only:
        raise Refused(Refusal.NOT_PERMITTED, f"{about} in read-only mode")
    if wanted.schema_id >= 0 and not mode.importing:
        raise Refused(Refusal.NOT_PERMITTED, f"{about} not in import mode")
    if wanted.schema_id < 0 and mode is not Mode.READWRITE:
        raise Refused(Refusal.NOT_PERMITTED, f"{about} not in read-write mode")


def _with_contracts(schema: Schema, latest: SchemaVersion | None, config: Config) -> Schema:
    """The schema with the metadata and rules it inherits: defaults, its own, overrides."""
    own_metadata, own_rules = schema.metadata, schema.rule_set
    if latest is not None:
        own_metadata = latest.schema.metadata if own_metadata is None else own_metadata
        own_rules = latest.schema.rule_set if own_rules is None else own_rules
    metadata = contracts.merged_metadata(config.get("defaultMetadata"), own_metadata)
    rules = contracts.merged_rules(config.get("defaultRuleSet"), own_rules)
    return replace(
        schema,
        metadata=contracts.merged_metadata(metadata, config.get("overrideMetadata")),
        rule_set=contracts.merged_rules(rules, config.get("overrideRuleSet")),
    )


def _same_contracts(schema: Schema, old: SchemaVersion) -> bool:
    """Whether metadata and rules agree, where one of them need not state its version."""
    stated = contracts.stated_version(schema.metadata)
    theirs = contracts.stated_version(old.schema.metadata)
    if schema.rule_set != old.schema.rule_set:
        return False
    if stated == theirs:
        return schema.metadata == old.schema.metadata
    if stated is not None and (theirs is not None or stated != str(old.version)):
        return False
    return contracts.without_version(schema.metadata) == contracts.without_version(
        old.schema.metadata
    )


def _property(metadata: Mapping[str, Any] | None, name: str) -> str | None:
    value: str | None = (metadata or {}).get("properties", {}).get(name)
    return value
