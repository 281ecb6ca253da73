"""`headrace groups`: list, describe, reset offsets, delete."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, TypeAlias

import typer

from headrace.cli import offset_reset, reset
from headrace.cli.offset_reset import Planned
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, connect, noun, parsed
from headrace.cli.output import note, print_json, print_table
from headrace.client.admin import LATEST, Admin
from headrace.client.group_admin import SHARE, Group, GroupAdmin, ShareOffset
from headrace.client.librdkafka import TopicPartition
from headrace.errors import ErrorCode, KafkaError

app = noun("Show groups of consumers, reset their offsets, delete them.")

OFFSET_COLUMNS = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)
MEMBER_COLUMNS = ("GROUP", "CONSUMER-ID", "INSTANCE-ID", "HOST", "CLIENT-ID", "EPOCH", "PARTITIONS")
SHARE_COLUMNS = ("GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG")
STATE_COLUMNS = (
    "GROUP",
    "COORDINATOR",
    "ASSIGNMENT-STRATEGY",
    "TYPE",
    "EPOCH",
    "STATE",
    "MEMBERS",
)

Row: TypeAlias = tuple[object, ...]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]
Names = Annotated[list[str], typer.Argument(metavar="GROUP...", help="Names of groups.")]


@app.command("list")
def list_groups(
    state: Annotated[
        list[str] | None, typer.Option(help="Only groups in this state; may be repeated.")
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--type", help="Only groups of this type (Classic, Consumer, Share); may be repeated."
        ),
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List groups of consumers: classic groups, consumer groups (KIP-848) and share groups.

    Example: headrace groups list --state Stable
    """
    states = {name.lower() for name in state or ()}
    kinds = {name.lower() for name in kind or ()}
    rows = [
        (listing.group, listing.kind, listing.state)
        for listing in GroupAdmin(connect(bootstrap)).groups()
        if (not states or listing.state.lower() in states)
        and (not kinds or listing.kind.lower() in kinds)
    ]
    print_table(("GROUP", "TYPE", "STATE"), rows, as_json=as_json)


