"""The topics the broker keeps its own state in: how many partitions, and which settings."""

from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

from headrace.broker.settings import BrokerSettings
from headrace.coordination.topics import NewTopic


class InternalTopic(NamedTuple):
    """What a broker with given settings creates."""

    partitions: Callable[[BrokerSettings], int]
    segment_bytes: Callable[[BrokerSettings], int]
    compression_type: str
    cleanup: Mapping[str, str] = {"cleanup.policy": "compact"}


INTERNAL: Mapping[str, InternalTopic] = {
    "__consumer_offsets": InternalTopic(
        lambda settings: settings.offsets_topic_num_partitions,
        lambda settings: settings.offsets_topic_segment_bytes,
        "producer",
    ),
    "__transaction_state": InternalTopic(
        lambda settings: settings.transaction_state_log_num_partitions,
        lambda settings: settings.transaction_state_log_segment_bytes,
        "uncompressed",
    ),
    "__share_group_state": InternalTopic(
        lambda settings: settings.share_coordinator_state_topic_num_partitions,
        lambda settings: settings.share_coordinator_state_topic_segment_bytes,
        "producer",
        # Updates of one key build on one another: compaction would keep only the last of them.
        {"cleanup.policy": "delete", "retention.ms": "-1"},
    ),
}


def new_internal_topic(name: str, topic_id: UUID, settings: BrokerSettings) -> NewTopic:
    row = INTERNAL[name]
    configs = {
        **row.cleanup,
        "compression.type": row.compression_type,
        "segment.bytes": str(row.segment_bytes(settings)),
    }
    return NewTopic(name, topic_id, row.partitions(settings), 1, configs=configs)
