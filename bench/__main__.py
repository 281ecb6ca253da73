"""Measure Headrace and Apache Kafka in one run, alternating, and print a table of ratios."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping

from bench import (
    bulk,
    cleaning,
    durable,
    groups,
    registry,
    report,
    requests,
    starting,
    transactions,
)
from bench.cells import Cell, Table
from bench.systems import Headrace, Kafka, System
from headrace.testing.apache_kafka import missing

ROUNDS = 3
# The same durability on both sides: Kafka's default leaves writing to the operating system.
CACHED = {
    "headrace": {"log.write.caching": "true", "group.initial.rebalance.delay.ms": "0"},
    "kafka": {"group.initial.rebalance.delay.ms": "0"},
}
SYNCED = {"headrace": {}, "kafka": {"log.flush.interval.messages": "1"}}
CLEANED = {name: {**settings, **cleaning.EAGER} for name, settings in CACHED.items()}

Workload = Callable[[System], Iterator[Cell]]
RUNNING: dict[str, tuple[Workload, Mapping[str, Mapping[str, str]]]] = {
    "requests": (requests.measure, CACHED),
    "bulk": (bulk.measure, CACHED),
    "durable": (durable.measure, SYNCED),
    "cleaning": (cleaning.measure, CLEANED),
    "transactions": (transactions.measure, CACHED),
    "synced-transactions": (transactions.measure_synced, SYNCED),
    "groups": (groups.measure, CACHED),
    "registry": (registry.measure, CACHED),
}
# Kafka needs minutes and more open files than most machines allow for 10,000 partitions.
OURS_ALONE = {"10,000 partitions", "10 GB"}


def main() -> None:
    groups = [*RUNNING, "start", "partitions", "log"]
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", nargs="+", choices=groups, default=groups)
    parser.add_argument("--alone", action="store_true", help="measure Headrace without Kafka")
    arguments = parser.parse_args()
    reason = missing()
    if reason and not arguments.alone:
        sys.exit(f"{reason}; or measure Headrace alone with --alone")
    makers: list[Callable[[Mapping[str, str]], System]] = [Headrace]
    if not arguments.alone:
        makers.append(Kafka)
    table = Table()
    for number in range(arguments.rounds):
        order = makers if number % 2 == 0 else makers[::-1]
        for make in order:
            _round(make, arguments.only, table, first=number == 0)
    report.show(table)
    report.write(list(table), arguments.rounds)


def _round(
    make: Callable[[Mapping[str, str]], System], only: list[str], table: Table, *, first: bool
) -> None:
    name = "headrace" if make is Headrace else "kafka"
    for group, (workload, settings) in RUNNING.items():
        if group in only:
            system = make(settings[name])
            try:
                system.prepare()
                system.start()
                _collect(table, name, workload(system))
            finally:
                system.discard()

    if "start" in only:
        _collect(table, name, starting.empty(lambda: make(CACHED[name])))
    if first:
        _large(make, only, table)


def _large(make: Callable[[Mapping[str, str]], System], only: list[str], table: Table) -> None:
    """What takes minutes and hardly varies: the first round is enough."""
    name = "headrace" if make is Headrace else "kafka"

    def fresh() -> System:
        return make(CACHED[name])

    for partitions in starting.PARTITIONS if "partitions" in only else ():
        if name == "headrace" or f"{partitions:,} partitions" not in OURS_ALONE:
            _collect(table, name, starting.with_partitions(fresh, partitions))
    for label in starting.LOG_BYTES if "log" in only else ():
        if name == "headrace" or label not in OURS_ALONE:
            _collect(table, name, starting.with_log(fresh, label))


def _collect(table: Table, system: str, cells: Iterator[Cell]) -> None:
    for cell in cells:
        print(f"{system}: {cell.name}: {cell.value:,.2f} {cell.unit}", flush=True)
        table.add(system, cell)


if __name__ == "__main__":
    main()