@app.command()
def describe(
    names: Names,
    members: Annotated[bool, typer.Option("--members", help="Show the members.")] = False,
    state: Annotated[bool, typer.Option("--state", help="Show the state only.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show a group's state, its offsets and how far behind it is.

    Example: headrace groups describe billing
    """
    admin = connect(bootstrap)
    groups = [_described(admin, name) for name in names]
    if as_json:
        print_json([_as_json(group, rows) for group, rows in groups])
        return
    if state or not members:
        print_table(STATE_COLUMNS, [_state_row(group) for group, _ in groups], as_json=False)
    if members:
        member_rows = [row for group, _ in groups for row in _member_rows(group)]
        print_table(MEMBER_COLUMNS, member_rows, as_json=False)
    elif not state:
        for columns in (OFFSET_COLUMNS, SHARE_COLUMNS):
            of_kind = [rows for group, rows in groups if _columns(group) == columns]
            if of_kind:
                typer.echo()
                print_table(columns, [row for rows in of_kind for row in rows], as_json=False)


@app.command("reset-offsets")
def reset_offsets(  # noqa: PLR0913 - a command's parameters are its options
    group: GroupName,
    topic: reset.Topics = None,
    all_topics: reset.AllTopics = False,
    to_earliest: reset.ToEarliest = False,
    to_latest: reset.ToLatest = False,
    to_current: reset.ToCurrent = False,
    to_offset: reset.ToOffset = None,
    to_datetime: reset.ToDatetime = None,
    by_duration: reset.ByDuration = None,
    shift_by: reset.ShiftBy = None,
    from_file: reset.FromFile = None,
    execute: reset.Execute = False,
    dry_run: reset.DryRun = False,
    export: reset.Export = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Move a group that has no members to other offsets; a dry run unless --execute is given.

    Example: headrace groups reset-offsets billing --topic orders:2 --to-offset 10000 --execute
    """
    if execute and dry_run:
        raise typer.BadParameter("give --execute or --dry-run")
    choices = parsed(lambda: [offset_reset.topic_choice(text) for text in topic or ()], "--topic")
    wishes = reset.Wishes(
        to_earliest,
        to_latest,
        to_current,
        to_offset,
        to_datetime,
        by_duration,
        shift_by,
        from_file,
    )
    find = reset.find_target(wishes, choices, group)
    if from_file is not None and not choices and not all_topics:
        choices = offset_reset.choices_of(reset.file_offsets(from_file, group))
    if bool(choices) == all_topics:
        raise typer.BadParameter("give --topic or --all-topics")
    admin = connect(bootstrap)
    wanted = reset.chosen_places(admin, group, choices, all_topics=all_topics)
    planned = reset.plan(admin, group, wanted, find)
    if execute:
        GroupAdmin(admin).commit(group, {row.place: row.after for row in planned})
    _print_plan(group, planned, as_json=as_json, export=export)
    if not execute:
        note("dry run: nothing was changed; add --execute to do it")


@app.command()
def delete(names: Names, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Delete groups that have no members, with their offsets.

    Example: headrace groups delete billing
    """
    outcomes = GroupAdmin(connect(bootstrap)).delete(names)
    for name, failure in outcomes.items():
        if failure is None:
            typer.echo(f"deleted group {name}")
        else:
            note(f"headrace: {failure}")
    if any(outcomes.values()):
        raise typer.Exit(1)


def _described(admin: Admin, name: str) -> tuple[Group, list[Row]]:
    """The group and a row for each of its partitions, in the columns of its kind."""
    groups = GroupAdmin(admin)
    group = groups.describe(name)
    if group.kind == SHARE:
        return group, _share_rows(name, groups.share_offsets(name))
    offsets = groups.offsets(name)
    if group.state == "Dead" and not offsets:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {name} does not exist")
    return group, _offset_rows(admin, group, offsets)


def _columns(group: Group) -> tuple[str, ...]:
    return SHARE_COLUMNS if group.kind == SHARE else OFFSET_COLUMNS


def _state_row(group: Group) -> Row:
    return (
        group.group,
        group.coordinator,
        group.assignor,
        group.kind,
        group.epoch,
        group.state,
        len(group.members),
    )


def _member_rows(group: Group) -> list[Row]:
    return [
        (
            group.group,
            member.member_id,
            member.instance_id,
            member.host,
            member.client_id,
            member.epoch,
            [str(place) for place in member.assignment],
        )
        for member in group.members
    ]


def _offset_rows(
    admin: Admin, group: Group, offsets: Mapping[TopicPartition, int | None]
) -> list[Row]:
    """Partitions with a committed offset or a reader; what is unknown is None."""
    owners = {place: member for member in group.members for place in member.assignment}
    wanted = sorted(offsets.keys() | owners.keys())
    ends = admin.offsets(wanted, LATEST)
    rows: list[Row] = []
    for place in wanted:
        at, end, owner = offsets.get(place), ends[place], owners.get(place)
        lag = None if at is None or end is None else max(end - at, 0)
        reader = (owner.member_id, owner.host, owner.client_id) if owner else (None, None, None)
        rows.append((group.group, place.topic, place.partition, at, end, lag, *reader))
    return rows


def _share_rows(group: str, offsets: Mapping[TopicPartition, ShareOffset]) -> list[Row]:
    return [
        (group, place.topic, place.partition, offset.start_offset, offset.lag)
        for place, offset in sorted(offsets.items(), key=lambda found: found[0])
    ]


def _as_json(group: Group, rows: list[Row]) -> dict[str, Any]:
    names = [column.lower().replace("-", "_") for column in _columns(group)]
    return {**asdict(group), "offsets": [dict(zip(names, row, strict=True)) for row in rows]}


def _print_plan(group: str, planned: list[Planned], *, as_json: bool, export: bool) -> None:
    for row in planned:
        if row.warning:
            note(f"warning: {row.warning}")
    if export:
        for row in planned:
            typer.echo(offset_reset.csv_line(row))
        return
    rows = [(group, *row.place, row.before, row.after) for row in planned]
    columns = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET")
    print_table(columns, rows, as_json=as_json)
