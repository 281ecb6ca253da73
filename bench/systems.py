"""The systems under measurement, each in a process of its own: start, memory, stop."""

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import psutil

from headrace.testing.apache_kafka import ApacheKafka

STOP_LIMIT_S = 30.0


class System(Protocol):
    """A broker that can be started again and again on the same data."""

    name: str
    bootstrap: str

    @property
    def pid(self) -> int: ...

    def prepare(self) -> None: ...

    def launch(self) -> None: ...

    def start(self) -> None: ...

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None: ...

    def discard(self) -> None: ...


class Headrace:
    """`headrace broker` as a user starts it."""

    name = "headrace"

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.bootstrap = f"127.0.0.1:{probe.getsockname()[1]}"
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("Headrace is not running")
        return self._process.pid

    def prepare(self) -> None:
        """Nothing has to be written before a first start."""

    def launch(self) -> None:
        command = [sys.executable, "-m", "headrace", "broker"]
        command += ["--data-dir", str(self.directory), "--listen", self.bootstrap]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def start(self) -> None:
        self.launch()
        if self._process is None or self._process.stdout is None:
            raise RuntimeError("Headrace did not start")
        line = self._process.stdout.readline()
        if not line.startswith("ready "):
            raise RuntimeError(f"Headrace said {line!r} instead of ready")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(STOP_LIMIT_S)
            self._process = None

    def discard(self) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


class Kafka:
    """Apache Kafka with the heap its own start script gives it."""

    name = "kafka"

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._kafka = ApacheKafka(settings, heap="1G")
        self.bootstrap = self._kafka.bootstrap

    @property
    def pid(self) -> int:
        return self._kafka.pid

    def prepare(self) -> None:
        self._kafka.format()

    def launch(self) -> None:
        self._kafka.launch()

    def start(self) -> None:
        self._kafka.start()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        self._kafka.stop(how)

    def discard(self) -> None:
        self.stop()
        shutil.rmtree(self._kafka.directory, ignore_errors=True)


def resident_mb(system: System) -> float:
    resident: int = psutil.Process(system.pid).memory_info().rss
    return resident / 1e6
