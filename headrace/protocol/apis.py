"""The one table of what is served: each API with the versions Apache Kafka 4.3 serves."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Api(NamedTuple):
    """One API; from ``flexible_from`` on its versions carry tagged fields and compact types."""

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int

    def serves(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version


NEVER_FLEXIBLE = 1 << 15

_ROWS = (
    # librdkafka needs to see Produce from 0 (KAFKA-18659); 0 to 2 close the connection, as there.
    Api(0, "produce", 0, 13, 9),
    Api(1, "fetch", 4, 18, 12),
    Api(2, "list_offsets", 1, 11, 6),
    Api(3, "metadata", 0, 13, 9),
    Api(8, "offset_commit", 2, 10, 8),
    Api(9, "offset_fetch", 1, 10, 6),
    Api(10, "find_coordinator", 0, 6, 3),
    Api(11, "join_group", 0, 9, 6),
    Api(12, "heartbeat", 0, 4, 4),
    Api(13, "leave_group", 0, 5, 4),
    Api(14, "sync_group", 0, 5, 4),
    Api(15, "describe_groups", 0, 6, 5),
    Api(16, "list_groups", 0, 5, 3),
    Api(18, "api_versions", 0, 4, 3),
    Api(19, "create_topics", 2, 7, 5),
    Api(20, "delete_topics", 1, 6, 4),
    Api(21, "delete_records", 0, 2, 2),
    Api(22, "init_producer_id", 0, 5, 2),
    Api(23, "offset_for_leader_epoch", 2, 4, 4),
    Api(24, "add_partitions_to_txn", 0, 5, 3),
    Api(25, "add_offsets_to_txn", 0, 4, 3),
    Api(26, "end_txn", 0, 5, 3),
    Api(27, "write_txn_markers", 1, 2, 1),
    Api(28, "txn_offset_commit", 0, 5, 3),
    Api(32, "describe_configs", 1, 4, 4),
    Api(33, "alter_configs", 0, 2, 2),
    Api(35, "describe_log_dirs", 1, 5, 2),
    Api(37, "create_partitions", 0, 3, 2),
    Api(42, "delete_groups", 0, 2, 2),
    Api(43, "elect_leaders", 0, 2, 2),
    Api(44, "incremental_alter_configs", 0, 1, 1),
    Api(45, "alter_partition_reassignments", 0, 1, 0),
    Api(46, "list_partition_reassignments", 0, 0, 0),
    Api(47, "offset_delete", 0, 0, NEVER_FLEXIBLE),
    Api(55, "describe_quorum", 0, 2, 0),
    Api(60, "describe_cluster", 0, 2, 0),
    Api(61, "describe_producers", 0, 0, 0),
    Api(65, "describe_transactions", 0, 0, 0),
    Api(66, "list_transactions", 0, 2, 0),
    Api(68, "consumer_group_heartbeat", 0, 1, 0),
    Api(69, "consumer_group_describe", 0, 1, 0),
    Api(74, "list_config_resources", 0, 1, 0),
    Api(75, "describe_topic_partitions", 0, 0, 0),
    Api(76, "share_group_heartbeat", 1, 1, 0),
    Api(77, "share_group_describe", 1, 1, 0),
    Api(78, "share_fetch", 1, 2, 0),
    Api(79, "share_acknowledge", 1, 2, 0),
    Api(90, "describe_share_group_offsets", 0, 1, 0),
    Api(91, "alter_share_group_offsets", 0, 0, 0),
    Api(92, "delete_share_group_offsets", 0, 0, 0),
)

APIS: Mapping[int, Api] = MappingProxyType({api.key: api for api in _ROWS})


def is_flexible(key: int, version: int) -> bool:
    api = APIS.get(key)
    return api is not None and version >= api.flexible_from
