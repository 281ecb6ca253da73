"""The settings of a broker: what Kafka's server.properties says, and Headrace's own limits."""

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, ClassVar

from headrace.broker.coordinator_settings import CoordinatorSettings
from headrace.broker.inert_settings import INERT_ROWS, PREFIX_ROWS
from headrace.broker.network_settings import NetworkSettings
from headrace.broker.properties import parse_properties
from headrace.errors import SettingError
from headrace.log.settings import TopicSettings, broker_rows, defaults_from
from headrace.settings import (
    DOUBLE_MAX,
    Described,
    Dynamic,
    Importance,
    Kind,
    Layers,
    Row,
    Source,
    at_least,
    between,
    by_name,
    describe,
    find,
    list_of,
    load,
    one_of,
    rows,
    setting,
    settings,
    show,
)

# Settings of one thing in several units: the first stated one counts.
SYNONYMS = tuple(
    tuple(synonym.name for synonym in row.synonyms)
    for row in rows(TopicSettings)
    if len(row.synonyms) > 1
)


@settings
class BrokerSettings(NetworkSettings, CoordinatorSettings):
    """What a broker goes by; made by settings.load() from texts by name."""

    EXTRA_ROWS: ClassVar[tuple[Row, ...]] = (*broker_rows(), *INERT_ROWS)
    PREFIX_ROWS: ClassVar[Mapping[str, Row]] = PREFIX_ROWS

    stated: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    topic_defaults: TopicSettings = field(init=False)

    node_id: int = setting(
        name="node.id",
        default=1,
        kind=Kind.INT,
        check=at_least(0),
        importance=Importance.HIGH,
        doc="This node's number, which clients see as the broker's id.",
    )
    broker_id: int = setting(
        name="broker.id",
        default=-1,
        kind=Kind.INT,
        importance=Importance.HIGH,
        doc="The old name of node.id; both, if both are set, must agree.",
    )
    broker_rack: str | None = setting(
        name="broker.rack",
        default=None,
        kind=Kind.STRING,
        doc="The rack or zone clients are told this node is in.",
    )
    num_partitions: int = setting(
        name="num.partitions",
        default=1,
        kind=Kind.INT,
        check=at_least(1),
        doc="Partitions of a topic created without saying how many.",
    )
    auto_create_topics_enable: bool = setting(
        name="auto.create.topics.enable",
        default=True,
        importance=Importance.HIGH,
        doc="Whether naming a missing topic in Metadata creates it.",
    )
    delete_topic_enable: bool = setting(
        name="delete.topic.enable",
        default=True,
        importance=Importance.HIGH,
        doc="Whether topics can be deleted.",
    )
    default_replication_factor: int = setting(
        name="default.replication.factor",
        default=1,
        kind=Kind.INT,
        doc="Kept and shown; every topic has the one replica that one node can hold.",
    )
    log_dir: tuple[str, ...] = setting(
        name="log.dir",
        default=("headrace-data",),
        check=list_of(),
        importance=Importance.HIGH,
        doc="The data directory, unless log.dirs is set.",
    )
    log_dirs: tuple[str, ...] | None = setting(
        name="log.dirs",
        default=None,
        kind=Kind.LIST,
        check=list_of(),
        importance=Importance.HIGH,
        doc="The data directory; of several the first is used.",
    )
    log_retention_check_interval_ms: int = setting(
        name="log.retention.check.interval.ms",
        default=300_000,
        check=at_least(1),
        doc="How often retention looks for segments to drop.",
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        name="log.flush.offset.checkpoint.interval.ms",
        default=60_000,
        kind=Kind.INT,
        check=at_least(0),
        importance=Importance.HIGH,
        doc="How often recovery points are written down.",
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        name="log.flush.start.offset.checkpoint.interval.ms",
        default=60_000,
        kind=Kind.INT,
        check=at_least(0),
        importance=Importance.HIGH,
        inert=True,
        doc="Kept and shown; log start offsets are written with the other checkpoints.",
    )
    log_initial_task_delay_ms: int = setting(
        name="log.initial.task.delay.ms",
        default=30_000,
        check=at_least(0),
        importance=Importance.LOW,
        internal=True,
        doc="How long after the start retention and cleaning begin.",
    )
    log_cleaner_enable: bool = setting(
        name="log.cleaner.enable", default=True, doc="Whether compacted topics are cleaned at all."
    )
    log_cleaner_backoff_ms: int = setting(
        name="log.cleaner.backoff.ms",
        default=15_000,
        check=at_least(0),
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="How long the cleaner rests when no log needs it.",
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        name="log.cleaner.dedupe.buffer.size",
        default=134_217_728,
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="The most memory for the cleaner's map of keys, at 256 bytes a key; with more dirty "
        "keys than fit, a log takes several compactions.",
    )
    log_cleaner_io_buffer_size: int = setting(
        name="log.cleaner.io.buffer.size",
        default=524_288,
        kind=Kind.INT,
        check=at_least(0),
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="The size of the cleaner's reads.",
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        name="log.cleaner.io.max.bytes.per.second",
        default=DOUBLE_MAX,
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="The most the cleaner reads and writes in a second.",
    )
    metadata_log_max_record_bytes_between_snapshots: int = setting(
        name="metadata.log.max.record.bytes.between.snapshots",
        default=20_971_520,
        check=at_least(1),
        importance=Importance.HIGH,
        doc="A snapshot of the metadata is taken after this many bytes of it.",
    )
    metadata_log_max_snapshot_interval_ms: int = setting(
        name="metadata.log.max.snapshot.interval.ms",
        default=3_600_000,
        check=at_least(0),
        importance=Importance.HIGH,
        inert=True,
        doc="Kept and shown; snapshots come by the number and size of records.",
    )

    # Headrace's own, in Kafka's manner.
    single_node_replication: str = setting(
        name="single.node.replication",
        default="refuse",
        check=one_of("refuse", "clamp"),
        importance=Importance.HIGH,
        doc="What becomes of a request for more than one replica: refuse it, or clamp it to one.",
    )
    log_flush_threads: int = setting(
        name="log.flush.threads",
        default=16,
        kind=Kind.INT,
        check=between(1, 64),
        doc="Threads that sync files to disk.",
    )
    log_disk_reserve_bytes: int = setting(
        name="log.disk.reserve.bytes",
        default=16 << 20,
        check=at_least(0),
        inert=True,
        doc="Kept and shown; no space is reserved yet.",
    )
    max_parked_requests: int = setting(
        name="max.parked.requests",
        default=100_000,
        kind=Kind.INT,
        check=at_least(1),
        doc="Requests that may wait for data at once; past this many they are answered with none.",
    )
    max_partitions: int = setting(
        name="max.partitions",
        default=100_000,
        kind=Kind.INT,
        check=at_least(1),
        doc="The most partitions of all topics together.",
    )
    shutdown_timeout_ms: int = setting(
        name="shutdown.timeout.ms",
        default=2000,
        check=at_least(0),
        doc="How long a stop waits for requests in flight.",
    )

    def __post_init__(self) -> None:
        NetworkSettings.__post_init__(self)
        CoordinatorSettings.__post_init__(self)
        object.__setattr__(self, "topic_defaults", defaults_from(self.stated))
        self._settle_node_id()

    def _settle_node_id(self) -> None:
        if self.broker_id < 0:
            object.__setattr__(self, "broker_id", self.node_id)
        elif "node.id" not in self.stated:
            object.__setattr__(self, "node_id", self.broker_id)
        elif self.broker_id != self.node_id:
            raise SettingError("node.id", f"{self.node_id} is not broker.id ({self.broker_id})")

    @property
    def data_dir(self) -> str:
        return (self.log_dirs or self.log_dir)[0]

    def warnings(self) -> list[str]:
        """One sentence per setting that was asked for and is not in force."""
        return list(_warnings(self))

    def notes(self) -> list[str]:
        """One sentence per stated setting that never has an effect; for the debug log."""
        found = (find(BrokerSettings, name) for name in self.stated)
        return [f"{row.name}: {row.doc}" for row in found if row.inert]


