"""Files that are no longer a log's, kept a little for whoever is reading them."""

import logging
import threading
from collections import deque
from collections.abc import Sequence

from headrace.log.filesystem import Filesystem

logger = logging.getLogger(__name__)


class DeletedFiles:
    """Paths and when to remove them; a start removes those that a stop left behind."""

    def __init__(self, filesystem: Filesystem) -> None:
        self._filesystem = filesystem
        self._waiting: deque[tuple[int, str]] = deque()
        # Files are set aside on one thread and removed on another.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, paths: Sequence[str], due_ms: int) -> None:
        with self._lock:
            self._waiting.extend((due_ms, path) for path in paths)

    def due(self, now_ms: int) -> bool:
        """Whether there is something to remove."""
        with self._lock:
            return any(at <= now_ms for at, _path in self._waiting)

    def remove(self, now_ms: int) -> int:
        """Remove what is due; how many files."""
        with self._lock:
            due = [path for at, path in self._waiting if at <= now_ms]
            self._waiting = deque(item for item in self._waiting if item[0] > now_ms)
        return self._remove(due)

    def remove_all(self) -> int:
        with self._lock:
            due = [path for _at, path in self._waiting]
            self._waiting.clear()
        return self._remove(due)

    def _remove(self, paths: Sequence[str]) -> int:
        removed = 0
        for path in paths:
            try:
                self._filesystem.remove(path)
                removed += 1
            except FileNotFoundError:
                # The whole partition is gone.
                continue
            except OSError as error:
                logger.warning("deleted file left for the next start file=%s: %s", path, error)
        return removed
