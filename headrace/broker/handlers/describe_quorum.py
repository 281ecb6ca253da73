"""DescribeQuorum: the metadata log has this node as its leader and only voter."""

from headrace.broker.context import Broker, Call
from headrace.coordination.topics import METADATA_TOPIC
from headrace.errors import ErrorCode
from headrace.protocol.messages import Message


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    topics = [
        Message(
            topic_name=topic.topic_name,
            partitions=[
                _partition(broker, topic.topic_name, asked.partition_index)
                for asked in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    known = any(not answer.error_code for topic in topics for answer in topic.partitions)
    return Message(error_message="", topics=topics, nodes=[_node(broker, call)] if known else [])


def _partition(broker: Broker, name: str, index: int) -> Message:
    if (name, index) != (METADATA_TOPIC, 0):
        return Message(
            partition_index=index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message="This server does not host this topic-partition.",
            current_voters=[],
            observers=[],
        )
    metadata = broker.topics.metadata
    now_ms = broker.clock.now_ms()
    voter = Message(
        replica_id=broker.node_id,
        log_end_offset=metadata.log.log_end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return Message(
        partition_index=index,
        error_code=ErrorCode.NONE,
        error_message="",
        leader_id=broker.node_id,
        leader_epoch=metadata.leader_epoch,
        high_watermark=metadata.high_watermark,
        current_voters=[voter],
        observers=[],
    )


def _node(broker: Broker, call: Call) -> Message:
    host, port = broker.endpoint(call.listener)
    listener = Message(name=call.listener, host=host, port=port)
    return Message(node_id=broker.node_id, listeners=[listener])
