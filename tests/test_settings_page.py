"""docs/settings.md is written from the rows: run this file as a module to write it anew."""

import sys
from pathlib import Path

from headrace.broker.group_settings import GroupSettings
from headrace.broker.settings import BrokerSettings
from headrace.log.settings import TopicSettings
from headrace.settings import Row, rows, show

PAGE = Path(__file__).parents[1] / "docs/settings.md"

HEAD = """# Settings

Names, types and defaults are Kafka's unless the sentence says otherwise. A topic's settings are
given when it is created, or changed later; a broker's in `server.properties` or with
`--set name=value`. An unknown name is refused. Settings marked per-broker or cluster-wide can be
changed while the broker runs, for one broker or for all. A group's settings are set as configs of
the group; where the broker has a setting of the same name after `group.`, that is the default.
"""


def _line(row: Row) -> str:
    default = "none" if row.default is None else f"`{show(row.default)}`"
    if row.default == "" or row.default == ():
        default = "empty"
    mode = "" if row.dynamic.value == "read-only" else f" {row.dynamic.value}."
    return f"| `{row.name}` | {row.kind.name.lower()} | {default} | {row.doc}{mode} |"


def _table(title: str, chosen: list[Row]) -> str:
    lines = [_line(row) for row in sorted(chosen, key=lambda row: row.name)]
    return "\n".join(
        [f"\n## {title}\n", "| name | type | default | what it does |", "|---|---|---|---|", *lines]
    )


def page() -> str:
    broker = [row for row in rows(BrokerSettings) if not row.internal]
    topic = [row for row in rows(TopicSettings) if not row.internal]
    parts = [
        HEAD,
        _table("Of a topic", [row for row in topic if not row.inert]),
        _table("Of a group", list(rows(GroupSettings))),
        _table("Of a broker", [row for row in broker if not row.inert]),
        _table("Taken from Kafka's files, without effect", [r for r in topic + broker if r.inert]),
    ]
    return "\n".join(parts) + "\n"


def test_the_page_of_settings_says_what_the_rows_say():
    assert PAGE.read_text() == page()


if __name__ == "__main__":
    sys.stdout.write(page())
