"""What a topic is, what a new one may be called, and how it may be placed on one node."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from headrace.errors import ErrorCode, KafkaError

MAX_NAME = 249
METADATA_TOPIC = "__cluster_metadata"
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the catalog knows it; `leader_epochs` names only partitions that are not at 0."""

    name: str
    topic_id: UUID
    partitions: int = 0
    configs: Mapping[str, str] = field(default_factory=dict)
    leader_epochs: Mapping[int, int] = field(default_factory=dict)

    @property
    def internal(self) -> bool:
        return is_internal(self.name)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic as asked for: -1 is the broker's default; assignments are by partition number."""

    name: str
    topic_id: UUID
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where partitions live: on this one node."""

    node_id: int
    directory_id: UUID | None = None
    num_partitions: int = 1
    max_partitions: int = 100_000
    clamp: bool = False

    def check_replicas(self, assignments: Sequence[Sequence[int]]) -> None:
        """Refuse replicas that this one node cannot hold."""
        for replicas in assignments:
            if not replicas:
                raise _bad_assignment(
                    "The manual partition assignment includes an empty replica list."
                )
            for replica in sorted(replicas):
                if replica != self.node_id:
                    raise _bad_assignment(
                        f"The manual partition assignment includes broker {replica}, but no such "
                        "broker is registered."
                    )
            if len(replicas) > 1:
                raise _bad_assignment(
                    f"The manual partition assignment includes the broker {replicas[0]} more than "
                    "once."
                )


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def collision_key(name: str) -> str:
    """Names with the same key would share their metrics, so Kafka keeps them apart."""
    return name.replace(".", "_")


def check_name(name: str) -> None:
    """Refuse what Kafka refuses, in Kafka's words."""
    if name == METADATA_TOPIC:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
        )
    reason = None
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_NAME}"
    elif not _LEGAL.fullmatch(name):
        reason = (
            f"'{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    if reason:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def partition_count(new: NewTopic, placement: Placement) -> tuple[int, bool]:
    """How many partitions the topic gets, and whether its replication factor was clamped to 1."""
    if new.assignments:
        return _assigned_count(new, placement), False
    if new.num_partitions == 0 or new.num_partitions < -1:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    if new.replication_factor == 0 or new.replication_factor < -1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if new.replication_factor > 1 and not placement.clamp:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {new.replication_factor} time(s): The target "
            f"replication factor of {new.replication_factor} cannot be reached because only 1 "
            "broker(s) are registered. Ask for 1 or -1, or start the broker with "
            "single.node.replication=clamp to have such topics created with 1.",
        )
    count = placement.num_partitions if new.num_partitions == -1 else new.num_partitions
    return count, new.replication_factor > 1


def new_partition_count(
    name: str, current: int, count: int, assignments: Sequence[Sequence[int]] | None
) -> None:
    """Refuse anything but an increase, with as many assignments as partitions are added."""
    if count == current:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if count < current:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {name} currently has {current} partition(s); {count} would not be an "
            "increase.",
        )
    if assignments is not None and len(assignments) != count - current:
        raise _bad_assignment(
            f"Attempted to add {count - current} additional partition(s), but only "
            f"{len(assignments)} assignment(s) were specified."
        )


def _assigned_count(new: NewTopic, placement: Placement) -> int:
    for value, name in (
        (new.replication_factor, "replication factor"),
        (new.num_partitions, "numPartitions"),
    ):
        if value != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {name} was not set to -1.",
            )
    seen: set[int] = set()
    for index, replicas in new.assignments:
        if index in seen:
            raise _bad_assignment(
                f"Found multiple manual partition assignments for partition {index}"
            )
        seen.add(index)
        placement.check_replicas((replicas,))
    if seen != set(range(len(seen))):
        raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
    return len(seen)


def _bad_assignment(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
