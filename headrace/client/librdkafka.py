"""What every librdkafka client of ours shares: its settings, and its errors in our words."""

# ruff: noqa: SLF001 - librdkafka's own error codes are public, and begin with an underscore.
import logging
import socket
from collections.abc import Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError as RawError
from confluent_kafka import KafkaException

from headrace.errors import ErrorCode, HeadraceError, KafkaError, Unreachable

logger = logging.getLogger(__name__)
# Without a handler of the application's, Python would print warnings on standard error.
logger.addHandler(logging.NullHandler())

DEFAULT_PORT = 9092
# A broker that does not accept a connection in this time is called unreachable.
CONNECT_TIMEOUT_S = 5.0
# One admin request, from asking to answer.
REQUEST_TIMEOUT_S = 30.0

# librdkafka's own failures, for which Kafka has a code that says the same.
LOCAL_ERRORS: dict[int, ErrorCode] = {
    RawError._MSG_TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
    RawError._TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
    RawError._UNKNOWN_TOPIC: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    RawError._UNKNOWN_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    RawError._UNKNOWN_GROUP: ErrorCode.GROUP_ID_NOT_FOUND,
    RawError._UNSUPPORTED_FEATURE: ErrorCode.UNSUPPORTED_VERSION,
    RawError._FENCED: ErrorCode.PRODUCER_FENCED,
    RawError._STATE: ErrorCode.INVALID_TXN_STATE,
    RawError._INVALID_ARG: ErrorCode.INVALID_REQUEST,
    RawError._BAD_MSG: ErrorCode.CORRUPT_MESSAGE,
    RawError._AUTHENTICATION: ErrorCode.SASL_AUTHENTICATION_FAILED,
}
CONNECTION_ERRORS = frozenset(
    (
        RawError._TRANSPORT,
        RawError._ALL_BROKERS_DOWN,
        RawError._RESOLVE,
        RawError._SSL,
    )
)


PARTITION_EOF: int = RawError._PARTITION_EOF


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def client_settings(bootstrap: str, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """librdkafka's configuration: our defaults, then what the caller asks for."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "headrace",
        "error_cb": _note_error,
        # librdkafka would print on standard error what the caller gets as an error anyway.
        "logger": logger,
        "log_level": 4,
        # Connect to every broker at once: otherwise a first request waits for timers of 50 ms to
        # 500 ms although the broker answers in one (measured: a first record in 3 ms, not 53).
        "enable.sparse.connections": False,
        # With every known broker down, librdkafka 2.16 would begin anew from bootstrap.servers and
        # forget them; send_offsets_to_transaction then waits for a forgotten one, beyond its own
        # timeout (measured: more than a minute after the only broker was back). Without that it
        # reconnects to those it knows, which is what a restart needs. A client that shall outlive
        # a move of the whole cluster to other addresses sets "rebootstrap".
        "metadata.recovery.strategy": "none",
        **(settings or {}),
    }


def refusal(error: RawError | KafkaException, bootstrap: str, about: str = "") -> HeadraceError:
    """Turn an error of librdkafka into one of ours, `about` naming what it concerns."""
    raw = error.args[0] if isinstance(error, KafkaException) else error
    if not isinstance(raw, RawError):
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(raw))
    if raw.code() in CONNECTION_ERRORS:
        return Unreachable(bootstrap, raw.str())
    reason = raw.str().removeprefix("Broker: ").removeprefix("Local: ")
    return KafkaError(_code(raw.code()), f"{about}: {reason}" if about else reason)


def check_reachable(bootstrap: str) -> None:
    """Raise Unreachable at once where librdkafka would keep trying: nobody listens there."""
    reason = "no address given"
    for address in bootstrap.split(","):
        host, port = split_address(address)
        try:
            socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
        else:
            return
    raise Unreachable(bootstrap, reason)


def split_address(address: str) -> tuple[str, int]:
    """Split HOST:PORT, [V6]:PORT or HOST, as Kafka's bootstrap.servers allows them."""
    text = address.strip().rpartition("://")[2]
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, str(DEFAULT_PORT)
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise Unreachable(address, f"{port!r} is not a port")
    return host.strip("[]"), int(port)


def _code(number: int) -> ErrorCode:
    if number in LOCAL_ERRORS:
        return LOCAL_ERRORS[number]
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _note_error(error: RawError) -> None:
    logger.debug("client error code=%s reason=%s", error.name(), error.str())