def _warnings(broker: BrokerSettings) -> Iterable[str]:
    texts = broker.stated
    if broker.default_replication_factor > 1:
        yield (
            f"default.replication.factor={broker.default_replication_factor} is not in force: "
            "this is one node, and every topic has 1 replica"
        )
    if int(texts.get("min.insync.replicas", "1")) > 1:
        yield (
            f"min.insync.replicas={texts['min.insync.replicas']} is not in force: "
            "this is one node, and topics that do not say otherwise need 1"
        )
    if len(broker.log_dirs or broker.log_dir) > 1:
        yield f"log.dirs names several directories, and only {broker.data_dir} is used"
    if texts.get("authorizer.class.name"):
        yield "authorizer.class.name is not in force: every client may do everything"


def read_properties(path: str | Path) -> dict[str, str]:
    """The names and values of a file in Java's properties format."""
    raw = Path(path).read_bytes()
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        # What Java takes every such file to be.
        text = raw.decode("latin-1")
    return parse_properties(text)


def effective(layers: Layers) -> BrokerSettings:
    """The settings of a broker that was told all this."""
    return load(BrokerSettings, layers.merged())


def validate_dynamic(
    texts: Mapping[str, str], layers: Layers, *, cluster_wide: bool
) -> BrokerSettings:
    """What a running broker would go by with these texts too; SettingError if it may not."""
    for name in texts:
        row = find(BrokerSettings, name)
        if row.dynamic is Dynamic.READ_ONLY:
            raise SettingError(name, "cannot be changed while the broker runs")
        if cluster_wide and row.dynamic is Dynamic.PER_BROKER:
            raise SettingError(name, "can only be set for one broker, not for all at once")
    changed = "dynamic_default" if cluster_wide else "dynamic_broker"
    return effective(replace(layers, **{changed: {**getattr(layers, changed), **texts}}))


