"""Api key to handler: version check, the first step of its work, a refusal turned into its code."""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from struct import Struct
from types import ModuleType
from typing import Any

from headrace.broker.connection import Connection
from headrace.broker.context import Broker, Call
from headrace.broker.exchange import Answer, ClientRefused, Pending
from headrace.broker.first_step import Begun
from headrace.broker.refusals import refusal
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.apis import APIS, Api, is_flexible
from headrace.protocol.frame import read_header, response_header
from headrace.protocol.messages import Message, read_request, write_response

logger = logging.getLogger(__name__)

# api key and version as one number, correlation id, length of the client id
_HEADER = Struct(">iih")
_unpack_header = _HEADER.unpack_from
HEADER_BYTES = _HEADER.size
_CORRELATION = Struct(">i")
_CORRELATION_AND_TAGS = Struct(">ib")

PRODUCE, FETCH, API_VERSIONS = 0, 1, 18
# Kafka advertises Produce from 0 for old clients' sake, and serves it from here.
MIN_PRODUCE = 3
# Distinct callers remembered per connection, so that a caller is made once and not per request.
MAX_CALLS = 64

Start = Callable[[Broker, Call, memoryview, int, int], Answer | Pending]
Read = Callable[[int, bytes], Any]
Handle = Callable[[Broker, Call, Any], Awaitable[Message | bytes]]


class Route:
    """One API in one version, and what starts its requests."""

    __slots__ = ("api", "flexible", "pack_head", "start", "version")

    def __init__(self, api: Api, version: int, start: Start) -> None:
        self.api = api
        self.version = version
        self.start = start
        self.flexible = is_flexible(api.key, version)
        tagged = self.flexible and api.key != API_VERSIONS
        self.pack_head: Callable[[int], bytes] = _tagged_head if tagged else _CORRELATION.pack


class Dispatcher:
    """Starts requests; handlers are imported when their API is first asked for."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._routes: dict[int, Route] = {}

    def __call__(
        self, connection: Connection, buffer: memoryview, start: int, end: int
    ) -> tuple[bytes, Answer | Pending]:
        if end - start < HEADER_BYTES:
            raise ValueError(f"{end - start} bytes cannot hold a request header")
        code, correlation_id, name_bytes = _unpack_header(buffer, start)
        route = self._routes.get(code) or self._find_route(code)
        if route is None:
            return self._refuse_version(correlation_id, buffer, start, end)
        position = start + HEADER_BYTES + (name_bytes if name_bytes > 0 else 0)
        # The usual header: a client id seen before, no tagged fields; else it is read with care.
        call = connection.calls.get((code, bytes(buffer[start + 8 : position])))
        if call is None or (route.flexible and buffer[position] != 0):
            call, position = self._read_call(connection, buffer, start, end)
        elif route.flexible:
            position += 1
        if position > end:
            raise ValueError("the request ends inside its header")
        return route.pack_head(correlation_id), route.start(
            self._broker, call, buffer, position, end
        )

    def _read_call(
        self, connection: Connection, buffer: memoryview, start: int, end: int
    ) -> tuple[Call, int]:
        header = read_header(buffer, start, end)
        call = Call(
            header.api_key,
            header.api_version,
            header.client_id,
            connection.host,
            connection.listener,
            connection.number,
        )
        code, _, name_bytes = _unpack_header(buffer, start)
        if len(connection.calls) >= MAX_CALLS:
            connection.calls.clear()
        name_end = start + HEADER_BYTES + max(name_bytes, 0)
        connection.calls[code, bytes(buffer[start + 8 : name_end])] = call
        return call, header.body_position

    def _find_route(self, code: int) -> Route | None:
        api = APIS.get(code >> 16)
        version = code & 0xFFFF
        if api is None or not api.serves(version):
            return None
        if api.key == PRODUCE and version < MIN_PRODUCE:
            return None
        handler = import_module(f"headrace.broker.handlers.{api.name}")
        if api.key in (PRODUCE, FETCH):
            start: Start = handler.start
        else:
            start = _begin(api, version, handler)
        route = self._routes[code] = Route(api, version, start)
        return route

    def _refuse_version(
        self, correlation_id: int, buffer: memoryview, start: int, end: int
    ) -> tuple[bytes, Answer]:
        """Kafka closes the connection, except to ApiVersions: its answer lets the client adapt."""
        api_key, version, *_ = read_header(buffer, start, end)
        if api_key != API_VERSIONS:
            raise ClientRefused(f"api {api_key} version {version} is not served")
        row = APIS[API_VERSIONS]
        answer = Message(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[
                Message(api_key=row.key, min_version=row.min_version, max_version=row.max_version)
            ],
        )
        head = response_header(API_VERSIONS, 0, correlation_id)
        return head, (write_response(API_VERSIONS, 0, answer),)


def _tagged_head(correlation_id: int) -> bytes:
    return _CORRELATION_AND_TAGS.pack(correlation_id, 0)


def _begin(api: Api, version: int, handler: ModuleType) -> Start:
    """How every API but the two hot ones starts: its message read, its handler run.

    Most handlers have nothing to wait for, so the first step is made here and now, and only a
    handler that waits becomes a task. A Heartbeat costs 25 us of CPU so, 53 us with a task and a
    turn of the loop for each; and the answers to a burst leave in one call.

    A handler module with a `read` of its own has a hot codec, and answers in bytes.
    """
    handle: Handle = handler.handle
    read: Read = getattr(handler, "read", None) or partial(read_request, api.key)

    def start(
        broker: Broker, call: Call, buffer: memoryview, position: int, end: int
    ) -> Answer | Pending:
        body = bytes(buffer[position:end])
        work = _answer(call, api, handle(broker, call, read(version, body)), body)
        try:
            awaited = work.send(None)
        except StopIteration as answered:
            return (answered.value,)
        pending = Pending()
        broker.spawn(_finish(pending, Begun(work, awaited)))
        return pending

    return start


async def _finish(pending: Pending, begun: Begun[bytes]) -> None:
    try:
        pending.finish((await begun,))
    except ClientRefused as refusal:
        pending.fail(refusal)


async def _answer(call: Call, api: Api, handled: Awaitable[Message | bytes], body: bytes) -> bytes:
    version = call.api_version
    try:
        answer = await handled
    except KafkaError as error:
        answer = _refused(api, version, body, error)
    except Exception as error:
        logger.exception("handler failed api=%s version=%d", api.name, version)
        unexpected = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}")
        answer = _refused(api, version, body, unexpected)
    if isinstance(answer, bytes):
        return answer
    try:
        return write_response(api.key, version, answer)
    except Exception as error:
        logger.exception("request failed api=%s version=%d", api.name, version)
        raise ClientRefused(f"no answer could be made: {error}") from error


def _refused(api: Api, version: int, body: bytes, error: KafkaError) -> Message:
    # Read once more: a hot codec's request is not what refusals are made from.
    return refusal(api.key, api.name, read_request(api.key, version, body), error)
