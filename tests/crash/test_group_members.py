"""Consumers killed, frozen past their session and sent away at random: no record is left out."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing import LocalBroker

CYCLES = int(os.environ.get("HEADRACE_CRASH_CYCLES", "6"))
TOPIC, PARTITIONS, GROUP = "work", 4, "workers"
WORKERS = 3
SESSION_MS = 500
LONGEST_PEACE_S = 0.5
WAIT_S = 60.0

pytestmark = pytest.mark.crash

WORK = f"""
import sys, signal, confluent_kafka
consumer = confluent_kafka.Consumer({{
    "bootstrap.servers": sys.argv[1], "group.id": "{GROUP}", "session.timeout.ms": {SESSION_MS},
    "heartbeat.interval.ms": 50, "auto.offset.reset": "earliest", "enable.auto.commit": False,
    "partition.assignment.strategy": sys.argv[2],
}})
consumer.subscribe(["{TOPIC}"])
running = True
def stop(*_):
    global running
    running = False
signal.signal(signal.SIGTERM, stop)
while running:
    messages = [each for each in consumer.consume(50, 0.05) if each.error() is None]
    for message in messages:
        print(message.partition(), message.offset())
    if messages:
        sys.stdout.flush()
        try:
            consumer.commit(asynchronous=False)
        except confluent_kafka.KafkaException:
            pass
consumer.close()
"""


class Worker:
    """A process that prints what it processed, then commits it."""

    def __init__(self, bootstrap: str, assignor: str, done: Counter[tuple[int, int]]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORK, bootstrap, assignor], stdout=subprocess.PIPE, text=True
        )
        self._done = done
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # A killed process may leave half a line behind.
            if line.endswith("\n"):
                partition, offset = line.split()
                self._done[int(partition), int(offset)] += 1

    def end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(1.5 * SESSION_MS / 1000)
        self.process.send_signal(signal.SIGCONT)


class Load:
    """A producer that never stops before it is told to."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self.sent = [0] * PARTITIONS
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for partition in range(PARTITIONS):
                self._producer.produce(TOPIC, b"work", partition=partition)
                self.sent[partition] += 1
            self._producer.poll(0.005)

    def finish(self) -> set[tuple[int, int]]:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(WAIT_S) == 0
        return {
            (index, offset) for index in range(PARTITIONS) for offset in range(self.sent[index])
        }


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with LocalBroker(settings={"group.min.session.timeout.ms": str(SESSION_MS)}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
            created.result(WAIT_S)
        yield broker.bootstrap


def test_every_record_is_processed_whatever_happens_to_its_consumers(bootstrap: str) -> None:
    chance = random.Random(20240601)
    done: Counter[tuple[int, int]] = Counter()
    assignor = "cooperative-sticky"
    load = Load(bootstrap)
    workers = [Worker(bootstrap, assignor, done) for _ in range(WORKERS)]
    fates: Counter[str] = Counter()
    for _ in range(CYCLES):
        time.sleep(chance.uniform(0, LONGEST_PEACE_S))
        number = chance.randrange(WORKERS)
        fate = chance.choice(("killed", "frozen", "sent away"))
        fates[fate] += 1
        if fate == "frozen":
            workers[number].freeze()
            continue
        workers[number].end(signal.SIGKILL if fate == "killed" else signal.SIGTERM)
        workers[number] = Worker(bootstrap, assignor, done)
    everything = load.finish()
    deadline = time.monotonic() + WAIT_S
    while not everything <= done.keys() and time.monotonic() < deadline:
        time.sleep(0.05)
    missing = everything - done.keys()
    for worker in workers:
        worker.end(signal.SIGTERM)
    assert not missing, f"{len(missing)} of {len(everything)} left out after {dict(fates)}"
    print(f"{len(everything)} records, {sum(done.values()) - len(everything)} again, {dict(fates)}")  # noqa: T201