def described(
    layers: Layers, names: Iterable[str] | None = None, *, per_broker: bool = True
) -> list[Described]:
    """A broker's settings as DescribeConfigs answers them.

    Without `per_broker` the answer is for all brokers: what was set for them on the fly.
    """
    broker = effective(layers)
    texts = layers.merged()
    wanted = None if names is None else set(names)
    answer = []
    for row in rows(BrokerSettings):
        if row.internal or (wanted is not None and row.name not in wanted):
            continue
        if not per_broker and row.name not in layers.dynamic_default:
            continue
        said = [
            (name, text, source)
            for name, text, source in _synonyms(row, layers)
            if per_broker or source is Source.DYNAMIC_DEFAULT_BROKER_CONFIG
        ]
        read_only = row.dynamic is Dynamic.READ_ONLY
        answer.append(describe(row, _value(row, broker, texts), said, read_only=read_only))
    return answer


def _value(row: Row, broker: BrokerSettings, texts: Mapping[str, str]) -> Any:
    if row.attribute:
        return getattr(broker, row.attribute)
    return row.parse(texts[row.name]) if row.name in texts else row.default


def _synonyms(row: Row, layers: Layers) -> Iterable[tuple[str, str | None, Source]]:
    group = next((group for group in SYNONYMS if row.name in group), (row.name,))
    said: list[tuple[str, str | None, Source]] = list(layers.stated(group))
    for name in group:
        default = by_name(BrokerSettings)[name].default
        if default is not None:
            said.append((name, show(default), Source.DEFAULT_CONFIG))
    # Kafka names another unit's setting only behind one of the setting's own.
    while said and said[0][0] != row.name:
        said.pop(0)
    return said
