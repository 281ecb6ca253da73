"""A broker that dies at every single write and sync of several transactions, and what is left."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from uuid import uuid4

import pytest

from headrace.broker.admission import Admission, Admits, admit
from headrace.broker.context import Broker
from headrace.broker.partitions import Partition
from headrace.broker.shard import Producer
from headrace.coordination.group import Committer
from headrace.coordination.offsets import OffsetToCommit, TopicPartitions
from headrace.coordination.topics import NewTopic
from headrace.coordination.transaction_moves import TRANSACTIONS_V0, TRANSACTIONS_V2
from headrace.coordination.transaction_records import ProducerIdentity, TopicPartition
from headrace.protocol.records import BatchView, Record, batches, end_marker, write_batch
from headrace.testing.clock import ManualClock
from headrace.testing.filesystems import Keep, everything, nothing, some
from headrace.testing.virtual_time import run_virtually
from tests.broker.broker_in_memory import RememberedFilesystem, running_broker

ORDERS = TopicPartition("orders", 0)
SUMS = TopicPartition("sums", 0)
TIMEOUT_MS = 60_000
PRODUCE_VERSIONS = {TRANSACTIONS_V0: 9, TRANSACTIONS_V2: 12}


@dataclass
class Story:
    """What was promised, and after how many calls to the disk."""

    filesystem: RememberedFilesystem
    promises: list[tuple[int, str, bool]] = field(default_factory=list)
    asked: dict[str, bool] = field(default_factory=dict)

    def promise(self, transaction: str, committed: bool) -> None:
        self.promises.append((self.filesystem.calls, transaction, committed))

    def promised_before(self, moment: int) -> dict[str, bool]:
        return {name: committed for calls, name, committed in self.promises if calls <= moment}


@dataclass
class Producing:
    """A transactional producer as clients are: sequences by partition and epoch."""

    broker: Broker
    version: int
    identity: ProducerIdentity
    transactional_id: str
    sequences: dict[tuple[TopicPartition, int, int], int] = field(
        default_factory=lambda: defaultdict(int)
    )

    async def send(self, value: str, *partitions: TopicPartition) -> None:
        transactions = self.broker.transactions
        if self.version < TRANSACTIONS_V2:
            await transactions.add_partitions(
                self.transactional_id, self.identity, partitions, client_version=self.version
            )
        writes = [
            (self.broker.partitions.get(*each), self._batch(value, each)) for each in partitions
        ]
        admission = Admission(
            transactions, self.transactional_id, writes, PRODUCE_VERSIONS[self.version]
        )
        for partition, records in writes:
            admission.check(partition)
            partition.append(records)
        logs = [partition for partition, _ in writes]
        if admission.journal is not None:
            logs.append(admission.journal)
        for log in logs:
            await log.wait_durable(log.log.log_end_offset)

    def _batch(self, value: str, partition: TopicPartition) -> memoryview:
        key = (partition, *self.identity)
        sequence = self.sequences[key]
        self.sequences[key] += 1
        batch = write_batch(
            [Record(-1, self.broker.clock.now_ms(), None, value.encode(), ())],
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        return memoryview(batch)

    async def commit_offset(self, group_id: str, offset: int) -> None:
        transactions = self.broker.transactions
        partition = await transactions.offsets_partition(group_id)
        if self.version < TRANSACTIONS_V2:
            await transactions.add_partitions(
                self.transactional_id, self.identity, [partition], client_version=self.version
            )
            admits = Admits.VERIFIED
        else:
            admits = Admits.ADDING
        journal, missing = admit(
            transactions, self.transactional_id, self.identity, [partition], admits
        )
        assert not missing
        await self.broker.groups.commit_transactional(
            Committer(group_id, transactional=True),
            [OffsetToCommit("orders", 0, offset)],
            Producer(*self.identity),
        )
        if journal is not None:
            await journal.wait_durable(journal.log.log_end_offset)

    async def end(self, *, committed: bool) -> None:
        after = await self.broker.transactions.end(
            self.transactional_id, self.identity, committed=committed, client_version=self.version
        )
        if self.version >= TRANSACTIONS_V2:
            self.identity = after


async def producer(broker: Broker, transactional_id: str, version: int) -> Producing:
    identity = await broker.transactions.init(
        transactional_id, timeout_ms=TIMEOUT_MS, expected=None
    )
    return Producing(broker, version, identity, transactional_id)


async def live(broker: Broker, story: Story, version: int) -> None:
    """Commit, abort, a rival that fences, and a transaction left open.

    The upkeep that the broker does on its own comes at the worst time: while an end is decided.
    """
    await broker.topics.create([NewTopic(name, uuid4(), 1) for name in ("orders", "sums")])
    first = await producer(broker, "t", version)
    for name, committed in (("one", True), ("two", False), ("three", True)):
        await first.send(f"{name} a", ORDERS, SUMS)
        await first.send(f"{name} b", SUMS)
        await first.commit_offset("g", len(name))
        story.asked[name] = committed
        await asyncio.gather(first.end(committed=committed), broker.transactions.recover())
        story.promise(name, committed)
    await first.send("four a", ORDERS)
    rival = await producer(broker, "t", version)
    story.promise("four", False)
    await rival.send("five a", SUMS, ORDERS)
    await rival.send("five b", ORDERS)


async def settle(broker: Broker, clock: ManualClock) -> None:
    """All that the broker does on its own, until nothing is open."""
    await broker.transactions.abort_timed_out()
    clock.advance(TIMEOUT_MS + 1)
    await broker.transactions.abort_timed_out()
    for _ in range(200):
        if not any(txn.partitions for txn in broker.transactions.all()):
            break
        await asyncio.sleep(0)
    for partition in broker.partitions.all():
        await partition.wait_durable(partition.log.log_end_offset)


def ended(broker: Broker) -> tuple[dict[str, set[bool]], list[tuple[str, int, int, bool]]]:
    """How each transaction's records ended, and every marker."""
    outcomes: dict[str, set[bool]] = defaultdict(set)
    markers = []
    for topic in ("orders", "sums"):
        if topic not in broker.catalog.topics:
            continue
        partition = broker.partitions.get(topic, 0)
        assert partition.last_stable_offset == partition.log.log_end_offset
        pending: dict[int, list[str]] = defaultdict(list)
        for batch in all_batches(partition):
            marker = end_marker(batch) if batch.is_control else None
            if marker is None:
                pending[batch.producer_id] += [
                    (record.value or b"").decode() for record in batch.records()
                ]
                continue
            markers.append((topic, batch.producer_id, batch.producer_epoch, marker.commit))
            for value in pending.pop(batch.producer_id, []):
                outcomes[value.split()[0]].add(marker.commit)
        assert not pending
    return outcomes, markers


