"""Members of classic groups as a crowd: one loop drives them all, at little cost of its own."""

import selectors
import socket
import struct
import time
from collections.abc import Iterable

from headrace.protocol.frame import framed, request_header
from headrace.protocol.messages import Message, read_response, write_request

JOIN, SYNC, HEARTBEAT, LEAVE = 11, 14, 12, 13
VERSIONS = {JOIN: 5, SYNC: 3, HEARTBEAT: 3, LEAVE: 1}
REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED, NOT_READY = 27, 79, (14, 15, 16)
LIMIT_S = 60.0
RETRY_S = 0.05
QUIET_S = 0.02
READ_BYTES = 256 << 10
# Not empty, so that the leader's answer to a join does not end as the others' do: in zeros.
METADATA = b"m"
NO_MEMBERS = b"\0\0\0\0"
_SIZE = struct.Struct(">i")


def frame(api_key: int, version: int, message: Message) -> bytes:
    header = request_header(api_key, version, 1, "bench", flexible=False)
    return framed(header + write_request(api_key, version, message))


class Member:
    """One member on a connection of its own; at most one question is open."""

    def __init__(self, bootstrap: str, group: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=LIMIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._group = group
        self._received = bytearray()
        self._asked = 0
        self._id = ""
        self.generation = -1
        self._join_frame = b""
        self.stable = False

    @property
    def asks(self) -> bool:
        return self._asked != 0

    def join(self) -> None:
        self.stable = False
        if not self._join_frame:
            message = Message(
                group_id=self._group,
                session_timeout_ms=30_000,
                rebalance_timeout_ms=30_000,
                member_id=self._id,
                protocol_type="consumer",
                protocols=[Message(name="range", metadata=METADATA)],
            )
            self._join_frame = frame(JOIN, VERSIONS[JOIN], message)
        self._ask(JOIN, self._join_frame)

    def heartbeat(self) -> None:
        """Ask once whether a rebalance is on, and go through it if so."""
        self._ask(HEARTBEAT, self._named(HEARTBEAT, b""))

    def leave(self) -> None:
        leaving = Message(group_id=self._group, member_id=self._id)
        self._ask(LEAVE, frame(LEAVE, VERSIONS[LEAVE], leaving))

    def close(self) -> None:
        self.socket.close()

    def receive(self) -> None:
        """Take what came, and act upon a whole answer."""
        part = self.socket.recv(READ_BYTES)
        if not part:
            raise ConnectionError("the broker closed the connection")
        self._received += part
        received = self._received
        if len(received) < 4 or len(received) < 4 + _SIZE.unpack_from(received)[0]:
            return
        self._received = bytearray()
        self._answered(bytes(received[4:]))

    def _ask(self, api_key: int, request: bytes) -> None:
        self._asked = api_key
        self.socket.sendall(request)

    def _answered(self, answer: bytes) -> None:
        asked, self._asked = self._asked, 0
        if asked == LEAVE:
            return
        (error,) = struct.unpack_from(">h", answer, 8)
        if asked == JOIN:
            self._joined(error, answer)
        elif error == REBALANCE_IN_PROGRESS:
            self.join()
        elif error:
            raise RuntimeError(f"api {asked} answered error {error}")
        else:
            self.stable = True

    def _joined(self, error: int, answer: bytes) -> None:
        if error == MEMBER_ID_REQUIRED:
            self._id = read_response(JOIN, VERSIONS[JOIN], answer[4:]).member_id
            self._join_frame = b""
        elif error == 0:
            self._sync(answer)
            return
        elif error in NOT_READY:
            time.sleep(RETRY_S)
        elif error != REBALANCE_IN_PROGRESS:
            raise RuntimeError(f"join answered error {error}")
        self.join()

    def _sync(self, joined: bytes) -> None:
        (self.generation,) = struct.unpack_from(">i", joined, 10)
        assignments = NO_MEMBERS
        if joined[-4:] != NO_MEMBERS:
            members = read_response(JOIN, VERSIONS[JOIN], joined[4:]).members
            parts = [_text(each.member_id) + b"\0\0\0\1x" for each in members]
            assignments = struct.pack(">i", len(parts)) + b"".join(parts)
        self._ask(SYNC, self._named(SYNC, assignments))

    def _named(self, api_key: int, rest: bytes) -> bytes:
        """What Heartbeat and SyncGroup begin with, packed by hand: every member sends both."""
        header = struct.pack(">hhih5s", api_key, VERSIONS[api_key], 1, 5, b"bench")
        who = _text(self._group) + struct.pack(">i", self.generation) + _text(self._id)
        return framed(header + who + b"\xff\xff" + rest)


class Crowd:
    """Members, and the one loop that takes their answers."""

    def __init__(self, members: Iterable[Member]) -> None:
        self._selector = selectors.DefaultSelector()
        for member in members:
            self.add(member)

    def add(self, member: Member) -> None:
        self._selector.register(member.socket, selectors.EVENT_READ, member)

    def remove(self, member: Member) -> None:
        self._selector.unregister(member.socket)
        member.close()

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            self.remove(key.data)
        self._selector.close()

    @property
    def members(self) -> list[Member]:
        return [key.data for key in self._selector.get_map().values()]

    def take(self, timeout_s: float) -> bool:
        """Act upon every answer that is there, or comes in time; False if none was."""
        ready = self._selector.select(timeout_s)
        for key, _ in ready:
            key.data.receive()
        return bool(ready)

    def until_stable(self) -> None:
        """Until all are in one generation; who was in an earlier one is reminded by heartbeats."""
        deadline = time.monotonic() + LIMIT_S
        members = self.members
        while True:
            while not all(member.stable for member in members):
                if time.monotonic() > deadline:
                    raise TimeoutError("the group did not become stable")
                if not self.take(QUIET_S):
                    self._remind(members)
            if len({member.generation for member in members}) == 1:
                return
            self._remind(members)
            self.take(QUIET_S)

    def _remind(self, members: Iterable[Member]) -> None:
        for member in members:
            if member.stable and not member.asks:
                member.heartbeat()

    def follow(self, scout: Member) -> None:
        """Go through the rebalance that is about to begin, once a member hears of it.

        The others ask only then: asking all the time would measure heartbeats.
        """
        others = [member for member in self.members if member.stable and member is not scout]
        while scout.stable:
            scout.heartbeat()
            while scout.stable and scout.asks:
                self.take(1.0)
        for member in others:
            member.stable = False
            member.heartbeat()
        self.until_stable()


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw
