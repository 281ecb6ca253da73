"""What the worker says of a plan, and how fast it lets itself work."""

import errno
import json
import uuid
from typing import Any

import pytest

from headrace.log import compaction_worker as worker
from headrace.log.cleaning import Cleaning
from headrace.log.compaction_plan import Limits, Plan, plan
from headrace.log.compaction_rewrite import Compaction
from headrace.log.compaction_throttle import MAX_NAP_S, IoThrottle
from headrace.log.store import Store
from headrace.testing.clock import ManualClock
from headrace.testing.compaction import LIMITS, keyed, settle
from headrace.testing.filesystems import MemoryFilesystem
from headrace.testing.logs import NOW_MS, small_segments


class Scene:
    """A log with something to compact, its plan, and what the worker said of it."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.filesystem = MemoryFilesystem()
        self.store = Store(self.filesystem, "/data", ManualClock(NOW_MS))
        settings = small_segments(400, cleanup_policy=("compact",))
        self.log = self.store.create("accounts", 0, uuid.UUID(int=1), settings)
        for number in range(20):
            self.log.append(keyed((b"%d" % (number % 3), b"%d" % number)))
        settle(self.store, self.log)
        found = Cleaning(self.store).examine(self.log, self.log.synced_offset, NOW_MS)
        self.plan = plan(found, now_ms=NOW_MS, limits=limits)
        self.said: list[tuple[str, Any]] = []

    def carry_out(self) -> list[str]:
        # As the broker sends it and hears of it: text both ways.
        sent = Plan.decode(self.plan.encode())

        def say(word: str, what: object) -> None:
            word, what = json.loads(json.dumps([word, what]))
            self.said.append((word, what))

        worker.carry_out(self.filesystem, sent, ManualClock(NOW_MS), say)
        return [word for word, _what in self.said]


def test_every_segment_is_told_as_it_is_done_and_then_the_end():
    scene = Scene()
    words = scene.carry_out()
    assert words == [worker.CLEANED] * (len(words) - 1) + [worker.DONE]
    told = [base for word, what in scene.said if word == worker.CLEANED for base in what[0]]
    assert told == [segment.base_offset for segment in scene.log.segments[:-1]]
    done = scene.said[-1][1]
    assert done["end_offset"] == 20
    assert done["keys"] == 3
    assert done["read_bytes"] == 2 * sum(source.size for source in scene.plan.sources)
    assert 0 < done["written_bytes"] < done["read_bytes"]


def test_a_segment_that_was_deleted_is_no_failure():
    scene = Scene()
    scene.filesystem.remove(scene.log.segments[1].path)
    assert scene.carry_out()[-1] == worker.GONE


@pytest.mark.parametrize("position", range(0, 300, 3))
def test_damage_anywhere_is_told_and_nothing_is_taken_over(position):
    scene = Scene()
    file = scene.log.segments[0].opened()
    file.write_at(position, bytes([file.read_at(position, 1)[0] ^ 0x40]))
    assert scene.carry_out() == [worker.DAMAGED]
    assert "00000000000000000000.log at byte" in scene.said[0][1]


@pytest.mark.parametrize("call", ["write_at", "sync", "create", "truncate"])
def test_a_disk_that_refuses_is_a_failure_to_be_tried_again(call):
    scene = Scene()
    if call == "truncate":
        # What an earlier attempt left under the name is cut first.
        left = scene.filesystem.open(f"{scene.log.directory}/{0:020d}.log.cleaned", create=True)
        left.write_at(0, b"rest")
    scene.filesystem.failing[call] = OSError(errno.ENOSPC, "No space left on device")
    assert scene.carry_out()[-1] == worker.FAILED
    assert "No space left" in scene.said[-1][1]
    scene.filesystem.failing.clear()
    scene.said.clear()
    assert scene.carry_out()[-1] == worker.DONE


def test_a_leftover_of_an_earlier_attempt_does_not_show():
    scene = Scene()
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        left = scene.filesystem.open(f"{scene.log.directory}/{0:020d}{suffix}.cleaned", create=True)
        left.write_at(0, b"rest of an earlier attempt" * 40)
    scene.carry_out()
    _word, (_bases, size) = scene.said[0]
    assert scene.filesystem.size(f"{scene.log.directory}/{0:020d}.log.cleaned") == size
    assert scene.filesystem.size(f"{scene.log.directory}/{0:020d}.txnindex.cleaned") == 0


def test_bytes_that_come_too_fast_are_waited_for():
    clock = ManualClock(NOW_MS)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.advance(round(seconds * 1000))

    throttle = IoThrottle(1_000.0, clock, sleep)
    throttle(2_500)
    assert sum(slept) == pytest.approx(2.5)
    assert max(slept) <= MAX_NAP_S
    clock.advance(10_000)
    throttle(5_000)
    assert sum(slept) == pytest.approx(2.5), "time that passed otherwise counts"


def test_the_limit_covers_what_is_read_and_what_is_written():
    scene = Scene(Limits(1 << 20, 100, 1e9))
    counted = 0

    def throttle(count: int) -> None:
        nonlocal counted
        counted += count

    compaction = Compaction(scene.filesystem, scene.plan, throttle)
    list(compaction.run())
    assert counted == compaction.progress.read_bytes + compaction.progress.written_bytes
