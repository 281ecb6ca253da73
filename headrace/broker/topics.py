"""Topics as partitions on disk: what the catalog decides is carried out here."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID, uuid4

from headrace.broker.context import Broker
from headrace.broker.internal_topics import INTERNAL, new_internal_topic
from headrace.broker.metadata_log import MetadataLog
from headrace.broker.packed_topics import PackedTopics
from headrace.broker.partitions import Partition
from headrace.broker.producer_ids import ProducerIds
from headrace.broker.settings import BrokerSettings, effective
from headrace.coordination.catalog import (
    Catalog,
    ConfigsChanged,
    PartitionsAdded,
    Refused,
    TopicCreated,
    TopicDeleted,
)
from headrace.coordination.machine import Decision
from headrace.coordination.metadata_records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    MetadataRecord,
)
from headrace.coordination.topics import METADATA_TOPIC, NewTopic, Placement, Topic, check_name
from headrace.errors import ErrorCode, KafkaError, SettingError
from headrace.log.checkpoints import PARTITION_METADATA, read_partition_metadata, read_uuid
from headrace.log.filesystem import join
from headrace.log.settings import TopicSettings, validate_overrides
from headrace.log.store import partition_name
from headrace.settings import Layers, find

log = logging.getLogger(__name__)

Add = Callable[[str, int, UUID, TopicSettings], Partition]

AT_ONCE = 32
"""Directories made or renamed before the loop gets its turn: a few milliseconds of it."""

MAX_ADOPTED_INDEX = 10_000
"""A directory found with a larger partition number is no partition of ours."""

FEATURES = {
    "metadata.version": 30,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}


class Topics:
    """Every cataloged partition has its directory and its Partition; nothing else is served.

    A change is recorded, durable, carried out on disk, and then answered. After a crash in between,
    `open` carries it out: missing directories are created, those of deleted topics removed.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._static = dict(broker.settings.stated)
        settings = broker.settings
        placement = Placement(
            node_id=broker.node_id,
            directory_id=_directory_id(broker.store.directory_id),
            num_partitions=settings.num_partitions,
            max_partitions=settings.max_partitions,
            clamp=settings.single_node_replication == "clamp",
        )
        self._metadata_log = MetadataLog(
            broker.store, broker.flusher, broker.clock, settings, placement
        )
        self.shard = self._metadata_log.shard
        self.metadata = self._metadata_log.partition
        self.producer_ids = ProducerIds(self.shard)
        self.packed = PackedTopics()
        self._dropped: set[UUID] = set()
        self._incomplete: set[UUID] = set()

    @classmethod
    async def open(cls, broker: Broker) -> "Topics":
        """Replay the metadata log, bring the directories in line, and open every partition."""
        topics = cls(broker)
        broker.catalog_shard = topics.shard
        broker.topics = topics
        await topics.shard.run(lambda: topics.catalog.set_features(FEATURES))
        topics._apply_broker_configs()
        await topics._reconcile()
        return topics

    @property
    def catalog(self) -> Catalog:
        return self.shard.machine

    @property
    def layers(self) -> Layers:
        """Everything said about this broker's settings that it can take, by who said it."""
        return Layers(
            dynamic_broker=_accepted(self.catalog.broker_configs(str(self._broker.node_id))),
            dynamic_default=_accepted(self.catalog.broker_configs("")),
            static=self._static,
        )

    async def create(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False
    ) -> tuple[TopicCreated | Refused, ...]:
        """One effect for each topic, in order; the created ones are ready for use."""
        effects = await self.shard.run(
            lambda: self.catalog.create_topics(
                wanted, self._check_configs, validate_only=validate_only
            )
        )
        for effect in effects:
            if isinstance(effect, TopicCreated) and not validate_only:
                await self._create_partitions(effect.topic.topic_id)
                _say_created(effect)
        await self._after_change()
        return effects

    async def settled(self) -> None:
        """Whoever tells of the catalog waits for this: what it says is on stable storage."""
        await self.shard.run(Decision)

    async def ensure(self, names: Sequence[str]) -> tuple[TopicCreated | Refused, ...]:
        """Create those topics with the broker's defaults; internal ones as they have to be."""
        settings = self._broker.settings
        wanted = [
            new_internal_topic(name, uuid4(), settings)
            if name in INTERNAL
            else NewTopic(name, uuid4())
            for name in names
        ]
        return await self.create(wanted)

    async def ensure_internal(self, name: str) -> Topic:
        """The internal topic of this name, created if this is its first use."""
        if name not in self.catalog.topics:
            (effect,) = await self.ensure([name])
            if isinstance(effect, Refused) and name not in self.catalog.topics:
                raise effect.error
        return self.catalog.topic(name)

    async def next_producer_id(self) -> int:
        """An id that no producer has, or ever had."""
        return await self.producer_ids.next()

    async def delete(self, topic_ids: Sequence[UUID]) -> tuple[TopicDeleted, ...]:
        """The topics are gone from the catalog and from sight; their files go a little later."""
        effects = await self.shard.run(lambda: self.catalog.delete_topics(topic_ids))
        for effect in effects:
            await self._delete_partitions(effect.topic)
            log.info("topic deleted topic=%s id=%s", effect.topic.name, effect.topic.topic_id)
        await self._after_change()
        return effects

    async def add_partitions(
        self,
        wanted: Sequence[tuple[str, int, Sequence[Sequence[int]] | None]],
        *,
        validate_only: bool = False,
    ) -> tuple[PartitionsAdded | Refused, ...]:
        effects = await self.shard.run(
            lambda: self.catalog.create_partitions(wanted, validate_only=validate_only)
        )
        for effect in effects:
            if isinstance(effect, PartitionsAdded) and not validate_only:
                await self._create_partitions(effect.topic.topic_id)
        await self._after_change()
        return effects

    async def alter_configs(
        self, decide: Callable[[], Decision[MetadataRecord, ConfigsChanged]]
    ) -> None:
        """Change the settings of a topic or of brokers; they are in force when this returns."""
        for effect in await self.shard.run(decide):
            if effect.resource_type == TOPIC_RESOURCE:
                self._configure(effect.resource_name)
            elif effect.resource_type == BROKER_RESOURCE:
                self._apply_broker_configs()
        await self._after_change()

    def settings_of(self, topic: Topic) -> TopicSettings:
        """What the topic goes by; a setting this broker cannot take is left out, and said."""
        configs = dict(topic.configs)
        while True:
            try:
                return TopicSettings.resolve(self._broker.settings, configs)
            except SettingError as error:
                log.warning("topic setting left out topic=%s reason=%s", topic.name, error)
                if configs.pop(error.name, None) is None:
                    return self._broker.settings.topic_defaults

    def _check_configs(self, configs: Mapping[str, str | None]) -> None:
        missing = [name for name, value in configs.items() if value is None]
        if missing:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Null value not supported for topic configs: {','.join(missing)}",
            )
        try:
            validate_overrides(configs, self._broker.settings.topic_defaults)
        except SettingError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def _configure(self, name: str) -> None:
        topic = self.catalog.topics.get(name)
        if topic is None:
            return
        settings = self.settings_of(topic)
        for index in range(topic.partitions):
            self._broker.partitions.get(name, index).configure(settings)

    def _apply_broker_configs(self) -> None:
        try:
            self._broker.settings = effective(self.layers)
        except SettingError as error:
            log.error("dynamic broker settings left out reason=%s", error)
            return
        for partition in self._broker.partitions.all():
            topic = self.catalog.topics.get(partition.topic)
            if topic is not None:
                partition.configure(self.settings_of(topic))

    def is_served(self, topic: Topic) -> bool:
        """Whether every partition is open: they are opened in order, so the last one tells."""
        last = self._served(topic.name, topic.partitions - 1)
        return last is not None and last.topic_id == topic.topic_id

    async def repair(self) -> None:
        """Try again to create what a failing disk left undone."""
        for topic_id in list(self._incomplete):
            try:
                await self._create_partitions(topic_id)
            except KafkaError as error:
                log.warning("topic still incomplete id=%s reason=%s", topic_id, error)
                return

    async def _create_partitions(self, topic_id: UUID) -> None:
        """Idempotent, and true to the catalog of each moment: the topic may go while this runs."""
        index = 0
        while (topic := self.catalog.find(topic_id)) is not None and index < topic.partitions:
            settings = self.settings_of(topic)
            end = min(index + AT_ONCE, topic.partitions)
            try:
                for each in range(index, end):
                    # Whatever lies under this name is not this topic's: it has just been created.
                    self._serve(topic, each, settings, self._broker.partitions.create)
            except KafkaError:
                self._incomplete.add(topic_id)
                raise
            index = end
            await asyncio.sleep(0)
        self._incomplete.discard(topic_id)

    def _served(self, name: str, index: int) -> Partition | None:
        try:
            return self._broker.partitions.get(name, index)
        except KafkaError:
            return None

    def _serve(self, topic: Topic, index: int, settings: TopicSettings, add: Add) -> None:
        served = self._served(topic.name, index)
        if served is not None:
            if served.topic_id == topic.topic_id:
                return
            self._broker.partitions.remove(topic.name, index)
        try:
            partition = add(topic.name, index, topic.topic_id, settings)
        except OSError as error:
            # The record stands, so `repair` or the next start tries again.
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{topic.name}-{index} cannot be created: {error}"
            ) from error
        # A log that Kafka wrote may be at a later epoch than any that we gave out.
        logged = partition.log.leader_epochs.latest
        partition.leader_epoch = max(topic.leader_epochs.get(index, 0), logged)

    async def _delete_partitions(self, topic: Topic) -> None:
        for index in range(topic.partitions):
            served = self._served(topic.name, index)
            if served is not None and served.topic_id == topic.topic_id:
                self._broker.partitions.remove(topic.name, index)
            if index % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
        self._dropped.add(topic.topic_id)

    async def _after_change(self) -> None:
        if self._metadata_log.snapshot_due():
            store = self._broker.store
            dropped, self._dropped = self._dropped, set()
            # Their directories were renamed: once that is durable, nobody need remember them.
            await asyncio.to_thread(store.filesystem.sync_dir, store.data_dir)
            self.catalog.forget_removed(dropped)
            await self._metadata_log.snapshot()

    async def _reconcile(self) -> None:
        unknown: dict[str, dict[int, UUID | None]] = defaultdict(dict)
        for name, index in self._broker.store.found():
            if name == METADATA_TOPIC:
                continue
            topic_id = self._id_on_disk(name, index)
            topic = self.catalog.topics.get(name)
            if self._is_removed(name, topic_id):
                self._set_aside(name, index, "delete")
            elif topic is None:
                unknown[name][index] = topic_id
            elif topic_id is not None and topic_id != topic.topic_id:
                self._set_aside(name, index, "stray")
            elif topic.partitions <= index <= MAX_ADOPTED_INDEX:
                await self._grow(name, index + 1)
        for name, indexes in unknown.items():
            await self._adopt(name, indexes)
        for topic in list(self.catalog.topics.values()):
            settings = self.settings_of(topic)
            for index in range(topic.partitions):
                self._serve(topic, index, settings, self._broker.partitions.open)
        self._dropped.update(self.catalog.removed)

    def _is_removed(self, name: str, topic_id: UUID | None) -> bool:
        removed = self.catalog.removed
        if topic_id is not None:
            return topic_id in removed
        # A power cut may take the id of a directory and leave the directory.
        return name not in self.catalog.topics and name in removed.values()

    def _id_on_disk(self, name: str, index: int) -> UUID | None:
        store = self._broker.store
        path = join(store.data_dir, partition_name(name, index), PARTITION_METADATA)
        if not store.filesystem.exists(path):
            return None
        try:
            return read_partition_metadata(store.filesystem.read(path))
        except ValueError as error:
            log.warning("partition.metadata ignored file=%s reason=%s", path, error)
            return None

    def _set_aside(self, name: str, index: int, suffix: str) -> None:
        store = self._broker.store
        directory = partition_name(name, index)
        target = f"{directory}.{uuid4().hex}-{suffix}"
        store.filesystem.rename(join(store.data_dir, directory), join(store.data_dir, target))
        log.warning("partition directory set aside directory=%s renamed=%s", directory, target)

    async def _grow(self, name: str, count: int) -> None:
        log.info("partitions found on disk topic=%s partitions=%d", name, count)
        await self.shard.run(lambda: self.catalog.create_partitions([(name, count, None)]))

    async def _adopt(self, name: str, indexes: Mapping[int, UUID | None]) -> None:
        """Catalog a topic that was found on disk, for example one that Kafka wrote."""
        known = {index: found for index, found in indexes.items() if found is not None}
        if not known or max(known) > MAX_ADOPTED_INDEX or not _legal(name):
            log.warning("directories ignored topic=%s partitions=%s", name, sorted(indexes))
            return
        topic_id = known[min(known)]
        for index, found in known.items():
            if found != topic_id:
                self._set_aside(name, index, "stray")
        topic = Topic(name, topic_id, max(known) + 1)
        await self.shard.run(lambda: self.catalog.adopt_topic(topic))
        log.info("topic adopted topic=%s id=%s partitions=%d", name, topic_id, topic.partitions)


def _accepted(texts: Mapping[str, str]) -> dict[str, str]:
    """Without what another version of a broker may have written, and this one does not know."""
    accepted = {}
    for name, text in texts.items():
        try:
            find(BrokerSettings, name).parse(text)
            accepted[name] = text
        except SettingError as error:
            log.warning("broker setting left out reason=%s", error)
    return accepted


def _directory_id(text: str) -> UUID | None:
    return read_uuid(text) if text else None


def _legal(name: str) -> bool:
    try:
        check_name(name)
    except KafkaError:
        return False
    return True


def _say_created(effect: TopicCreated) -> None:
    topic = effect.topic
    log.info(
        "topic created topic=%s id=%s partitions=%d%s",
        topic.name,
        topic.topic_id,
        topic.partitions,
        " replication_factor=1 (clamped to this one node)" if effect.clamped else "",
    )
