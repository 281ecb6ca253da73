"""Routes of subjects and their versions."""

from headrace.registry import deletion
from headrace.registry.http import formats
from headrace.registry.http.exchange import Answer, Request, page, version_number
from headrace.registry.refusals import Refusal, Refused
from headrace.registry.registration import Registration
from headrace.registry.registry import Registry
from headrace.registry.schema import SchemaVersion
from headrace.registry.subject_names import (
    ALL_CONTEXTS,
    DEFAULT_CONTEXT,
    SubjectName,
    require_valid,
)

MAX_REFERRERS = 1_000


def list_subjects(registry: Registry, request: Request) -> Answer:
    subjects = registry.subjects
    names = [
        name
        for name in with_prefix(registry, request.text("subjectPrefix", ALL_CONTEXTS))
        if _shown(request, alive=bool(subjects.versions(name))) and request.readable(name)
    ]
    return Answer(page(request, names))


def look_up(registry: Registry, request: Request) -> Answer:
    wanted = formats.registration(request.subject, request)
    deleted = request.flag("deleted")
    found = registry.registrar.find_anywhere(wanted, deleted=deleted)
    if found is None:
        _refuse_missing(registry, request.subject, deleted=deleted)
        raise Refused(Refusal.SCHEMA_NOT_FOUND)
    return Answer(formats.found_json(registry, found, request))


async def delete_subject(registry: Registry, request: Request) -> Answer:
    permanent = request.flag("permanent")
    numbers = await registry.write(
        lambda: deletion.delete_subject(registry.subjects, request.subject, permanent=permanent)
    )
    return Answer(numbers)


def list_versions(registry: Registry, request: Request) -> Answer:
    negative = request.flag("deletedAsNegative")
    hidden = request.flag("deleted") or request.flag("deletedOnly")
    if not registry.subjects.has(request.subject, deleted=hidden):
        raise Refused(Refusal.SUBJECT_NOT_FOUND, request.subject)
    numbers = [
        -each.version if negative and each.deleted else each.version
        for each in registry.subjects.versions(request.subject, deleted=True)
        if negative or _shown(request, alive=not each.deleted)
    ]
    return Answer(page(request, numbers))


def registered(registry: Registry, request: Request) -> Answer | None:
    """The answer to a registration of what is registered: no writer is needed for it."""
    found = registry.registrar.already(_wanted(registry, request))
    return None if found is None else Answer(formats.registered_json(registry, found, request))


async def register(registry: Registry, request: Request) -> Answer:
    wanted = _wanted(registry, request)
    version = await registry.write(lambda: registry.registrar.register(wanted))
    return Answer(formats.registered_json(registry, version, request))


def get_version(registry: Registry, request: Request) -> Answer:
    version = _version(registry, request, deleted=request.flag("deleted"))
    return Answer(formats.version_json(registry, version, request))


def get_version_schema(registry: Registry, request: Request) -> Answer:
    version = _version(registry, request, deleted=request.flag("deleted"))
    return Answer(formats.formatted(registry, version, request))


def look_up_at_version(registry: Registry, request: Request) -> Answer:
    """Whether the schema is the one of this version."""
    version = _version(registry, request, deleted=request.flag("deleted"))
    wanted = formats.registration(version.subject, request)
    found = registry.registrar.find(wanted, deleted=request.flag("deleted"))
    if found is None or found.schema_id != version.schema_id:
        raise Refused(Refusal.SCHEMA_NOT_FOUND)
    return Answer(formats.version_json(registry, version, request))


async def delete_version(registry: Registry, request: Request) -> Answer:
    number, permanent = version_number(request.values["version"]), request.flag("permanent")
    deleted = await registry.write(
        lambda: deletion.delete_version(
            registry.subjects, request.subject, number, permanent=permanent
        )
    )
    return Answer(deleted)


async def change_tags(registry: Registry, request: Request) -> Answer:
    """A new version: the same schema with other tags, metadata or rules."""
    require_valid(request.subject)
    version = _version(registry, request, deleted=False)
    wanted = formats.retagging(version, request)
    registered = await registry.write(lambda: registry.registrar.register(wanted))
    return Answer(formats.registered_json(registry, registered, request))


def referenced_by(registry: Registry, request: Request) -> Answer:
    version = _version(registry, request, deleted=True)
    place = (version.subject, version.version)
    referrers = registry.subjects.referrers(place, deleted=request.flag("deleted"))
    return Answer(page(request, [number for _, number in referrers], limit=MAX_REFERRERS))


def latest_with_metadata(registry: Registry, request: Request) -> Answer:
    """The latest version whose metadata has all the asked properties."""
    deleted = request.flag("deleted")
    keys, values = request.query.get("key", []), request.query.get("value", [])
    wanted = set(zip(keys, values, strict=False))
    for version in reversed(registry.subjects.versions(request.subject, deleted=deleted)):
        metadata = version.schema.metadata
        if metadata is not None and wanted <= set(metadata.get("properties", {}).items()):
            return Answer(formats.version_json(registry, version, request))
    _refuse_missing(registry, request.subject, deleted=deleted)
    raise Refused(Refusal.SCHEMA_NOT_FOUND)


def with_prefix(registry: Registry, prefix: str) -> list[str]:
    """Subjects by the beginning of their name; `:*:` stands for every context."""
    names = registry.subjects.names()
    if not prefix.startswith(ALL_CONTEXTS):
        return [name for name in names if name.startswith(prefix)]
    rest = prefix.removeprefix(ALL_CONTEXTS)
    return [name for name in names if SubjectName.parse(name).subject.startswith(rest)]


def _wanted(registry: Registry, request: Request) -> Registration:
    require_valid(request.subject)
    if registry.max_schema_bytes is not None and len(request.body) > registry.max_schema_bytes:
        raise Refused(Refusal.SCHEMA_TOO_LARGE)
    return formats.registration(request.subject, request)


def _shown(request: Request, *, alive: bool) -> bool:
    if request.flag("deletedOnly"):
        return not alive
    return alive or request.flag("deleted")


def _version(registry: Registry, request: Request, *, deleted: bool) -> SchemaVersion:
    number = version_number(request.values["version"])
    found = registry.subjects.version(request.subject, number, deleted=deleted)
    name = SubjectName.parse(request.subject)
    if found is None and name.context == DEFAULT_CONTEXT:
        for context in registry.subjects.contexts[1:]:
            elsewhere = str(SubjectName(context, name.subject))
            found = found or registry.subjects.version(elsewhere, number, deleted=deleted)
    if found is None:
        _refuse_missing(registry, request.subject, deleted=deleted)
        raise Refused(Refusal.VERSION_NOT_FOUND, number)
    return found


def _refuse_missing(registry: Registry, subject: str, *, deleted: bool) -> None:
    if not registry.subjects.has(subject, deleted=deleted):
        raise Refused(Refusal.SUBJECT_NOT_FOUND, subject)
