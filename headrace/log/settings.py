"""The settings of a topic: Kafka's names, defaults and rules, and write.caching."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol
from weakref import WeakValueDictionary

from headrace.errors import SettingError
from headrace.settings import (
    LONG_MAX,
    Described,
    Dynamic,
    Importance,
    Kind,
    Layers,
    Row,
    Source,
    Synonym,
    at_least,
    between,
    describe,
    list_of,
    one_of,
    parse,
    rows,
    setting,
    settings,
    show,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"

_THROTTLED = re.compile(r"[0-9]+:[0-9]+")


def _throttled_replicas(value: Any) -> str | None:
    if value in ((), ("*",)) or all(_THROTTLED.fullmatch(part) for part in value):
        return None
    return "must be * or a list of partition:broker pairs"


def _not_tiered(value: Any) -> str | None:
    return "tiered storage is not part of this broker" if value else None


def _unlimited_or_positive(value: Any) -> str | None:
    return None if value is None or value == -1 or value >= 1 else "must be -1 or at least 1"


def _high(name: str, **facts: Any) -> Synonym:
    return Synonym(name, importance=Importance.HIGH, **facts)


@settings
class TopicSettings:
    """What one topic goes by; equal settings are one shared object, see resolve()."""

    stated: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    cleanup_policy: tuple[str, ...] = setting(
        name="cleanup.policy",
        default=("delete",),
        check=list_of("compact", "delete", empty=True),
        synonyms=(Synonym("log.cleanup.policy"),),
        doc="What becomes of old segments: delete drops them, compact keeps the last value of "
        "each key; with neither they stay for ever.",
    )
    compression_type: str = setting(
        name="compression.type",
        default="producer",
        check=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonyms=(_high("compression.type"),),
        doc="The codec batches are stored in; producer keeps what the producer chose.",
    )
    compression_gzip_level: int = setting(
        name="compression.gzip.level",
        default=-1,
        kind=Kind.INT,
        check=between(1, 9, besides=-1),
        synonyms=(Synonym("compression.gzip.level"),),
        inert=True,
        doc="Kept and shown; batches are packed anew at the level gzip has by default.",
    )
    compression_lz4_level: int = setting(
        name="compression.lz4.level",
        default=9,
        kind=Kind.INT,
        check=between(1, 17),
        synonyms=(Synonym("compression.lz4.level"),),
        inert=True,
        doc="Kept and shown; batches are packed anew at the level lz4 has by default.",
    )
    compression_zstd_level: int = setting(
        name="compression.zstd.level",
        default=3,
        kind=Kind.INT,
        check=between(-131072, 22),
        synonyms=(Synonym("compression.zstd.level"),),
        inert=True,
        doc="Kept and shown; batches are packed anew at the level zstd has by default.",
    )
    delete_retention_ms: int = setting(
        name="delete.retention.ms",
        default=DAY_MS,
        check=at_least(0),
        synonyms=(Synonym("log.cleaner.delete.retention.ms"),),
        doc="How long a compacted topic keeps a tombstone after cleaning past it.",
    )
    file_delete_delay_ms: int = setting(
        name="file.delete.delay.ms",
        default=60_000,
        check=at_least(0),
        synonyms=(_high("log.segment.delete.delay.ms"),),
        doc="How long a dropped segment's files stay on disk before they are removed.",
    )
    flush_messages: int = setting(
        name="flush.messages",
        default=LONG_MAX,
        check=at_least(1),
        synonyms=(_high("log.flush.interval.messages"),),
        doc="Sync to disk after this many records without waiting for flush.ms.",
    )
    flush_ms: int = setting(
        name="flush.ms",
        default=1000,
        check=at_least(0),
        synonyms=(
            _high("log.flush.interval.ms", default=None),
            _high("log.flush.scheduler.interval.ms", default=LONG_MAX, dynamic=Dynamic.READ_ONLY),
        ),
        doc="Bytes written but not yet synced are synced at the latest this long after.",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        name="follower.replication.throttled.replicas",
        default=(),
        check=_throttled_replicas,
        inert=True,
        doc="Kept and shown; one node replicates nothing, so nothing is throttled.",
    )
    index_interval_bytes: int = setting(
        name="index.interval.bytes",
        default=4096,
        kind=Kind.INT,
        check=at_least(0),
        synonyms=(Synonym("log.index.interval.bytes"),),
        doc="An index entry is written each time this many bytes were appended.",
    )
    internal_segment_bytes: int | None = setting(
        name="internal.segment.bytes",
        default=None,
        kind=Kind.INT,
        internal=True,
        doc="Overrides segment.bytes without its lower bound; for tests.",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        name="leader.replication.throttled.replicas",
        default=(),
        check=_throttled_replicas,
        inert=True,
        doc="Kept and shown; one node replicates nothing, so nothing is throttled.",
    )
    local_retention_bytes: int = setting(
        name="local.retention.bytes",
        default=-2,
        check=at_least(-2),
        synonyms=(Synonym("log.local.retention.bytes"),),
        inert=True,
        doc="Kept and shown; without tiered storage retention.bytes alone decides.",
    )
    local_retention_ms: int = setting(
        name="local.retention.ms",
        default=-2,
        check=at_least(-2),
        synonyms=(Synonym("log.local.retention.ms"),),
        inert=True,
        doc="Kept and shown; without tiered storage retention.ms alone decides.",
    )
    max_compaction_lag_ms: int = setting(
        name="max.compaction.lag.ms",
        default=LONG_MAX,
        check=at_least(1),
        synonyms=(Synonym("log.cleaner.max.compaction.lag.ms"),),
        doc="A record is compacted at the latest this long after it was written.",
    )
    max_message_bytes: int = setting(
        name="max.message.bytes",
        default=1_048_588,
        kind=Kind.INT,
        check=at_least(0),
        synonyms=(_high("message.max.bytes"),),
        doc="The largest batch taken, as stored.",
    )
    message_timestamp_after_max_ms: int = setting(
        name="message.timestamp.after.max.ms",
        default=HOUR_MS,
        check=at_least(0),
        synonyms=(Synonym("log.message.timestamp.after.max.ms"),),
        doc="A record stamped further than this ahead of the broker's clock is refused.",
    )
    message_timestamp_before_max_ms: int = setting(
        name="message.timestamp.before.max.ms",
        default=LONG_MAX,
        check=at_least(0),
        synonyms=(Synonym("log.message.timestamp.before.max.ms"),),
        doc="A record stamped further than this behind the broker's clock is refused.",
    )
    message_timestamp_type: str = setting(
        name="message.timestamp.type",
        default=CREATE_TIME,
        check=one_of(CREATE_TIME, LOG_APPEND_TIME),
        synonyms=(Synonym("log.message.timestamp.type"),),
        doc="Whether a record carries its producer's time or the broker's.",
    )
    min_cleanable_dirty_ratio: float = setting(
        name="min.cleanable.dirty.ratio",
        default=0.5,
        check=between(0, 1),
        synonyms=(Synonym("log.cleaner.min.cleanable.ratio"),),
        doc="A log is compacted once this share of it has not been.",
    )
    min_compaction_lag_ms: int = setting(
        name="min.compaction.lag.ms",
        default=0,
        check=at_least(0),
        synonyms=(Synonym("log.cleaner.min.compaction.lag.ms"),),
        doc="A record is safe from compaction this long after it was written.",
    )
    min_insync_replicas: int = setting(
        name="min.insync.replicas",
        default=1,
        kind=Kind.INT,
        check=at_least(1),
        synonyms=(_high("min.insync.replicas"),),
        doc="With acks=all a topic that asks for more than the one replica there is refuses "
        "writes.",
    )
    preallocate: bool = setting(
        name="preallocate",
        default=False,
        synonyms=(Synonym("log.preallocate"),),
        inert=True,
        doc="Kept and shown; segments grow as they are written.",
    )
    remote_log_copy_disable: bool = setting(
        name="remote.log.copy.disable",
        default=False,
        inert=True,
        doc="Kept and shown; there is no tiered storage to stop copying to.",
    )
    remote_log_delete_on_disable: bool = setting(
        name="remote.log.delete.on.disable",
        default=False,
        inert=True,
        doc="Kept and shown; there is no tiered storage to delete from.",
    )
    remote_storage_enable: bool = setting(
        name="remote.storage.enable",
        default=False,
        check=_not_tiered,
        inert=True,
        doc="Tiered storage is not part of this broker, so only false is taken.",
    )
    retention_bytes: int = setting(
        name="retention.bytes",
        default=-1,
        synonyms=(_high("log.retention.bytes"),),
        doc="A partition that is larger drops its oldest segments; -1 is no limit.",
    )
    retention_ms: int = setting(
        name="retention.ms",
        default=WEEK_MS,
        check=at_least(-1),
        synonyms=(
            _high("log.retention.ms", default=None, check=_unlimited_or_positive),
            _high(
                "log.retention.minutes",
                kind=Kind.INT,
                default=None,
                factor=60_000,
                dynamic=Dynamic.READ_ONLY,
                check=_unlimited_or_positive,
            ),
            _high(
                "log.retention.hours",
                kind=Kind.INT,
                default=168,
                factor=HOUR_MS,
                dynamic=Dynamic.READ_ONLY,
                check=_unlimited_or_positive,
            ),
        ),
        doc="A segment whose newest record is older is dropped, the active one too; -1 keeps it "
        "for ever. A clock that leaps ahead is believed after an hour.",
    )
    segment_bytes: int = setting(
        name="segment.bytes",
        default=1 << 30,
        kind=Kind.INT,
        check=at_least(1 << 20),
        synonyms=(_high("log.segment.bytes"),),
        doc="Roll to a new segment past this size.",
    )
    segment_index_bytes: int = setting(
        name="segment.index.bytes",
        default=10 << 20,
        kind=Kind.INT,
        check=at_least(4),
        synonyms=(Synonym("log.index.size.max.bytes"),),
        doc="Roll to a new segment when its index would grow past this size.",
    )
    segment_jitter_ms: int = setting(
        name="segment.jitter.ms",
        default=0,
        check=at_least(0),
        synonyms=(
            _high("log.roll.jitter.ms", default=None),
            _high(
                "log.roll.jitter.hours",
                kind=Kind.INT,
                default=0,
                factor=HOUR_MS,
                dynamic=Dynamic.READ_ONLY,
                check=at_least(0),
            ),
        ),
        doc="Roll earlier than segment.ms by up to this much, so that logs do not roll at once.",
    )
    segment_ms: int = setting(
        name="segment.ms",
        default=WEEK_MS,
        check=at_least(1),
        synonyms=(
            _high("log.roll.ms", default=None),
            _high(
                "log.roll.hours",
                kind=Kind.INT,
                default=168,
                factor=HOUR_MS,
                dynamic=Dynamic.READ_ONLY,
                check=at_least(1),
            ),
        ),
        doc="Roll to a new segment when the first record of this one is older.",
    )
    unclean_leader_election_enable: bool = setting(
        name="unclean.leader.election.enable",
        default=False,
        synonyms=(_high("unclean.leader.election.enable"),),
        inert=True,
        doc="Kept and shown; one node elects no leaders.",
    )
    write_caching: bool = setting(
        name="write.caching",
        default=False,
        synonyms=(Synonym("log.write.caching"),),
        doc="Acknowledge and show records before they are on disk; they are synced within "
        "flush.ms.",
    )

    def __post_init__(self) -> None:
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise SettingError(
                "min.compaction.lag.ms",
                f"{self.min_compaction_lag_ms} is more than max.compaction.lag.ms "
                f"({self.max_compaction_lag_ms})",
            )

    @cached_property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @cached_property
    def append_time(self) -> bool:
        """Whether records carry the broker's time."""
        return self.message_timestamp_type == LOG_APPEND_TIME

    @cached_property
    def roll_bytes(self) -> int:
        """The size at which a segment is full."""
        return self.internal_segment_bytes or self.segment_bytes

    @staticmethod
    def resolve(broker: "TopicDefaults", overrides: Mapping[str, str]) -> "TopicSettings":
        """The settings of a topic with these overrides: one object for all topics that agree."""
        defaults = broker.topic_defaults
        if not overrides:
            return defaults
        key = (defaults, tuple(sorted(overrides.items())))
        found = _SHARED.get(key)
        if found is None:
            found = _SHARED[key] = _overridden(defaults, overrides)
        return found


