"""Consumer groups as an operator sees them: members, offsets, deletion."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import confluent_kafka

from headrace.client.admin import Admin
from headrace.client.librdkafka import REQUEST_TIMEOUT_S, TopicPartition, refusal
from headrace.client.patience import patiently
from headrace.errors import ErrorCode, KafkaError

# States in Kafka's own spelling; librdkafka spells them in capitals.
STATES = {
    "UNKNOWN": "Unknown",
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
    "STABLE": "Stable",
    "DEAD": "Dead",
    "EMPTY": "Empty",
    "ASSIGNING": "Assigning",
    "RECONCILING": "Reconciling",
}
# Offsets may be changed by hand only while no member could commit over them.
INACTIVE = frozenset(("Empty", "Dead"))


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One line of a listing."""

    group: str
    kind: str
    state: str


@dataclass(frozen=True, slots=True)
class Member:
    """One consumer in a group and what it reads."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A group with its members."""

    group: str
    kind: str
    state: str
    assignor: str
    coordinator: int
    members: tuple[Member, ...]


class GroupAdmin:
    """Shows and changes consumer groups through an Admin."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def groups(self) -> list[GroupListing]:
        found = self._admin.wait(
            self._admin.raw.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S)
        )
        for error in found.errors or ():
            raise refusal(error, "", "listing groups")
        listings = [
            GroupListing(row.group_id, row.type.name.capitalize(), STATES[row.state.name])
            for row in found.valid or ()
        ]
        return sorted(listings, key=lambda listing: listing.group)

    def describe(self, group: str) -> Group:
        """The group; one that no broker knows is Dead and empty."""
        request = self._admin.raw.describe_consumer_groups
        try:
            found = self._coordinated(request, [group], group)
        except KafkaError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            return Group(group, "Unknown", "Dead", "", -1, ())
        return Group(
            group,
            found.type.name.capitalize(),
            STATES[found.state.name],
            found.partition_assignor or "",
            found.coordinator.id if found.coordinator else -1,
            tuple(sorted(map(_member, found.members), key=lambda member: member.member_id)),
        )

    def offsets(self, group: str) -> dict[TopicPartition, int | None]:
        """Every committed offset of the group."""
        asked = [confluent_kafka.ConsumerGroupTopicPartitions(group)]
        found = self._coordinated(self._admin.raw.list_consumer_group_offsets, asked, group)
        return {
            TopicPartition(row.topic, row.partition): row.offset if row.offset >= 0 else None
            for row in found.topic_partitions
        }

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the offsets of a group that has no members."""
        rows = [confluent_kafka.TopicPartition(*place, at) for place, at in offsets.items()]
        asked = [confluent_kafka.ConsumerGroupTopicPartitions(group, rows)]
        done = self._coordinated(self._admin.raw.alter_consumer_group_offsets, asked, group)
        for row in done.topic_partitions:
            if row.error is not None:
                raise refusal(row.error, "", f"group {group}, {row.topic}-{row.partition}")

    def delete(self, groups: Sequence[str]) -> dict[str, KafkaError | None]:
        """Delete groups that have no members; each name with what stood against it."""
        return {group: self._deletion_failure(group) for group in groups}

    def _deletion_failure(self, group: str) -> KafkaError | None:
        try:
            self._coordinated(self._admin.raw.delete_consumer_groups, [group], group)
        except KafkaError as error:
            return error
        return None

    def _coordinated(self, request: Callable[..., Any], asked: list[Any], group: str) -> Any:
        def ask() -> Any:
            futures = request(asked, request_timeout=REQUEST_TIMEOUT_S)
            return self._admin.wait(futures[group], f"group {group}")

        return patiently(ask)


def _member(found: Any) -> Member:
    assignment = found.assignment.topic_partitions if found.assignment else ()
    return Member(
        found.member_id,
        found.group_instance_id,
        found.client_id,
        found.host,
        tuple(sorted(TopicPartition(row.topic, row.partition) for row in assignment)),
    )
