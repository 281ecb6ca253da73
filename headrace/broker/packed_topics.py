"""Topics as the bytes of an answer, packed once and kept while the topic stays as it is."""

from collections.abc import Hashable
from uuid import UUID

from headrace.coordination.topics import Topic

MAX_KEPT_BYTES = 32 << 20


class PackedTopics:
    """What is kept was packed from the very topic that is asked for; bounded by its bytes."""

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._kept: dict[tuple[UUID, Hashable], tuple[Topic, bytes]] = {}
        self._bytes = 0

    def find(self, topic: Topic, form: Hashable) -> bytes | None:
        kept = self._kept.get((topic.topic_id, form))
        # A topic that changes becomes another object, so being the same one is being unchanged.
        return kept[1] if kept is not None and kept[0] is topic else None

    def keep(self, topic: Topic, form: Hashable, packed: bytes) -> None:
        former = self._kept.pop((topic.topic_id, form), None)
        if former is not None:
            self._bytes -= len(former[1])
        if self._bytes + len(packed) > self._max_bytes:
            self._kept.clear()
            self._bytes = 0
        self._kept[topic.topic_id, form] = topic, packed
        self._bytes += len(packed)
