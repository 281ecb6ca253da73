"""What clients may use of this process."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one server, from its settings; every buffer and queue of it has one."""

    max_frame_bytes: int
    request_memory_bytes: int
    max_connections: int
    max_connections_per_ip: int
    max_idle_ms: int
    # A client that does not read its answers is not read from beyond this.
    max_unsent_bytes: int
    # Produces of one connection that may wait for the disk at once.
    max_unanswered: int
    # Of a client's socket; 0 leaves them to the system, which sizes them as they are needed.
    send_buffer_bytes: int = 0
    receive_buffer_bytes: int = 0
    # Connections that may wait to be accepted.
    backlog: int = 1024
