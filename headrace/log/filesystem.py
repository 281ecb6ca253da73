"""The one door to the disk: what the log asks of a filesystem, and how the system answers."""

import errno
import fcntl
import os
import resource
import shutil
from typing import NoReturn, Protocol, TypeAlias

from headrace.errors import StartRefused

Bytes: TypeAlias = bytes | bytearray | memoryview

# The log's part of the descriptors a process may have; the rest is for connections.
LOG_SHARE = 0.5
MIN_OPEN_FILES = 64
MAX_OPEN_FILES = 16_384


class File(Protocol):
    """An open file, read and written at positions; it closes when nobody refers to it any more."""

    path: str

    def write_at(self, position: int, content: Bytes) -> None: ...

    def read_at(self, position: int, size: int) -> bytes: ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def fileno(self) -> int: ...


class Lock(Protocol):
    """A held directory lock."""

    def release(self) -> None: ...


class Filesystem(Protocol):
    """Every call here may fail with OSError, and a power cut may follow any of them."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def listdir(self, path: str) -> list[str]: ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def read(self, path: str) -> bytes: ...

    def mkdir(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def write_atomic(self, path: str, content: Bytes) -> None: ...

    def lock(self, path: str) -> Lock: ...

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int: ...

    def max_open_files(self) -> int: ...


def write_atomic(filesystem: Filesystem, path: str, content: Bytes) -> None:
    """Replace a file so that a power cut leaves the old content or the new, never a mixture."""
    temporary = path + ".tmp"
    file = filesystem.open(temporary, create=True)
    file.truncate(0)
    file.write_at(0, content)
    file.sync()
    filesystem.rename(temporary, path)
    filesystem.sync_dir(parent(path))


def join(*parts: str) -> str:
    """Path parts as one path."""
    return "/".join(parts)


def parent(path: str) -> str:
    """The directory that holds a path."""
    return path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")


class OsFile:
    """A file descriptor that closes with its last reference.

    A fetch may be sending a slice of a segment that was just deleted or whose handle was
    given up, so nobody closes it by hand.
    """

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, flags: int) -> None:
        self._descriptor = -1
        self.path = path
        self._descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def write_at(self, position: int, content: Bytes) -> None:
        written = os.pwrite(self._descriptor, content, position)
        if written != len(content):
            self._write_rest(position, memoryview(content).cast("B"), written)

    def _write_rest(self, position: int, content: memoryview, written: int) -> None:
        # A short write is how a full disk first shows; the next one carries the reason.
        while written < len(content):
            count = os.pwrite(self._descriptor, content[written:], position + written)
            if count == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
            written += count

    def read_at(self, position: int, size: int) -> bytes:
        content = os.pread(self._descriptor, size, position)
        if len(content) == size or not content:
            return content
        chunks = [content]
        missing = size - len(content)
        while missing and (
            content := os.pread(self._descriptor, missing, position + size - missing)
        ):
            chunks.append(content)
            missing -= len(content)
        return b"".join(chunks)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor


class OsLock:
    """An advisory lock on a file that names its holder."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._descriptor, 100, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise StartRefused(
                f"{parent(path)} is in use by {holder or 'another process'}: "
                "stop that broker, or start this one with another --data-dir"
            ) from error
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"process {os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1


class OsFilesystem:
    """The operating system's files."""

    def open(self, path: str, *, create: bool = False) -> File:
        return OsFile(path, os.O_RDWR | os.O_CREAT if create else os.O_RDWR)

    def listdir(self, path: str) -> list[str]:
        return os.listdir(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def mkdir(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def write_atomic(self, path: str, content: Bytes) -> None:
        write_atomic(self, path, content)

    def lock(self, path: str) -> Lock:
        return OsLock(path)

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def total_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize

    def max_open_files(self) -> int:
        soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY:
            return MAX_OPEN_FILES
        return min(max(int(soft * LOG_SHARE), MIN_OPEN_FILES), MAX_OPEN_FILES)


class ReadOnlyFilesystem(OsFilesystem):
    """The same files for whoever only looks: on a read-only disk, or as another user."""

    def open(self, path: str, *, create: bool = False) -> File:
        if create:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return OsFile(path, os.O_RDONLY)


def end_process() -> NoReturn:
    """End this process here and now: nothing is flushed, nobody is asked."""
    os._exit(0)
