"""The catalog of one cluster: topics, partitions, settings and producer ids, as a replayed machine.

Invariants, after any history of decisions and at any prefix of their records:
- a topic name has one id and a topic id one name; an id that was removed never comes back;
- every topic made by a whole decision has at least one partition, numbered from 0 without gaps;
- settings exist only for topics that exist, and for brokers;
- `next_producer_id` never falls;
- replaying the records, or a snapshot and the records after it, gives the same catalog.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any
from uuid import UUID

from headrace.coordination.machine import Decision
from headrace.coordination.metadata_records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from headrace.coordination.topics import (
    NewTopic,
    Placement,
    Topic,
    check_name,
    collision_key,
    new_partition_count,
    partition_count,
)
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.primitives import ZERO_UUID

MAX_RECORDS_PER_REQUEST = 10_000
"""One request may not ask for more records than this, as in Kafka: its batch stays atomic."""

PRODUCER_ID_BLOCK = 1000


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """Directories of every partition must exist before the answer leaves."""

    topic: Topic
    clamped: bool = False
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """Directories of the partitions from `first` on must exist before the answer leaves."""

    topic: Topic
    first: int
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """The directories of this topic id must go."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class ConfigsChanged:
    """The settings of this resource are in force from now on."""

    resource_type: int
    resource_name: str


@dataclass(frozen=True, slots=True)
class ProducerIdsAllocated:
    """Producer ids `first` to `first + count - 1` belong to whoever asked."""

    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Refused:
    """One element of a request was refused; the others stand."""

    name: str
    error: KafkaError


CheckConfigs = Callable[[Mapping[str, str | None]], None]


