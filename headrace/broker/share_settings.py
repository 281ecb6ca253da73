"""Settings of share groups, with Kafka's names and defaults."""

from headrace.settings import Dynamic, Importance, Kind, at_least, between, setting, settings


@settings
class ShareSettings:
    """What share groups go by."""

    group_share_session_timeout_ms: int = setting(
        name="group.share.session.timeout.ms",
        default=45_000,
        kind=Kind.INT,
        check=at_least(1),
        doc="How long a member of a share group may be silent before it is removed.",
    )
    group_share_min_session_timeout_ms: int = setting(
        name="group.share.min.session.timeout.ms",
        default=45_000,
        kind=Kind.INT,
        check=at_least(1),
        doc="The shortest session timeout a share group may set.",
    )
    group_share_max_session_timeout_ms: int = setting(
        name="group.share.max.session.timeout.ms",
        default=60_000,
        kind=Kind.INT,
        check=at_least(1),
        doc="The longest session timeout a share group may set.",
    )
    group_share_heartbeat_interval_ms: int = setting(
        name="group.share.heartbeat.interval.ms",
        default=5000,
        kind=Kind.INT,
        check=at_least(1),
        doc="How often members of a share group are told to send heartbeats.",
    )
    group_share_min_heartbeat_interval_ms: int = setting(
        name="group.share.min.heartbeat.interval.ms",
        default=5000,
        kind=Kind.INT,
        check=at_least(1),
        doc="The shortest heartbeat interval a share group may set.",
    )
    group_share_max_heartbeat_interval_ms: int = setting(
        name="group.share.max.heartbeat.interval.ms",
        default=15_000,
        kind=Kind.INT,
        check=at_least(1),
        doc="The longest heartbeat interval a share group may set.",
    )
    group_share_max_size: int = setting(
        name="group.share.max.size",
        default=200,
        kind=Kind.INT,
        check=between(1, 1_000),
        doc="The most members of a share group.",
    )
    group_share_assignors: tuple[str, ...] = setting(
        name="group.share.assignors",
        default=("simple",),
        doc="Assignors offered to share groups, the default first.",
    )
    group_share_delivery_count_limit: int = setting(
        name="group.share.delivery.count.limit",
        default=5,
        kind=Kind.INT,
        check=between(2, 10),
        doc="How often a record is delivered before it is given up.",
    )
    group_share_min_delivery_count_limit: int = setting(
        name="group.share.min.delivery.count.limit",
        default=2,
        kind=Kind.INT,
        check=between(2, 5),
        doc="The least a group may set as its delivery count limit.",
    )
    group_share_max_delivery_count_limit: int = setting(
        name="group.share.max.delivery.count.limit",
        default=10,
        kind=Kind.INT,
        check=between(5, 25),
        doc="The most a group may set as its delivery count limit.",
    )
    group_share_record_lock_duration_ms: int = setting(
        name="group.share.record.lock.duration.ms",
        default=30_000,
        kind=Kind.INT,
        check=between(1_000, 3_600_000),
        doc="How long a consumer holds a record before it is offered again.",
    )
    group_share_min_record_lock_duration_ms: int = setting(
        name="group.share.min.record.lock.duration.ms",
        default=15_000,
        kind=Kind.INT,
        check=between(1_000, 30_000),
        doc="The shortest lock a group may set.",
    )
    group_share_max_record_lock_duration_ms: int = setting(
        name="group.share.max.record.lock.duration.ms",
        default=60_000,
        kind=Kind.INT,
        check=between(30_000, 3_600_000),
        doc="The longest lock a group may set.",
    )
    group_share_partition_max_record_locks: int = setting(
        name="group.share.partition.max.record.locks",
        default=2000,
        kind=Kind.INT,
        check=between(100, 10_000),
        doc="The most records of a partition locked at once.",
    )
    group_share_min_partition_max_record_locks: int = setting(
        name="group.share.min.partition.max.record.locks",
        default=100,
        kind=Kind.INT,
        check=between(100, 2_000),
        doc="The least a group may set as its limit of locked records.",
    )
    group_share_max_partition_max_record_locks: int = setting(
        name="group.share.max.partition.max.record.locks",
        default=4000,
        kind=Kind.INT,
        check=between(2_000, 10_000),
        doc="The most a group may set as its limit of locked records.",
    )
    group_share_max_share_sessions: int = setting(
        name="group.share.max.share.sessions",
        default=2000,
        kind=Kind.INT,
        check=at_least(1),
        doc="The most share sessions kept.",
    )
    group_share_assignment_interval_ms: int = setting(
        name="group.share.assignment.interval.ms",
        default=1000,
        kind=Kind.INT,
        check=at_least(0),
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="The least time between two assignments of a share group.",
    )
    group_share_min_assignment_interval_ms: int = setting(
        name="group.share.min.assignment.interval.ms",
        default=0,
        kind=Kind.INT,
        check=at_least(0),
        doc="The shortest assignment interval a share group may set.",
    )
    group_share_max_assignment_interval_ms: int = setting(
        name="group.share.max.assignment.interval.ms",
        default=15_000,
        kind=Kind.INT,
        check=at_least(0),
        doc="The longest assignment interval a share group may set.",
    )
    share_coordinator_state_topic_num_partitions: int = setting(
        name="share.coordinator.state.topic.num.partitions",
        default=50,
        kind=Kind.INT,
        check=at_least(1),
        importance=Importance.HIGH,
        doc="Partitions of __share_group_state, fixed when it is created.",
    )
    share_coordinator_state_topic_segment_bytes: int = setting(
        name="share.coordinator.state.topic.segment.bytes",
        default=104_857_600,
        kind=Kind.INT,
        check=at_least(1),
        importance=Importance.HIGH,
        doc="segment.bytes of __share_group_state.",
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = setting(
        name="share.coordinator.snapshot.update.records.per.snapshot",
        default=500,
        kind=Kind.INT,
        check=between(0, 500),
        doc="Updates of a share partition's state between two snapshots of it.",
    )
