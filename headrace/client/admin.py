"""Topics, settings and the brokers of a cluster, typed, by confluent-kafka's admin client."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import confluent_kafka
import confluent_kafka.admin

from headrace.client.librdkafka import (
    REQUEST_TIMEOUT_S,
    TopicPartition,
    client_settings,
    refusal,
)
from headrace.client.patience import patiently
from headrace.errors import ErrorCode, KafkaError, Unreachable

# The package types its admin module but does not export those names, so they stay untyped here.
raw_admin: Any = confluent_kafka.admin

T = TypeVar("T")


class ConfigKind(StrEnum):
    """Whose settings: a topic's, by name, or a broker's, by node id."""

    TOPIC = "topic"
    BROKER = "broker"


class Isolation(StrEnum):
    """What a reader sees of transactions."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


EARLIEST = -2
LATEST = -1
RESOURCES = {
    ConfigKind.TOPIC: raw_admin.RESOURCE_TOPIC,
    ConfigKind.BROKER: raw_admin.RESOURCE_BROKER,
}
ISOLATIONS = {
    Isolation.READ_UNCOMMITTED: confluent_kafka.IsolationLevel.READ_UNCOMMITTED,
    Isolation.READ_COMMITTED: confluent_kafka.IsolationLevel.READ_COMMITTED,
}


@dataclass(frozen=True, slots=True)
class Node:
    """One broker of the cluster."""

    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster as its brokers describe it."""

    cluster_id: str
    controller: int | None
    brokers: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition and where its copies are; leader -1: it has none."""

    index: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic; topic_id is empty when it came from a plain listing."""

    name: str
    topic_id: str
    internal: bool
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created; what is None is the broker's to choose."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting in force, and where its value comes from (Kafka's names of sources)."""

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool


