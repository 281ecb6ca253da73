"""TxnOffsetCommit: offsets that become true only if the producer's transaction commits."""

from headrace.broker.admission import Admits, admit, not_added
from headrace.broker.context import Broker, Call
from headrace.broker.shard import Producer
from headrace.coordination.group import Committer
from headrace.coordination.offsets import OffsetToCommit
from headrace.coordination.transaction_records import ProducerIdentity
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message

# What the log or the transaction coordinator says, in the words of a group coordinator.
_TOLD = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    known = [
        OffsetToCommit(
            topic.name,
            partition.partition_index,
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata,
        )
        for topic in request.topics
        for partition in topic.partitions
        if _exists(broker, topic.name, partition.partition_index)
    ]
    codes: dict[tuple[str, int], ErrorCode] = {}
    if known:
        try:
            outcome = await _committed(broker, call, request, known)
        except KafkaError as refusal:
            outcome = (_TOLD.get(refusal.code, refusal.code),) * len(known)
        codes = {
            (each.topic, each.partition): code for each, code in zip(known, outcome, strict=True)
        }
    return Message(
        topics=[
            Message(
                name=topic.name,
                partitions=[
                    Message(
                        partition_index=partition.partition_index,
                        error_code=codes.get(
                            (topic.name, partition.partition_index),
                            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        ),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _committed(
    broker: Broker, call: Call, request: Message, offsets: list[OffsetToCommit]
) -> tuple[ErrorCode, ...]:
    identity = ProducerIdentity(request.producer_id, request.producer_epoch)
    partition = await broker.transactions.offsets_partition(request.group_id)
    admits = Admits.txn_offset_commit(call.api_version)
    if admits is Admits.ADDING:
        await broker.transactions.settled(request.transactional_id)
    # From here to the append nothing waits: what is admitted is written, or neither is.
    journal, missing = admit(
        broker.transactions, request.transactional_id, identity, [partition], admits
    )
    if missing:
        raise not_added(admits)
    committer = Committer(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation=request.generation_id,
        transactional=True,
    )
    added = 0 if journal is None else journal.log.log_end_offset
    outcome = await broker.groups.commit_transactional(committer, offsets, Producer(*identity))
    if journal is not None:
        await journal.wait_durable(added)
    return outcome


def _exists(broker: Broker, topic: str, index: int) -> bool:
    found = broker.catalog.topics.get(topic)
    return found is not None and 0 <= index < found.partitions
