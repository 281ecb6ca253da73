"""OffsetCommit: how far a group has come, durable before it is answered."""

from collections.abc import Iterator

from headrace.broker.context import Broker, Call
from headrace.coordination.group import Committer
from headrace.coordination.offsets import OffsetToCommit
from headrace.errors import ErrorCode
from headrace.protocol.messages import Message

GROUP_NOT_FOUND_SINCE = 9
TOPIC_IDS_SINCE = 10


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    asked = list(_asked(broker, call, request))
    wanted = [each for each in asked if isinstance(each, OffsetToCommit)]
    codes: Iterator[ErrorCode] = iter(())
    if wanted:
        committer = Committer(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            knows_group_not_found=call.api_version >= GROUP_NOT_FOUND_SINCE,
        )
        codes = iter(await broker.groups.commit(committer, wanted, request.retention_time_ms))
    errors = iter([each if isinstance(each, ErrorCode) else next(codes) for each in asked])
    return Message(
        topics=[
            Message(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    Message(partition_index=each.partition_index, error_code=next(errors))
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _asked(broker: Broker, call: Call, request: Message) -> Iterator[OffsetToCommit | ErrorCode]:
    """For each partition what to commit, or why it cannot be."""
    by_id = call.api_version >= TOPIC_IDS_SINCE
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    catalog = broker.catalog
    for topic in request.topics:
        found = catalog.find(topic.topic_id) if by_id else catalog.topics.get(topic.name)
        for partition in topic.partitions:
            if found is None:
                yield unknown
            elif not 0 <= partition.partition_index < found.partitions:
                yield ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                yield OffsetToCommit(
                    found.name,
                    partition.partition_index,
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata,
                    found.topic_id,
                )
