"""What every kind of group offers to those who do not care which kind it is."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol
from uuid import UUID

from headrace.coordination.group_records import CommittedOffset, GroupRecord


class GroupType(StrEnum):
    """The kinds of group that share one namespace of ids."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class Now(NamedTuple):
    """One moment on both clocks: wall time goes into records, monotonic time into deadlines."""

    wall_ms: int
    monotonic_ms: int


class MigrationPolicy(StrEnum):
    """Which way a live group may move between the classic and the consumer protocol."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True)
class ConsumerGroupLimits:
    """The settings of groups of the consumer protocol; the first assignor is the default."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5000
    assignment_interval_ms: int = 1000
    regex_refresh_interval_ms: int = 600_000
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL


@dataclass(frozen=True, slots=True)
class ShareGroupLimits:
    """The settings that membership of a share group goes by; a group may have its own times."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5000
    max_size: int = 200


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The settings that the rules of groups and offsets need, with Kafka's defaults."""

    initial_rebalance_delay_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 300_000
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    share: ShareGroupLimits = ShareGroupLimits()
    consumer: ConsumerGroupLimits = ConsumerGroupLimits()


class Committer(NamedTuple):
    """Who commits offsets; `generation` is the member epoch where the group has epochs.

    `knows_group_not_found` is for clients whose protocol version has GROUP_ID_NOT_FOUND here.
    """

    group_id: str
    member_id: str = ""
    group_instance_id: str | None = None
    generation: int = -1
    transactional: bool = False
    knows_group_not_found: bool = True


class CommittedPartition(Protocol):
    """What the check of a commit needs to know of each of its partitions."""

    @property
    def topic(self) -> str: ...
    @property
    def topic_id(self) -> UUID: ...
    @property
    def partition(self) -> int: ...


class Group(Protocol):
    """A group of any kind. Checks raise KafkaError with the code of that kind of group."""

    @property
    def group_id(self) -> str: ...
    @property
    def group_type(self) -> GroupType: ...
    @property
    def state_name(self) -> str: ...
    @property
    def protocol_type_name(self) -> str: ...
    @property
    def is_empty(self) -> bool: ...

    def check_commit(self, committer: Committer, offsets: Iterable[CommittedPartition]) -> None: ...

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None: ...

    def check_offset_delete(self) -> None: ...

    def check_delete(self) -> None: ...

    def is_subscribed_to(self, topic: str) -> bool: ...

    def expiry_base_ms(self, committed: CommittedOffset) -> int | None:
        """When the retention of an offset began, or None while it cannot expire (KIP-211)."""
        ...

    def tombstones(self) -> tuple[GroupRecord, ...]: ...
