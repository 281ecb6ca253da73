"""A request as routes see it, and an answer as they give it: no bytes, no sockets."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote

from headrace.registry.configs import Config
from headrace.registry.refusals import Refusal, Refused
from headrace.registry.registry import Registry
from headrace.registry.schema import LATEST

V1_JSON = "application/vnd.schemaregistry.v1+json"
DEFAULT_JSON = "application/vnd.schemaregistry+json"
PLAIN_JSON = "application/json"
# In the order of preference, when a client accepts several.
PRODUCED = (V1_JSON, DEFAULT_JSON, PLAIN_JSON)
CONSUMED = (*PRODUCED, "application/octet-stream")
WILDCARDS = ("*/*", "application/*")
MAX_INTEGER = 2**31 - 1
# Headers between registries: a request was passed on, and how far its answer has written.
FORWARDED = "x-forward"
POSITION = "x-headrace-position"

Filter = Callable[[str], bool]


@dataclass(slots=True)
class Request:
    """One request; `values` are the parts of the path that its route names."""

    method: str
    segments: list[str]
    query: dict[str, list[str]]
    headers: Mapping[str, str]
    body: bytes = b""
    values: dict[str, str] = field(default_factory=dict)
    # Which subjects the asker may read, for answers that list many.
    readable: Filter = lambda _: True

    @property
    def subject(self) -> str:
        return self.values["subject"]

    def flag(self, name: str) -> bool:
        return self.text(name).lower() == "true"

    def text(self, name: str, default: str = "") -> str:
        return self.query.get(name, [default])[0]

    def number(self, name: str, default: int) -> int:
        """A number of the query; anything else is an address that does not exist."""
        return whole_number(self.text(name, str(default)))

    def json(self) -> dict[str, Any]:
        """The body, which must be a JSON object."""
        if not self.body.strip():
            raise Refused(Refusal.UNPROCESSABLE, "The request body must not be empty")
        try:
            found = json.loads(self.body)
            # A string that no bytes spell could be neither stored nor answered.
            json.dumps(found, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            raise Refused(Refusal.BAD_REQUEST, f"The body is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise Refused(Refusal.BAD_REQUEST, "The body is not a JSON object")
        return found


@dataclass(frozen=True, slots=True)
class Answer:
    """What a route answers; a string is sent as it is, anything else as JSON."""

    content: Any
    status: int = 200
    content_type: str | None = None

    @property
    def body(self) -> bytes:
        if self.status == 204:
            return b""
        if isinstance(self.content, bytes):
            return self.content
        if isinstance(self.content, str):
            return self.content.encode()
        return json.dumps(self.content, ensure_ascii=False, separators=(",", ":")).encode()


def refused(error: Refused) -> Answer:
    content = {"error_code": error.refusal.code, "message": error.message}
    return Answer(content, error.refusal.status)


def split_path(raw_path: str) -> list[str]:
    """The path's segments, each unquoted by itself: a subject may well hold a slash."""
    segments = [unquote(part) for part in raw_path.strip("/").split("/")]
    return [] if segments == [""] else segments


def split_query(text: str) -> dict[str, list[str]]:
    return parse_qs(text, keep_blank_values=True, max_num_fields=100)


def content_type(accept: str) -> str:
    """The type of the answer, of those the client accepts; raises 406."""
    offered = [part.split(";")[0].strip().lower() for part in accept.split(",")]
    if not accept or any(part in WILDCARDS for part in offered):
        return next((each for each in PRODUCED if each in offered), V1_JSON)
    for each in PRODUCED:
        if each in offered:
            return each
    raise Refused(Refusal.NOT_ACCEPTABLE)


def require_consumed(content_type: str) -> None:
    if content_type and content_type.split(";")[0].strip().lower() not in CONSUMED:
        raise Refused(Refusal.UNSUPPORTED_MEDIA_TYPE)


def whole_number(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise Refused(Refusal.NOT_FOUND) from None
    if not -MAX_INTEGER <= number <= MAX_INTEGER:
        raise Refused(Refusal.NOT_FOUND)
    return number


def version_number(text: str) -> int:
    """A version of the path: a number from 1, or LATEST for `latest` and `-1`."""
    text = text.strip()
    if text.lower() == "latest":
        return LATEST
    try:
        number = int(text)
    except ValueError:
        raise Refused(Refusal.INVALID_VERSION, text) from None
    if number != LATEST and not 0 < number <= MAX_INTEGER:
        raise Refused(Refusal.INVALID_VERSION, text)
    return number


def page(request: Request, items: Sequence[Any], *, limit: int = MAX_INTEGER) -> list[Any]:
    """The part of a list that `offset` and `limit` ask for; `limit` is also the most given."""
    offset = max(0, request.number("offset", 0))
    asked = request.number("limit", -1)
    return list(items[offset : offset + (asked if 0 < asked <= limit else limit)])


def force_of(registry: Registry, scope: str | None, request: Request) -> Config:
    """The config a request sees: the scope's own, or the one it inherits if it asks for that."""
    if request.flag("defaultToGlobal"):
        return registry.subjects.config_in_force(scope)
    found = registry.subjects.config(scope)
    if found is None:
        raise Refused(Refusal.NO_SUBJECT_CONFIG, scope)
    return found
