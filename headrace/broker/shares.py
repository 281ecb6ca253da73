"""The share coordinator: share states over __share_group_state, sessions, and who waits."""

import asyncio
import base64
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.broker.group_settings import EARLIEST, GroupSettings, duration_ms, resolve
from headrace.broker.partitions import Partition
from headrace.broker.share_sessions import SessionKey, ShareSession, ShareSessions
from headrace.broker.share_shard import ShareShard
from headrace.coordination.group import ShareGroupLimits
from headrace.coordination.metadata_records import GROUP_RESOURCE
from headrace.coordination.sharding import partition_of
from headrace.coordination.share_group_records import StateTopic
from headrace.coordination.share_groups import ShareHeartbeat, ShareHeartbeatAnswer
from headrace.coordination.share_partition import (
    UNINITIALIZED,
    AcknowledgementBatch,
    ShareLimits,
)
from headrace.coordination.share_records import SharePartitionKey
from headrace.errors import ErrorCode, KafkaError, SettingError

if TYPE_CHECKING:
    from headrace.broker.context import Broker

logger = logging.getLogger(__name__)

SHARE_GROUP_STATE = "__share_group_state"

LOADED_AT_ONCE = 20_000
"""Records replayed before the broker serves, a tenth of a second; longer logs come in steps."""

PRUNE_INTERVAL_S = 300.0
"""How often logs of share states are looked at for what no longer counts, as in Kafka."""


@lru_cache(maxsize=10_000)
def _index_of(key: SharePartitionKey, partitions: int) -> int:
    # Kafka's form of a topic id in text, so that both put a key into the same partition.
    topic_id = base64.urlsafe_b64encode(key.topic_id.bytes).rstrip(b"=").decode()
    return partition_of(f"{key.group_id}:{topic_id}:{key.partition}", partitions)


