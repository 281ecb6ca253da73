"""The answer that carries a refusal, for each API where Kafka puts it."""

from typing import Any

from headrace.errors import KafkaError
from headrace.protocol.messages import Message
from headrace.protocol.schemas import shape_of

# Where there is no error code at the top: the response's array, the request's array it mirrors,
# and the fields that name an element in both (with the response's name where they differ).
_Names = dict[str, str]
_Level = tuple[str, str, _Names]

_MIRRORED: dict[str, tuple[_Level, ...]] = {
    "add_offsets_to_txn": (),
    "alter_configs": (
        (
            "responses",
            "resources",
            {"resource_type": "resource_type", "resource_name": "resource_name"},
        ),
    ),
    "create_partitions": (("results", "topics", {"name": "name"}),),
    "create_topics": (("topics", "topics", {"name": "name"}),),
    "delete_groups": (("results", "groups_names", {"": "group_id"}),),
    "delete_records": (
        ("topics", "topics", {"name": "name"}),
        ("partitions", "partitions", {"partition_index": "partition_index"}),
    ),
    "delete_topics": (("responses", "topics", {"name": "name", "topic_id": "topic_id"}),),
    "describe_configs": (
        (
            "results",
            "resources",
            {"resource_type": "resource_type", "resource_name": "resource_name"},
        ),
    ),
    "describe_groups": (("groups", "groups", {"": "group_id"}),),
    "describe_producers": (
        ("topics", "topics", {"name": "name"}),
        ("partitions", "partition_indexes", {"": "partition_index"}),
    ),
    "incremental_alter_configs": (
        (
            "responses",
            "resources",
            {"resource_type": "resource_type", "resource_name": "resource_name"},
        ),
    ),
    "list_offsets": (
        ("topics", "topics", {"name": "name"}),
        ("partitions", "partitions", {"partition_index": "partition_index"}),
    ),
    "metadata": (("topics", "topics", {"name": "name", "topic_id": "topic_id"}),),
    "offset_commit": (
        ("topics", "topics", {"name": "name", "topic_id": "topic_id"}),
        ("partitions", "partitions", {"partition_index": "partition_index"}),
    ),
    "offset_for_leader_epoch": (
        ("topics", "topics", {"topic": "topic"}),
        ("partitions", "partitions", {"partition": "partition"}),
    ),
    "txn_offset_commit": (
        ("topics", "topics", {"name": "name"}),
        ("partitions", "partitions", {"partition_index": "partition_index"}),
    ),
}


def refusal(api_key: int, name: str, request: Message, error: KafkaError) -> Message:
    """The response of this API when all of the request is refused; LookupError if it has none."""
    fields = shape_of(api_key, request=False).defaults
    if "error_code" in fields:
        return Message(**_error_fields(fields, error))
    return Message(**_mirrored(shape_of(api_key, request=False), request, _MIRRORED[name], error))


def _mirrored(
    shape: Any, request: Any, levels: tuple[_Level, ...], error: KafkaError
) -> dict[str, Any]:
    (array, asked, names), *deeper = levels
    nested = shape.nested[array]
    elements = []
    for element in getattr(request, asked) or ():
        fields = {
            answered: element if name == "" else getattr(element, name)
            for name, answered in names.items()
        }
        if deeper:
            fields |= _mirrored(nested, element, tuple(deeper), error)
        else:
            fields |= _error_fields(nested.defaults, error)
        elements.append(Message(**fields))
    return {array: elements}


def _error_fields(fields: Any, error: KafkaError) -> dict[str, Any]:
    found: dict[str, Any] = {"error_code": error.code}
    if "error_message" in fields:
        found["error_message"] = error.message or None
    return found
