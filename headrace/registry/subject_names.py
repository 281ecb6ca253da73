"""Subjects and the contexts they live in: `:.context:subject`, or a bare subject."""

import unicodedata
from typing import NamedTuple

from headrace.registry.refusals import Refusal, Refused

DEFAULT_CONTEXT = "."
# A context of this name holds the config and mode that every context falls back to.
GLOBAL_CONTEXT = ".__GLOBAL"
GLOBAL_SCOPE = f":{GLOBAL_CONTEXT}:"
ALL_CONTEXTS = ":*:"
RESERVED_SUBJECTS = ("__GLOBAL", "__EMPTY")


class SubjectName(NamedTuple):
    """A subject in a context; an empty subject means the context itself."""

    context: str
    subject: str

    @classmethod
    def parse(cls, text: str) -> "SubjectName":
        if text.startswith(":."):
            context, _, subject = text[1:].partition(":")
            return cls(context, subject)
        if text.startswith(ALL_CONTEXTS):
            return cls("*", text[len(ALL_CONTEXTS) :])
        return cls(DEFAULT_CONTEXT, text)

    @property
    def scope(self) -> str:
        """The context as a prefix of its subjects; empty for the default one."""
        return "" if self.context == DEFAULT_CONTEXT else f":{self.context}:"

    def __str__(self) -> str:
        return self.scope + self.subject


def normalized(text: str) -> str:
    """`:.:subject` is the same as `subject`."""
    return str(SubjectName.parse(text))


def context_of(subject: str) -> str:
    if not subject.startswith(":"):
        return DEFAULT_CONTEXT
    return SubjectName.parse(subject).context


def scope_of(subject: str) -> str:
    return SubjectName.parse(subject).scope


def beside(parent: str, subject: str) -> str:
    """The subject as one means it who lives where the parent lives."""
    name = SubjectName.parse(subject)
    if name.context == DEFAULT_CONTEXT:
        name = SubjectName(context_of(parent), name.subject)
    return str(name)


def context_scope(text: str) -> str:
    """A context as a URL names it (`.prod`, `prod`, `:.prod:`) as a prefix of subjects."""
    context = text.removeprefix(":").removesuffix(":")
    if ":" in context:
        raise Refused(Refusal.BAD_REQUEST, f"Context name '{context}' cannot contain a colon")
    if not context.startswith("."):
        context = "." + context
    return SubjectName(context, "").scope


def is_context(subject: str | None) -> bool:
    return subject is None or not SubjectName.parse(subject).subject


def covers(scope: str | None, subject: str) -> bool:
    """Whether config or mode of this scope (None: all) speaks of the subject."""
    if scope is None or scope == subject:
        return True
    name = SubjectName.parse(scope)
    if name.subject:
        return False
    return name.context in (GLOBAL_CONTEXT, context_of(subject))


def require_valid(subject: str, *, for_settings: bool = False) -> None:
    """Refuse names with control characters, and those the registry keeps for itself."""
    name = SubjectName.parse(subject)
    if (
        any(unicodedata.category(character) == "Cc" for character in subject)
        or name.subject in RESERVED_SUBJECTS
        or (name.context == GLOBAL_CONTEXT and not for_settings)
    ):
        raise Refused(Refusal.INVALID_SUBJECT, subject)
