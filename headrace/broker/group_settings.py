"""What a single group may set for itself, with Kafka's names, defaults and bounds."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headrace.broker.settings import BrokerSettings
from headrace.errors import SettingError
from headrace.settings import (
    Described,
    Kind,
    Layers,
    Source,
    at_least,
    describe,
    one_of,
    parse,
    rows,
    setting,
    settings,
    show,
)

LATEST, EARLIEST, BY_DURATION = "latest", "earliest", "by_duration:"
READ_COMMITTED = "read_committed"

_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)
_UNITS_MS = (86_400_000, 3_600_000, 60_000, 1000)


def _offset_reset(value: Any) -> str | None:
    if value in (LATEST, EARLIEST) or duration_ms(value) is not None:
        return None
    return "must be latest, earliest or by_duration:<a duration like PT1H>"


def duration_ms(reset: str) -> int | None:
    """How far back by_duration goes; None for any other reset."""
    if not reset.startswith(BY_DURATION):
        return None
    found = _DURATION.fullmatch(reset.removeprefix(BY_DURATION))
    if found is None or not any(found.groups()):
        return None
    pairs = zip(found.groups(), _UNITS_MS, strict=True)
    return int(sum(float(text) * unit for text, unit in pairs if text))


@settings
class GroupSettings:
    """Each has the broker's setting of the same name after `group.` as its default, if any."""

    consumer_session_timeout_ms: int = setting(
        name="consumer.session.timeout.ms",
        default=45_000,
        kind=Kind.INT,
        check=at_least(1),
        doc="How long a member of the consumer group may be silent before it is removed.",
    )
    consumer_heartbeat_interval_ms: int = setting(
        name="consumer.heartbeat.interval.ms",
        default=5000,
        kind=Kind.INT,
        check=at_least(1),
        doc="How often members of the consumer group are told to send heartbeats.",
    )
    consumer_assignment_interval_ms: int = setting(
        name="consumer.assignment.interval.ms",
        default=1000,
        kind=Kind.INT,
        check=at_least(0),
        doc="The least time between two assignments of the consumer group.",
    )
    share_session_timeout_ms: int = setting(
        name="share.session.timeout.ms",
        default=45_000,
        kind=Kind.INT,
        check=at_least(1),
        doc="How long a member of the share group may be silent before it is removed.",
    )
    share_heartbeat_interval_ms: int = setting(
        name="share.heartbeat.interval.ms",
        default=5000,
        kind=Kind.INT,
        check=at_least(1),
        doc="How often members of the share group are told to send heartbeats.",
    )
    share_assignment_interval_ms: int = setting(
        name="share.assignment.interval.ms",
        default=1000,
        kind=Kind.INT,
        check=at_least(0),
        doc="Taken but without effect: a share group's members are assigned at once.",
    )
    share_record_lock_duration_ms: int = setting(
        name="share.record.lock.duration.ms",
        default=30_000,
        kind=Kind.INT,
        check=at_least(1000),
        doc="How long a consumer holds a record before it is offered again.",
    )
    share_delivery_count_limit: int = setting(
        name="share.delivery.count.limit",
        default=5,
        kind=Kind.INT,
        check=at_least(2),
        doc="How often a record is delivered before it is given up.",
    )
    share_partition_max_record_locks: int = setting(
        name="share.partition.max.record.locks",
        default=2000,
        kind=Kind.INT,
        check=at_least(100),
        doc="The most records of a partition that the group has in flight at once.",
    )
    share_auto_offset_reset: str = setting(
        name="share.auto.offset.reset",
        default=LATEST,
        check=_offset_reset,
        doc="Where a new share group begins: latest, earliest, or by_duration:<how far back>.",
    )
    share_isolation_level: str = setting(
        name="share.isolation.level",
        default="read_uncommitted",
        check=one_of("read_committed", "read_uncommitted"),
        doc="Whether records of open and aborted transactions are delivered.",
    )
    share_renew_acknowledge_enable: bool = setting(
        name="share.renew.acknowledge.enable",
        default=True,
        doc="Whether consumers may renew the lock of a record they still work on.",
    )


def resolve(broker: BrokerSettings, overrides: Mapping[str, str]) -> GroupSettings:
    """What a group goes by; SettingError for an unknown name, a bad value or one out of bounds."""
    defaults = {
        row.attribute: getattr(broker, f"group_{row.attribute}", row.default)
        for row in rows(GroupSettings)
    }
    stated = parse(GroupSettings, overrides)
    _check_bounds(broker, stated)
    found = GroupSettings(**{**defaults, **stated})
    for kind in ("consumer", "share"):
        session_ms = getattr(found, f"{kind}_session_timeout_ms")
        if getattr(found, f"{kind}_heartbeat_interval_ms") >= session_ms:
            name = f"{kind}.session.timeout.ms"
            raise SettingError(name, f"must be greater than {kind}.heartbeat.interval.ms")
    return found


def described(
    broker: BrokerSettings,
    overrides: Mapping[str, str],
    layers: Layers,
    names: Iterable[str] | None,
) -> list[Described]:
    """A group's settings as DescribeConfigs answers them: all, or those of the names given."""
    found = resolve(broker, overrides)
    wanted = None if names is None else set(names)

    def synonyms(name: str, attribute: str) -> Iterator[tuple[str, str | None, Source]]:
        if name in overrides:
            yield name, show(getattr(found, attribute)), Source.GROUP_CONFIG
        has_broker_default = hasattr(broker, f"group_{attribute}")
        broker_name = f"group.{name}" if has_broker_default else name
        yield from layers.stated([broker_name])
        default = getattr(BrokerSettings(), f"group_{attribute}", None)
        own = getattr(GroupSettings(), attribute)
        yield broker_name, show(own if default is None else default), Source.DEFAULT_CONFIG

    return [
        describe(
            row,
            getattr(found, row.attribute),
            synonyms(row.name, row.attribute),
            read_only=False,
        )
        for row in rows(GroupSettings)
        if wanted is None or row.name in wanted
    ]


def _check_bounds(broker: BrokerSettings, stated: Mapping[str, Any]) -> None:
    for attribute, value in stated.items():
        kind, _, rest = attribute.partition("_")
        low = getattr(broker, f"group_{kind}_min_{rest}", None)
        high = getattr(broker, f"group_{kind}_max_{rest}", None)
        name = attribute.replace("_", ".")
        if low is not None and value < low:
            raise SettingError(name, f"must be at least group.{kind}.min.{_dotted(rest)} = {low}")
        if high is not None and value > high:
            raise SettingError(name, f"must be at most group.{kind}.max.{_dotted(rest)} = {high}")


def _dotted(attribute: str) -> str:
    return attribute.replace("_", ".")
