"""Settings of groups, offsets, transactions and producers, with Kafka's names and defaults."""

from typing import Any

from headrace.broker.share_settings import ShareSettings
from headrace.errors import SettingError
from headrace.settings import (
    INT_MAX,
    Dynamic,
    Importance,
    Kind,
    at_least,
    list_of,
    setting,
    settings,
)

# Kafka takes the name of an assignor or of its class; these two come with it.
ASSIGNORS = {
    "uniform": "uniform",
    "range": "range",
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
POLICIES = ("disabled", "downgrade", "upgrade", "bidirectional")

# What a group may set lies between two bounds, and the default lies there too.
BOUNDED = (
    "group.consumer.{}session.timeout.ms",
    "group.consumer.{}heartbeat.interval.ms",
    "group.consumer.{}assignment.interval.ms",
    "group.share.{}session.timeout.ms",
    "group.share.{}heartbeat.interval.ms",
    "group.share.{}assignment.interval.ms",
    "group.share.{}delivery.count.limit",
    "group.share.{}record.lock.duration.ms",
    "group.share.{}partition.max.record.locks",
)
# The first of each pair must not be above the second.
ORDERED = (
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    *((name.format("min."), name.format("")) for name in BOUNDED),
    *((name.format(""), name.format("max.")) for name in BOUNDED),
)
# A member that beats less often than its session lasts would come and go for ever.
BELOW = (
    ("group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"),
    ("group.share.heartbeat.interval.ms", "group.share.session.timeout.ms"),
)


def _migration_policy(value: Any) -> str | None:
    return None if value.lower() in POLICIES else f"must be one of {', '.join(POLICIES)}"


@settings
class CoordinatorSettings(ShareSettings):
    """What coordinators go by."""

    group_initial_rebalance_delay_ms: int = setting(
        name="group.initial.rebalance.delay.ms",
        default=3000,
        kind=Kind.INT,
        doc="How long an empty group waits for more members before its first rebalance.",
    )
    group_min_session_timeout_ms: int = setting(
        name="group.min.session.timeout.ms",
        default=6000,
        kind=Kind.INT,
        doc="The shortest session timeout a member of a classic group may ask for.",
    )
    group_max_session_timeout_ms: int = setting(
        name="group.max.session.timeout.ms",
        default=1_800_000,
        kind=Kind.INT,
        doc="The longest session timeout a member of a classic group may ask for.",
    )
    group_max_size: int = setting(
        name="group.max.size",
        default=INT_MAX,
        kind=Kind.INT,
        check=at_least(1),
        doc="The most members of a classic group.",
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        name="group.coordinator.rebalance.protocols",
        default=("classic", "consumer", "share"),
        check=list_of("classic", "consumer", "share", "streams"),
        doc="The group protocols that are served.",
    )
    group_consumer_session_timeout_ms: int = setting(
        name="group.consumer.session.timeout.ms",
        default=45_000,
        kind=Kind.INT,
        check=at_least(1),
        doc="How long a member of a consumer group may be silent before it is removed.",
    )
    group_consumer_min_session_timeout_ms: int = setting(
        name="group.consumer.min.session.timeout.ms",
        default=45_000,
        kind=Kind.INT,
        check=at_least(1),
        doc="The shortest session timeout a consumer group may set.",
    )
    group_consumer_max_session_timeout_ms: int = setting(
        name="group.consumer.max.session.timeout.ms",
        default=60_000,
        kind=Kind.INT,
        check=at_least(1),
        doc="The longest session timeout a consumer group may set.",
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        name="group.consumer.heartbeat.interval.ms",
        default=5000,
        kind=Kind.INT,
        check=at_least(1),
        doc="How often members of a consumer group are told to send heartbeats.",
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        name="group.consumer.min.heartbeat.interval.ms",
        default=5000,
        kind=Kind.INT,
        check=at_least(1),
        doc="The shortest heartbeat interval a consumer group may set.",
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        name="group.consumer.max.heartbeat.interval.ms",
        default=15_000,
        kind=Kind.INT,
        check=at_least(1),
        doc="The longest heartbeat interval a consumer group may set.",
    )
    group_consumer_max_size: int = setting(
        name="group.consumer.max.size",
        default=INT_MAX,
        kind=Kind.INT,
        check=at_least(1),
        doc="The most members of a consumer group.",
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        name="group.consumer.assignors",
        default=(
            "uniform",
            "range",
        ),
        check=list_of(*ASSIGNORS),
        doc="Assignors offered to groups of the consumer protocol, the default first.",
    )
    group_consumer_migration_policy: str = setting(
        name="group.consumer.migration.policy",
        default="bidirectional",
        check=_migration_policy,
        doc="Which way a group may move between the classic and the consumer protocol.",
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        name="group.consumer.regex.refresh.interval.ms",
        default=600_000,
        kind=Kind.INT,
        check=at_least(10_000),
        internal=True,
        doc="How often a subscription by pattern is matched against the topics anew.",
    )
    group_consumer_assignment_interval_ms: int = setting(
        name="group.consumer.assignment.interval.ms",
        default=1000,
        kind=Kind.INT,
        check=at_least(0),
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="The least time between two assignments of a consumer group.",
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        name="group.consumer.min.assignment.interval.ms",
        default=0,
        kind=Kind.INT,
        check=at_least(0),
        doc="The shortest assignment interval a consumer group may set.",
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        name="group.consumer.max.assignment.interval.ms",
        default=15_000,
        kind=Kind.INT,
        check=at_least(0),
        doc="The longest assignment interval a consumer group may set.",
    )
    offset_metadata_max_bytes: int = setting(
        name="offset.metadata.max.bytes",
        default=4096,
        kind=Kind.INT,
        importance=Importance.HIGH,
        doc="The longest metadata text of a committed offset.",
    )
    offsets_retention_minutes: int = setting(
        name="offsets.retention.minutes",
        default=10_080,
        kind=Kind.INT,
        check=at_least(1),
        importance=Importance.HIGH,
        doc="How long the offsets of an empty group are kept.",
    )
    offsets_retention_check_interval_ms: int = setting(
        name="offsets.retention.check.interval.ms",
        default=600_000,
        check=at_least(1),
        importance=Importance.HIGH,
        doc="How often expired offsets are looked for.",
    )
    offsets_topic_num_partitions: int = setting(
        name="offsets.topic.num.partitions",
        default=50,
        kind=Kind.INT,
        check=at_least(1),
        importance=Importance.HIGH,
        doc="Partitions of __consumer_offsets, fixed when it is created.",
    )
    offsets_topic_segment_bytes: int = setting(
        name="offsets.topic.segment.bytes",
        default=104_857_600,
        kind=Kind.INT,
        check=at_least(1),
        importance=Importance.HIGH,
        doc="segment.bytes of __consumer_offsets.",
    )
    offsets_topic_compression_codec: int = setting(
        name="offsets.topic.compression.codec",
        default=0,
        kind=Kind.INT,
        importance=Importance.HIGH,
        inert=True,
        doc="Kept and shown; offsets are written uncompressed.",
    )
    offsets_commit_timeout_ms: int = setting(
        name="offsets.commit.timeout.ms",
        default=5000,
        kind=Kind.INT,
        check=at_least(1),
        importance=Importance.HIGH,
        inert=True,
        doc="Kept and shown; a commit waits for the disk, however long that takes.",
    )
    transaction_max_timeout_ms: int = setting(
        name="transaction.max.timeout.ms",
        default=900_000,
        kind=Kind.INT,
        check=at_least(1),
        importance=Importance.HIGH,
        doc="The longest transaction timeout a producer may ask for.",
    )
    transactional_id_expiration_ms: int = setting(
        name="transactional.id.expiration.ms",
        default=604_800_000,
        kind=Kind.INT,
        check=at_least(1),
        importance=Importance.HIGH,
        doc="How long an unused transactional id is remembered.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        name="transaction.abort.timed.out.transaction.cleanup.interval.ms",
        default=10_000,
        kind=Kind.INT,
        check=at_least(1),
        importance=Importance.LOW,
        doc="How often timed-out transactions are looked for and aborted.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        name="transaction.remove.expired.transaction.cleanup.interval.ms",
        default=3_600_000,
        kind=Kind.INT,
        check=at_least(1),
        importance=Importance.LOW,
        doc="How often expired transactional ids are looked for.",
    )
    transaction_state_log_num_partitions: int = setting(
        name="transaction.state.log.num.partitions",
        default=50,
        kind=Kind.INT,
        check=at_least(1),
        importance=Importance.HIGH,
        doc="Partitions of __transaction_state, fixed when it is created.",
    )
    transaction_state_log_segment_bytes: int = setting(
        name="transaction.state.log.segment.bytes",
        default=104_857_600,
        kind=Kind.INT,
        check=at_least(1),
        importance=Importance.HIGH,
        doc="segment.bytes of __transaction_state.",
    )
    transaction_partition_verification_enable: bool = setting(
        name="transaction.partition.verification.enable",
        default=True,
        importance=Importance.LOW,
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Whether a transactional write needs its partition to be in the transaction.",
    )
    transaction_two_phase_commit_enable: bool = setting(
        name="transaction.two.phase.commit.enable",
        default=False,
        importance=Importance.LOW,
        inert=True,
        doc="Kept and shown; two-phase commit is not served.",
    )
    producer_id_expiration_ms: int = setting(
        name="producer.id.expiration.ms",
        default=86_400_000,
        kind=Kind.INT,
        check=at_least(1),
        importance=Importance.LOW,
        dynamic=Dynamic.CLUSTER_WIDE,
        inert=True,
        doc="Kept and shown; producers are remembered as long as their log is open.",
    )
    producer_id_expiration_check_interval_ms: int = setting(
        name="producer.id.expiration.check.interval.ms",
        default=600_000,
        kind=Kind.INT,
        check=at_least(1),
        importance=Importance.LOW,
        internal=True,
        doc="How often expired producers are looked for.",
    )

    def __post_init__(self) -> None:
        for small, large in ORDERED:
            if self._of(small) > self._of(large):
                raise SettingError(
                    small, f"{self._of(small)} is more than {large} ({self._of(large)})"
                )
        for small, large in BELOW:
            if self._of(small) >= self._of(large):
                raise SettingError(small, f"must be less than {large} ({self._of(large)})")

    def _of(self, name: str) -> int:
        value: int = getattr(self, name.replace(".", "_"))
        return value
