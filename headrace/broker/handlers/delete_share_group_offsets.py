"""DeleteShareGroupOffsets: an empty share group forgets where it was in some topics."""

from headrace.broker.context import Broker, Call
from headrace.broker.shares import state_keys
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")
    shard = await broker.groups.shard_of(request.group_id)
    group = await shard.look(lambda machine: machine.shares.existing(request.group_id))
    group.check_delete()
    answers, gone = [], {}
    for asked in request.topics:
        topic = broker.catalog.topics.get(asked.topic_name)
        state = None if topic is None else group.states.initialized.get(topic.topic_id)
        if topic is None or state is None:
            answers.append(_nothing_there(asked.topic_name, known=topic is not None))
            continue
        gone[topic.topic_id] = state
        answers.append(Message(topic_name=topic.name, topic_id=topic.topic_id))
    await broker.shares.delete_states(state_keys(request.group_id, gone))
    topic_ids = list(gone)
    await shard.run(lambda machine: machine.shares.state_deleted(request.group_id, topic_ids))
    return Message(error_code=ErrorCode.NONE, responses=answers)


def _nothing_there(name: str, *, known: bool) -> Message:
    absent = "This server does not host this topic-partition."
    return Message(
        topic_name=name,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message="There is no offset information to delete." if known else absent,
    )
