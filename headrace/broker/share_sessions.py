"""Share sessions (KIP-932): which partitions a member of a share group fetches, between fetches."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from headrace.errors import ErrorCode, KafkaError

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_INT = 2**31 - 1


class SessionKey(NamedTuple):
    """A member of a group: it has one session."""

    group_id: str
    member_id: str


class TopicPartition(NamedTuple):
    """A partition by the id of its topic."""

    topic_id: UUID
    partition: int


class ShareSession:
    """The partitions of one member, in the order in which they are served."""

    __slots__ = ("closed", "connection_id", "epoch", "key", "partitions")

    def __init__(self, key: SessionKey, connection_id: int) -> None:
        self.key = key
        self.connection_id = connection_id
        self.epoch = 1
        self.closed = False
        self.partitions: OrderedDict[TopicPartition, None] = OrderedDict()

    def update(self, added: Iterable[TopicPartition], forgotten: Iterable[TopicPartition]) -> None:
        for each in added:
            self.partitions.setdefault(each)
        for each in forgotten:
            self.partitions.pop(each, None)

    def serve_last(self, partition: TopicPartition) -> None:
        """It got records: next time the others go first."""
        if partition in self.partitions:
            self.partitions.move_to_end(partition)

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == MAX_INT else self.epoch + 1


class ShareSessions:
    """At most `limit` sessions. One ends with its connection: what it held is offered again."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[int, set[SessionKey]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, key: SessionKey, connection_id: int) -> ShareSession:
        """A new session, in place of the one the member had."""
        self.close(key)
        if len(self._sessions) >= self._limit:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"there are {self._limit} sessions already"
            )
        session = self._sessions[key] = ShareSession(key, connection_id)
        self._by_connection.setdefault(connection_id, set()).add(key)
        return session

    def resume(self, key: SessionKey, epoch: int) -> ShareSession:
        """The session that a member goes on with, or ends; refuses as Kafka does."""
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_NOT_FOUND, f"{key.member_id} has no share session"
            )
        if epoch not in (FINAL_EPOCH, session.epoch):
            raise KafkaError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"the session is at epoch {session.epoch}, the request at {epoch}",
            )
        return session

    def close(self, key: SessionKey) -> ShareSession | None:
        session = self._sessions.pop(key, None)
        if session is not None:
            session.closed = True
            keys = self._by_connection[session.connection_id]
            keys.discard(key)
            if not keys:
                del self._by_connection[session.connection_id]
        return session

    def of_connection(self, connection_id: int) -> list[SessionKey]:
        return list(self._by_connection.get(connection_id, ()))
