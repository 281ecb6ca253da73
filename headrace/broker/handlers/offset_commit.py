"""OffsetCommit: how far a group has come, durable before it is answered."""

from headrace.broker.context import Broker, Call
from headrace.coordination.group import Committer
from headrace.coordination.offsets import OffsetToCommit
from headrace.errors import ErrorCode
from headrace.protocol.offset_commit import (
    TOPIC_IDS_FROM,
    CommitTopic,
    OffsetCommitRequest,
    read_offset_commit,
    write_offset_commit,
)

GROUP_NOT_FOUND_SINCE = 9

read = read_offset_commit


async def handle(broker: Broker, call: Call, request: OffsetCommitRequest) -> bytes:
    version = call.api_version
    group_id, generation, member_id, instance_id, retention_ms, topics = request
    wanted, refused = _asked(broker, version, topics)
    codes: tuple[ErrorCode, ...] = ()
    if wanted:
        knows_group_not_found = version >= GROUP_NOT_FOUND_SINCE
        committer = Committer(
            group_id, member_id, instance_id, generation, False, knows_group_not_found
        )
        codes = await broker.groups.commit(committer, wanted, retention_ms)
    return write_offset_commit(version, topics, _merged(codes, refused) if refused else codes)


def _asked(
    broker: Broker, version: int, topics: list[CommitTopic]
) -> tuple[list[OffsetToCommit], dict[int, ErrorCode]]:
    """What to commit, and by its place in the request what cannot be."""
    by_id = version >= TOPIC_IDS_FROM
    catalog = broker.catalog
    wanted: list[OffsetToCommit] = []
    refused: dict[int, ErrorCode] = {}
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for name, topic_id, partitions in topics:
        found = catalog.find(topic_id) if by_id else catalog.topics.get(name)
        for index, offset, epoch, metadata in partitions:
            if found is None:
                refused[len(wanted) + len(refused)] = unknown
            elif not 0 <= index < found.partitions:
                refused[len(wanted) + len(refused)] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                wanted.append(
                    OffsetToCommit(found.name, index, offset, epoch, metadata, found.topic_id)
                )
    return wanted, refused


def _merged(codes: tuple[ErrorCode, ...], refused: dict[int, ErrorCode]) -> list[ErrorCode]:
    rest = iter(codes)
    total = len(codes) + len(refused)
    return [refused[place] if place in refused else next(rest) for place in range(total)]
