"""One broker connection in plain sockets, for what librdkafka cannot ask."""

import socket
import struct
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import cache
from types import TracebackType
from typing import Self

from headrace.client.librdkafka import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, split_address
from headrace.client.patience import patiently
from headrace.errors import ErrorCode, KafkaError, Unreachable
from headrace.protocol import schemas
from headrace.protocol.frame import MAX_FRAME, framed, request_header
from headrace.protocol.messages import Message, read_response, write_request

SIZE = struct.Struct(">i")
CLIENT_ID = "headrace"


class Api(IntEnum):
    """The APIs asked here, by Kafka's key."""

    METADATA = 3
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    LIST_GROUPS = 16
    API_VERSIONS = 18
    INIT_PRODUCER_ID = 22
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    DESCRIBE_SHARE_GROUP_OFFSETS = 90


class CoordinatorKind(IntEnum):
    """What a coordinator looks after, in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class Connection:
    """Asks one broker one request at a time, in the newest version both sides know."""

    def __init__(self, host: str, port: int, *, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self._address = f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), CONNECT_TIMEOUT_S)
        except OSError as error:
            raise Unreachable(self._address, (error.strerror or str(error)).lower()) from error
        self._socket.settimeout(timeout_s)
        self._correlation_id = 0
        self._versions = self._ask_versions()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def call(self, api: Api, request: Message) -> Message:
        """The answer to a request; an API the broker does not serve raises UNSUPPORTED_VERSION."""
        return self._exchange(api, self.version(api), request)

    def version(self, api: Api) -> int:
        known = schemas.versions(api)
        lowest, highest = self._versions.get(api, (0, -1))
        version = min(highest, known[-1])
        if version < max(lowest, known[0]):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"the broker at {self._address} has no {api.name}"
            )
        return version

    def _ask_versions(self) -> Mapping[int, tuple[int, int]]:
        # Version 0 is the one that every broker of every age answers.
        answer = self._exchange(Api.API_VERSIONS, 0, Message())
        return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}

    def _exchange(self, api: Api, version: int, request: Message) -> Message:
        self._correlation_id += 1
        flexible = _flexible(api, version)
        header = request_header(api, version, self._correlation_id, CLIENT_ID, flexible=flexible)
        try:
            self._socket.sendall(framed(header, write_request(api, version, request)))
            answer = self._read_frame()
        except OSError as error:
            raise Unreachable(self._address, f"{api.name}: {error}") from error
        if len(answer) < SIZE.size or SIZE.unpack_from(answer)[0] != self._correlation_id:
            raise Unreachable(self._address, "what answers there does not speak Kafka's protocol")
        # The answer to ApiVersions has a plain header in every version (KIP-511).
        start = SIZE.size + (flexible and api is not Api.API_VERSIONS)
        return read_response(api, version, memoryview(answer)[start:])

    def _read_frame(self) -> bytearray:
        size = SIZE.unpack(self._read_exactly(SIZE.size))[0]
        if not 0 <= size <= MAX_FRAME:
            raise OSError(f"an answer of {size} bytes")
        return self._read_exactly(size)

    def _read_exactly(self, size: int) -> bytearray:
        buffer = bytearray(size)
        filled = 0
        with memoryview(buffer) as view:
            while filled < size:
                received = self._socket.recv_into(view[filled:])
                if not received:
                    raise OSError("the broker closed the connection")
                filled += received
        return buffer


class Wire:
    """The brokers of a cluster, each by a connection opened when first asked."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._open: dict[int, Connection] = {}
        self._first = self._bootstrap_connection()
        answer = self._first.call(Api.METADATA, Message(topics=[]))
        self._addresses = {row.node_id: (row.host, row.port) for row in answer.brokers}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for connection in (self._first, *self._open.values()):
            connection.close()

    @property
    def node_ids(self) -> list[int]:
        return sorted(self._addresses)

    def any(self) -> Connection:
        return self._first

    def broker(self, node_id: int) -> Connection:
        if node_id not in self._addresses:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"the cluster has no broker {node_id}")
        if node_id not in self._open:
            self._open[node_id] = Connection(*self._addresses[node_id])
        return self._open[node_id]

    def coordinator(self, kind: CoordinatorKind, key: str) -> tuple[int, Connection]:
        """The broker that looks after a group or a transactional id."""
        answer = asked(
            self._first,
            Api.FIND_COORDINATOR,
            Message(key=key, key_type=kind, coordinator_keys=[key]),
            f"finding the coordinator of {key}",
            lambda found: int(_coordinator_row(found).error_code),
        )
        node_id = _coordinator_row(answer).node_id
        return node_id, self.broker(node_id)

    def _bootstrap_connection(self) -> Connection:
        failure = Unreachable(self.bootstrap, "no address given")
        for address in self.bootstrap.split(","):
            try:
                return Connection(*split_address(address))
            except Unreachable as error:
                failure = Unreachable(self.bootstrap, error.reason)
        raise failure


def refuse(code: int, message: str) -> None:
    """Raise if an answer carries an error."""
    if code != ErrorCode.NONE:
        raise KafkaError(ErrorCode(code), message)


def _top_error(answer: Message) -> int:
    return int(answer.error_code)


def asked(
    broker: Connection,
    api: Api,
    request: Message,
    about: str,
    error_of: Callable[[Message], int] = _top_error,
) -> Message:
    """The answer once it carries no error; one that passes, as of a coordinator that loads, may."""

    def ask() -> Message:
        answer = broker.call(api, request)
        refuse(error_of(answer), about)
        return answer

    return patiently(ask)


def _coordinator_row(answer: Message) -> Message:
    # Older versions answer for one key at the top, newer ones for several below.
    row: Message = answer.coordinators[0] if answer.coordinators else answer
    return row


@cache
def _flexible(api: int, version: int) -> bool:
    return schemas.struct_of(api, version, request=True).is_flexible