class Admin:
    """Asks and changes the cluster; each method waits for the answer or raises."""

    def __init__(self, bootstrap: str, settings: Mapping[str, Any] | None = None) -> None:
        self.bootstrap = bootstrap
        try:
            self.raw = raw_admin.AdminClient(client_settings(bootstrap, settings))
        except confluent_kafka.KafkaException as error:
            raise refusal(error, bootstrap) from error

    def cluster(self) -> Cluster:
        found = self.wait(self.raw.describe_cluster(request_timeout=REQUEST_TIMEOUT_S))
        brokers = tuple(Node(node.id, node.host, node.port) for node in found.nodes)
        return Cluster(found.cluster_id, found.controller and found.controller.id, brokers)

    def topics(self) -> list[Topic]:
        """Every topic, by name; without ids."""
        listed = self._metadata(None)
        return [_listed(found) for _, found in sorted(listed.topics.items())]

    def topic_exists(self, name: str) -> bool:
        """Ask without naming the topic to the broker, which might then create it."""
        return name in self._metadata(None).topics

    def describe_topics(self, names: Sequence[str]) -> list[Topic]:
        wanted = confluent_kafka.TopicCollection(list(names))
        futures = self._ask(self.raw.describe_topics, wanted, request_timeout=REQUEST_TIMEOUT_S)
        return [_described(self.wait(futures[name], name)) for name in names]

    def create_topic(self, topic: NewTopic, *, validate_only: bool = False) -> None:
        new = raw_admin.NewTopic(
            topic.name,
            num_partitions=topic.partitions or -1,
            replication_factor=topic.replication_factor or -1,
            config=dict(topic.configs or {}),
        )
        futures = self._ask(
            self.raw.create_topics,
            [new],
            request_timeout=REQUEST_TIMEOUT_S,
            validate_only=validate_only,
        )
        self.wait(futures[topic.name], topic.name)
        if not validate_only:
            # The answer may come before every broker has heard of the topic.
            patiently(lambda: self._require_leaders(topic.name))

    def add_partitions(self, name: str, total: int) -> None:
        """Give the topic this many partitions in all."""
        wanted = [raw_admin.NewPartitions(name, total)]
        futures = self._ask(self.raw.create_partitions, wanted, request_timeout=REQUEST_TIMEOUT_S)
        self.wait(futures[name], name)
        patiently(lambda: self._require_leaders(name, total))

    def delete_topic(self, name: str) -> None:
        futures = self._ask(self.raw.delete_topics, [name], request_timeout=REQUEST_TIMEOUT_S)
        self.wait(futures[name], name)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete below these offsets; returns where each partition now starts."""
        wanted = [
            confluent_kafka.TopicPartition(*place, offset) for place, offset in before.items()
        ]
        futures = self._ask(self.raw.delete_records, wanted, request_timeout=REQUEST_TIMEOUT_S)
        return {
            TopicPartition(key.topic, key.partition): self.wait(future).low_watermark
            for key, future in futures.items()
        }

    def configs(self, kind: ConfigKind, name: str) -> list[ConfigEntry]:
        resource = raw_admin.ConfigResource(RESOURCES[kind], name)
        futures = self._ask(
            self.raw.describe_configs, [resource], request_timeout=REQUEST_TIMEOUT_S
        )
        found = self.wait(futures[resource], f"{kind} {name}")
        return [_config(entry) for _, entry in sorted(found.items())]

    def alter_configs(
        self, kind: ConfigKind, name: str, *, add: Mapping[str, str], delete: Iterable[str] = ()
    ) -> None:
        """Set some settings and give others back to their default, all or none."""
        operations = raw_admin.AlterConfigOpType
        changes = [
            raw_admin.ConfigEntry(key, value, incremental_operation=operations.SET)
            for key, value in add.items()
        ]
        changes += [
            raw_admin.ConfigEntry(key, None, incremental_operation=operations.DELETE)
            for key in delete
        ]
        resource = raw_admin.ConfigResource(RESOURCES[kind], name, incremental_configs=changes)
        futures = self._ask(
            self.raw.incremental_alter_configs, [resource], request_timeout=REQUEST_TIMEOUT_S
        )
        self.wait(futures[resource], f"{kind} {name}")

    def offsets(
        self,
        places: Iterable[TopicPartition],
        at: int,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, int | None]:
        """Offsets EARLIEST, LATEST, or of the first record at or after a time (None: no such)."""
        spec = raw_admin.OffsetSpec
        chosen = {EARLIEST: spec.earliest, LATEST: spec.latest}.get(at)
        wanted = {
            confluent_kafka.TopicPartition(*place): chosen() if chosen else spec.for_timestamp(at)
            for place in places
        }
        if not wanted:
            return {}
        answers = patiently(
            lambda: self._list_offsets(wanted, isolation),
            final=(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,),
        )
        return {place: offset if offset >= 0 else None for place, offset in answers.items()}

    def wait(self, future: "Future[T]", about: str = "") -> T:
        """The future's result, its failure as an error of ours."""
        try:
            # librdkafka keeps the request's own limit; this one only guards against its silence.
            return future.result(REQUEST_TIMEOUT_S * 2)
        except confluent_kafka.KafkaException as error:
            raise refusal(error, self.bootstrap, about) from error
        except FutureTimeout as error:
            raise Unreachable(self.bootstrap, f"no answer in {REQUEST_TIMEOUT_S:g} s") from error

    def _list_offsets(
        self, wanted: Mapping[Any, Any], isolation: Isolation
    ) -> dict[TopicPartition, int]:
        futures = self._ask(
            self.raw.list_offsets,
            wanted,
            isolation_level=ISOLATIONS[isolation],
            request_timeout=REQUEST_TIMEOUT_S,
        )
        return {
            TopicPartition(key.topic, key.partition): self.wait(
                future, f"{key.topic}-{key.partition}"
            ).offset
            for key, future in futures.items()
        }

    def _require_leaders(self, name: str, partitions: int = 1) -> None:
        (topic,) = self.describe_topics([name])
        led = [partition for partition in topic.partitions if partition.leader >= 0]
        if len(led) < max(len(topic.partitions), partitions):
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name} is not ready yet")

    def _ask(self, request: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return request(*arguments, **options)
        except confluent_kafka.KafkaException as error:
            raise refusal(error, self.bootstrap) from error
        except (ValueError, TypeError) as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error

    def _metadata(self, topic: str | None) -> Any:
        return self._ask(self.raw.list_topics, topic=topic, timeout=REQUEST_TIMEOUT_S)


def _listed(found: Any) -> Topic:
    partitions = tuple(
        Partition(index, part.leader, tuple(part.replicas), tuple(part.isrs))
        for index, part in sorted(found.partitions.items())
    )
    return Topic(found.topic, "", found.topic.startswith("__"), partitions)


def _described(found: Any) -> Topic:
    partitions = tuple(
        Partition(
            part.id,
            part.leader.id if part.leader else -1,
            tuple(node.id for node in part.replicas),
            tuple(node.id for node in part.isr),
        )
        for part in found.partitions
    )
    # Kafka writes topic ids in the URL-safe alphabet, librdkafka in the other one.
    topic_id = str(found.topic_id).replace("+", "-").replace("/", "_")
    return Topic(found.name, topic_id, bool(found.is_internal), partitions)


def _config(entry: Any) -> ConfigEntry:
    source = raw_admin.ConfigSource(entry.source).name if entry.source is not None else "UNKNOWN"
    return ConfigEntry(
        entry.name, entry.value, source, bool(entry.is_read_only), bool(entry.is_sensitive)
    )
