"""What `headrace broker` does once its options are known, and the short way to know them."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from headrace.errors import SettingError, StartRefused

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class BrokerOptions(NamedTuple):
    """The options of `headrace broker`."""

    data_dir: str | None = None
    listen: str | None = None
    config: Path | None = None
    assignments: tuple[str, ...] = ()
    log_level: str = "INFO"


def plain_options(arguments: Sequence[str]) -> BrokerOptions | None:
    """The options of a broker where each is written as `--name value`; None for anything else.

    Loading what reads every command line costs a start some 100 ms of CPU, a fifth of it, and
    10 MB; that is the twin, and it reads whatever this does not.
    """
    if arguments[:1] != ["broker"] or len(arguments) % 2 == 0:
        return None
    options = BrokerOptions()
    for name, value in zip(arguments[1::2], arguments[2::2], strict=True):
        if value.startswith("-"):
            return None
        match name:
            case "--data-dir":
                options = options._replace(data_dir=value)
            case "--listen":
                options = options._replace(listen=value)
            case "--config":
                options = options._replace(config=Path(value))
            case "--set":
                options = options._replace(assignments=(*options.assignments, value))
            case "--log-level" if value.upper() in LOG_LEVELS:
                options = options._replace(log_level=value.upper())
            case _:
                return None
    return options


def serve(options: BrokerOptions) -> None:
    """Run a broker until it is told to stop."""
    from headrace.broker.process import run_broker
    from headrace.broker.settings import BrokerSettings
    from headrace.settings import load

    logging.basicConfig(
        level=options.log_level,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    run_broker(load(BrokerSettings, texts(options)))


def texts(options: BrokerOptions) -> dict[str, str]:
    """Settings by name: the file's, then --set, then the options of their own."""
    from headrace.broker.settings import read_properties

    found: dict[str, str] = {}
    if options.config is not None:
        try:
            found |= read_properties(options.config)
        except OSError as error:
            raise StartRefused(f"{options.config} cannot be read: {error.strerror}") from error
    if options.listen is not None:
        # The file's advertised.listeners may name a listener that is no more; --set's does not.
        found.pop("advertised.listeners", None)
    for assignment in options.assignments:
        name, sign, value = assignment.partition("=")
        if not sign:
            raise SettingError(assignment, "give it as --set NAME=VALUE")
        found[name.strip()] = value.strip()
    if options.data_dir is not None:
        found["log.dirs"] = options.data_dir
    if options.listen is not None:
        found["listeners"] = f"PLAINTEXT://{options.listen}"
    return found
