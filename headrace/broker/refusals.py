"""The answer that carries a refusal, for each API where Kafka puts it."""

from collections.abc import Mapping
from typing import Any

from headrace.errors import KafkaError
from headrace.protocol.messages import Message
from headrace.protocol.schemas import Shape, shape_of

# Where errors stand per element: each array of the answer and the array of the request that it
# mirrors, outermost first. A scalar of the request becomes the field named after the colon.
_BY_TOPIC = ("topics<topics partitions<partitions",)
_BY_RESOURCE = ("responses<resources",)
_MIRRORED: Mapping[str, tuple[str, ...]] = {
    "add_partitions_to_txn": (
        "results_by_topic_v3_and_below<v3_and_below_topics "
        "results_by_partition<partitions:partition_index",
    ),
    "alter_configs": _BY_RESOURCE,
    "consumer_group_describe": ("groups<group_ids:group_id",),
    "create_partitions": ("results<topics",),
    "create_topics": ("topics<topics",),
    "delete_groups": ("results<groups_names:group_id",),
    "delete_records": _BY_TOPIC,
    "delete_topics": ("responses<topics", "responses<topic_names:name"),
    "describe_configs": ("results<resources",),
    "describe_groups": ("groups<groups:group_id",),
    "describe_share_group_offsets": ("groups<groups",),
    "describe_producers": ("topics<topics partitions<partition_indexes:partition_index",),
    "describe_topic_partitions": ("topics<topics",),
    "describe_transactions": ("transaction_states<transactional_ids:transactional_id",),
    "elect_leaders": (
        "replica_election_results<topic_partitions partition_result<partitions:partition_id",
    ),
    "find_coordinator": ("coordinators<coordinator_keys:key",),
    "incremental_alter_configs": _BY_RESOURCE,
    "list_offsets": _BY_TOPIC,
    "metadata": ("topics<topics",),
    "offset_commit": _BY_TOPIC,
    "offset_fetch": (
        "groups<groups",
        "topics<topics partitions<partition_indexes:partition_index",
    ),
    "offset_for_leader_epoch": _BY_TOPIC,
    "share_group_describe": ("groups<group_ids:group_id",),
    "txn_offset_commit": _BY_TOPIC,
    "write_txn_markers": (
        "markers<markers topics<topics partitions<partition_indexes:partition_index",
    ),
}
# The fields that name an element, the same in the request and in the answer.
_NAMES = (
    "group_id",
    "name",
    "partition",
    "partition_index",
    "producer_id",
    "resource_name",
    "resource_type",
    "topic",
    "topic_id",
)


def refusal(api_key: int, name: str, request: Message, error: KafkaError) -> Message:
    """The response of this API when all of the request is refused.

    It says so at the top and in every element; the version's writer drops what it has no place for.
    """
    shape = shape_of(api_key, request=False)
    fields = _error_fields(shape, error)
    for path in _MIRRORED.get(name, ()):
        for array, elements in _mirrored(shape, request, path.split(), error).items():
            fields[array] = fields.get(array) or elements
    return Message(**fields)


def _mirrored(
    shape: Shape, request: Message, levels: list[str], error: KafkaError
) -> dict[str, list[Message]]:
    array, _, asked = levels[0].partition("<")
    asked, _, scalar = asked.partition(":")
    nested = shape.nested[array]
    elements = []
    for element in getattr(request, asked) or ():
        if scalar:
            fields = {scalar: element}
        else:
            fields = {
                name: value
                for name, value in element.__dict__.items()
                if name in _NAMES and name in nested.defaults
            }
        fields |= _error_fields(nested, error)
        if levels[1:]:
            fields |= _mirrored(nested, element, levels[1:], error)
        elements.append(Message(**fields))
    return {array: elements}


def _error_fields(shape: Shape, error: KafkaError) -> dict[str, Any]:
    said = {
        "error_code": error.code,
        "partition_error_code": error.code,
        "error_message": error.message or None,
    }
    return {name: value for name, value in said.items() if name in shape.defaults}