class ShareCoordinator:
    """Every share partition of this broker, and the sessions of those who fetch from them."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._creation = asyncio.Lock()
        self._shards: tuple[ShareShard, ...] = ()
        self._pruning: asyncio.TimerHandle | None = None
        self.sessions = ShareSessions(broker.settings.group_share_max_share_sessions)

    # Life.

    def start(self) -> None:
        """Load what the log has; the topic itself comes with the first share group."""
        topic = self._broker.catalog.topics.get(SHARE_GROUP_STATE)
        if topic is not None:
            self._open(topic.partitions)
        waiting = []
        at_once = LOADED_AT_ONCE
        for shard in sorted(self._shards, key=lambda shard: shard.length):
            at_once -= shard.length
            if at_once >= 0:
                shard.load()
            else:
                waiting.append(shard)
        if waiting:
            self._broker.spawn(_load(waiting))
        self._prune_later()

    def close(self) -> None:
        if self._pruning is not None:
            self._pruning.cancel()
        for shard in self._shards:
            shard.close()

    async def shard_of(self, key: SharePartitionKey) -> ShareShard:
        await self.ready()
        return self._shards[_index_of(key, len(self._shards))]

    async def ready(self) -> None:
        """Make the topic, if this is the first share group."""
        if self._shards:
            return
        async with self._creation:
            if not self._shards:
                topic = await self._broker.topics.ensure_internal(SHARE_GROUP_STATE)
                self._open(topic.partitions)
                for shard in self._shards:
                    shard.load()

    # Settings.

    def settings_of(self, group_id: str) -> GroupSettings:
        """What a group goes by; what it set is left out if it is no longer within bounds."""
        broker = self._broker
        try:
            return resolve(broker.settings, broker.catalog.configs_of(GROUP_RESOURCE, group_id))
        except SettingError as error:
            logger.warning("group settings left out group=%s reason=%s", group_id, error)
            return resolve(broker.settings, {})

    def limits_of(self, group_id: str) -> ShareLimits:
        settings = self.settings_of(group_id)
        return ShareLimits(
            settings.share_record_lock_duration_ms,
            settings.share_delivery_count_limit,
            settings.share_partition_max_record_locks,
        )

    # Membership.

    async def heartbeat(self, request: ShareHeartbeat) -> tuple[ShareHeartbeatAnswer, int]:
        """The answer, and how often to beat. States are made on the way, so that a new member is
        assigned partitions by its first heartbeat; with Kafka it takes two.
        """
        settings = self.settings_of(request.group_id)
        limits = ShareGroupLimits(
            settings.share_session_timeout_ms,
            settings.share_heartbeat_interval_ms,
            self._broker.settings.group_share_max_size,
        )
        answer = await self._beat(request, limits)
        if answer.stateless:
            await self._make_states(request.group_id, answer)
            again = request._replace(member_epoch=answer.member_epoch, topics=None)
            first, answer = answer, await self._beat(again, limits)
            if answer.assignment is None:
                answer = ShareHeartbeatAnswer(answer.member_epoch, first.assignment)
        return answer, limits.heartbeat_interval_ms

    async def _beat(
        self, request: ShareHeartbeat, limits: ShareGroupLimits
    ) -> ShareHeartbeatAnswer:
        shard = await self._broker.groups.shard_of(request.group_id)
        catalog = self._broker.catalog
        return await shard.run_for(
            lambda machine: machine.shares.heartbeat(request, catalog, limits, shard.now())
        )

    async def _make_states(self, group_id: str, answer: ShareHeartbeatAnswer) -> None:
        stateless = answer.stateless or {}
        for key in state_keys(group_id, stateless):
            await self.initialize(key, answer.state_epoch, UNINITIALIZED)
        shard = await self._broker.groups.shard_of(group_id)
        await shard.run(lambda machine: machine.shares.state_made(group_id, stateless))

    # States.

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        shard = await self.shard_of(key)
        try:
            await shard.run(
                lambda machine: machine.initialize(key, state_epoch, start_offset, shard.now())
            )
        except KafkaError as refusal:
            # Another heartbeat of the group was faster: then it has its state.
            if refusal.code is not ErrorCode.FENCED_STATE_EPOCH or start_offset != UNINITIALIZED:
                raise

    async def begin(self, key: SharePartitionKey, log: Partition) -> ShareShard:
        """The shard of a share partition that has a start offset, no lower than its log's."""
        shard = await self.shard_of(key)
        await shard.loaded.wait()
        share = shard.peek(lambda machine: machine.find(key))
        if share is None or not share.is_initialized:
            start = self._first_offset(key.group_id, log)
            # Said only when durable: a later start after a power cut would lose records.
            await shard.run(lambda machine: machine.start_at(key, start, shard.now()))
        elif share.start_offset < log.log_start_offset:
            shard.apply(
                lambda machine: machine.log_start_moved(key, log.log_start_offset, shard.now())
            )
        return shard

    def _first_offset(self, group_id: str, log: Partition) -> int:
        reset = self.settings_of(group_id).share_auto_offset_reset
        if reset == EARLIEST:
            return log.log_start_offset
        back_ms = duration_ms(reset)
        if back_ms is not None:
            found = log.log.offset_for_time(max(self._broker.clock.now_ms() - back_ms, 0))
            if found is not None:
                return min(found[0], log.high_watermark)
        return log.high_watermark

    async def delete_states(self, keys: Iterable[SharePartitionKey]) -> None:
        for key in keys:
            shard = await self.shard_of(key)
            await shard.run(lambda machine, key=key: machine.delete([key]))  # type: ignore[misc]

    async def topics_deleted(self, topic_ids: Sequence[UUID]) -> None:
        """Their states go; without __share_group_state there are none at all."""
        if SHARE_GROUP_STATE not in self._broker.catalog.topics:
            shards, self._shards = self._shards, ()
            for shard in shards:
                shard.close()
        for shard in self._shards:
            if shard.loaded.is_set():
                await shard.run(lambda machine: machine.delete_topics(topic_ids))

    # Sessions.

    async def acknowledge(
        self, key: SharePartitionKey, member_id: str, batches: Sequence[AcknowledgementBatch]
    ) -> None:
        limits = self.limits_of(key.group_id)
        shard = await self.shard_of(key)
        await shard.run(
            lambda machine: machine.acknowledge(key, member_id, batches, limits, shard.now())
        )

    async def end_session(self, key: SessionKey) -> None:
        """Whatever the member holds is offered again."""
        session = self.sessions.close(key)
        if session is not None:
            await self._release(session)

    def connection_closed(self, connection_id: int) -> None:
        """Its sessions end: nobody is left to acknowledge what they hold."""
        for key in self.sessions.of_connection(connection_id):
            self._broker.spawn(self.end_session(key))

    async def _release(self, session: ShareSession) -> None:
        group_id, member_id = session.key
        limits = self.limits_of(group_id)
        for topic_id, partition in session.partitions:
            key = SharePartitionKey(group_id, topic_id, partition)
            shard = await self.shard_of(key)
            try:
                await shard.run(
                    lambda machine, key=key, shard=shard: machine.release(  # type: ignore[misc]
                        key, member_id, limits, shard.now()
                    )
                )
            except KafkaError as error:
                # Their locks end by themselves.
                logger.warning("records not released key=%s error=%s", key, error)

    # The parts.

    def _open(self, partitions: int) -> None:
        settings = self._broker.settings
        self._shards = tuple(
            ShareShard(
                self._broker.partitions.get(SHARE_GROUP_STATE, index),
                self.limits_of,
                self._broker.clock,
                updates_per_snapshot=settings.share_coordinator_snapshot_update_records_per_snapshot,
            )
            for index in range(partitions)
        )

    def _prune_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._pruning = loop.call_later(PRUNE_INTERVAL_S, self._prune_now)

    def _prune_now(self) -> None:
        self._broker.spawn(self.prune())
        self._prune_later()

    async def prune(self) -> None:
        """Let go of records that later ones have made needless."""
        for index, shard in enumerate(self._shards):
            try:
                before = await shard.prune()
            except KafkaError as error:
                logger.warning("share states not written anew index=%d error=%s", index, error)
                continue
            if before is not None:
                self._broker.partitions.get(SHARE_GROUP_STATE, index).log.delete_records(before)


def state_keys(group_id: str, topics: Mapping[UUID, StateTopic]) -> list[SharePartitionKey]:
    """The share partitions of a group's topics."""
    return [
        SharePartitionKey(group_id, topic_id, partition)
        for topic_id, topic in topics.items()
        for partition in sorted(topic.partitions)
    ]


async def _load(shards: Sequence[ShareShard]) -> None:
    for shard in shards:
        await shard.load_in_steps()