def all_batches(partition: Partition) -> list[BatchView]:
    log = partition.log
    if not log.log_end_offset:
        return []
    return list(
        batches(log.read(0, max_bytes=1 << 20, end_offset=log.log_end_offset, min_one=True).read())
    )


async def committed_offset(broker: Broker) -> int | None:
    (topic,) = await broker.groups.fetch_offsets(
        "g", [TopicPartitions("orders", [0])], require_stable=True
    )
    (found,) = topic.partitions
    assert not found.error
    return None if found.committed is None else found.committed.offset


async def story_of(keep: Keep, version: int) -> Story:
    story = Story(RememberedFilesystem(keep))
    story.filesystem.mkdir("/data")
    story.filesystem.sync_dir("/")
    async with running_broker(story.filesystem, ManualClock()) as broker:
        await live(broker, story, version)
    return story


async def check(story: Story, moment: int) -> None:
    clock = ManualClock()
    async with running_broker(story.filesystem.moments[moment], clock) as broker:
        await settle(broker, clock)
        outcomes, _ = ended(broker)
        assert all(len(found) == 1 for found in outcomes.values()), f"torn: {outcomes}"
        promised = story.promised_before(moment)
        for name, committed in promised.items():
            assert outcomes.get(name, {False}) == {committed}, name
        for name, found in outcomes.items():
            assert found == {False} or story.asked.get(name), f"{name} was never to be committed"
        offset = await committed_offset(broker)
        last = [name for name in ("one", "three") if outcomes.get(name) == {True}]
        assert offset == (len(last[-1]) if last else None)


@pytest.mark.parametrize("version", [TRANSACTIONS_V0, TRANSACTIONS_V2])
@pytest.mark.parametrize("keep", [nothing, everything, some(1), some(2)])
def test_a_crash_at_any_call_leaves_no_transaction_torn(keep, version):
    async def main() -> None:
        story = await story_of(keep, version)
        for moment in range(len(story.filesystem.moments)):
            await check(story, moment)

    run_virtually(main)


@pytest.mark.parametrize("version", [TRANSACTIONS_V0, TRANSACTIONS_V2])
def test_a_kill_at_any_call_leaves_one_marker_for_each_end(version):
    async def main() -> None:
        story = await story_of(everything, version)
        for moment in range(len(story.filesystem.moments)):
            clock = ManualClock()
            async with running_broker(story.filesystem.moments[moment], clock) as broker:
                await settle(broker, clock)
                _, markers = ended(broker)
                if version >= TRANSACTIONS_V2:
                    assert len(markers) == len(set(markers))

    run_virtually(main)
