"""One client: frames in, answers out in order, and no more held in memory than the limits say."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Protocol

from headrace.broker.exchange import SILENCE, Answer, ClientRefused, Pending
from headrace.broker.inbox import SIZE, SIZE_BYTES, Inbox
from headrace.broker.limits import Limits
from headrace.broker.memory import RequestMemory
from headrace.broker.outbox import Outbox
from headrace.broker.transport import Transport

if TYPE_CHECKING:
    from headrace.broker.context import Call

logger = logging.getLogger(__name__)

PRODUCE = Struct(">h").pack(0)

# Read at once; a connection gets this much work done before the next one has its turn.
READ_BYTES = 128 << 10


class Dispatch(Protocol):
    """Starts the request of one frame: the answer's header, and the answer or a promise of it."""

    def __call__(
        self, connection: "Connection", buffer: memoryview, start: int, end: int
    ) -> tuple[bytes, Answer | Pending]: ...


class Shared:
    """What the connections of one server have in common."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        dispatch: Dispatch,
        memory: RequestMemory,
        limits: Limits,
        *,
        on_close: "Callable[[Connection], None]",
    ) -> None:
        self.loop = loop
        self.dispatch = dispatch
        self.memory = memory
        self.max_frame_bytes = limits.max_frame_bytes
        self.max_unsent_bytes = limits.max_unsent_bytes
        self.max_unanswered = limits.max_unanswered
        self.on_close = on_close
        # One receive buffer serves all: a burst is handled before the next one is read.
        self.window = memoryview(bytearray(READ_BYTES))


class Connection:
    """Requests are started in order and answered in order.

    A Produce may start while earlier Produces still wait for the disk; anything else starts only
    when every earlier request is answered. So what is unanswered is Produces, or one other.
    """

    def __init__(
        self, transport: Transport, shared: Shared, *, number: int, host: str, listener: str
    ) -> None:
        self.number = number
        self.host = host
        self.listener = listener
        self.closed = False
        self.calls: dict[tuple[int, bytes], Call] = {}
        self.active_at = shared.loop.time()
        self._transport = transport
        self._shared = shared
        self._inbox = Inbox(shared.memory)
        self._outbox = Outbox(transport)
        self._unanswered: deque[Pending] = deque()
        self._only_produces = True
        self._turn_awaited = False
        self._memory_awaited = False
        self._going_on = False
        self._draining = False
        self._failed = False
        self._reading = False
        self._writing = False

    def __str__(self) -> str:
        return f"{self.host}#{self.number}"

    @property
    def idle(self) -> bool:
        """Nothing is owed to the client."""
        return not self._unanswered and not self._outbox

    @property
    def owes_answer(self) -> bool:
        return bool(self._unanswered)

    @property
    def holds_memory(self) -> bool:
        return bool(self._inbox)

    def start(self) -> None:
        self._choose_events()

    def drain(self) -> None:
        """Start nothing new; what was started is still answered."""
        self._draining = True
        self._choose_events()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._choose_events()
        if self._writing:
            self._shared.loop.remove_writer(self._transport.fileno())
        self._inbox.clear()
        self._shared.memory.forget(self._on_memory)
        for pending in self._unanswered:
            pending.abandon()
        self._unanswered.clear()
        self._transport.close()
        self._shared.on_close(self)

    def _on_readable(self) -> None:
        self._guarded(self._read_inbox if self._inbox else self._read_window)

    def _on_writable(self) -> None:
        self.active_at = self._shared.loop.time()
        self._guarded(self._handle_inbox)

    def _go_on(self) -> None:
        """Answers came, or what held the next request up is gone."""
        self._going_on = False
        if not self.closed:
            self._guarded(self._handle_inbox)

    def _on_memory(self) -> None:
        self._memory_awaited = False
        self._go_on_soon()

    def _guarded(self, step: Callable[[], None]) -> None:
        """One step of work, then everything it made ready is sent; errors end this client only."""
        try:
            step()
            self._flush()
        except (ConnectionError, TimeoutError):
            self.close()
        except Exception as error:  # noqa: BLE001  the root of all work for this client
            self._fail(error)
        if not self.closed:
            self._choose_events()

    def _fail(self, error: Exception) -> None:
        """Answer what came before the offence, then close, with one line that says why."""
        if isinstance(error, ClientRefused | ValueError):
            logger.warning("connection closed client=%s reason=%s", self, error)
        else:
            logger.error("connection closed client=%s", self, exc_info=error)
        self._failed = True
        try:
            self._flush()
        except OSError:
            self.close()

    def _read_window(self) -> None:
        """The usual case: whole frames, handled where they were received."""
        window = self._shared.window
        try:
            count = self._transport.receive_into(window)
        except BlockingIOError:
            return
        if count == 0:
            self.close()
            return
        self.active_at = self._shared.loop.time()
        rest = self._handle_frames(window, 0, count)
        if rest < count and not self.closed:
            self._inbox.hold(window[rest:count])

    def _read_inbox(self) -> None:
        """A frame that came in pieces: the rest of it is received to where its start is."""
        space = self._inbox.space()
        if space is None:
            self._memory_awaited = True
            self._shared.memory.when_freed(self._on_memory)
            return
        try:
            count = self._transport.receive_into(space)
        except BlockingIOError:
            return
        if count == 0:
            self.close()
            return
        self.active_at = self._shared.loop.time()
        self._inbox.end += count
        self._handle_inbox()

    def _handle_inbox(self) -> None:
        self._collect_answers()
        inbox = self._inbox
        if inbox:
            inbox.consume(self._handle_frames(inbox.view, inbox.start, inbox.end))

    def _handle_frames(self, buffer: memoryview, start: int, end: int) -> int:
        """Start every whole frame whose turn has come; returns where the rest begins."""
        self._turn_awaited = False
        while end - start >= SIZE_BYTES:
            (size,) = SIZE.unpack_from(buffer, start)
            if not 0 <= size <= self._shared.max_frame_bytes:
                raise ValueError(
                    f"frame of {size} bytes, allowed are 0 to {self._shared.max_frame_bytes}"
                )
            body = start + SIZE_BYTES
            if body + size > end:
                break
            if self._unanswered and self._must_follow(buffer[body : body + 2]):
                self._turn_awaited = True
                break
            if self._outbox.unsent_bytes > self._shared.max_unsent_bytes:
                self._turn_awaited = True
                break
            if self._draining or self._failed:
                break
            start = body + size
            self._begin(buffer, body, start)
        return start

    def _must_follow(self, api_key: memoryview) -> bool:
        """Whether a request has to wait until everything before it is answered."""
        if len(self._unanswered) >= self._shared.max_unanswered:
            return True
        return not (self._only_produces and api_key == PRODUCE)

    def _begin(self, buffer: memoryview, start: int, end: int) -> None:
        head, answer = self._shared.dispatch(self, buffer, start, end)
        if answer is SILENCE:
            return
        if isinstance(answer, Pending):
            self._only_produces = buffer[start : start + 2] == PRODUCE
            answer.head = head
            answer.on_finish = self._go_on_soon
            self._unanswered.append(answer)
        elif self._unanswered:
            ready = Pending()
            ready.head = head
            ready.answer = answer
            self._unanswered.append(ready)
        else:
            self._put(head, answer)

    def _go_on_soon(self) -> None:
        # A sync settles many at once: collect them in one turn of the loop, send them in one call.
        if not self._going_on:
            self._going_on = True
            self._shared.loop.call_soon(self._go_on)

    def _collect_answers(self) -> None:
        unanswered = self._unanswered
        while unanswered and (answer := unanswered[0].answer) is not None:
            pending = unanswered.popleft()
            if pending.error is not None:
                raise ClientRefused(f"no answer could be made: {pending.error}")
            self._put(pending.head, answer)

    def _put(self, head: bytes, answer: Answer) -> None:
        put = self._outbox.put
        if len(answer) == 1 and isinstance(body := answer[0], bytes):
            put(SIZE.pack(len(head) + len(body)) + head + body)
            return
        size = len(head)
        for part in answer:
            size += len(part) if isinstance(part, bytes) else part.size
        put(SIZE.pack(size) + head)
        for part in answer:
            put(part)

    def _flush(self) -> None:
        if self.closed:
            return
        writing = bool(self._outbox) and not self._outbox.send()
        if writing != self._writing:
            self._writing = writing
            if writing:
                self._shared.loop.add_writer(self._transport.fileno(), self._on_writable)
            else:
                self._shared.loop.remove_writer(self._transport.fileno())
        if self._failed and self.idle:
            self.close()
        elif self._turn_awaited and not self._unanswered and not self._writing:
            # The socket took it all at once: go on, after the other connections had their turn.
            self._go_on_soon()

    def _choose_events(self) -> None:
        """Read only what could be handled: this is the back-pressure."""
        reading = not (
            self.closed
            or self._draining
            or self._failed
            or self._turn_awaited
            or self._memory_awaited
            or self._outbox.unsent_bytes > self._shared.max_unsent_bytes
        )
        if reading != self._reading:
            self._reading = reading
            if reading:
                self._shared.loop.add_reader(self._transport.fileno(), self._on_readable)
            else:
                self._shared.loop.remove_reader(self._transport.fileno())