class TopicDefaults(Protocol):
    """Whoever knows what topics go by when they say nothing: the broker's settings."""

    @property
    def topic_defaults(self) -> TopicSettings: ...


DEFAULTS = TopicSettings()
_SHARED: WeakValueDictionary[tuple[TopicSettings, tuple[tuple[str, str], ...]], TopicSettings] = (
    WeakValueDictionary()
)


def _overridden(defaults: TopicSettings, overrides: Mapping[str, str]) -> TopicSettings:
    values = {row.attribute: getattr(defaults, row.attribute) for row in rows(TopicSettings)}
    values |= parse(TopicSettings, overrides)
    return TopicSettings(**values, stated=MappingProxyType(dict(overrides)))


def defaults_from(broker_texts: Mapping[str, str]) -> TopicSettings:
    """What topics go by on a broker whose settings say this; names of no topic setting pass."""
    values: dict[str, Any] = {}
    for row in rows(TopicSettings):
        for synonym in row.synonyms:
            if synonym.name in broker_texts:
                value = synonym.row(row).parse(broker_texts[synonym.name])
                # Any negative number of hours or minutes is for ever, as -1 ms is.
                values[row.attribute] = (
                    max(value * synonym.factor, -1) if synonym.factor > 1 else value
                )
                break
    # A broker-wide wish for more replicas than the one there is would refuse every write.
    values["min_insync_replicas"] = 1
    return TopicSettings(**values)


