"""Acknowledgements as requests carry them: what they must be, and what became of each."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.broker.share_sessions import SessionKey, TopicPartition
from headrace.coordination.share_partition import AcknowledgementBatch, AcknowledgeType
from headrace.coordination.share_records import SharePartitionKey
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message

if TYPE_CHECKING:
    from headrace.broker.context import Broker

Batches = Sequence[AcknowledgementBatch]
Refusals = Mapping[TopicPartition, KafkaError | None]
"""For every partition with acknowledgements why they were refused, or None."""


def checked(
    request: Message,
) -> tuple[dict[TopicPartition, Batches], dict[TopicPartition, KafkaError]]:
    """The acknowledgements of each partition that make sense, and the refusals of the others."""
    good: dict[TopicPartition, Batches] = {}
    bad: dict[TopicPartition, KafkaError] = {}
    for topic in request.topics:
        for each in topic.partitions:
            at = TopicPartition(topic.topic_id, each.partition_index)
            batches = [
                AcknowledgementBatch(one.first_offset, one.last_offset, one.acknowledge_types)
                for one in each.acknowledgement_batches
            ]
            try:
                _check(batches, renewing=request.is_renew_ack)
            except KafkaError as refusal:
                bad[at] = refusal
                continue
            if batches:
                good[at] = batches
    return good, bad


def _check(batches: Batches, *, renewing: bool) -> None:
    highest = AcknowledgeType.RENEW if renewing else AcknowledgeType.REJECT
    previous = -1
    for first, last, types in batches:
        if first > last:
            raise _invalid("the first offset of a batch is past its last")
        if first < previous:
            raise _invalid("batches overlap or are out of order")
        if not types:
            raise _invalid("a batch has no acknowledge type")
        if len(types) > 1 and len(types) != last - first + 1:
            raise _invalid("a batch has neither one type nor one for each offset")
        if any(not 0 <= each <= highest for each in types):
            raise _invalid("there is no such acknowledge type")
        previous = last


async def acknowledge_each(
    broker: "Broker", key: SessionKey, request: Message
) -> dict[TopicPartition, KafkaError | None]:
    """Partition by partition: one that is refused does not hold up the others."""
    good, bad = checked(request)
    outcomes: dict[TopicPartition, KafkaError | None] = dict(bad)
    renewable = broker.shares.settings_of(key.group_id).share_renew_acknowledge_enable
    for at, batches in good.items():
        try:
            if request.is_renew_ack and not renewable:
                raise _invalid("the group does not let consumers renew")
            broker.partitions.by_id(*at)
            await broker.shares.acknowledge(
                SharePartitionKey(key.group_id, *at), key.member_id, batches
            )
            outcomes[at] = None
        except KafkaError as refusal:
            outcomes[at] = refusal
    return outcomes


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
