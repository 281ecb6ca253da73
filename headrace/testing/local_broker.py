"""A real broker in a thread of the test's own process: a free port, a directory that goes away."""

import atexit
import queue
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.broker.network_settings import Listener
from headrace.broker.process import Stop, run_broker
from headrace.broker.settings import BrokerSettings
from headrace.settings import load

START_LIMIT_S = 30.0
STOP_LIMIT_S = 30.0
HOST = "127.0.0.1"

# A test wants answers at once, and its data need not survive a power cut.
TEST_SETTINGS: Mapping[str, str] = {
    "log.write.caching": "true",
    "group.initial.rebalance.delay.ms": "0",
}


class LocalBroker:
    """Serves from start() to stop(), or for a `with` block; the port stays the same at a restart.

    Only a directory of its own is removed at the end; one given as data_dir is left as it is.
    """

    def __init__(
        self,
        *,
        data_dir: str | Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._own_directory = data_dir is None
        self.data_dir = Path(data_dir or tempfile.mkdtemp(prefix="headrace-"))
        self._settings = {**TEST_SETTINGS, **(settings or {})}
        self._port = 0
        self._thread: threading.Thread | None = None
        self._stop = Stop()
        if self._own_directory:
            # For a broker that is never stopped: its thread ends with the process, its files too.
            atexit.register(self._remove_directory)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        self._remove_directory()

    @property
    def bootstrap(self) -> str:
        """The address for clients, as bootstrap.servers takes it."""
        if self._thread is None:
            raise RuntimeError("the broker is not running: use `with LocalBroker() as broker:`")
        return f"{HOST}:{self._port}"

    def start(self) -> None:
        """Start, and wait until it serves."""
        if self._thread is not None:
            raise RuntimeError("the broker is running already")
        # Either it says where it listens, or what kept it from doing so.
        outcomes: queue.SimpleQueue[int | BaseException] = queue.SimpleQueue()
        self._stop = Stop()
        thread = threading.Thread(
            target=self._serve, args=(self._stop, outcomes), name="headrace-broker", daemon=True
        )
        thread.start()
        try:
            outcome = outcomes.get(timeout=START_LIMIT_S)
        except queue.Empty:
            self._stop()
            raise RuntimeError(f"the broker did not serve within {START_LIMIT_S:g} s") from None
        if isinstance(outcome, BaseException):
            thread.join(STOP_LIMIT_S)
            raise RuntimeError(f"the broker did not start: {outcome}") from outcome
        self._port, self._thread = outcome, thread

    def stop(self) -> None:
        """Stop cleanly, as on SIGTERM; a broker that is not running is left so."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stop()
        thread.join(STOP_LIMIT_S)
        if thread.is_alive():
            raise RuntimeError(f"the broker did not stop within {STOP_LIMIT_S:g} s")

    def restart(self) -> None:
        """Stop and start again, on the same data and the same port."""
        self.stop()
        self.start()

    def _serve(self, stop: Stop, outcomes: "queue.SimpleQueue[int | BaseException]") -> None:
        def ready(listeners: list[Listener]) -> None:
            outcomes.put(listeners[0].port)

        try:
            texts = {
                "log.dirs": str(self.data_dir),
                "listeners": f"PLAINTEXT://{HOST}:{self._port}",
            }
            run_broker(load(BrokerSettings, {**texts, **self._settings}), on_ready=ready, stop=stop)
        except BaseException as error:  # noqa: BLE001 - a thread's root: start() raises it again
            outcomes.put(error)

    def _remove_directory(self) -> None:
        if self._own_directory:
            shutil.rmtree(self.data_dir, ignore_errors=True)
