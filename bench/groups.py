"""Groups: offset commits a second, the time of a rebalance, and the price of idle members."""

import struct
import time
from collections.abc import Iterator

import psutil

from bench.cells import Cell
from bench.group_members import Crowd, Member, frame
from bench.raw_client import RawClient
from bench.rdkafka_client import create_topic
from bench.systems import System
from headrace.protocol.messages import Message

FIND_COORDINATOR, FIND_COORDINATOR_VERSION = 10, 2
OFFSET_COMMIT, OFFSET_COMMIT_VERSION = 8, 7
MEMBERS = (3, 30, 300)
IDLE_GROUPS = 1_000
IDLE_HEARTBEAT_S = 3.0
IDLE_SECONDS = 9.0
COMMITS = 20_000
COMMIT_DEPTH = 5
WAIT_S = 60.0


def measure(system: System) -> Iterator[Cell]:
    create_topic(system.bootstrap, "grouped", 6)
    yield Cell("offset commits", _commits_a_second(system.bootstrap), "/s")
    for count in MEMBERS:
        joining, leaving = _rebalances(system.bootstrap, count)
        name = f"rebalance when one of {count} members"
        yield Cell(f"{name} joins", joining * 1000, "ms", more_is_better=False)
        yield Cell(f"{name} leaves", leaving * 1000, "ms", more_is_better=False)
    share = _idle_cpu(system)
    name = f"{IDLE_GROUPS:,} groups of one member: share of one core"
    yield Cell(name, share * 100, "%", more_is_better=False)


def _commits_a_second(bootstrap: str) -> float:
    partition = Message(partition_index=0, committed_offset=7, committed_metadata="")
    topics = [Message(name="grouped", partitions=[partition])]
    commit = frame(
        OFFSET_COMMIT, OFFSET_COMMIT_VERSION, Message(group_id="committers", topics=topics)
    )
    client = RawClient(bootstrap)
    _await_coordinator(client, commit)
    started = time.perf_counter()
    for number in range(COMMITS + COMMIT_DEPTH):
        if number >= COMMIT_DEPTH and (error := _commit_error(client.answer())):
            raise RuntimeError(f"offset commit answered error {error}")
        if number < COMMITS:
            client.send(commit)
    rate = COMMITS / (time.perf_counter() - started)
    client.close()
    return rate


def _await_coordinator(client: RawClient, commit: bytes) -> None:
    """Kafka makes its offsets topic when it is first asked for, and loads it later."""
    wanted = Message(key="committers", key_type=0)
    find = frame(FIND_COORDINATOR, FIND_COORDINATOR_VERSION, wanted)
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        client.send(find)
        client.answer()
        client.send(commit)
        if _commit_error(client.answer()) == 0:
            return
        time.sleep(0.05)
    raise TimeoutError("the group coordinator did not become ready")


def _commit_error(answer: bytes) -> int:
    # The last thing in the answer: one topic, one partition.
    error: int = struct.unpack(">h", answer[-2:])[0]
    return error


def _rebalances(bootstrap: str, count: int) -> tuple[float, float]:
    """How long it takes until all are stable again when one joins, and when it leaves."""
    group = f"rebalancing-{count}"
    crowd = Crowd(Member(bootstrap, group) for _ in range(count - 1))
    for member in crowd.members:
        member.join()
    crowd.until_stable()
    scout = crowd.members[0]
    newcomer = Member(bootstrap, group)
    crowd.add(newcomer)
    started = time.perf_counter()
    newcomer.join()
    crowd.follow(scout)
    joining = time.perf_counter() - started
    started = time.perf_counter()
    newcomer.leave()
    while newcomer.asks:
        crowd.take(1.0)
    crowd.remove(newcomer)
    crowd.follow(scout)
    leaving = time.perf_counter() - started
    crowd.close()
    return joining, leaving


def _idle_cpu(system: System) -> float:
    """The share of one core that heartbeats cost, each group's at its own time."""
    crowd = Crowd(())
    for number in range(IDLE_GROUPS):
        member = Member(system.bootstrap, f"idle-{number}")
        crowd.add(member)
        member.join()
        crowd.until_stable()
    process = psutil.Process(system.pid)
    before = process.cpu_times()
    started = time.perf_counter()
    due = started
    for member in crowd.members * round(IDLE_SECONDS / IDLE_HEARTBEAT_S):
        while (left := due - time.perf_counter()) > 0:
            crowd.take(left)
        member.heartbeat()
        due += IDLE_HEARTBEAT_S / IDLE_GROUPS
    seconds = time.perf_counter() - started
    after = process.cpu_times()
    crowd.close()
    used: float = after.user + after.system - before.user - before.system
    return used / seconds
