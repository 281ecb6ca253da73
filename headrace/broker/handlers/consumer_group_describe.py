"""ConsumerGroupDescribe: the epochs of consumer groups, and what members own and shall own."""

from headrace.broker.context import Broker, Call
from headrace.broker.operations import GROUP_OPERATIONS, NOT_ASKED
from headrace.coordination.consumer_group import ConsumerGroup
from headrace.coordination.consumer_group_member import ConsumerMember
from headrace.coordination.consumer_group_records import Partitions
from headrace.coordination.coordinator import Coordinator
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    granted = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    groups = []
    for group_id in request.group_ids:
        try:
            groups.append(await _described(broker, group_id, granted))
        except KafkaError as refusal:
            groups.append(_refused(group_id, refusal))
    return Message(groups=groups)


def _refused(group_id: str, refusal: KafkaError) -> Message:
    message = refusal.message or None
    return Message(group_id=group_id, error_code=refusal.code, error_message=message)


async def _described(broker: Broker, group_id: str, granted: int) -> Message:
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)

    def describe(machine: Coordinator) -> Message:
        # Made at once, for the group goes on changing while the disk is waited for.
        group = machine.consumer_groups.existing(group_id)
        return Message(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=machine.consumer_groups.assignor_of(group),
            members=[_member(broker, group, each) for each in group.members.values()],
            authorized_operations=granted,
        )

    return await (await broker.groups.shard_of(group_id)).look(describe)


def _member(broker: Broker, group: ConsumerGroup, member: ConsumerMember) -> Message:
    return Message(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscription.topics),
        subscribed_topic_regex=member.subscription.pattern,
        assignment=_assignment(broker, member.owned()),
        target_assignment=_assignment(broker, group.target.get(member.member_id, {})),
        member_type=CLASSIC_MEMBER if member.classic else CONSUMER_MEMBER,
    )


def _assignment(broker: Broker, partitions: Partitions) -> Message:
    """Topics that are gone have no name to show."""
    found = ((broker.catalog.find(topic_id), each) for topic_id, each in partitions.items())
    return Message(
        topic_partitions=[
            Message(topic_id=topic.topic_id, topic_name=topic.name, partitions=sorted(each))
            for topic, each in found
            if topic is not None
        ]
    )
