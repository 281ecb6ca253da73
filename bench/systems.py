"""The systems under measurement, each in a process of its own: start, memory, stop."""

import compileall
import shutil
import signal
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Protocol

import psutil

from headrace.testing.apache_kafka import ApacheKafka
from headrace.testing.broker_process import BrokerProcess


class System(Protocol):
    """A broker that can be started again and again on the same data."""

    name: str
    bootstrap: str
    data_dir: Path

    @property
    def pid(self) -> int: ...

    def prepare(self) -> None: ...

    def launch(self) -> None: ...

    def start(self) -> None: ...

    def stop(self, how: signal.Signals = signal.SIGTERM) -> object: ...

    def discard(self) -> None: ...


class Headrace(BrokerProcess):
    """`headrace broker` as a user starts it."""

    name = "headrace"

    def prepare(self) -> None:
        """Compile what is to run, as pip does when it installs; Kafka comes compiled as well."""
        compileall.compile_dir(str(files("headrace")), quiet=2)


class Kafka:
    """Apache Kafka with the heap its own start script gives it."""

    name = "kafka"

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._kafka = ApacheKafka(settings, heap="1G")
        self.bootstrap = self._kafka.bootstrap
        self.data_dir = self._kafka.data_dir

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
