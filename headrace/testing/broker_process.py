"""A broker in a process of its own, to be killed and started again on the same data and address."""

import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

START_LIMIT_S = 60.0
STOP_LIMIT_S = 30.0


class BrokerProcess:
    """`headrace broker` as a user starts it; a context manager, stopped and removed at exit."""

    def __init__(
        self, settings: Mapping[str, str] | None = None, *, directory: Path | None = None
    ) -> None:
        self._own_directory = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="headrace-"))
        self.data_dir = self.directory / "data"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.bootstrap = f"127.0.0.1:{probe.getsockname()[1]}"
        self._settings = dict(settings or {})
        self.program = [sys.executable, "-m", "headrace"]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "BrokerProcess":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.discard()

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the broker is not running")
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """What the broker wrote to standard error, over all its starts."""
        return (self.directory / "broker.log").read_text()

    def launch(self) -> None:
        """Start the process without waiting for it to serve."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [*self.program, "broker"]
        command += ["--data-dir", str(self.data_dir), "--listen", self.bootstrap]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        with open(self.directory / "broker.log", "a") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1
            )

    def start(self) -> None:
        """Start the process and wait for its line `ready HOST:PORT`."""
        self.launch()
        process = self._process
        if process is None or process.stdout is None:
            raise RuntimeError("the broker was not started")
        readable, _, _ = select.select([process.stdout], [], [], START_LIMIT_S)
        line = process.stdout.readline() if readable else ""
        if line != f"ready {self.bootstrap}\n":
            self.stop(signal.SIGKILL)
            raise RuntimeError(f"the broker said {line!r} instead of ready: {self.log[-2000:]}")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End the process by this signal; returns its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(how)
        try:
            code = process.wait(STOP_LIMIT_S)
        finally:
            if process.stdout is not None:
                process.stdout.close()
        return code

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def discard(self) -> None:
        self.stop()
        if self._own_directory:
            shutil.rmtree(self.directory, ignore_errors=True)
