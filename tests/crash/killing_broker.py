"""`headrace broker`, but killed by itself at its n-th write to the logs of transactions."""

import os
import signal
import sys

from headrace.cli.main import main
from headrace.log.filesystem import Bytes, OsFile

WATCHED = ("__transaction_state-", "__consumer_offsets-", "orders-", "sums-")


def kill_at(number: int) -> None:
    """Kill this process just before that write; every second number, just after one."""
    write_at = OsFile.write_at
    writes = 0

    def counted(self: OsFile, position: int, content: Bytes) -> None:
        nonlocal writes
        watched = self.path.endswith(".log") and any(name in self.path for name in WATCHED)
        if watched:
            writes += 1
            if 2 * writes - 1 == number:
                os.kill(os.getpid(), signal.SIGKILL)
        write_at(self, position, content)
        if watched and 2 * writes == number:
            os.kill(os.getpid(), signal.SIGKILL)

    OsFile.write_at = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    kill_at(int(sys.argv.pop(1)))
    main()
