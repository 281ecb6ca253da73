"""Routes of configs: the compatibility level, and what else schemas are held to."""

from headrace.registry import configs
from headrace.registry.http.exchange import Answer, Request, force_of
from headrace.registry.http.scopes import scope
from headrace.registry.registry import Registry
from headrace.registry.settings_changes import delete_config, set_config
from headrace.registry.subject_names import require_valid


def get_config(registry: Registry, request: Request) -> Answer:
    return Answer(force_of(registry, scope(request), request))


async def put_config(registry: Registry, request: Request) -> Answer:
    where = scope(request)
    if where is not None:
        require_valid(where, for_settings=True)
    body = request.json()
    config = await registry.write(lambda: set_config(registry.subjects, where, body))
    return Answer(configs.requested(config))


async def remove_config(registry: Registry, request: Request) -> Answer:
    where = scope(request)
    return Answer(await registry.write(lambda: delete_config(registry.subjects, where)))