class Catalog:
    """See the module for what always holds."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._topics: dict[str, Topic] = {}
        self._names: dict[UUID, str] = {}
        self._collisions: dict[str, set[str]] = {}
        self._configs: dict[tuple[int, str], dict[str, str]] = {}
        self._features: dict[str, int] = {}
        self._removed: dict[UUID, str] = {}
        self._next_producer_id = 0
        self._partitions = 0
        self.version = 0
        """Grows with every record, so that whatever is built from the catalog can be kept."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Catalog) and self._state() == other._state()

    __hash__ = None  # type: ignore[assignment]  # a catalog changes

    def _state(self) -> tuple[Any, ...]:
        stated = {resource: configs for resource, configs in self._configs.items() if configs}
        return (
            self._topics,
            self._names,
            stated,
            self._features,
            self._removed,
            self._next_producer_id,
        )

    @property
    def placement(self) -> Placement:
        return self._placement

    @property
    def topics(self) -> Mapping[str, Topic]:
        return MappingProxyType(self._topics)

    @property
    def features(self) -> Mapping[str, int]:
        return MappingProxyType(self._features)

    @property
    def removed(self) -> Mapping[UUID, str]:
        """Topics whose directories may still have to go, by id."""
        return MappingProxyType(self._removed)

    @property
    def next_producer_id(self) -> int:
        return self._next_producer_id

    def topic(self, name: str) -> Topic:
        found = self._topics.get(name)
        if found is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "This server does not host this topic-partition.",
            )
        return found

    def topic_by_id(self, topic_id: UUID) -> Topic:
        found = self.find(topic_id)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        return found

    def find(self, topic_id: UUID) -> Topic | None:
        name = self._names.get(topic_id)
        return None if name is None else self._topics[name]

    def broker_configs(self, name: str) -> Mapping[str, str]:
        """Dynamic settings of one broker, or of all of them under the name ''."""
        return self.configs_of(BROKER_RESOURCE, name)

    def configs_of(self, resource_type: int, name: str) -> Mapping[str, str]:
        """What was set for a broker or a group."""
        return MappingProxyType(self._configs.get((resource_type, name), {}))

    def names_with_configs(self, resource_type: int) -> list[str]:
        return sorted(
            name
            for (kind, name), stated in self._configs.items()
            if kind == resource_type and stated
        )

    def create_topics(
        self, wanted: Sequence[NewTopic], check: CheckConfigs, *, validate_only: bool = False
    ) -> Decision[MetadataRecord, TopicCreated | Refused]:
        """One effect for each wanted topic, in order."""
        records: list[MetadataRecord] = []
        effects: list[TopicCreated | Refused] = []
        taken: set[str] = set()
        planned = 0
        for new in wanted:
            try:
                topic, clamped = self._planned(new, check, taken)
                added = self._creation(topic)
                self._check_room(len(records) + len(added), planned + topic.partitions)
            except KafkaError as error:
                effects.append(Refused(new.name, error))
                continue
            taken.add(new.name)
            planned += topic.partitions
            records += added
            effects.append(TopicCreated(topic, clamped, validate_only))
        return Decision(() if validate_only else tuple(records), tuple(effects))

    def delete_topics(self, topic_ids: Iterable[UUID]) -> Decision[MetadataRecord, TopicDeleted]:
        """Every id must be known: refusals of unknown ones are the caller's, who has the names."""
        gone = [self.topic_by_id(topic_id) for topic_id in topic_ids]
        return Decision(
            tuple(RemoveTopicRecord(topic.topic_id) for topic in gone),
            tuple(TopicDeleted(topic) for topic in gone),
        )

    def create_partitions(
        self,
        wanted: Sequence[tuple[str, int, Sequence[Sequence[int]] | None]],
        *,
        validate_only: bool = False,
    ) -> Decision[MetadataRecord, PartitionsAdded | Refused]:
        """Each wanted is a topic, its new partition count, and assignments of the added ones."""
        records: list[MetadataRecord] = []
        effects: list[PartitionsAdded | Refused] = []
        for name, count, assignments in wanted:
            try:
                topic = self.topic(name)
                new_partition_count(topic.name, topic.partitions, count, assignments)
                self._placement.check_replicas(assignments or ())
                added = len(records) + count - topic.partitions
                self._check_room(added, added)
            except KafkaError as error:
                effects.append(Refused(name, error))
                continue
            grown = replace(topic, partitions=count)
            records += self._partition_records(grown, topic.partitions)
            effects.append(PartitionsAdded(grown, topic.partitions, validate_only))
        return Decision(() if validate_only else tuple(records), tuple(effects))

    def alter_configs(
        self, resource_type: int, resource_name: str, changes: Mapping[str, str | None]
    ) -> Decision[MetadataRecord, ConfigsChanged]:
        """Set these, remove those that are None; only what changes is written."""
        if resource_type == TOPIC_RESOURCE:
            current = self.topic(resource_name).configs
        else:
            current = self.configs_of(resource_type, resource_name)
        records = tuple(
            ConfigRecord(resource_type, resource_name, name, value)
            for name, value in changes.items()
            if current.get(name) != value
        )
        return Decision(records, (ConfigsChanged(resource_type, resource_name),))

    def allocate_producer_ids(
        self, count: int = PRODUCER_ID_BLOCK
    ) -> Decision[MetadataRecord, ProducerIdsAllocated]:
        first = self._next_producer_id
        record = ProducerIdsRecord(self._placement.node_id, 0, first + count)
        return Decision((record,), (ProducerIdsAllocated(first, count),))

    def adopt_topic(self, topic: Topic) -> Decision[MetadataRecord, TopicCreated]:
        """Catalog a topic whose directories were found on disk."""
        if topic.name in self._topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, topic.name)
        return Decision(tuple(self._creation(topic)), (TopicCreated(topic),))

    def set_features(self, levels: Mapping[str, int]) -> Decision[MetadataRecord, Any]:
        records = (
            FeatureLevelRecord(name, level)
            for name, level in levels.items()
            if self._features.get(name) != level
        )
        return Decision(tuple(records))

    def snapshot(self) -> list[MetadataRecord]:
        """Records that make an empty catalog equal to this one."""
        records: list[MetadataRecord] = [
            FeatureLevelRecord(name, level) for name, level in self._features.items()
        ]
        for topic in self._topics.values():
            records += self._creation(topic)
        for resource, configs in self._configs.items():
            records += [ConfigRecord(*resource, *item) for item in configs.items()]
        records += [RemoveTopicRecord(topic_id) for topic_id in self._removed]
        if self._next_producer_id:
            records.append(ProducerIdsRecord(self._placement.node_id, 0, self._next_producer_id))
        return records

    def _planned(self, new: NewTopic, check: CheckConfigs, taken: set[str]) -> tuple[Topic, bool]:
        check_name(new.name)
        if new.name in self._topics or new.name in taken:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{new.name}' already exists.")
        key = collision_key(new.name)
        near = self._collisions.get(key, set()) | {n for n in taken if collision_key(n) == key}
        if near:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{new.name}' collides with existing topic: {min(near)}",
            )
        partitions, clamped = partition_count(new, self._placement)
        check(new.configs)
        configs = {name: value for name, value in new.configs.items() if value is not None}
        return Topic(new.name, new.topic_id, partitions, configs), clamped

    def _check_room(self, records: int, partitions: int) -> None:
        if records > MAX_RECORDS_PER_REQUEST:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                "Excessively large number of partitions per request.",
            )
        limit = self._placement.max_partitions
        if self._partitions + partitions > limit:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{self._partitions} partitions exist and {partitions} more would pass "
                f"max.partitions ({limit}).",
            )

    def _creation(self, topic: Topic) -> list[MetadataRecord]:
        records: list[MetadataRecord] = [TopicRecord(topic.name, topic.topic_id)]
        records += [
            ConfigRecord(TOPIC_RESOURCE, topic.name, *item) for item in topic.configs.items()
        ]
        return records + self._partition_records(topic, 0)

    def _partition_records(self, topic: Topic, first: int) -> list[MetadataRecord]:
        replicas = (self._placement.node_id,)
        directories = (self._placement.directory_id or ZERO_UUID,)
        return [
            PartitionRecord(
                index,
                topic.topic_id,
                replicas,
                replicas,
                self._placement.node_id,
                directories,
                leader_epoch=topic.leader_epochs.get(index, 0),
            )
            for index in range(first, topic.partitions)
        ]

    def replay(self, record: MetadataRecord) -> None:
        self.version += 1
        match record:
            case TopicRecord():
                self._replay_topic(record)
            case PartitionRecord():
                self._replay_partition(record)
            case ConfigRecord():
                self._replay_config(record)
            case RemoveTopicRecord():
                self._replay_remove_topic(record)
            case FeatureLevelRecord():
                self._features[record.name] = record.feature_level
            case ProducerIdsRecord():
                self._next_producer_id = max(self._next_producer_id, record.next_producer_id)
            case NoOpRecord():
                pass

    def forget_removed(self, topic_ids: Iterable[UUID]) -> None:
        """Their directories are gone, so nobody has to remember; a snapshot leaves them out."""
        for topic_id in topic_ids:
            self._removed.pop(topic_id, None)

    def _replay_topic(self, record: TopicRecord) -> None:
        self._topics[record.name] = Topic(record.name, record.topic_id)
        self._names[record.topic_id] = record.name
        self._collisions.setdefault(collision_key(record.name), set()).add(record.name)

    def _replay_partition(self, record: PartitionRecord) -> None:
        name = self._names.get(record.topic_id)
        if name is None:
            return
        topic = self._topics[name]
        epochs = topic.leader_epochs
        if record.leader_epoch:
            epochs = {**epochs, record.partition_id: record.leader_epoch}
        count = max(topic.partitions, record.partition_id + 1)
        self._partitions += count - topic.partitions
        self._topics[name] = replace(topic, partitions=count, leader_epochs=epochs)

    def _replay_config(self, record: ConfigRecord) -> None:
        if record.resource_type != TOPIC_RESOURCE:
            resource = (record.resource_type, record.resource_name)
            _put(self._configs.setdefault(resource, {}), record.name, record.value)
            return
        topic = self._topics.get(record.resource_name)
        if topic is not None:
            changed = dict(topic.configs)
            _put(changed, record.name, record.value)
            self._topics[topic.name] = replace(topic, configs=changed)

    def _replay_remove_topic(self, record: RemoveTopicRecord) -> None:
        name = self._names.pop(record.topic_id, None)
        self._removed[record.topic_id] = name or ""
        if name is None:
            return
        self._partitions -= self._topics.pop(name).partitions
        key = collision_key(name)
        self._collisions[key].discard(name)
        if not self._collisions[key]:
            del self._collisions[key]


def _put(configs: dict[str, str], name: str, value: str | None) -> None:
    if value is None:
        configs.pop(name, None)
    else:
        configs[name] = value
