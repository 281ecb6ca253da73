"""ConsumerGroupHeartbeat: a member joins, lives, changes its subscription or leaves (KIP-848)."""

from uuid import UUID, uuid4

from headrace.broker.context import Broker, Call
from headrace.coordination.consumer_group_heartbeat import HeartbeatRequest
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message

PROTOCOL = "consumer"


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    if PROTOCOL not in broker.settings.group_coordinator_rebalance_protocols:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The consumer protocol is not enabled.")
    answer = await broker.groups.consumer_heartbeat(_heartbeat(call, request))
    assignment = None
    if answer.assignment is not None:
        # The topics it names must not be taken back either.
        await broker.topics.settled()
        assignment = Message(
            topic_partitions=[
                Message(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in answer.assignment.items()
            ]
        )
    return Message(
        error_code=ErrorCode.NONE,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=assignment,
    )


def _heartbeat(call: Call, request: Message) -> HeartbeatRequest:
    topics = request.subscribed_topic_names
    return HeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        new_member_id=str(uuid4()),
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=call.client_id or "",
        client_host=f"/{call.client_host}",
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if topics is None else frozenset(topics),
        pattern=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=None if request.topic_partitions is None else _owned(request.topic_partitions),
        version=call.api_version,
    )


def _owned(topics: list[Message]) -> dict[UUID, frozenset[int]]:
    owned: dict[UUID, frozenset[int]] = {}
    for topic in topics:
        owned[topic.topic_id] = owned.get(topic.topic_id, frozenset()).union(topic.partitions)
    return owned
