"""AddPartitionsToTxn: partitions become part of a producer's transaction, or are verified to be."""

from collections.abc import Iterable

from headrace.broker.context import Broker, Call
from headrace.coordination.transaction_moves import TRANSACTIONS_V0, TRANSACTIONS_V2
from headrace.coordination.transaction_records import ProducerIdentity, TopicPartition, by_topic
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message

BATCHED_FROM = 4
FENCED_FROM = 2
"""Older clients know a fenced producer by its epoch alone."""

Outcome = dict[TopicPartition, ErrorCode]


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    if call.api_version >= BATCHED_FROM:
        results = [
            Message(
                transactional_id=asked.transactional_id,
                topic_results=_topic_results(await _outcome(broker, call, asked)),
            )
            for asked in request.transactions
        ]
        return Message(results_by_transaction=results)
    asked = Message(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        verify_only=False,
        topics=request.v3_and_below_topics,
    )
    outcome = await _outcome(broker, call, asked)
    return Message(results_by_topic_v3_and_below=_topic_results(outcome))


async def _outcome(broker: Broker, call: Call, asked: Message) -> Outcome:
    partitions = [
        TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partitions
    ]
    unknown = {each for each in partitions if not _exists(broker, each)}
    if unknown:
        # All or nothing: a transaction never begins with only some of what was asked for.
        return {
            each: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if each in unknown
            else ErrorCode.OPERATION_NOT_ATTEMPTED
            for each in partitions
        }
    identity = ProducerIdentity(asked.producer_id, asked.producer_epoch)
    try:
        if asked.verify_only:
            missing = broker.transactions.missing(asked.transactional_id, identity, partitions)
            return {
                each: ErrorCode.TRANSACTION_ABORTABLE if each in missing else ErrorCode.NONE
                for each in partitions
            }
        await broker.transactions.add_partitions(
            asked.transactional_id,
            identity,
            partitions,
            client_version=TRANSACTIONS_V2 if call.api_version >= BATCHED_FROM else TRANSACTIONS_V0,
        )
        return dict.fromkeys(partitions, ErrorCode.NONE)
    except KafkaError as refusal:
        code = refusal.code
        if code is ErrorCode.PRODUCER_FENCED and call.api_version < FENCED_FROM:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return dict.fromkeys(partitions, code)


def _exists(broker: Broker, partition: TopicPartition) -> bool:
    topic = broker.catalog.topics.get(partition.topic)
    return topic is not None and 0 <= partition.partition < topic.partitions


def _topic_results(outcome: Outcome) -> Iterable[Message]:
    return [
        Message(
            name=topic,
            results_by_partition=[
                Message(
                    partition_index=index,
                    partition_error_code=outcome[TopicPartition(topic, index)],
                )
                for index in indexes
            ],
        )
        for topic, indexes in by_topic(outcome)
    ]
