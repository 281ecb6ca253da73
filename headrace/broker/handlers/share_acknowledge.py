"""ShareAcknowledge: what became of records that a member was given."""

from headrace.broker.context import Broker, Call
from headrace.broker.share_acknowledging import acknowledge_each
from headrace.broker.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, SessionKey
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    if not request.group_id or not request.member_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a group and a member must be named")
    key = SessionKey(request.group_id, request.member_id)
    if request.share_session_epoch == INITIAL_EPOCH:
        raise KafkaError(
            ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a share session begins with a fetch"
        )
    session = broker.shares.sessions.resume(key, request.share_session_epoch)
    if request.share_session_epoch != FINAL_EPOCH:
        session.advance()
    outcomes = await acknowledge_each(broker, key, request)
    if request.share_session_epoch == FINAL_EPOCH:
        await broker.shares.end_session(key)
    topics: dict[object, list[Message]] = {}
    for at, refused in outcomes.items():
        topics.setdefault(at.topic_id, []).append(
            Message(
                partition_index=at.partition,
                error_code=refused.code if refused else ErrorCode.NONE,
                error_message=refused.message if refused else None,
            )
        )
    return Message(
        error_code=ErrorCode.NONE,
        acquisition_lock_timeout_ms=broker.shares.limits_of(key.group_id).lock_duration_ms,
        responses=[
            Message(topic_id=topic_id, partitions=found) for topic_id, found in topics.items()
        ],
    )
