"""What a partition has to put on stable storage, and the ticket for one sync of it."""

import contextlib
from dataclasses import dataclass
from typing import NamedTuple

from headrace.log.filesystem import File, Filesystem, parent


class Write(NamedTuple):
    """Bytes that go to a place in a file, and are synced with it."""

    path: str
    position: int
    content: bytes


class Document(NamedTuple):
    """A small file that is replaced whole."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class SyncTicket:
    """Made and settled on the thread that owns the log; `sync` may run on any other, once.

    A log has one ticket under way at a time.
    """

    filesystem: Filesystem
    next_offset: int
    active: File | None
    paths: tuple[str, ...]
    writes: tuple[Write, ...]
    documents: tuple[Document, ...]
    directories: tuple[str, ...]
    # How many changes of the directories this ticket covers.
    changes: int

    def sync(self) -> None:
        """Blocks until everything below `next_offset` would survive a power cut, or raises."""
        for path in self.paths:
            # Gone means deleted on purpose since, with nothing in it to keep.
            with contextlib.suppress(FileNotFoundError):
                self.filesystem.open(path).sync()
        if self.active is not None:
            self.active.sync()
        written: dict[str, File] = {}
        for path, position, content in self.writes:
            file = written.get(path) or self.filesystem.open(path, create=True)
            file.write_at(position, content)
            written[path] = file
        for file in written.values():
            file.sync()
        for path, content in self.documents:
            self.filesystem.write_atomic(path, content)
        for directory in self.directories:
            self.filesystem.sync_dir(directory)


class Unsynced:
    """Files and directory entries of one partition that a power cut could still take.

    Paths, not open files: ten thousand new partitions must not hold a descriptor each. The
    active segment is not listed here: it is unsynced whenever the log's end is.
    """

    __slots__ = ("_changes", "_changes_synced", "_directory", "_filesystem", "paths")

    def __init__(self, filesystem: Filesystem, directory: str, *, known: bool) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self.paths: list[str] = []
        # A log just made is unknown to its own directory and to the one above it.
        self._changes = 1
        self._changes_synced = int(known)

    def created(self, path: str) -> None:
        """A file is new in the directory, and its content is not synced."""
        self.paths.append(path)
        self._changes += 1

    def changed(self) -> None:
        """The directory has a new entry."""
        self._changes += 1

    def ticket(
        self,
        next_offset: int,
        active: File | None,
        writes: list[Write],
        documents: tuple[Document, ...],
    ) -> SyncTicket:
        directories: tuple[str, ...] = ()
        if self._changes > self._changes_synced or writes:
            directories = (self._directory,)
            if self._changes_synced == 0:
                directories = (self._directory, parent(self._directory))
        return SyncTicket(
            self._filesystem,
            next_offset,
            active,
            tuple(self.paths),
            tuple(writes),
            documents,
            directories,
            self._changes,
        )

    def settle(self, ticket: SyncTicket) -> None:
        # By count, not by name: a file may have been written again since.
        del self.paths[: len(ticket.paths)]
        self._changes_synced = max(self._changes_synced, ticket.changes)
