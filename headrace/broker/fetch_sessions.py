"""Incremental fetch sessions (KIP-227): what a consumer reads, remembered between fetches."""

import random
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from uuid import UUID

from headrace.broker.partitions import Partition
from headrace.clock import Clock
from headrace.errors import ErrorCode, KafkaError

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION = 0
MAX_INT = 2**31 - 1

# A session unused for so long may be evicted for any other; a younger one only for a larger one.
EVICTION_MS = 120_000


@dataclass(slots=True, eq=False)
class FetchPosition:
    """Where one consumer stands in one partition, and what it was last told about it."""

    topic: str
    topic_id: UUID
    index: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    partition: Partition | None = None
    told_high_watermark: int = -1
    told_log_start_offset: int = -1

    def update(self, asked: "FetchPosition") -> None:
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch


class FetchSession:
    """The positions of one consumer, in the order in which they are served."""

    def __init__(self, session_id: int, now_ms: int, *, uses_topic_ids: bool) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.positions: OrderedDict[Hashable, FetchPosition] = OrderedDict()

    def key(self, position: FetchPosition) -> Hashable:
        return (position.topic_id if self.uses_topic_ids else position.topic, position.index)

    def update(
        self, asked: Iterable[FetchPosition], forgotten: Iterable[tuple[Hashable, int]]
    ) -> None:
        for position in asked:
            known = self.positions.setdefault(self.key(position), position)
            if known is not position:
                known.update(position)
        for key in forgotten:
            self.positions.pop(key, None)

    def serve_last(self, position: FetchPosition) -> None:
        """It got records: next time the others go first."""
        self.positions.move_to_end(self.key(position))


class FetchSessions:
    """At most `slots` sessions; the cache is a kindness, so a client must cope with eviction."""

    def __init__(self, slots: int, clock: Clock, *, seed: int | None = None) -> None:
        self._slots = slots
        self._clock = clock
        self._random = random.Random(seed)
        # In order of last use, so that the stalest is first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def resume(self, session_id: int, epoch: int, *, uses_topic_ids: bool) -> FetchSession:
        """The session a client continues; refuses as Kafka does when it cannot."""
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no session {session_id}")
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                "a session goes by topic names or by topic ids, not both",
            )
        if session.epoch != epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"session {session_id} is at epoch {session.epoch}, the request at {epoch}",
            )
        return session

    def advance(self, session: FetchSession) -> None:
        """The next request of the session carries the next epoch."""
        session.epoch = 1 if session.epoch == MAX_INT else session.epoch + 1
        session.used_ms = self._clock.monotonic_ms()
        self._sessions.move_to_end(session.session_id)

    def create(self, size: int, *, uses_topic_ids: bool) -> FetchSession | None:
        """A new session for so many partitions, if there is a slot for it or one worth less."""
        now_ms = self._clock.monotonic_ms()
        if len(self._sessions) >= self._slots and not self._evict(size, now_ms):
            return None
        session = FetchSession(self._free_id(), now_ms, uses_topic_ids=uses_topic_ids)
        self._sessions[session.session_id] = session
        return session

    def remove(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)

    def _evict(self, size: int, now_ms: int) -> bool:
        if not self._sessions:
            return False
        stalest = next(iter(self._sessions.values()))
        if now_ms - stalest.used_ms > EVICTION_MS:
            self.remove(stalest.session_id)
            return True
        settled = [s for s in self._sessions.values() if now_ms - s.created_ms > EVICTION_MS]
        smallest = min(settled, key=lambda session: len(session.positions), default=None)
        if smallest is None or len(smallest.positions) >= size:
            return False
        self.remove(smallest.session_id)
        return True

    def _free_id(self) -> int:
        while True:
            session_id = self._random.randint(1, MAX_INT)
            if session_id not in self._sessions:
                return session_id
