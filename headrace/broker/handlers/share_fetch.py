"""ShareFetch: records locked for one member, and acknowledgements of those it had before."""

from collections.abc import Mapping, Sequence

from headrace.broker.context import Broker, Call
from headrace.broker.share_acknowledging import Refusals, acknowledge_each
from headrace.broker.share_fetching import Fetched, FetchLimits, ShareFetching
from headrace.broker.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SessionKey,
    ShareSession,
    TopicPartition,
)
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message

STRICT = 1
"""The acquire mode that gives no record more than asked for (KIP-1206)."""


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    key = SessionKey(request.group_id or "", request.member_id)
    _check(request)
    asked = [
        TopicPartition(topic.topic_id, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    ]
    session = _session(broker, call, key, request, asked)
    errors = await acknowledge_each(broker, key, request)
    fetched: dict[TopicPartition, Fetched] = {}
    if request.share_session_epoch == FINAL_EPOCH:
        await broker.shares.end_session(key)
    elif not request.is_renew_ack:
        fetched = await ShareFetching(broker, session, _limits(broker, request)).fetch()
    return Message(
        error_code=ErrorCode.NONE,
        acquisition_lock_timeout_ms=broker.shares.limits_of(key.group_id).lock_duration_ms,
        responses=_responses([*errors, *fetched], fetched, errors),
    )


def _check(request: Message) -> None:
    has_acknowledgements = any(
        each.acknowledgement_batches for topic in request.topics for each in topic.partitions
    )
    if not request.group_id or not request.member_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a group and a member must be named")
    if has_acknowledgements and request.share_session_epoch == INITIAL_EPOCH:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "a new share session has nothing to acknowledge"
        )
    wants = (request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms)
    if request.is_renew_ack and any(wants):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a renewal fetches nothing")


def _session(
    broker: Broker, call: Call, key: SessionKey, request: Message, asked: list[TopicPartition]
) -> ShareSession:
    sessions = broker.shares.sessions
    epoch = request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        session = sessions.open(key, call.connection_id)
        session.update(asked, ())
        return session
    session = sessions.resume(key, epoch)
    if epoch != FINAL_EPOCH:
        forgotten = [
            TopicPartition(topic.topic_id, each)
            for topic in request.forgotten_topics_data
            for each in topic.partitions
        ]
        session.update(asked, forgotten)
        session.advance()
    return session


def _limits(broker: Broker, request: Message) -> FetchLimits:
    max_bytes = min(request.max_bytes, broker.settings.fetch_max_bytes)
    return FetchLimits(
        max_wait_ms=request.max_wait_ms,
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        max_records=request.max_records,
        batch_size=request.batch_size,
        strict=request.share_acquire_mode == STRICT,
    )


def _responses(
    told: Sequence[TopicPartition],
    fetched: Mapping[TopicPartition, Fetched],
    errors: Refusals,
) -> list[Message]:
    topics: dict[object, list[Message]] = {}
    for at in dict.fromkeys(told):
        found = fetched.get(at) or Fetched()
        refused = errors.get(at)
        topics.setdefault(at.topic_id, []).append(
            Message(
                partition_index=at.partition,
                error_code=found.error.code if found.error else ErrorCode.NONE,
                error_message=found.error.message if found.error else None,
                acknowledge_error_code=refused.code if refused else ErrorCode.NONE,
                acknowledge_error_message=refused.message if refused else None,
                records=found.records,
                acquired_records=[
                    Message(first_offset=first, last_offset=last, delivery_count=count)
                    for first, last, count in found.acquired
                ],
            )
        )
    return [Message(topic_id=topic_id, partitions=found) for topic_id, found in topics.items()]
