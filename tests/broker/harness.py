"""A broker in memory: no socket, no disk; requests go in as frames and come out as messages."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from headrace.broker.context import Broker, Endpoint
from headrace.broker.dispatch import Dispatcher
from headrace.broker.exchange import Pending
from headrace.broker.groups import group_coordinator
from headrace.broker.settings import BrokerSettings
from headrace.broker.shares import ShareCoordinator
from headrace.coordination.topics import NewTopic
from headrace.log.store import Store
from headrace.protocol.apis import APIS, is_flexible
from headrace.protocol.frame import API_VERSIONS, request_header
from headrace.protocol.messages import read_response, write_request
from headrace.protocol.records import Record, write_batch
from headrace.settings import load
from headrace.testing.clock import ManualClock
from headrace.testing.filesystems import MemoryFilesystem

KEYS = {api.name: api.key for api in APIS.values()}
NOW_MS = 1_700_000_000_000


class Harness:
    """One broker and one client of it."""

    def __init__(self, broker, filesystem):
        self.broker = broker
        self.filesystem = filesystem
        self.dispatcher = Dispatcher(broker)
        self.connection: Any = SimpleNamespace(
            host="127.0.0.1", listener="PLAINTEXT", number=1, calls={}
        )

    async def create(self, name, partitions=1, **configs):
        from headrace.broker.topics import Topics

        if not hasattr(self.broker, "topics"):
            await Topics.open(self.broker)
        texts = {key.replace("_", "."): text for key, text in configs.items()}
        wanted = NewTopic(name, uuid4(), partitions, 1, configs=texts)
        (created,) = await self.broker.topics.create([wanted])
        return created.topic.topic_id

    def partition(self, topic, index=0):
        return self.broker.partitions.get(topic, index)

    def begin(self, name, version, request, *, client_id="test"):
        """Start a request; its answer, or the promise of one."""
        key = KEYS[name]
        header = request_header(key, version, 7, client_id, flexible=is_flexible(key, version))
        frame = memoryview(bytearray(header + write_request(key, version, request)))
        head, answer = self.dispatcher(self.connection, frame, 0, len(frame))
        tagged = is_flexible(key, version) and key != API_VERSIONS
        assert head == b"\0\0\0\7" + b"\0" * tagged
        return answer

    def read(self, name, version, answer):
        body = b"".join(part if isinstance(part, bytes) else part.read() for part in answer)
        return read_response(KEYS[name], version, body)

    async def call(self, name, version, request, **caller):
        answer = self.begin(name, version, request, **caller)
        if isinstance(answer, Pending):
            answer = await finished(answer)
        return self.read(name, version, answer)


async def finished(pending):
    if pending.answer is None:
        done = asyncio.Event()
        pending.on_finish = done.set
        async with asyncio.timeout(10):
            await done.wait()
    if pending.error is not None:
        raise pending.error
    return pending.answer


@asynccontextmanager
async def running(filesystem=None, **settings):
    """A harness whose tasks and threads end with the block."""
    filesystem = filesystem or MemoryFilesystem()
    texts = {"log.dirs": "/data", **{key.replace("_", "."): v for key, v in settings.items()}}
    clock = ManualClock(NOW_MS)
    async with asyncio.TaskGroup() as tasks:
        store = Store(filesystem, "/data", clock)
        broker = Broker(
            load(BrokerSettings, texts), clock, store, asyncio.get_running_loop(), tasks
        )
        broker.advertise({"PLAINTEXT": Endpoint("127.0.0.1", 9092)})
        broker.groups = group_coordinator(broker)
        broker.shares = ShareCoordinator(broker)
        try:
            yield Harness(broker, filesystem)
        finally:
            broker.cancel_tasks()
            broker.flusher.stop()


def run(scenario, **settings):
    """Run an async scenario that takes a harness."""

    async def main():
        async with running(**settings) as harness:
            await asyncio.wait_for(scenario(harness), 20)

    asyncio.run(main())


def batch(*values, timestamp=NOW_MS, **facts):
    records = [Record(at, timestamp, None, value, ()) for at, value in enumerate(values)]
    return write_batch(records, **facts)
