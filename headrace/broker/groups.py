"""The group coordinator: what each request about groups and offsets does to its group's shard."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Protocol

from headrace.broker.coordinator_settings import ASSIGNORS
from headrace.broker.group_shard import GroupShard, Spawn
from headrace.broker.shard import Journal, Producer
from headrace.clock import Clock
from headrace.coordination.consumer_group_draft import TopicCatalog
from headrace.coordination.consumer_group_heartbeat import HeartbeatAnswer, HeartbeatRequest
from headrace.coordination.consumer_groups import NoTopics
from headrace.coordination.coordinator import Coordinator, DeletedGroup
from headrace.coordination.group import (
    Committer,
    ConsumerGroupLimits,
    Group,
    GroupLimits,
    MigrationPolicy,
    Now,
    ShareGroupLimits,
)
from headrace.coordination.groups import GroupDecision
from headrace.coordination.join import JoinRequest
from headrace.coordination.leave import Leaver, LeaverAnswer
from headrace.coordination.offsets import FetchedTopic, OffsetToCommit, TopicPartitions
from headrace.coordination.rebalance import JoinAnswer, SyncAnswer
from headrace.coordination.sharding import partition_of
from headrace.coordination.sync import SyncRequest
from headrace.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.broker.context import Broker

logger = logging.getLogger(__name__)

CONSUMER_OFFSETS = "__consumer_offsets"

LOADED_AT_ONCE = 20_000
"""Records replayed before the broker serves, a tenth of a second; longer logs come in steps."""


# Java's hash of a group id costs 4 us, and a group asks many times a second.
_index_of = lru_cache(maxsize=10_000)(partition_of)


class Journals(Protocol):
    """The partitions of __consumer_offsets, of which there are none before the first group."""

    def existing(self) -> Sequence[Journal]: ...

    async def create(self) -> Sequence[Journal]: ...


class GroupCoordinator:
    """Every group of this broker; what each kind of request does to its group's shard."""

    def __init__(
        self,
        journals: Journals,
        limits: GroupLimits,
        clock: Clock,
        spawn: Spawn,
        *,
        topics: Callable[[], TopicCatalog] = NoTopics,
        expiry_interval_ms: int = 600_000,
    ) -> None:
        self._journals = journals
        self._topics = topics
        self._limits = limits
        self._clock = clock
        self._spawn = spawn
        self._expiry_interval_ms = expiry_interval_ms
        self._expiry: asyncio.TimerHandle | None = None
        self._creation = asyncio.Lock()
        self._shards: tuple[GroupShard, ...] = ()

    # Life.

    def start(self) -> None:
        """Load what the log has; the topic itself comes with the first group."""
        self._open(self._journals.existing())
        waiting = []
        at_once = LOADED_AT_ONCE
        for shard in sorted(self._shards, key=lambda shard: shard.length):
            at_once -= shard.length
            if at_once >= 0:
                shard.load()
            else:
                waiting.append(shard)
        if waiting:
            self._spawn(self._load(waiting))
        self._expire_later()

    def close(self) -> None:
        """Turn away everyone who waits, so that their connections can be drained."""
        if self._expiry is not None:
            self._expiry.cancel()
        for shard in self._shards:
            shard.close()

    async def shard_of(self, group_id: str) -> GroupShard:
        if not self._shards:
            async with self._creation:
                if not self._shards:
                    self._open(await self._journals.create())
                    for shard in self._shards:
                        shard.load()
        return self._shards[_index_of(group_id, len(self._shards))]

    def shard_at(self, index: int) -> GroupShard:
        """By the index of its partition, for markers."""
        return self._shards[index]

    # Membership.

    async def join(self, request: JoinRequest) -> JoinAnswer:
        shard = await self.shard_of(request.group_id)
        answer: JoinAnswer = await shard.ask(
            lambda machine, ticket: machine.join(request, ticket, shard.now())
        )
        return answer

    async def sync(self, request: SyncRequest) -> SyncAnswer:
        shard = await self.shard_of(request.group_id)
        answer: SyncAnswer = await shard.ask(
            lambda machine, ticket: machine.sync(request, ticket, shard.now())
        )
        return answer

    async def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        shard = await self.shard_of(group_id)
        if not shard.loaded.is_set():
            # Its session begins when the load ends, so nobody need worry yet.
            return ErrorCode.NONE
        # It says nothing that could be taken back, so it does not wait for the disk.
        return shard.peek(
            lambda machine: machine.heartbeat(
                group_id, member_id, instance_id, generation, shard.now()
            )
        )

    async def consumer_heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        shard = await self.shard_of(request.group_id)
        return await shard.run_for(
            lambda machine: machine.consumer_groups.heartbeat(request, shard.now())
        )

    async def leave(self, group_id: str, leavers: Sequence[Leaver]) -> tuple[LeaverAnswer, ...]:
        shard = await self.shard_of(group_id)
        return await shard.run_for(lambda machine: machine.leave(group_id, leavers, shard.now()))

    # Offsets.

    async def commit(
        self, committer: Committer, offsets: Sequence[OffsetToCommit], retention_ms: int
    ) -> tuple[ErrorCode, ...]:
        shards = self._shards
        if shards:
            shard = shards[_index_of(committer.group_id, len(shards))]
        else:
            shard = await self.shard_of(committer.group_id)
        now = shard.now()
        return await shard.run_outcome(
            lambda machine: machine.offsets.commit(
                committer, offsets, now, retention_ms=retention_ms
            ),
        )

    async def commit_transactional(
        self, committer: Committer, offsets: Sequence[OffsetToCommit], producer: Producer
    ) -> tuple[ErrorCode, ...]:
        shard = await self.shard_of(committer.group_id)
        return await shard.run_outcome(
            lambda machine: machine.offsets.commit_transactional(committer, offsets, shard.now()),
            producer=producer,
        )

    async def fetch_offsets(
        self,
        group_id: str,
        topics: Sequence[TopicPartitions] | None,
        *,
        require_stable: bool,
        member: tuple[str | None, int] = (None, -1),
    ) -> list[FetchedTopic]:
        """The offsets of these partitions, or with no topics of all."""

        def question(machine: Coordinator) -> list[FetchedTopic]:
            group = machine.groups.find(group_id)
            if group is not None:
                group.check_offset_fetch(*member)
            if topics is None:
                return machine.offsets.fetch_all(group_id, require_stable=require_stable)
            return machine.offsets.fetch(group_id, topics, require_stable=require_stable)

        return await (await self.shard_of(group_id)).look(question)

    async def delete_offsets(
        self, group_id: str, topics: Sequence[TopicPartitions]
    ) -> tuple[ErrorCode, ...]:
        shard = await self.shard_of(group_id)
        return await shard.run_outcome(lambda machine: machine.offsets.delete(group_id, topics))

    async def write_marker(
        self, partition: int, producer: Producer, *, committed: bool, coordinator_epoch: int
    ) -> None:
        """End a transaction on one partition of __consumer_offsets, in its log and its machine."""
        await self.shard_at(partition).write_marker(
            producer, committed=committed, coordinator_epoch=coordinator_epoch
        )

    async def topics_deleted(self, topics: Sequence[str]) -> None:
        """Every group forgets these topics; without __consumer_offsets there are no groups."""
        if CONSUMER_OFFSETS in topics:
            shards, self._shards = self._shards, ()
            for shard in shards:
                shard.close()
        for shard in self._shards:
            if shard.loaded.is_set():
                await self._forget(shard, topics)
            else:
                self._spawn(self._forget(shard, topics))

    # Looking after groups.

    async def groups(self) -> list[Group]:
        found: list[Group] = []
        for shard in self._shards:
            found += await shard.look(lambda machine: list(machine.groups))
        return found

    async def find(self, group_id: str) -> Group | None:
        shard = await self.shard_of(group_id)
        return await shard.look(lambda machine: machine.groups.find(group_id))

    async def delete(self, group_ids: Iterable[str]) -> list[DeletedGroup]:
        by_shard: dict[GroupShard, list[str]] = {}
        for group_id in group_ids:
            by_shard.setdefault(await self.shard_of(group_id), []).append(group_id)
        deleted: list[DeletedGroup] = []
        for shard, ids in by_shard.items():
            try:
                deleted += await shard.run_for(partial(_delete_groups, ids))
            except KafkaError as refusal:
                deleted += [DeletedGroup(each, refusal.code) for each in ids]
        return deleted

    # The parts.

    def _open(self, journals: Sequence[Journal]) -> None:
        self._shards = tuple(
            GroupShard(each, self._limits, self._clock, self._spawn, topics=self._topics)
            for each in journals
        )

    async def _load(self, shards: Sequence[GroupShard]) -> None:
        for shard in shards:
            try:
                await shard.load_in_steps()
            except (KafkaError, OSError):
                logger.exception("groups cannot be loaded partition=%s", shard)

    async def _forget(self, shard: GroupShard, topics: Sequence[str]) -> None:
        await shard.loaded.wait()
        try:
            await shard.run(partial(_delete_topics, topics))
        except KafkaError as error:
            # Their offsets carry the id of a topic that is gone, so nobody will be shown them.
            logger.warning("offsets of deleted topics stay topics=%s error=%s", topics, error)

    def _expire_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._expiry = loop.call_later(self._expiry_interval_ms / 1000, self._expire)

    def _expire(self) -> None:
        for shard in self._shards:
            try:
                shard.apply(partial(_expire, shard.now()))
            except KafkaError as error:
                logger.warning("offset expiry put off error=%s", error)
        self._expire_later()


