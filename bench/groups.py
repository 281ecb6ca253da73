"""Groups: offset commits a second, the time of a rebalance, and the price of idle members."""

import asyncio
import struct
import time
from collections.abc import Iterator

import psutil

from bench.cells import Cell
from bench.raw_client import RawClient
from bench.rdkafka_client import create_topic
from bench.systems import System
from headrace.protocol.frame import framed, request_header
from headrace.protocol.messages import Message, read_response, write_request

FIND_COORDINATOR, JOIN, SYNC, HEARTBEAT, LEAVE, OFFSET_COMMIT = 10, 11, 14, 12, 13, 8
VERSIONS = {FIND_COORDINATOR: 2, JOIN: 5, SYNC: 3, HEARTBEAT: 3, LEAVE: 1, OFFSET_COMMIT: 7}
REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED, NOT_READY = 27, 79, (14, 15, 16)
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
        joining, leaving = asyncio.run(_rebalances(system.bootstrap, count))
        name = f"rebalance when one of {count} members"
        yield Cell(f"{name} joins", joining * 1000, "ms", more_is_better=False)
        yield Cell(f"{name} leaves", leaving * 1000, "ms", more_is_better=False)
    share = asyncio.run(_idle_cpu(system))
    name = f"{IDLE_GROUPS:,} groups of one member: share of one core"
    yield Cell(name, share * 100, "%", more_is_better=False)


def frame(api_key: int, message: Message) -> bytes:
    version = VERSIONS[api_key]
    header = request_header(api_key, version, 1, "bench", flexible=False)
    return framed(header + write_request(api_key, version, message))


def _commits_a_second(bootstrap: str) -> float:
    partition = Message(partition_index=0, committed_offset=7, committed_metadata="")
    topics = [Message(name="grouped", partitions=[partition])]
    commit = frame(OFFSET_COMMIT, Message(group_id="committers", topics=topics))
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
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        client.send(frame(FIND_COORDINATOR, Message(key="committers", key_type=0)))
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


class Member:
    """One member of a classic group, on a connection of its own."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._host, port = bootstrap.rsplit(":", 1)
        self._port = int(port)
        self._group = group
        self._id = ""
        self._generation = -1

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)

    async def _ask(self, api_key: int, message: Message) -> Message:
        self._writer.write(frame(api_key, message))
        size = int.from_bytes(await self._reader.readexactly(4))
        answer = await self._reader.readexactly(size)
        return read_response(api_key, VERSIONS[api_key], answer[4:])

    async def join(self) -> None:
        """Join and sync until stable in one generation."""
        while True:
            answer = await self._ask(JOIN, self._join_request())
            if answer.error_code == MEMBER_ID_REQUIRED:
                self._id = answer.member_id
            elif answer.error_code == 0:
                self._id, self._generation = answer.member_id, answer.generation_id
                if await self._sync(answer):
                    return
            elif answer.error_code in NOT_READY:
                await asyncio.sleep(0.05)
            elif answer.error_code != REBALANCE_IN_PROGRESS:
                raise RuntimeError(f"join answered error {answer.error_code}")

    def _join_request(self) -> Message:
        return Message(
            group_id=self._group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=self._id,
            protocol_type="consumer",
            protocols=[Message(name="range", metadata=b"")],
        )

    async def _sync(self, joined: Message) -> bool:
        leads = joined.leader == self._id
        members = joined.members if leads else []
        assignments = [Message(member_id=each.member_id, assignment=b"x") for each in members]
        answer = await self._ask(SYNC, self._named(assignments=assignments))
        if answer.error_code not in (0, REBALANCE_IN_PROGRESS):
            raise RuntimeError(f"sync answered error {answer.error_code}")
        stable: bool = answer.error_code == 0
        return stable

    def _named(self, **fields: object) -> Message:
        return Message(
            group_id=self._group, generation_id=self._generation, member_id=self._id, **fields
        )

    async def follow(self) -> None:
        """Heartbeat until a rebalance is on, then go through it."""
        while True:
            error = (await self._ask(HEARTBEAT, self._named())).error_code
            if error == REBALANCE_IN_PROGRESS:
                return await self.join()
            if error:
                raise RuntimeError(f"heartbeat answered error {error}")
            await asyncio.sleep(0.005)

    async def heartbeats(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            await self._ask(HEARTBEAT, self._named())
            await asyncio.sleep(IDLE_HEARTBEAT_S)

    async def leave(self) -> None:
        await self._ask(LEAVE, Message(group_id=self._group, member_id=self._id))
        self.close()

    def close(self) -> None:
        self._writer.close()


async def _rebalances(bootstrap: str, count: int) -> tuple[float, float]:
    group = f"rebalancing-{count}"
    members = [Member(bootstrap, group) for _ in range(count - 1)]
    for member in members:
        await member.connect()
    await asyncio.gather(*(member.join() for member in members))
    newcomer = Member(bootstrap, group)
    await newcomer.connect()
    started = time.perf_counter()
    await asyncio.gather(newcomer.join(), *(member.follow() for member in members))
    joining = time.perf_counter() - started
    started = time.perf_counter()
    await asyncio.gather(newcomer.leave(), *(member.follow() for member in members))
    leaving = time.perf_counter() - started
    for member in members:
        member.close()
    return joining, leaving


async def _idle_cpu(system: System) -> float:
    members = [Member(system.bootstrap, f"idle-{number}") for number in range(IDLE_GROUPS)]
    for member in members:
        await member.connect()
        await member.join()
    process = psutil.Process(system.pid)
    before = process.cpu_times()
    started = time.perf_counter()
    await asyncio.gather(*(member.heartbeats(IDLE_SECONDS) for member in members))
    seconds = time.perf_counter() - started
    after = process.cpu_times()
    for member in members:
        member.close()
    used: float = after.user + after.system - before.user - before.system
    return used / seconds
