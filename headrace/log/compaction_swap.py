"""Cleaned segments put in the place of old ones, by names that tell a start how far it got.

.cleaned  being written: a start removes it
.swap     whole and on stable storage: a start finishes the exchange
.deleted  replaced or dropped: removed a little later, or by a start

Kafka's names and Kafka's order, so that either broker finishes what the other began.
"""

from collections.abc import Iterable, Sequence

from headrace.log.damage import Damaged, headers
from headrace.log.filesystem import Filesystem, join
from headrace.log.segment_indexes import file_name

CLEANED = ".cleaned"
SWAP = ".swap"
DELETED = ".deleted"
LOG = ".log"
# What a segment has beside its data.
BESIDE = (".txnindex", ".timeindex", ".index")


def part(directory: str, base_offset: int, suffix: str, state: str = "") -> str:
    """The path of one file of a segment."""
    return join(directory, file_name(base_offset, suffix) + state)


def set_aside(filesystem: Filesystem, directory: str, base_offset: int) -> list[str]:
    """Take a segment's files out of the log; they are still to be removed."""
    moved = []
    for suffix in (*BESIDE, LOG):
        path = part(directory, base_offset, suffix)
        if filesystem.exists(path):
            filesystem.rename(path, path + DELETED)
            moved.append(path + DELETED)
    return moved


def commit(filesystem: Filesystem, directory: str, base_offset: int) -> None:
    """From here on a start finishes the exchange. Blocks for the disk.

    The data file comes last: as .swap it says that the rest is there.
    """
    for suffix in (*BESIDE, LOG):
        path = part(directory, base_offset, suffix)
        if filesystem.exists(path + CLEANED):
            filesystem.rename(path + CLEANED, path + SWAP)
    filesystem.sync_dir(directory)


def exchange(filesystem: Filesystem, directory: str, bases: Sequence[int]) -> list[str]:
    """Old names away, new ones in their place, once committed; returns what is to be removed.

    The data file comes first: without its .swap the files beside it are known to belong to it.
    """
    moved = []
    for base_offset in bases:
        moved += set_aside(filesystem, directory, base_offset)
    _take_name(filesystem, directory, bases[0])
    return moved


def abandon(filesystem: Filesystem, directory: str, base_offset: int) -> None:
    """Remove what was written in vain; the data file last, so that no start takes up the rest."""
    for suffix in (*BESIDE, LOG):
        for state in (CLEANED, SWAP):
            path = part(directory, base_offset, suffix, state)
            if filesystem.exists(path):
                filesystem.remove(path)


def finish(filesystem: Filesystem, directory: str, names: Iterable[str]) -> bool:
    """At a start: exchange what was committed, remove what was not; whether anything changed."""
    found = {name for name in names if name[:20].isdigit()}
    swaps = sorted(_offset(name) for name in found if name.endswith(LOG + SWAP))
    beside = {_offset(name) for name in found if name.endswith(SWAP)} - set(swaps)
    cleaned = {_offset(name) for name in found if name.endswith(CLEANED)}
    if not swaps and not beside:
        return False
    for base_offset in swaps:
        end_offset = _end_offset(filesystem, part(directory, base_offset, LOG, SWAP))
        damaged = end_offset is None and file_name(base_offset) in found
        if damaged or (cleaned and min(cleaned) <= base_offset):
            # The old segments are still there, and better than what is damaged or incomplete.
            abandon(filesystem, directory, base_offset)
            continue
        for name in found:
            if name.endswith((*BESIDE, LOG)) and (
                _offset(name) == base_offset or base_offset < _offset(name) < (end_offset or 0)
            ):
                filesystem.remove(join(directory, name))
        _take_name(filesystem, directory, base_offset)
    for base_offset in beside:
        if part("", base_offset, LOG, CLEANED)[1:] in found:
            abandon(filesystem, directory, base_offset)
        else:
            _take_name(filesystem, directory, base_offset)
    filesystem.sync_dir(directory)
    return True


def _end_offset(filesystem: Filesystem, path: str) -> int | None:
    """Where the batches of a segment end; 0 if it has none, None if it is damaged."""
    file = filesystem.open(path)
    end_offset = 0
    try:
        for _position, batch in headers(file, 0, file.size()):
            end_offset = batch.next_offset
    except Damaged:
        return None
    return end_offset


def _take_name(filesystem: Filesystem, directory: str, base_offset: int) -> None:
    for suffix in (LOG, *BESIDE):
        path = part(directory, base_offset, suffix)
        if filesystem.exists(path + SWAP):
            filesystem.rename(path + SWAP, path)


def _offset(name: str) -> int:
    return int(name[:20])
