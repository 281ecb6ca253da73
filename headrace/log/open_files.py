"""Which files are open: never more than a limit, so that 10,000 partitions fit one process."""

from collections import deque
from typing import Protocol

from headrace.log.filesystem import File, Filesystem


class Holder(Protocol):
    """Whoever keeps an open file and can give it up: it opens it again when needed."""

    path: str

    def give_up(self) -> None: ...


class OpenFiles:
    """At most `limit` held files; the one opened first is given up first.

    Giving up only drops a reference: a slice being sent or a sync under way keeps its file
    open until it is done. Order of opening, not of use, because use is the hot path.
    """

    def __init__(self, filesystem: Filesystem, limit: int = 0) -> None:
        self.filesystem = filesystem
        self.limit = limit or filesystem.max_open_files()
        self._held: deque[Holder] = deque()

    def open(self, holder: Holder, *, create: bool = False) -> File:
        file = self.filesystem.open(holder.path, create=create)
        self._held.append(holder)
        while len(self._held) > self.limit:
            self._held.popleft().give_up()
        return file
