"""Routes of modes: whether schemas may be read only, written, or imported."""

from headrace.registry.configs import parse_mode
from headrace.registry.http.exchange import Answer, Request
from headrace.registry.http.scopes import scope
from headrace.registry.refusals import Refusal, Refused
from headrace.registry.registry import Registry
from headrace.registry.settings_changes import delete_mode, set_mode
from headrace.registry.subject_names import require_valid


def get_mode(registry: Registry, request: Request) -> Answer:
    where = scope(request)
    subjects = registry.subjects
    inherited = request.flag("defaultToGlobal")
    mode = subjects.mode_in_force(where) if inherited else subjects.mode(where)
    if mode is None:
        raise Refused(Refusal.NO_SUBJECT_MODE, where)
    return Answer({"mode": str(mode)})


async def put_mode(registry: Registry, request: Request) -> Answer:
    where = scope(request)
    if where is not None:
        require_valid(where, for_settings=True)
    text = request.json().get("mode")
    mode = None if text is None else parse_mode(text)
    force = request.flag("force")
    await registry.write(lambda: set_mode(registry.subjects, where, mode, force=force))
    return Answer({} if mode is None else {"mode": str(mode)})


async def remove_mode(registry: Registry, request: Request) -> Answer:
    where, recursive = scope(request), request.flag("recursive")
    mode = await registry.write(lambda: delete_mode(registry.subjects, where, recursive=recursive))
    return Answer({} if mode is None else {"mode": str(mode)})
