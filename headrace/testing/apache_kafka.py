"""A real Apache Kafka on loopback: what Headrace is checked against and measured beside."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

VERSION = "4.3.1"
START_LIMIT_S = 120.0
STOP_LIMIT_S = 30.0
TOOL_LIMIT_S = 120.0
_CLUSTER_ID = "aGVhZHJhY2UtdGVzdGluZw"

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>headrace</groupId><artifactId>apache-kafka</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
<version>{VERSION}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId>
<version>{VERSION}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId>
<version>1.7.36</version></dependency>
</dependencies></project>
"""


def missing() -> str | None:
    """Why Apache Kafka cannot run here, or None if it can."""
    absent = [program for program in ("java", "mvn") if shutil.which(program) is None]
    if absent:
        return f"Apache Kafka needs Java 17+ and Maven; not found: {', '.join(absent)}"
    return None


def libraries() -> Path:
    """The folder with Kafka's jars, fetched from Maven Central on first use."""
    cache = Path(os.environ.get("HEADRACE_ORACLE_CACHE", "~/.cache/headrace-oracle")).expanduser()
    jars = cache / f"kafka-{VERSION}" / "libs"
    complete = jars / ".complete"
    if not complete.exists():
        jars.mkdir(parents=True, exist_ok=True)
        pom = jars.parent / "pom.xml"
        pom.write_text(_POM)
        subprocess.run(
            [
                "mvn",
                "-q",
                "-B",
                "-f",
                str(pom),
                "dependency:copy-dependencies",
                f"-DoutputDirectory={jars}",
            ],
            check=True,
        )
        complete.touch()
    return jars


def tool(main_class: str, *arguments: str, stdin: str | None = None) -> str:
    """Run one of Kafka's own command line classes; returns what it printed."""
    finished = subprocess.run(
        _java(main_class, "-Xmx256M", "-XX:TieredStopAtLevel=1") + list(arguments),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TOOL_LIMIT_S,
        check=False,
    )
    if finished.returncode != 0:
        raise RuntimeError(
            f"{main_class} ended with {finished.returncode}: {finished.stdout}{finished.stderr}"
        )
    return finished.stdout


class ApacheKafka:
    """One KRaft node in a temporary directory; a context manager, stopped and removed at exit."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        heap: str = "512M",
        directory: Path | None = None,
    ) -> None:
        self._own_directory = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        self.data_dir = self.directory / "data"
        self.port, controller_port = _free_port(), _free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._heap = heap
        self._process: subprocess.Popen[bytes] | None = None
        self._properties = self.directory / "server.properties"
        self._settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data_dir),
            "group.initial.rebalance.delay.ms": "0",
            "default.replication.factor": "1",
            "min.insync.replicas": "1",
            **{f"{topic}.replication.factor": "1" for topic in _INTERNAL_TOPICS},
            **{f"{topic}.min.isr": "1" for topic in _INTERNAL_TOPICS if topic != "offsets.topic"},
            **(settings or {}),
        }

    def __enter__(self) -> "ApacheKafka":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        if self._own_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("Apache Kafka is not running")
        return self._process.pid

    def format(self) -> None:
        """Write the directory's metadata, as a first start needs it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = [f"{name}={value}" for name, value in self._settings.items()]
        self._properties.write_text("\n".join(lines) + "\n")
        if not self.data_dir.exists():
            arguments = ["format", "-t", _CLUSTER_ID, "-c", str(self._properties)]
            tool("kafka.tools.StorageTool", *arguments)

    def launch(self) -> None:
        """Start the process without waiting for it to serve."""
        with open(self.directory / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                [
                    *_java("kafka.Kafka", f"-Xms{self._heap}", f"-Xmx{self._heap}", "-XX:+UseG1GC"),
                    str(self._properties),
                ],
                stdout=log,
                stderr=log,
            )

    def start(self) -> None:
        self.format()
        self.launch()
        deadline = time.monotonic() + START_LIMIT_S
        while not _answers(self.port):
            process = self._process
            if process is not None and process.poll() is not None:
                log = (self.directory / "server.log").read_text()[-2000:]
                raise RuntimeError(f"Apache Kafka ended with {process.returncode}: {log}")
            if time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"Apache Kafka gave no answer in {START_LIMIT_S:.0f} s")
            time.sleep(0.1)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_LIMIT_S)
        self._process = None


_INTERNAL_TOPICS = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")


def _java(main_class: str, *options: str) -> list[str]:
    level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return ["java", *options, level, "-cp", f"{libraries()}/*", main_class]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(port: int) -> bool:
    # ApiVersions v0: a broker that is still starting accepts the connection but does not answer.
    request = b"\x00\x00\x00\x0a" + b"\x00\x12\x00\x00" + b"\x00\x00\x00\x01" + b"\xff\xff"
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            connection.sendall(request)
            return len(connection.recv(10)) > 0
    except OSError:
        return False
