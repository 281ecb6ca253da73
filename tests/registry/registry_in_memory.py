"""A whole registry without a socket or a topic: its log is a list of encoded records."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from headrace.registry.http.access import Users
from headrace.registry.http.app import Application
from headrace.registry.http.exchange import V1_JSON, Answer, Request
from headrace.registry.records import Record, decode, encode
from headrace.registry.refusals import Refusal, Refused
from headrace.registry.registry import Registry
from tests.registry.tiny_language import TINY_LANGUAGES

NOW_MS = 1_700_000_000_000


class MemoryLog:
    """Keeps records as a topic would; `away` is why it cannot be written now."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.records: list[tuple[bytes, bytes | None]] = []
        self.away: Refusal | None = None

    @property
    def position(self) -> int:
        return len(self.records)

    async def settle(self) -> None:
        if self.away is not None:
            raise Refused(self.away, "the log is away")

    async def append(self, records: Sequence[Record]) -> None:
        # Others get their turn, as they would while bytes travel.
        await asyncio.sleep(0)
        for record in records:
            self.records.append(encode(record))
            decoded = decode(*self.records[-1], NOW_MS)
            if decoded is not None:
                self._registry.replay(decoded, self.position - 1)

    async def reached(self, offset: int) -> None:
        assert offset < self.position


class Alone:
    """A registry that has no other beside it."""

    leads = True
    # Whether anyone is known to lead.
    known = True

    async def decided(self) -> None:
        if not self.known:
            raise Refused(Refusal.UNKNOWN_LEADER)

    async def forward(self, request: Request, target: str) -> Answer:
        raise AssertionError("there is nobody to ask")


class Answered(NamedTuple):
    status: int
    content: Any
    headers: dict[str, str]

    @property
    def code(self) -> int:
        """The error's code."""
        code: int = self.content["error_code"]
        return code


class Api:
    """The registry's API as a client sees it; each call is one request."""

    def __init__(self, users: Users | None = None) -> None:
        self.registry = Registry(TINY_LANGUAGES)
        self.log = MemoryLog(self.registry)
        self.registry.log = self.log
        self.group = Alone()
        self.application = Application(self.registry, users or Users(None), self.group)

    def get(self, path: str, **query: object) -> Answered:
        return self.ask("GET", path, None, query)

    def post(self, path: str, body: object, **query: object) -> Answered:
        return self.ask("POST", path, body, query)

    def put(self, path: str, body: object, **query: object) -> Answered:
        return self.ask("PUT", path, body, query)

    def delete(self, path: str, **query: object) -> Answered:
        return self.ask("DELETE", path, None, query)

    def register(self, subject: str, schema: str, **fields: object) -> int:
        """The id of a schema that must be accepted."""
        answer = self.post(f"/subjects/{subject}/versions", {"schema": schema, **fields})
        assert answer.status == 200, answer.content
        number: int = answer.content["id"]
        return number

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        query: dict[str, object] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answered:
        return asyncio.run(self.asked(method, path, body, query, headers))

    async def asked(
        self,
        method: str,
        path: str,
        body: object = None,
        query: dict[str, object] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answered:
        content = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        sent: list[Any] = []
        given = {"content-type": V1_JSON, **(headers or {})}
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": urlencode(_spelled(query or {}), doseq=True).encode(),
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": content}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.application(scope, receive, send)
        start, end = sent
        answered = {name.decode(): value.decode() for name, value in start["headers"]}
        text = end["body"].decode()
        try:
            shown = json.loads(text) if text else None
        except ValueError:
            shown = text
        return Answered(start["status"], shown, answered)


def _spelled(query: dict[str, object]) -> dict[str, object]:
    return {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in query.items()
    }
