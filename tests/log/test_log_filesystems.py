import errno

import pytest

from headrace.errors import StartRefused
from headrace.log.filesystem import OsFilesystem, join
from headrace.testing.filesystems import (
    Crash,
    CrashingFilesystem,
    MemoryFilesystem,
    everything,
    nothing,
    some,
)


@pytest.fixture(params=["os", "memory"])
def place(request, tmp_path):
    return (OsFilesystem(), str(tmp_path)) if request.param == "os" else (MemoryFilesystem(), "/d")


def test_both_filesystems_keep_the_same_promises(place):
    filesystem, root = place
    directory = join(root, "a", "b")
    filesystem.mkdir(directory)
    filesystem.mkdir(directory)
    path = join(directory, "f")
    with pytest.raises(FileNotFoundError):
        filesystem.open(path)
    file = filesystem.open(path, create=True)
    file.write_at(0, b"hello")
    file.write_at(3, memoryview(bytearray(b"ly!!")))
    assert file.read_at(1, 100) == b"elly!!"
    assert file.size() == filesystem.size(path) == 7
    file.truncate(2)
    file.write_at(4, b"x")
    assert filesystem.read(path) == b"he\0\0x"
    file.sync()
    filesystem.rename(path, join(directory, "g"))
    assert filesystem.listdir(directory) == ["g"]
    assert not filesystem.exists(path)
    assert file.read_at(0, 2) == b"he"
    filesystem.write_atomic(join(directory, "g"), b"new")
    assert filesystem.read(join(directory, "g")) == b"new"
    assert file.read_at(0, 2) == b"he"
    filesystem.remove(join(directory, "g"))
    with pytest.raises(FileNotFoundError):
        filesystem.remove(join(directory, "g"))
    with pytest.raises(FileNotFoundError):
        filesystem.rename(join(directory, "g"), path)
    filesystem.open(path, create=True)
    filesystem.remove_tree(join(root, "a"))
    assert not filesystem.exists(join(root, "a"))
    assert 0 < filesystem.free_bytes(root) <= filesystem.total_bytes(root)
    assert filesystem.max_open_files() >= 64


def test_a_second_lock_says_who_holds_the_first(place):
    filesystem, root = place
    filesystem.mkdir(root)
    held = filesystem.lock(join(root, ".lock"))
    with pytest.raises(StartRefused, match=r"in use by (process \d+|this process)"):
        filesystem.lock(join(root, ".lock"))
    held.release()
    filesystem.lock(join(root, ".lock")).release()


def test_a_power_cut_takes_bytes_that_were_not_synced():
    filesystem = MemoryFilesystem()
    file = filesystem.open("/f", create=True)
    filesystem.sync_dir("/")
    file.write_at(0, b"one")
    file.sync()
    file.write_at(3, b"two")
    assert filesystem.survivors(nothing).read("/f") == b"one"
    assert filesystem.survivors(everything).read("/f") == b"onetwo"
    left = {filesystem.survivors(some(seed)).read("/f") for seed in range(50)}
    assert left == {b"one", b"onet", b"onetw", b"onetwo"}


def test_a_power_cut_takes_entries_whose_directory_was_not_synced():
    filesystem = MemoryFilesystem()
    filesystem.write_atomic("/kept", b"old")
    file = filesystem.open("/new", create=True)
    file.write_at(0, b"content")
    file.sync()
    filesystem.rename("/new", "/kept")
    assert filesystem.survivors(nothing).read("/kept") == b"old"
    assert not filesystem.survivors(nothing).exists("/new")
    filesystem.sync_dir("/")
    assert filesystem.survivors(nothing).read("/kept") == b"content"


def test_pages_may_reach_the_disk_in_any_order():
    filesystem = MemoryFilesystem()
    file = filesystem.open("/f", create=True)
    filesystem.sync_dir("/")
    file.write_at(0, b"one")
    file.write_at(3, b"two")
    assert any(filesystem.survivors(some(seed)).read("/f") == b"\0\0\0two" for seed in range(100))


def test_an_atomic_write_leaves_the_old_or_the_new_at_every_crash():
    outcomes = set()
    for call in range(1, 100):
        filesystem = CrashingFilesystem(10**9)
        filesystem.write_atomic("/f", b"old")
        filesystem.crash_at_call = filesystem.calls + call
        try:
            filesystem.write_atomic("/f", b"new and longer")
        except Crash:
            outcomes |= {filesystem.survivors(some(seed)).read("/f") for seed in range(20)}
            outcomes.add(filesystem.survivors(nothing).read("/f"))
        else:
            assert filesystem.survivors(nothing).read("/f") == b"new and longer"
            break
    assert outcomes == {b"old", b"new and longer"}


def test_a_full_disk_takes_what_fits_and_refuses_the_rest():
    filesystem = MemoryFilesystem()
    file = filesystem.open("/f", create=True)
    filesystem.capacity_bytes = 4
    with pytest.raises(OSError, match="No space left") as refused:
        file.write_at(0, b"longer")
    assert refused.value.errno == errno.ENOSPC
    assert file.size() == 4
    filesystem.capacity_bytes = None
    file.write_at(0, b"longer")
    assert file.size() == 6
