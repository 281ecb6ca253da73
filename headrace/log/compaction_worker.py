"""Compaction in a process of its own: plans in, one line each; what was written out, the same way.

The interface is the files: whoever started this reads and writes the log as before, and takes
over what is told here. The process ends when its input does, so it never outlives its broker.
"""

import json
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import NoReturn, TextIO

from headrace.clock import Clock, SystemClock
from headrace.errors import CorruptLog
from headrace.log.compaction_plan import Plan
from headrace.log.compaction_rewrite import Compaction
from headrace.log.compaction_throttle import IoThrottle
from headrace.log.filesystem import Filesystem, OsFilesystem, end_process

CLEANED, DONE, GONE, DAMAGED, FAILED = "cleaned", "done", "gone", "damaged", "failed"


def carry_out(
    filesystem: Filesystem, plan: Plan, clock: Clock, say: Callable[[str, object], None]
) -> None:
    """One compaction, told as it goes; it ends with a word other than `cleaned`."""
    throttle = IoThrottle(plan.limits.io_bytes_per_second, clock)
    compaction = Compaction(filesystem, plan, throttle)
    try:
        for cleaned in compaction.run():
            say(CLEANED, cleaned)
    except FileNotFoundError as error:
        say(GONE, str(error))
    except (CorruptLog, ValueError) as error:
        say(DAMAGED, str(error))
    except OSError as error:
        say(FAILED, str(error))
    else:
        progress = compaction.progress
        say(DONE, {name: getattr(progress, name) for name in progress.__slots__})


def main() -> None:
    plans: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin, plans), daemon=True).start()
    while True:
        carry_out(OsFilesystem(), Plan.decode(plans.get()), SystemClock(), _say)


def _listen(stream: TextIO, plans: "SimpleQueue[str]") -> NoReturn:
    for line in stream:
        plans.put(line)
    # At once, in the middle of whatever: the next broker may already be opening the log.
    end_process()


def _say(word: str, what: object) -> None:
    sys.stdout.write(json.dumps([word, what]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
