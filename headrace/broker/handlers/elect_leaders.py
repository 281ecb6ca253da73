"""ElectLeaders: every partition has the one leader it can have."""

from headrace.broker.context import Broker, Call
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message

PREFERRED, UNCLEAN = 0, 1


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    await broker.topics.settled()
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
        )
    if request.topic_partitions is None:
        # Of all partitions, Kafka tells those which got a new leader.
        results = [Message(topic=name, partition_result=[]) for name in broker.catalog.topics]
    else:
        results = [
            Message(
                topic=asked.topic,
                partition_result=[
                    _result(broker, asked.topic, index) for index in asked.partitions
                ],
            )
            for asked in request.topic_partitions
        ]
    return Message(replica_election_results=results)


def _result(broker: Broker, name: str, index: int) -> Message:
    topic = broker.catalog.topics.get(name)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        reason = f"No such topic as {name}"
    elif not 0 <= index < topic.partitions:
        reason = f"No such partition as {name}-{index}"
    else:
        code = ErrorCode.ELECTION_NOT_NEEDED
        reason = "Leader election not needed for topic partition."
    return Message(partition_id=index, error_code=code, error_message=reason)
