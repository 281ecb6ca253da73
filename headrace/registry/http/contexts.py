"""Routes of contexts."""

from headrace.registry.deletion import delete_context
from headrace.registry.http.exchange import Answer, Request, page
from headrace.registry.registry import Registry
from headrace.registry.subject_names import context_scope


def list_contexts(registry: Registry, request: Request) -> Answer:
    prefix = request.text("contextPrefix")
    names = [name for name in registry.subjects.contexts if name.startswith(prefix)]
    return Answer(page(request, names))


async def remove_context(registry: Registry, request: Request) -> Answer:
    where = context_scope(request.values["context"])
    await registry.write(lambda: delete_context(registry.subjects, where))
    return Answer(None, 204)
