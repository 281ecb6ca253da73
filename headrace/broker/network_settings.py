"""Settings of listeners, connections and requests, with Kafka's names and defaults."""

import re
from dataclasses import dataclass

from headrace.errors import SettingError
from headrace.settings import (
    INT_MAX,
    Dynamic,
    Importance,
    Kind,
    at_least,
    list_of,
    setting,
    settings,
)

PLAINTEXT = "PLAINTEXT"
_LISTENER = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\[\]:/]*)):(-?[0-9]+)")


@dataclass(frozen=True, slots=True)
class Listener:
    """Where a broker listens, or what it tells clients; no host is every interface."""

    name: str
    host: str
    port: int

    @classmethod
    def parse(cls, setting_name: str, text: str) -> "Listener":
        match = _LISTENER.fullmatch(text)
        if match is None or not 0 <= int(match[4]) <= 65535:
            raise SettingError(setting_name, f"{text!r} is not NAME://host:port")
        return cls(match[1].upper(), match[2] or match[3] or "", int(match[4]))


@settings
class NetworkSettings:
    """Where clients connect, and how much they may ask."""

    listeners: tuple[str, ...] = setting(
        name="listeners",
        default=("PLAINTEXT://:9092",),
        check=list_of(),
        importance=Importance.HIGH,
        dynamic=Dynamic.PER_BROKER,
        doc="Where clients connect: NAME://host:port, by commas; no host is every interface.",
    )
    advertised_listeners: tuple[str, ...] | None = setting(
        name="advertised.listeners",
        default=None,
        kind=Kind.LIST,
        importance=Importance.HIGH,
        doc="What clients are told to connect to, when it differs from listeners.",
    )
    listener_security_protocol_map: str = setting(
        name="listener.security.protocol.map",
        default="SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        importance=Importance.LOW,
        dynamic=Dynamic.PER_BROKER,
        doc="Which protocol each listener name speaks; only PLAINTEXT is served.",
    )
    controller_listener_names: tuple[str, ...] | None = setting(
        name="controller.listener.names",
        default=None,
        kind=Kind.LIST,
        importance=Importance.HIGH,
        doc="Listeners of this name are for other controllers, so they are not opened.",
    )
    socket_request_max_bytes: int = setting(
        name="socket.request.max.bytes",
        default=104_857_600,
        kind=Kind.INT,
        check=at_least(1),
        importance=Importance.HIGH,
        doc="The largest request; a longer one closes its connection.",
    )
    socket_send_buffer_bytes: int = setting(
        name="socket.send.buffer.bytes",
        default=102_400,
        kind=Kind.INT,
        importance=Importance.HIGH,
        doc="SO_SNDBUF of a client's socket; -1 leaves it to the system.",
    )
    socket_receive_buffer_bytes: int = setting(
        name="socket.receive.buffer.bytes",
        default=102_400,
        kind=Kind.INT,
        importance=Importance.HIGH,
        doc="SO_RCVBUF of a client's socket; -1 leaves it to the system.",
    )
    socket_listen_backlog_size: int = setting(
        name="socket.listen.backlog.size",
        default=50,
        kind=Kind.INT,
        check=at_least(1),
        doc="How many connections may wait to be accepted.",
    )
    connections_max_idle_ms: int = setting(
        name="connections.max.idle.ms",
        default=600_000,
        doc="A connection silent for longer is closed.",
    )
    max_connections: int = setting(
        name="max.connections",
        default=INT_MAX,
        kind=Kind.INT,
        check=at_least(0),
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Connections past this many wait until others close.",
    )
    max_connections_per_ip: int = setting(
        name="max.connections.per.ip",
        default=INT_MAX,
        kind=Kind.INT,
        check=at_least(0),
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Connections past this many from one address are closed at once.",
    )
    max_connections_per_ip_overrides: str = setting(
        name="max.connections.per.ip.overrides",
        default="",
        dynamic=Dynamic.CLUSTER_WIDE,
        inert=True,
        doc="Kept and shown; max.connections.per.ip holds for every address.",
    )
    max_connection_creation_rate: int = setting(
        name="max.connection.creation.rate",
        default=INT_MAX,
        kind=Kind.INT,
        check=at_least(0),
        dynamic=Dynamic.CLUSTER_WIDE,
        inert=True,
        doc="Kept and shown; connections are limited in number, not in rate.",
    )
    queued_max_requests: int = setting(
        name="queued.max.requests",
        default=500,
        kind=Kind.INT,
        check=at_least(1),
        importance=Importance.HIGH,
        inert=True,
        doc="Kept and shown; queued.max.request.bytes bounds what waits.",
    )
    queued_max_request_bytes: int = setting(
        name="queued.max.request.bytes",
        default=-1,
        doc="Bytes of requests that may wait in memory at once; -1 is 256 MB.",
    )
    fetch_max_bytes: int = setting(
        name="fetch.max.bytes",
        default=57_671_680,
        kind=Kind.INT,
        check=at_least(1_024),
        doc="The most a Fetch answers, whatever the client asks.",
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        name="max.incremental.fetch.session.cache.slots",
        default=1000,
        kind=Kind.INT,
        check=at_least(0),
        doc="Fetch sessions kept; without a slot a client's Fetch is a full one.",
    )
    max_request_partition_size_limit: int = setting(
        name="max.request.partition.size.limit",
        default=2000,
        kind=Kind.INT,
        check=at_least(1),
        doc="The most partitions one DescribeTopicPartitions answers.",
    )
    # Headrace's own, in Kafka's manner.
    max_requests_per_connection: int = setting(
        name="max.requests.per.connection",
        default=256,
        kind=Kind.INT,
        check=at_least(1),
        doc="Requests of one connection in flight; past this many its socket is not read.",
    )
    socket_unsent_max_bytes: int = setting(
        name="socket.unsent.max.bytes",
        default=16 << 20,
        check=at_least(1),
        doc="A client with more answers unread than this is not read from until it reads.",
    )

    def __post_init__(self) -> None:
        limit = self.socket_request_max_bytes
        if 0 < self.queued_max_request_bytes < limit:
            reason = f"must be -1 or at least socket.request.max.bytes ({limit})"
            raise SettingError("queued.max.request.bytes", reason)
        self._check_listeners()

    def _check_listeners(self) -> None:
        protocols = dict(
            pair.strip().upper().split(":", 1)
            for pair in self.listener_security_protocol_map.split(",")
            if ":" in pair
        )
        names = [listener.name for listener in self.endpoints]
        if not names or len(set(names)) != len(names):
            raise SettingError("listeners", "must name at least one listener, each name once")
        for name in names:
            if protocols.get(name) != PLAINTEXT:
                spoken = protocols.get(name, "nothing known")
                raise SettingError("listeners", f"{name} speaks {spoken}; only PLAINTEXT is served")
        for listener in self.advertised_endpoints:
            if listener.name not in names:
                raise SettingError("advertised.listeners", f"{listener.name} is no listener")
            if listener.host == "0.0.0.0" and self.advertised_listeners:
                raise SettingError("advertised.listeners", "0.0.0.0 is nowhere to connect to")

    @property
    def endpoints(self) -> tuple[Listener, ...]:
        """The listeners to open: all but the controllers'."""
        opened = (Listener.parse("listeners", text) for text in self.listeners)
        controllers = {name.upper() for name in self.controller_listener_names or ()}
        return tuple(listener for listener in opened if listener.name not in controllers)

    @property
    def advertised_endpoints(self) -> tuple[Listener, ...]:
        """What clients are told of each listener: advertised.listeners, or where it listens."""
        if not self.advertised_listeners:
            return self.endpoints
        told = (Listener.parse("advertised.listeners", it) for it in self.advertised_listeners)
        controllers = {name.upper() for name in self.controller_listener_names or ()}
        return tuple(listener for listener in told if listener.name not in controllers)
