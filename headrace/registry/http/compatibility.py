"""Routes that ask whether a schema would go with what is registered."""

from headrace.registry.http import formats
from headrace.registry.http.exchange import Answer, Request, version_number
from headrace.registry.refusals import Refusal, Refused
from headrace.registry.registry import Registry
from headrace.registry.schema import LATEST, SchemaVersion


def check_version(registry: Registry, request: Request) -> Answer:
    number = version_number(request.values["version"])
    found = registry.subjects.version(request.subject, number)
    if found is None and number != LATEST:
        raise Refused(Refusal.VERSION_NOT_FOUND, number)
    return _checked(registry, request, [] if found is None else [found])


def check_all(registry: Registry, request: Request) -> Answer:
    return _checked(registry, request, registry.subjects.versions(request.subject))


def _checked(registry: Registry, request: Request, previous: list[SchemaVersion]) -> Answer:
    verbose = request.flag("verbose")
    wanted = formats.registration(request.subject, request)
    try:
        messages = registry.registrar.conflicts(wanted, previous)
    except Refused as error:
        if not verbose or error.refusal is not Refusal.INVALID_SCHEMA:
            raise
        messages = [error.message]
    content: dict[str, object] = {"is_compatible": not messages}
    if verbose:
        content["messages"] = messages
    return Answer(content)
