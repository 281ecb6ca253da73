"""The options of `headrace groups reset-offsets`, and what they come to on a cluster."""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli import offset_reset
from headrace.cli.offset_reset import Bounds, Planned, Target, TopicChoice
from headrace.cli.options import parsed
from headrace.cli.quantities import duration_ms, instant_ms
from headrace.cli.reading import places
from headrace.client.admin import EARLIEST, LATEST, Admin
from headrace.client.group_admin import INACTIVE, SHARE, GroupAdmin
from headrace.client.librdkafka import TopicPartition
from headrace.errors import ErrorCode, KafkaError

Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC[:PARTITION,...]",
        help="Whose offsets: orders, orders:2 or orders:0,1; may be repeated. "
        "orders:2:10000 sets partition 2 to offset 10000.",
    ),
]
AllTopics = Annotated[
    bool, typer.Option("--all-topics", help="Every topic of which the group has an offset.")
]
ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="To the start.")]
ToLatest = Annotated[bool, typer.Option("--to-latest", help="To the end.")]
ToCurrent = Annotated[bool, typer.Option("--to-current", help="To where it is.")]
ToOffset = Annotated[int | None, typer.Option(min=0, help="To this offset.")]
ToDatetime = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="To the first record since: 2024-01-15T00:00:00.000 (UTC)."),
]
ByDuration = Annotated[
    str | None, typer.Option(metavar="DURATION", help="To so long ago: 90s, 15m, 7d, PT1H30M.")
]
ShiftBy = Annotated[int | None, typer.Option(help="By so many records; back if negative.")]
FromFile = Annotated[
    Path | None,
    typer.Option(help="To the offsets in this CSV file: topic,partition,offset on each line."),
]
Execute = Annotated[
    bool, typer.Option("--execute", help="Do it; otherwise only show what would be done.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show; the default.")]
Export = Annotated[bool, typer.Option("--export", help="Print the CSV that --from-file reads.")]

# A target that may need to ask the cluster about the partitions first.
FindTarget = Callable[[Admin, Collection[TopicPartition]], Target]


@dataclass(frozen=True, slots=True)
class Wishes:
    """The ways to name an offset, of which exactly one is given."""

    earliest: bool
    latest: bool
    current: bool
    offset: int | None
    datetime: str | None
    duration: str | None
    shift: int | None
    file: Path | None


def find_target(wishes: Wishes, choices: Collection[TopicChoice], group: str) -> FindTarget:
    """The one way that was chosen; a usage error if there is none, or more than one."""
    inline = [choice for choice in choices if choice.offset is not None]
    ways = _ways(wishes, group)
    if inline:
        if ways or len(inline) != len(choices):
            raise typer.BadParameter("TOPIC:PARTITION:OFFSET says it all: give no other target")
        named = {
            TopicPartition(choice.topic, partition): choice.offset
            for choice in inline
            for partition in choice.partitions
        }
        return lambda admin, wanted: offset_reset.to_offsets(named)
    if len(ways) != 1:
        raise typer.BadParameter(
            "give exactly one of --to-earliest, --to-latest, --to-current, --to-offset, "
            "--to-datetime, --by-duration, --shift-by and --from-file"
        )
    return ways[0]


def chosen_places(
    admin: Admin, group: str, choices: Collection[TopicChoice], *, all_topics: bool
) -> list[TopicPartition]:
    """The partitions whose offsets are to be moved."""
    if all_topics:
        committed = GroupAdmin(admin).offsets(group)
        if not committed:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group} has no offsets")
        return sorted(committed)
    found = [
        place for choice in choices for place in places(admin, choice.topic, choice.partitions)
    ]
    return sorted(set(found))


def plan(
    admin: Admin, group: str, wanted: Collection[TopicPartition], find: FindTarget
) -> list[Planned]:
    """What the reset would do; refused while members could commit over it."""
    found = GroupAdmin(admin).describe(group)
    state = found.state
    if found.kind == SHARE:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"group {group} is a share group, which commits no offsets",
        )
    if state not in INACTIVE:
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group} is {state}: stop its consumers, then reset its offsets",
        )
    earliest = admin.offsets(wanted, EARLIEST)
    latest = admin.offsets(wanted, LATEST)
    committed = GroupAdmin(admin).offsets(group)
    known = {
        place: Bounds(earliest[place] or 0, latest[place] or 0, committed.get(place))
        for place in wanted
    }
    target = find(admin, wanted)
    try:
        return offset_reset.plan(known, target)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"group {group}: {error}") from error


def _ways(wishes: Wishes, group: str) -> list[FindTarget]:
    fixed: list[Target] = []
    if wishes.earliest:
        fixed.append(offset_reset.to_earliest)
    if wishes.latest:
        fixed.append(offset_reset.to_latest)
    if wishes.current:
        fixed.append(offset_reset.to_current)
    if wishes.offset is not None:
        fixed.append(offset_reset.to_offset(wishes.offset))
    if wishes.shift is not None:
        fixed.append(offset_reset.shift_by(wishes.shift))
    if wishes.file is not None:
        fixed.append(_from_file(wishes.file, group))
    ways = [_asking_nothing(target) for target in fixed]
    ways += [_since(time_ms) for time_ms in _times(wishes)]
    return ways


def _asking_nothing(target: Target) -> FindTarget:
    return lambda admin, wanted: target


def _from_file(file: Path, group: str) -> Target:
    offsets = file_offsets(file, group)
    return offset_reset.to_offsets(offsets)


def file_offsets(file: Path, group: str) -> dict[TopicPartition, int]:
    with file.open() as lines:
        return parsed(lambda: offset_reset.read_csv(lines, group), "--from-file")


def _times(wishes: Wishes) -> list[int]:
    now_ms = time.time_ns() // 1_000_000
    times: list[int] = []
    moment, duration = wishes.datetime, wishes.duration
    if moment is not None:
        times.append(parsed(lambda: instant_ms(moment, now_ms), "--to-datetime"))
    if duration is not None:
        times.append(now_ms - parsed(lambda: duration_ms(duration), "--by-duration"))
    return times


def _since(time_ms: int) -> FindTarget:
    return lambda admin, wanted: offset_reset.to_offsets(admin.offsets(wanted, time_ms))
