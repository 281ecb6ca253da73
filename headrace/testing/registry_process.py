"""A schema registry in a process of its own, to be killed and started again at its address."""

import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

START_LIMIT_S = 60.0
STOP_LIMIT_S = 30.0


class RegistryProcess:
    """`headrace registry` as a user starts it; a context manager, stopped at exit."""

    def __init__(self, bootstrap: str, directory: Path, *options: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self._log = directory / "registry.log"
        self._command = [sys.executable, "-m", "headrace", "registry"]
        self._command += ["--bootstrap", bootstrap, "--listen", self.address, *options]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the registry is not running")
        return self._process.pid

    @property
    def log(self) -> str:
        """What it wrote to standard error, over all its starts."""
        return self._log.read_text()

    def start(self) -> None:
        """Start the process and wait for its line `ready HOST:PORT`."""
        with open(self._log, "a") as log:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1
            )
        output = self._process.stdout
        if output is None:
            raise RuntimeError("the registry was not started")
        readable, _, _ = select.select([output], [], [], START_LIMIT_S)
        line = output.readline() if readable else ""
        if line != f"ready {self.address}\n":
            self.kill()
            raise RuntimeError(f"the registry said {line!r} instead of ready: {self.log[-2000:]}")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End the process by this signal; returns its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(how)
        try:
            return process.wait(STOP_LIMIT_S)
        finally:
            if process.stdout is not None:
                process.stdout.close()

    def kill(self) -> None:
        self.stop(signal.SIGKILL)
