"""A real schema registry in a thread of the test's own process, on a free port."""

import queue
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from headrace.registry.language import Language
from headrace.registry.languages import LANGUAGES
from headrace.registry.process import RegistrySettings, Stop, run_registry

START_LIMIT_S = 60.0
STOP_LIMIT_S = 30.0
HOST = "127.0.0.1"


class LocalRegistry:
    """Serves for a `with` block, over the cluster at `bootstrap`."""

    def __init__(
        self, bootstrap: str, *, port: int = 0, languages: Mapping[str, Language] = LANGUAGES
    ) -> None:
        self._settings = RegistrySettings(bootstrap, HOST, port)
        self._languages = languages
        self._stop = Stop()
        self._thread: threading.Thread | None = None
        self.port = port

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

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        """Start, and wait until it serves."""
        # Either it says where it listens, or what kept it from doing so.
        outcomes: queue.SimpleQueue[int | BaseException] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._serve, args=(outcomes,), name="headrace-registry", daemon=True
        )
        self._thread.start()
        outcome = outcomes.get(timeout=START_LIMIT_S)
        if isinstance(outcome, BaseException):
            raise RuntimeError(f"the registry did not start: {outcome}") from outcome
        self.port = outcome

    def stop(self) -> None:
        """Stop cleanly, as on SIGTERM."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stop()
        thread.join(STOP_LIMIT_S)
        if thread.is_alive():
            raise RuntimeError(f"the registry did not stop within {STOP_LIMIT_S:g} s")

    def _serve(self, outcomes: "queue.SimpleQueue[int | BaseException]") -> None:
        try:
            run_registry(
                self._settings,
                on_ready=lambda _, port: outcomes.put(port),
                stop=self._stop,
                languages=self._languages,
            )
        except BaseException as error:  # noqa: BLE001 - a thread's root: start() raises it again
            outcomes.put(error)
