"""Whose setting a request is about: a subject's, a context's, or everyone's."""

from headrace.registry.http.exchange import Request
from headrace.registry.subject_names import SubjectName


def scope(request: Request) -> str | None:
    """None: everyone's, which is also what the default context's are."""
    text = request.values.get("subject")
    if text is None:
        return None
    return str(SubjectName.parse(text)) or None
