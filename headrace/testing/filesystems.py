"""Filesystems in memory that know what a power cut would leave, and that can fail on request."""

import errno
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from headrace.errors import StartRefused
from headrace.log import filesystem as disk
from headrace.log.filesystem import Bytes, join, parent

# Of n things that were not synced, how many does the power cut leave?
Keep: TypeAlias = Callable[[int], int]


def nothing(_count: int) -> int:
    """A power cut that takes everything that was not synced."""
    return 0


def everything(count: int) -> int:
    """A kill of the process: the kernel still has it all."""
    return count


def some(seed: int) -> Keep:
    """A power cut that leaves parts, chosen by the seed."""
    random = Random(seed)
    return lambda count: random.randint(0, count)


class Crash(BaseException):
    """The power went: not an Exception, so that no handler in the code under test survives it."""


@dataclass
class Inode:
    """A file's content now, its content on stable storage, and the writes between the two."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)

    def after_power_cut(self, keep: Keep) -> bytearray:
        left = bytearray(self.durable)
        if self.pending and keep(1):
            # Pages reach the disk in any order: what was skipped reads as zeros.
            for position, written in self.pending:
                if keep(1):
                    _apply(left, position, written)
            return left
        whole = keep(len(self.pending))
        for position, written in self.pending[:whole]:
            _apply(left, position, written)
        if whole < len(self.pending):
            position, written = self.pending[whole]
            if written is not None:
                _apply(left, position, written[: keep(len(written))])
        return left


@dataclass
class Directory:
    """Entries now, entries on stable storage, and the changes between, in journal order."""

    entries: dict[str, "Inode | Directory"] = field(default_factory=dict)
    durable: dict[str, "Inode | Directory"] = field(default_factory=dict)
    pending: list[tuple[str, str, "Inode | Directory | None"]] = field(default_factory=list)

    def change(self, kind: str, name: str, other: str, node: "Inode | Directory | None") -> None:
        step = (kind, name if kind != "rename" else f"{name}\0{other}", node)
        self.pending.append(step)
        _change(self.entries, step)

    def after_power_cut(self, keep: Keep) -> "Directory":
        left = dict(self.durable)
        for step in self.pending[: keep(len(self.pending))]:
            _change(left, step)
        copied: dict[str, Inode | Directory] = {}
        for name, node in left.items():
            if isinstance(node, Directory):
                copied[name] = node.after_power_cut(keep)
            else:
                content = node.after_power_cut(keep)
                copied[name] = Inode(content, bytes(content))
        return Directory(copied, dict(copied))


def _apply(content: bytearray, position: int, written: bytes | None) -> None:
    if written is None:
        del content[position:]
        content.extend(bytes(position - len(content)))
        return
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    content[position : position + len(written)] = written


def _change(
    entries: dict[str, Inode | Directory], step: tuple[str, str, Inode | Directory | None]
) -> None:
    kind, name, node = step
    if kind == "rename":
        source, target = name.split("\0")
        if source in entries:
            entries[target] = entries.pop(source)
    elif node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


class MemoryFile:
    """An open file of a MemoryFilesystem."""

    def __init__(self, filesystem: "MemoryFilesystem", path: str, inode: Inode) -> None:
        self.path = path
        self._filesystem = filesystem
        self._inode = inode

    def write_at(self, position: int, content: Bytes) -> None:
        self._filesystem.called("write_at", self.path)
        written = bytes(content)
        room = self._filesystem.room_for(position + len(written) - len(self._inode.content))
        if room < 0:
            # A full disk takes what fits and refuses the rest.
            self._write(position, written[: max(0, len(written) + room)])
            raise OSError(errno.ENOSPC, "No space left on device", self.path)
        self._write(position, written)

    def _write(self, position: int, written: bytes) -> None:
        self._inode.pending.append((position, written))
        _apply(self._inode.content, position, written)

    def read_at(self, position: int, size: int) -> bytes:
        return bytes(self._inode.content[position : position + size])

    def size(self) -> int:
        return len(self._inode.content)

    def truncate(self, size: int) -> None:
        self._filesystem.called("truncate", self.path)
        self._inode.pending.append((size, None))
        _apply(self._inode.content, size, None)

    def sync(self) -> None:
        self._filesystem.called("sync", self.path)
        self._inode.durable = bytes(self._inode.content)
        self._inode.pending.clear()

    def fileno(self) -> int:
        raise io.UnsupportedOperation("a file in memory has no descriptor")


class MemoryLock:
    """A held lock of a MemoryFilesystem."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class MemoryFilesystem:
    """Files in memory; `survivors` is what a power cut leaves of them.

    `capacity_bytes` makes the disk full, `failing` makes calls by that name raise.
    """

    def __init__(self, root: Directory | None = None) -> None:
        self.root = root or Directory()
        self.capacity_bytes: int | None = None
        self.failing: dict[str, OSError] = {}
        self.calls = 0
        # When every file was last written, as far as anybody asks.
        self.now_ms = 0
        self._locks: set[str] = set()

    def survivors(self, keep: Keep = nothing) -> "MemoryFilesystem":
        return MemoryFilesystem(self.root.after_power_cut(keep))

    def called(self, name: str, path: str) -> None:
        """Every call that changes or syncs something passes here, before it takes effect."""
        self.calls += 1
        if error := self.failing.get(name):
            raise OSError(error.errno, error.strerror, path)

    def room_for(self, growth: int) -> int:
        if self.capacity_bytes is None or growth <= 0:
            return 0
        return self.capacity_bytes - self._used(self.root) - growth

    def open(self, path: str, *, create: bool = False) -> disk.File:
        directory = self._directory(parent(path))
        name = path.rpartition("/")[2]
        node = directory.entries.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            self.called("create", path)
            if self.room_for(1) < 0:
                raise OSError(errno.ENOSPC, "No space left on device", path)
            node = Inode()
            directory.change("link", name, "", node)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        return MemoryFile(self, path, node)

    def listdir(self, path: str) -> list[str]:
        return list(self._directory(path).entries)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def size(self, path: str) -> int:
        return self.open(path).size()

    def modified_ms(self, path: str) -> int:
        self.open(path)
        return self.now_ms

    def read(self, path: str) -> bytes:
        file = self.open(path)
        return file.read_at(0, file.size())

    def mkdir(self, path: str) -> None:
        if self.exists(path):
            return
        self.called("mkdir", path)
        if not self.exists(parent(path)):
            self.mkdir(parent(path))
        self._directory(parent(path)).change("link", path.rpartition("/")[2], "", Directory())

    def rename(self, source: str, target: str) -> None:
        self.called("rename", source)
        directory = self._directory(parent(source))
        name = source.rpartition("/")[2]
        if name not in directory.entries:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", source)
        directory.change("rename", name, target.rpartition("/")[2], None)

    def remove(self, path: str) -> None:
        self.called("remove", path)
        directory = self._directory(parent(path))
        name = path.rpartition("/")[2]
        if name not in directory.entries:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        directory.change("unlink", name, "", None)

    def remove_tree(self, path: str) -> None:
        for name in self.listdir(path):
            if isinstance(self._find(join(path, name)), Directory):
                self.remove_tree(join(path, name))
            else:
                self.remove(join(path, name))
        self.remove(path)

    def sync_dir(self, path: str) -> None:
        self.called("sync_dir", path)
        directory = self._directory(path)
        directory.durable = dict(directory.entries)
        directory.pending.clear()

    def write_atomic(self, path: str, content: Bytes) -> None:
        disk.write_atomic(self, path, content)

    def lock(self, path: str) -> disk.Lock:
        if path in self._locks:
            raise StartRefused(f"{parent(path)} is in use by this process")
        self._locks.add(path)
        return MemoryLock(self._locks, path)

    def free_bytes(self, path: str) -> int:
        self._directory(path)
        return (
            1 << 40 if self.capacity_bytes is None else self.capacity_bytes - self._used(self.root)
        )

    def total_bytes(self, path: str) -> int:
        self._directory(path)
        return 1 << 40 if self.capacity_bytes is None else self.capacity_bytes

    def max_open_files(self) -> int:
        return disk.MIN_OPEN_FILES

    def _find(self, path: str) -> Inode | Directory | None:
        node: Inode | Directory | None = self.root
        for name in path.split("/"):
            if name in ("", "."):
                continue
            node = node.entries.get(name) if isinstance(node, Directory) else None
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if not isinstance(node, Directory):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return node

    def _used(self, directory: Directory) -> int:
        return sum(
            self._used(node) if isinstance(node, Directory) else len(node.content)
            for node in directory.entries.values()
        )


class CrashingFilesystem(MemoryFilesystem):
    """Raises Crash at the n-th call that changes or syncs something, and at every one after it."""

    def __init__(self, crash_at_call: int, root: Directory | None = None) -> None:
        super().__init__(root)
        self.crash_at_call = crash_at_call

    def called(self, name: str, path: str) -> None:
        super().called(name, path)
        if self.calls >= self.crash_at_call:
            raise Crash(f"call {self.calls}: {name} {path}")
