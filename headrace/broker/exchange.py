"""One request's answer while it is not ready yet, and what answers are made of."""

from collections.abc import Callable, Sequence

from headrace.broker.outbox import Part

Answer = Sequence[Part]

# What a handler returns for a request that gets no answer (Produce with acks=0).
SILENCE: Answer = ()


class ClientRefused(Exception):
    """The connection must be closed: Kafka has no way to say this error to the client."""


class Pending:
    """A promised answer: `finish` is called once, and the connection sends it in its turn."""

    __slots__ = ("answer", "error", "head", "on_abandon", "on_finish")

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self.error: Exception | None = None
        self.head: bytes = b""
        self.on_finish: Callable[[], None] | None = None
        self.on_abandon: Callable[[], None] | None = None

    def finish(self, answer: Answer) -> None:
        if self.answer is None:
            self.answer = answer
            if self.on_finish is not None:
                self.on_finish()

    def fail(self, error: Exception) -> None:
        """There is no answer to give: the connection closes when it comes to this one."""
        self.error = error
        self.finish(SILENCE)

    def abandon(self) -> None:
        """The client has left: release what waits only for its sake."""
        self.on_finish = None
        if self.on_abandon is not None:
            self.on_abandon()
