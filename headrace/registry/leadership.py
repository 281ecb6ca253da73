"""The registries of one group: whether this one writes, and how to ask the one that does."""

import asyncio
import http.client
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from headrace.registry.http.exchange import FORWARDED, POSITION, Answer, Request
from headrace.registry.leader import Identity
from headrace.registry.refusals import Refusal, Refused
from headrace.registry.registry import Log

logger = logging.getLogger(__name__)

# Passed on as they came.
PASSED_HEADERS = ("accept", "authorization", "content-type")
FORWARD_LIMIT_S = 30.0
# How long a write waits while nobody is known to lead: longer than a dead leader is waited for.
ELECTION_LIMIT_S = 10.0


class Group:
    """This registry among the others; told of leaders by the election, from its thread."""

    def __init__(
        self, identity: Identity, log: Log, unsettle: Callable[[], None], cafile: Path | None = None
    ) -> None:
        self._identity = identity
        self._log = log
        self._unsettle = unsettle
        self._cafile = cafile
        self._loop = asyncio.get_running_loop()
        self._leader: Identity | None = None
        self._known = asyncio.Event()
        # Set, and replaced, whenever the leader changes.
        self._changed = asyncio.Event()

    @property
    def leads(self) -> bool:
        return self._leader == self._identity

    def leader_is(self, leader: Identity | None) -> None:
        """May be called from any thread."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._change, leader)

    async def decided(self) -> None:
        """Wait until someone leads; raises 50004."""
        try:
            async with asyncio.timeout(ELECTION_LIMIT_S):
                await self._known.wait()
        except TimeoutError:
            raise Refused(Refusal.UNKNOWN_LEADER) from None

    async def forward(self, request: Request, target: str) -> Answer | None:
        """The leader's answer, when this registry has read what was written; None: it leads now."""
        if FORWARDED in request.headers:
            raise Refused(Refusal.UNKNOWN_LEADER)
        try:
            async with asyncio.timeout(ELECTION_LIMIT_S + FORWARD_LIMIT_S):
                while not self.leads:
                    leader, changed = self._leader, self._changed
                    answer = (
                        None if leader is None else await self._forward(leader, request, target)
                    )
                    if answer is not None:
                        return answer
                    # Nobody listens there: the group will notice, and choose another.
                    async with asyncio.timeout(ELECTION_LIMIT_S):
                        await changed.wait()
        except TimeoutError:
            raise Refused(Refusal.FORWARDING_FAILED, "no leader answers") from None
        return None

    async def _forward(self, leader: Identity, request: Request, target: str) -> Answer | None:
        """None: the request did not leave this registry."""
        try:
            answer, position = await asyncio.to_thread(self._ask, leader, request, target)
        except ConnectionRefusedError:
            return None
        except (OSError, http.client.HTTPException) as error:
            raise Refused(Refusal.FORWARDING_FAILED, f"{leader.url}: {error}") from error
        if position:
            with suppress(TimeoutError):
                await self._log.reached(position - 1)
        return answer

    def _change(self, leader: Identity | None) -> None:
        self._leader = leader
        self._changed.set()
        self._changed = asyncio.Event()
        self._unsettle()
        if leader is None:
            self._known.clear()
        else:
            self._known.set()

    def _ask(self, leader: Identity, request: Request, target: str) -> tuple[Answer, int]:
        connection = self._connection(leader)
        headers = {
            name: request.headers[name] for name in PASSED_HEADERS if name in request.headers
        }
        try:
            connection.request(request.method, target, request.body, {**headers, FORWARDED: "true"})
            response = connection.getresponse()
            body = response.read()
            kind = response.getheader("content-type")
            position = int(response.getheader(POSITION) or 0)
            return Answer(body, response.status, kind), position
        finally:
            connection.close()

    def _connection(self, leader: Identity) -> http.client.HTTPConnection:
        if leader.scheme == "https":
            context = ssl.create_default_context(cafile=self._cafile)
            return http.client.HTTPSConnection(
                leader.host, leader.port, timeout=FORWARD_LIMIT_S, context=context
            )
        return http.client.HTTPConnection(leader.host, leader.port, timeout=FORWARD_LIMIT_S)
