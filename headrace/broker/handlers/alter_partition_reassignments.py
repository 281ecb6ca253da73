"""AlterPartitionReassignments: replicas may stay where they are, which is here."""

from headrace.broker.context import Broker, Call
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    await broker.topics.settled()
    return Message(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            Message(
                name=topic.name,
                partitions=[
                    _answer(broker, topic.name, asked.partition_index, asked.replicas)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _answer(broker: Broker, name: str, index: int, replicas: list[int] | None) -> Message:
    try:
        _check(broker, name, index, replicas)
    except KafkaError as error:
        return Message(
            partition_index=index, error_code=error.code, error_message=error.message or None
        )
    return Message(partition_index=index, error_message=None)


def _check(broker: Broker, name: str, index: int, replicas: list[int] | None) -> None:
    topic = broker.catalog.topics.get(name)
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
        )
    if not 0 <= index < topic.partitions:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}."
        )
    if replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "")
    broker.catalog.placement.check_replicas([replicas])