class OffsetsTopic:
    """__consumer_offsets as the catalog knows it."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def existing(self) -> Sequence[Journal]:
        topic = self._broker.catalog.topics.get(CONSUMER_OFFSETS)
        count = 0 if topic is None else topic.partitions
        return [self._broker.partitions.get(CONSUMER_OFFSETS, index) for index in range(count)]

    async def create(self) -> Sequence[Journal]:
        await self._broker.topics.ensure_internal(CONSUMER_OFFSETS)
        return self.existing()


def group_coordinator(broker: "Broker") -> GroupCoordinator:
    """The coordinator of a broker, by the broker's settings."""
    settings = broker.settings
    limits = GroupLimits(
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        min_session_timeout_ms=settings.group_min_session_timeout_ms,
        max_session_timeout_ms=settings.group_max_session_timeout_ms,
        max_size=settings.group_max_size,
        offset_metadata_max_bytes=settings.offset_metadata_max_bytes,
        offsets_retention_ms=settings.offsets_retention_minutes * 60_000,
        share=ShareGroupLimits(
            settings.group_share_session_timeout_ms,
            settings.group_share_heartbeat_interval_ms,
            settings.group_share_max_size,
        ),
        consumer=ConsumerGroupLimits(
            session_timeout_ms=settings.group_consumer_session_timeout_ms,
            heartbeat_interval_ms=settings.group_consumer_heartbeat_interval_ms,
            assignment_interval_ms=settings.group_consumer_assignment_interval_ms,
            regex_refresh_interval_ms=settings.group_consumer_regex_refresh_interval_ms,
            max_size=settings.group_consumer_max_size,
            assignors=tuple(ASSIGNORS[each] for each in settings.group_consumer_assignors),
            migration_policy=MigrationPolicy(settings.group_consumer_migration_policy.lower()),
        ),
    )
    return GroupCoordinator(
        OffsetsTopic(broker),
        limits,
        broker.clock,
        broker.spawn,
        topics=lambda: broker.catalog,
        expiry_interval_ms=settings.offsets_retention_check_interval_ms,
    )


def _delete_groups(
    group_ids: Sequence[str], machine: Coordinator
) -> tuple[tuple[DeletedGroup, ...], GroupDecision]:
    return machine.delete_groups(group_ids)


def _delete_topics(topics: Sequence[str], machine: Coordinator) -> GroupDecision:
    return machine.delete_topics(topics)


def _expire(now: Now, machine: Coordinator) -> GroupDecision:
    return machine.expire(now)