def broker_rows() -> tuple[Row, ...]:
    """The broker's rows that are defaults of topic settings."""
    return tuple(synonym.row(row) for row in rows(TopicSettings) for synonym in row.synonyms)


def validate_overrides(
    overrides: Mapping[str, str | None], defaults: TopicSettings = DEFAULTS
) -> TopicSettings:
    """The settings these overrides make; SettingError if a topic cannot have them."""
    for name, text in overrides.items():
        if text is None:
            raise SettingError(name, "a topic setting must have a value")
    return _overridden(defaults, {name: text or "" for name, text in overrides.items()})


def described(
    overrides: Mapping[str, str], layers: Layers, names: Iterable[str] | None = None
) -> list[Described]:
    """A topic's settings as DescribeConfigs answers them: all, or those of the names given."""
    defaults = defaults_from(layers.merged())
    in_force = _overridden(defaults, overrides)
    wanted = None if names is None else set(names)
    return [
        describe(
            row,
            getattr(in_force, row.attribute),
            _synonyms(row, in_force, overrides, layers),
            read_only=False,
        )
        for row in rows(TopicSettings)
        if (wanted is None or row.name in wanted) and not row.internal
    ]


def _synonyms(
    row: Row, in_force: TopicSettings, overrides: Mapping[str, str], layers: Layers
) -> Iterable[tuple[str, str | None, Source]]:
    if row.name in overrides:
        yield row.name, show(getattr(in_force, row.attribute)), Source.DYNAMIC_TOPIC_CONFIG
    said = list(layers.stated(synonym.name for synonym in row.synonyms))
    said += [
        (synonym.name, show(synonym.row(row).default), Source.DEFAULT_CONFIG)
        for synonym in row.synonyms
        if synonym.row(row).default is not None
    ]
    # Kafka names a synonym of another unit only behind one of the setting's own unit.
    first = row.synonyms[0].name if row.synonyms else ""
    while said and said[0][0] != first:
        said.pop(0)
    yield from said
