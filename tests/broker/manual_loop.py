"""An event loop moved by hand, and a socket that takes and gives as it is told."""

from collections import deque
from typing import Any


class Handle:
    def __init__(self, run):
        self.run = run
        self.cancelled = False

    def cancel(self):
        self.cancelled = True


class _ManualLoop:
    """Callbacks wait in order until run_ready(); timers until advance()."""

    def __init__(self):
        self.now = 0.0
        self.ready: deque[Handle] = deque()
        self.timers = []
        self.readers = {}
        self.writers = {}

    def time(self):
        return self.now

    def call_soon(self, callback, *args):
        handle = Handle(lambda: callback(*args))
        self.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay, callback, *args):
        handle = Handle(lambda: callback(*args))
        self.timers.append((self.now + delay, handle))
        return handle

    def add_reader(self, fd, callback, *args):
        self.readers[fd] = lambda: callback(*args)

    def remove_reader(self, fd):
        return self.readers.pop(fd, None) is not None

    def add_writer(self, fd, callback, *args):
        self.writers[fd] = lambda: callback(*args)

    def remove_writer(self, fd):
        return self.writers.pop(fd, None) is not None

    def run_ready(self):
        while self.ready:
            handle = self.ready.popleft()
            if not handle.cancelled:
                handle.run()

    def advance(self, seconds):
        self.now += seconds
        due = [handle for when, handle in self.timers if when <= self.now]
        self.timers = [(when, handle) for when, handle in self.timers if when > self.now]
        for handle in due:
            if not handle.cancelled:
                handle.run()


# To the type checker it is any loop at all: it has only what connections ask of one.
ManualLoop: Any = _ManualLoop


class ScriptedTransport:
    """Gives the bytes it was fed in the chunks they came in; takes as many as its room says."""

    def __init__(self, fd=7, room=1 << 30):
        self.fd = fd
        self.room = room
        self.incoming: deque[bytes] = deque()
        self.sent = bytearray()
        self.sends = 0
        self.closed = False

    def feed(self, chunk):
        self.incoming.append(bytes(chunk))

    def fileno(self):
        return self.fd

    def receive_into(self, buffer):
        if not self.incoming:
            raise BlockingIOError
        chunk = self.incoming.popleft()
        taken = chunk[: len(buffer)]
        if len(taken) < len(chunk):
            self.incoming.appendleft(chunk[len(taken) :])
        buffer[: len(taken)] = taken
        return len(taken)

    def send(self, chunk, *, more):
        if self.room == 0:
            raise BlockingIOError
        taken = bytes(chunk[: self.room])
        self.sends += 1
        self.room -= len(taken)
        self.sent += taken
        return len(taken)

    def send_slice(self, source, sent):
        if self.room == 0:
            raise BlockingIOError
        taken = source.content[source.position + sent : source.position + source.size][: self.room]
        self.room -= len(taken)
        self.sent += taken
        return len(taken)

    def close(self):
        self.closed = True
