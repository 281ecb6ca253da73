"""Groups of consumers as an operator sees them: members, offsets, deletion.

librdkafka knows nothing of share groups (KIP-932) and hides the epochs of consumer groups
(KIP-848), so both are asked on the wire.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import confluent_kafka

from headrace.client.admin import Admin
from headrace.client.librdkafka import REQUEST_TIMEOUT_S, TopicPartition, refusal
from headrace.client.patience import patiently
from headrace.client.wire import Api, CoordinatorKind, Wire, asked, refuse
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message

CLASSIC, CONSUMER, SHARE = "Classic", "Consumer", "Share"
UNKNOWN = "Unknown"
# All that is not classic, which librdkafka describes well.
KINDS = {CONSUMER: Api.CONSUMER_GROUP_DESCRIBE, SHARE: Api.SHARE_GROUP_DESCRIBE}
# The empty one: offsets were committed, but nobody ever joined. Others, such as Kafka Connect's
# workers, share no partitions.
LISTED_PROTOCOLS = frozenset(("", "consumer", "share"))
# What a coordinator says of a group that is of another kind, or of a kind it does not know.
OF_ANOTHER_KIND = frozenset((ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION))
NO_OFFSET = -1

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
    """One consumer in a group and what it reads; classic members have no epoch."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A group with its members; classic groups have no epoch."""

    group: str
    kind: str
    state: str
    assignor: str
    coordinator: int
    members: tuple[Member, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """Where a share group is in a partition; None: it is not there yet, or nobody can tell."""

    start_offset: int | None
    lag: int | None


class GroupAdmin:
    """Shows and changes consumer groups through an Admin."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def groups(self) -> list[GroupListing]:
        with Wire(self._admin.bootstrap) as wire:
            found = {row for node_id in wire.node_ids for row in _held_by(wire, node_id)}
        return sorted(found, key=lambda listing: listing.group)

    def describe(self, group: str) -> Group:
        """The group; one that no broker knows is Dead and empty."""
        with Wire(self._admin.bootstrap) as wire:
            for kind, api in KINDS.items():
                found = _described(wire, api, kind, group)
                if found is not None:
                    return found
        return self._classic(group)

    def share_offsets(self, group: str) -> dict[TopicPartition, ShareOffset]:
        """Every partition that a share group has begun to read."""
        request = Message(groups=[Message(group_id=group, topics=None)])
        with Wire(self._admin.bootstrap) as wire:
            (found,) = _coordinated(wire, Api.DESCRIBE_SHARE_GROUP_OFFSETS, request, group)[1]
        for topic in found.topics:
            for row in topic.partitions:
                refuse(row.error_code, f"group {group}, {topic.topic_name}-{row.partition_index}")
        return {
            TopicPartition(topic.topic_name, row.partition_index): ShareOffset(
                _known(row.start_offset), _known(row.lag)
            )
            for topic in found.topics
            for row in topic.partitions
        }

    def _classic(self, group: str) -> Group:
        request = self._admin.raw.describe_consumer_groups
        try:
            found = self._coordinated(request, [group], group)
        except KafkaError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            return Group(group, UNKNOWN, "Dead", "", -1, ())
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


def _held_by(wire: Wire, node_id: int) -> list[GroupListing]:
    answer = asked(wire.broker(node_id), Api.LIST_GROUPS, Message(), "listing groups")
    # Before Kafka 3.8 an answer has no type, for all groups are classic; before 2.6 no state.
    return [
        GroupListing(
            row.group_id, row.group_type.capitalize() or CLASSIC, row.group_state or UNKNOWN
        )
        for row in answer.groups
        if row.protocol_type in LISTED_PROTOCOLS
    ]


def _described(wire: Wire, api: Api, kind: str, group: str) -> Group | None:
    """The group, if it is of the kind that this API describes."""
    try:
        node_id, (found,) = _coordinated(wire, api, Message(group_ids=[group]), group)
    except KafkaError as error:
        if error.code not in OF_ANOTHER_KIND:
            raise
        return None
    return Group(
        group,
        kind,
        found.group_state,
        found.assignor_name,
        node_id,
        tuple(sorted(map(_wire_member, found.members), key=lambda member: member.member_id)),
        found.group_epoch,
        found.assignment_epoch,
    )


def _coordinated(wire: Wire, api: Api, request: Message, group: str) -> tuple[int, list[Message]]:
    """The node id of the group's coordinator, and what it says of the one group asked for."""

    def ask() -> tuple[int, list[Message]]:
        node_id, coordinator = wire.coordinator(CoordinatorKind.GROUP, group)
        found: list[Message] = coordinator.call(api, request).groups
        refuse(found[0].error_code, f"group {group}")
        return node_id, found

    return patiently(ask)


def _wire_member(found: Message) -> Member:
    return Member(
        found.member_id,
        getattr(found, "instance_id", None),  # in share groups members have none
        found.client_id,
        found.client_host,
        tuple(
            sorted(
                TopicPartition(topic.topic_name, index)
                for topic in found.assignment.topic_partitions
                for index in topic.partitions
            )
        ),
        found.member_epoch,
    )


def _known(offset: int) -> int | None:
    return None if offset == NO_OFFSET else offset
