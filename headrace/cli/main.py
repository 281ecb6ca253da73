"""The entry of the command line: which command lives in which module, and how errors leave."""

import sys

from headrace.cli.serve import plain_options, serve
from headrace.errors import HeadraceError

# Command, its module (which has `app: typer.Typer`) and its line in `headrace --help`. A module
# is imported only when its command runs, so that help is quick and the broker loads no client.
COMMANDS: dict[str, tuple[str, str]] = {
    "broker": ("headrace.cli.broker", "Run a broker."),
    "registry": ("headrace.cli.registry", "Run a schema registry."),
    "topics": ("headrace.cli.topics", "Create, list, describe, alter and delete topics."),
    "configs": ("headrace.cli.configs", "Show and change settings of topics and brokers."),
    "produce": ("headrace.cli.produce", "Write records from standard input or a file."),
    "consume": ("headrace.cli.consume", "Read records to standard output."),
    "groups": ("headrace.cli.groups", "Show consumer groups, reset their offsets, delete them."),
    "transactions": ("headrace.cli.transactions", "Find, show and abort transactions."),
    "log": ("headrace.cli.log", "Read a broker's files offline."),
}

EXIT_FAILED = 1


def main() -> None:
    """Run the command line: errors are one sentence on standard error and exit code 1."""
    try:
        options = plain_options(sys.argv[1:])
        if options is not None:
            serve(options)
        else:
            from headrace.cli.commands import app

            app()
    except HeadraceError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))


def _fail(sentence: str) -> None:
    sys.stderr.write(f"headrace: {sentence}\n")
    sys.exit(EXIT_FAILED)
