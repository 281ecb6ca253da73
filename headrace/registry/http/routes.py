"""The table of routes, and how a path finds its row: contexts and aliases resolved on the way."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from headrace.registry.http import (
    compatibility,
    config,
    contexts,
    metadata,
    mode,
    schemas,
    subjects,
)
from headrace.registry.http.access import Role
from headrace.registry.http.exchange import Answer, Request
from headrace.registry.refusals import Refusal, Refused
from headrace.registry.registry import Registry
from headrace.registry.subject_names import beside, context_scope, normalized

Handler = Callable[[Registry, Request], Answer | Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Route:
    """One row: a method and a path, who answers it, and what the asker must be allowed."""

    method: str
    path: str
    handler: Handler
    role: Role
    query: tuple[str, ...] = ()
    # A write is done by the leader alone,
    writes: bool = False
    # unless this has the answer: what was to be written stands already.
    standing: Callable[[Registry, Request], Answer | None] | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(part for part in self.path.split("/") if part)

    @property
    def name(self) -> str:
        return self.handler.__name__


PAGE = ("offset", "limit")
LISTED = ("deleted", "deletedOnly", *PAGE)
SHOWN = ("format", "referenceFormat", "deleted", "findTags")
READ, WRITE, ADMIN = Role.READ, Role.WRITE, Role.ADMIN
SUBJECT = "/subjects/{subject}"
VERSIONS = "/subjects/{subject}/versions"
VERSION = "/subjects/{subject}/versions/{version}"
BY_ID = "/schemas/ids/{id}"
CHECKED = "/compatibility/subjects/{subject}/versions"

ROUTES: tuple[Route, ...] = (
    Route("GET", "/", metadata.root, Role.NONE),
    Route("POST", "/", metadata.root, Role.NONE),
    Route("GET", "/subjects", subjects.list_subjects, READ, ("subjectPrefix", *LISTED)),
    Route("POST", SUBJECT, subjects.look_up, READ, ("normalize", "format", "deleted")),
    Route("DELETE", SUBJECT, subjects.delete_subject, WRITE, ("permanent",), writes=True),
    Route("GET", VERSIONS, subjects.list_versions, READ, ("deletedAsNegative", *LISTED)),
    Route(
        "POST",
        VERSIONS,
        subjects.register,
        WRITE,
        ("normalize", "format", "force"),
        writes=True,
        standing=subjects.registered,
    ),
    Route("GET", VERSION, subjects.get_version, READ, SHOWN),
    Route("POST", VERSION, subjects.look_up_at_version, READ, ("normalize", "deleted")),
    Route("DELETE", VERSION, subjects.delete_version, WRITE, ("permanent",), writes=True),
    Route("GET", f"{VERSION}/schema", subjects.get_version_schema, READ, ("format", "deleted")),
    Route("POST", f"{VERSION}/tags", subjects.change_tags, WRITE, writes=True),
    Route("GET", f"{VERSION}/referencedby", subjects.referenced_by, READ, ("deleted", *PAGE)),
    Route(
        "GET",
        f"{SUBJECT}/metadata",
        subjects.latest_with_metadata,
        READ,
        ("key", "value", "format", "deleted"),
    ),
    Route(
        "GET",
        "/schemas",
        schemas.list_schemas,
        READ,
        ("subjectPrefix", "aliases", "deleted", "latestOnly", "ruleType", *PAGE),
    ),
    Route("GET", "/schemas/types", schemas.types, Role.NONE),
    Route(
        "GET",
        BY_ID,
        schemas.get_by_id,
        READ,
        ("subject", "format", "referenceFormat", "findTags", "fetchMaxId"),
    ),
    Route("GET", f"{BY_ID}/schema", schemas.get_schema_by_id, READ, ("subject", "format")),
    Route("GET", f"{BY_ID}/subjects", schemas.subjects_of_id, READ, ("subject", "deleted", *PAGE)),
    Route("GET", f"{BY_ID}/versions", schemas.versions_of_id, READ, ("subject", "deleted", *PAGE)),
    Route("GET", "/schemas/guids/{guid}", schemas.get_by_guid, READ, ("format",)),
    Route("GET", "/schemas/guids/{guid}/ids", schemas.ids_of_guid, READ),
    Route("POST", CHECKED, compatibility.check_all, READ, ("normalize", "verbose")),
    Route(
        "POST",
        f"{CHECKED}/{{version}}",
        compatibility.check_version,
        READ,
        ("normalize", "verbose"),
    ),
    Route("GET", "/config", config.get_config, READ, ("defaultToGlobal",)),
    Route("PUT", "/config", config.put_config, ADMIN, writes=True),
    Route("DELETE", "/config", config.remove_config, ADMIN, writes=True),
    Route("GET", "/config/{subject}", config.get_config, READ, ("defaultToGlobal",)),
    Route("PUT", "/config/{subject}", config.put_config, ADMIN, writes=True),
    Route("DELETE", "/config/{subject}", config.remove_config, ADMIN, writes=True),
    Route("GET", "/mode", mode.get_mode, READ, ("defaultToGlobal",)),
    Route("PUT", "/mode", mode.put_mode, ADMIN, ("force",), writes=True),
    Route("DELETE", "/mode", mode.remove_mode, ADMIN, ("recursive",), writes=True),
    Route("GET", "/mode/{subject}", mode.get_mode, READ, ("defaultToGlobal",)),
    Route("PUT", "/mode/{subject}", mode.put_mode, ADMIN, ("force",), writes=True),
    Route("DELETE", "/mode/{subject}", mode.remove_mode, ADMIN, ("recursive",), writes=True),
    Route("GET", "/contexts", contexts.list_contexts, READ, ("contextPrefix", *PAGE)),
    Route("DELETE", "/contexts/{context}", contexts.remove_context, ADMIN, writes=True),
    Route("GET", "/v1/metadata/id", metadata.cluster_id, Role.NONE),
    Route("GET", "/v1/metadata/version", metadata.server_version, Role.NONE),
    Route("GET", "/v1/metadata/deployment", metadata.deployment, Role.NONE),
)

# By number of parts, so that few rows are looked at.
_BY_LENGTH: dict[int, list[Route]] = {}
for _route in ROUTES:
    _BY_LENGTH.setdefault(len(_route.parts), []).append(_route)


def find_route(registry: Registry, request: Request) -> Route:
    """The row that answers the request, its subject made plain; raises 404 or 405."""
    _enter_context(request)
    _follow_alias(registry, request)
    matching = list(_matching(request.segments))
    for route, values in matching:
        if route.method == request.method:
            request.values = values
            if "subject" in values:
                values["subject"] = normalized(values["subject"])
            return route
    raise Refused(Refusal.METHOD_NOT_ALLOWED if matching else Refusal.NOT_FOUND)


def _matching(segments: list[str]) -> Iterator[tuple[Route, dict[str, str]]]:
    for route in _BY_LENGTH.get(len(segments), ()):
        values = {}
        for part, segment in zip(route.parts, segments, strict=True):
            if part.startswith("{"):
                values[part[1:-1]] = segment
            elif part != segment:
                break
        else:
            yield route, values


def _enter_context(request: Request) -> None:
    """`/contexts/.prod/subjects/a` means the subject `:.prod:a`; so do lists and ids."""
    if len(request.segments) < 3 or request.segments[0] != "contexts":
        return
    scope = context_scope(request.segments[1])
    rest = request.segments[2:]
    for index in _subject_indexes(rest):
        rest[index] = _within(scope, rest[index])
    if rest in (["config"], ["mode"]) and scope:
        rest.append(scope)
    if rest[:2] == ["schemas", "ids"]:
        request.query["subject"] = [_within(scope, request.text("subject"))]
    elif rest in (["schemas"], ["subjects"]):
        request.query["subjectPrefix"] = [_within(scope, request.text("subjectPrefix"))]
    request.segments = rest


def _subject_indexes(segments: list[str]) -> Iterator[int]:
    """Where in a path a subject stands."""
    if len(segments) > 1 and segments[0] in ("config", "mode"):
        yield 1
    elif "subjects" in segments[:-1] and segments[0] in ("subjects", "compatibility"):
        yield segments.index("subjects") + 1


def _within(scope: str, text: str) -> str:
    return text if text.startswith((":.", ":*:")) else scope + text


def _follow_alias(registry: Registry, request: Request) -> None:
    segments = request.segments
    if segments and segments[0] in ("subjects", "compatibility"):
        for index in _subject_indexes(segments):
            segments[index] = _aliased(registry, segments[index])
    elif segments[:2] == ["schemas", "ids"] and request.text("subject"):
        request.query["subject"] = [_aliased(registry, request.text("subject"))]


def _aliased(registry: Registry, subject: str) -> str:
    config = registry.subjects.stored_config(normalized(subject))
    alias = (config or {}).get("alias")
    return beside(subject, alias) if alias else subject
