"""ShareGroupDescribe: the members of share groups, and which partitions each of them reads."""

from functools import partial

from headrace.broker.context import Broker, Call
from headrace.broker.operations import GROUP_OPERATIONS, NOT_ASKED
from headrace.coordination.coordinator import Coordinator
from headrace.coordination.share_group import ShareGroup, ShareMember
from headrace.errors import KafkaError
from headrace.protocol.messages import Message

ASSIGNOR = "simple"


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    granted = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    groups = []
    for group_id in request.group_ids:
        try:
            shard = await broker.groups.shard_of(group_id)
            group = await shard.look(partial(_find, group_id))
            groups.append(_described(broker, group, granted))
        except KafkaError as refusal:
            groups.append(
                Message(
                    group_id=group_id,
                    error_code=refusal.code,
                    error_message=refusal.message or None,
                )
            )
    return Message(groups=groups)


def _find(group_id: str, machine: Coordinator) -> ShareGroup:
    return machine.shares.existing(group_id)


def _described(broker: Broker, group: ShareGroup, granted: int) -> Message:
    return Message(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
        members=[_member(broker, each) for each in group.members.values()],
        authorized_operations=granted,
    )


def _member(broker: Broker, member: ShareMember) -> Message:
    topics = []
    for topic_id, partitions in member.assigned.items():
        topic = broker.catalog.find(topic_id)
        if topic is not None:
            topics.append(
                Message(topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions))
            )
    return Message(
        member_id=member.member_id,
        rack_id=member.stored.rack_id,
        member_epoch=member.epoch,
        client_id=member.stored.client_id,
        client_host=member.stored.client_host,
        subscribed_topic_names=member.stored.topics,
        assignment=Message(topic_partitions=topics),
    )
