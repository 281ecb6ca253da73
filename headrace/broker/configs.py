"""Settings of topics and brokers as resources that clients describe and alter."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from headrace.broker.context import Broker
from headrace.broker.group_settings import GroupSettings
from headrace.broker.group_settings import described as described_group
from headrace.broker.group_settings import resolve as resolve_group
from headrace.broker.settings import BrokerSettings, validate_dynamic
from headrace.broker.settings import described as described_broker
from headrace.coordination.catalog import ConfigsChanged
from headrace.coordination.machine import Decision
from headrace.coordination.metadata_records import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    MetadataRecord,
)
from headrace.coordination.topics import check_name
from headrace.errors import ErrorCode, KafkaError, SettingError
from headrace.log.settings import TopicSettings, validate_overrides
from headrace.log.settings import described as described_topic
from headrace.protocol.messages import Message
from headrace.settings import Described, Dynamic, Kind, by_name, find

ALL_BROKERS = ""

Changes = Mapping[str, str | None]


class Operation(IntEnum):
    """What IncrementalAlterConfigs may do to one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Edit(NamedTuple):
    """One operation on one setting."""

    name: str
    operation: int
    value: str | None


TABLES: Mapping[int, type] = {TOPIC_RESOURCE: TopicSettings, GROUP_RESOURCE: GroupSettings}


class Resource(NamedTuple):
    """A topic, a group, a broker, or with an empty name all brokers."""

    kind: int
    name: str


def describe(
    broker: Broker, resource: Resource, names: Iterable[str] | None
) -> Sequence[Described]:
    """The settings of a resource; KafkaError if there is no such resource."""
    kind, name = resource
    layers = broker.topics.layers
    if kind == TOPIC_RESOURCE:
        check_name(name)
        in_force = broker.topics.settings_of(broker.catalog.topic(name))
        return described_topic(in_force.stated, layers, names)
    if kind == GROUP_RESOURCE:
        stated_group = broker.catalog.configs_of(kind, _group_name(name))
        return described_group(broker.settings, stated_group, layers, names)
    if kind != BROKER_RESOURCE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
    if name == ALL_BROKERS:
        return described_broker(replace(layers, dynamic_broker={}), names, per_broker=False)
    _check_broker(broker, name, "Broker", f"{broker.node_id} or empty string")
    return described_broker(layers, names)


async def alter_each(
    broker: Broker, resources: Sequence[Message], plan: Callable[[Message], Changes], *, dry: bool
) -> Message:
    """Alter resource by resource; one that is refused does not hold up the others."""
    asked = Counter((one.resource_type, one.resource_name) for one in resources)
    answers = []
    for one in resources:
        resource = Resource(one.resource_type, one.resource_name)
        code, message = ErrorCode.NONE, None
        try:
            if asked[resource] > 1:
                raise _invalid("Each resource must appear at most once.")
            names = [config.name for config in one.configs]
            if len(set(names)) < len(names):
                raise _invalid("Error due to duplicate config keys")
            await _alter(broker, resource, partial(plan, one), dry=dry)
        except KafkaError as error:
            code, message = error.code, error.message
        answers.append(
            Message(
                error_code=code,
                error_message=message,
                resource_type=resource.kind,
                resource_name=resource.name,
            )
        )
    return Message(responses=answers)


async def _alter(
    broker: Broker, resource: Resource, plan: Callable[[], Changes], *, dry: bool
) -> None:
    def decide() -> Decision[MetadataRecord, ConfigsChanged]:
        stated(broker, resource)
        changes = plan()
        _check(broker, resource, changes)
        if dry:
            return Decision()
        return broker.catalog.alter_configs(resource.kind, resource.name, changes)

    await broker.topics.alter_configs(decide)


def stated(broker: Broker, resource: Resource) -> Mapping[str, str]:
    """What was set for a resource so far; KafkaError if it cannot have settings."""
    kind, name = resource
    if kind == TOPIC_RESOURCE:
        if not name:
            raise _invalid("Default topic resources are not allowed.")
        topic = broker.catalog.topics.get(name)
        if topic is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )
        return topic.configs
    if kind == GROUP_RESOURCE:
        return broker.catalog.configs_of(kind, _group_name(name))
    if kind != BROKER_RESOURCE:
        raise _invalid(f"Unknown resource type {kind}")
    if name != ALL_BROKERS:
        _check_broker(broker, name, "Node", str(broker.node_id))
    return broker.catalog.broker_configs(name)


def replaced(current: Mapping[str, str], wanted: Mapping[str, str | None]) -> Changes:
    """AlterConfigs: what is not named goes."""
    for name, value in wanted.items():
        if value is None:
            raise _invalid(f"Null value not supported for : {name}")
    return {**dict.fromkeys(current), **wanted}


def edited(broker: Broker, resource: Resource, edits: Iterable[Edit]) -> Changes:
    """IncrementalAlterConfigs: only what is named changes."""
    return {edit.name: _edited(broker, resource, edit) for edit in edits}


def _edited(broker: Broker, resource: Resource, edit: Edit) -> str | None:
    name, operation, value = edit
    if operation not in list(Operation):
        raise _invalid(f"Unknown operation type {operation}")
    if operation == Operation.DELETE:
        return None
    if value is None:
        raise _invalid(f"Null value not supported for : {name}")
    if operation == Operation.SET:
        return value
    row = by_name(TABLES.get(resource.kind, BrokerSettings)).get(name)
    if row is None or row.kind is not Kind.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {Operation(operation).name} to key {name} because its type is not LIST.",
        )
    found = describe(broker, resource, [name])
    parts = _parts(found[0].value if found else None)
    if operation == Operation.APPEND:
        parts += [part for part in _parts(value) if part not in parts]
    else:
        parts = [part for part in parts if part not in _parts(value)]
    return ",".join(parts)


def _parts(text: str | None) -> list[str]:
    return [part.strip() for part in text.split(",")] if text else []


def _check(broker: Broker, resource: Resource, changes: Changes) -> None:
    added = {name: text for name, text in changes.items() if text is not None}
    try:
        if resource.kind == TOPIC_RESOURCE:
            in_force = broker.topics.settings_of(broker.catalog.topic(resource.name))
            kept = {name: text for name, text in in_force.stated.items() if name not in changes}
            validate_overrides({**kept, **added}, broker.settings.topic_defaults)
            return
        if resource.kind == GROUP_RESOURCE:
            before = broker.catalog.configs_of(*resource)
            kept = {name: text for name, text in before.items() if name not in changes}
            resolve_group(broker.settings, {**kept, **added})
            return
        fixed = [name for name in added if find(BrokerSettings, name).dynamic is Dynamic.READ_ONLY]
        if fixed:
            raise _invalid(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
        cluster_wide = resource.name == ALL_BROKERS
        validate_dynamic(added, broker.topics.layers, cluster_wide=cluster_wide)
    except SettingError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _group_name(name: str) -> str:
    if not name:
        raise _invalid("Default group resources are not allowed.")
    return name


def _check_broker(broker: Broker, name: str, noun: str, expected: str) -> None:
    if not name.isdigit():
        raise _invalid(f"{noun} id must be an integer, but it is: {name}")
    if name != str(broker.node_id):
        raise _invalid(f"Unexpected broker id, expected {expected}, but received {name}")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
