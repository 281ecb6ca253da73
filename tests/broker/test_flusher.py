import asyncio
import threading

from headrace.broker.flusher import Flusher


class Disk:
    """Counts syncs, and how many run at once; each waits until it may finish."""

    def __init__(self, *, held=False):
        self.gate = threading.Event()
        if not held:
            self.gate.set()
        self.entered = threading.Semaphore(0)
        self.lock = threading.Lock()
        self.running = 0
        self.most_running = 0
        self.syncs = 0

    def sync(self):
        with self.lock:
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            self.syncs += 1
        self.entered.release()
        assert self.gate.wait(10)
        with self.lock:
            self.running -= 1


class Ticket:
    def __init__(self, journal, offset):
        self.journal = journal
        self.offset = offset

    def sync(self):
        self.journal.disk.sync()
        if self.journal.error:
            raise self.journal.error


class Journal:
    """A partition as the flusher sees it, with a disk in the test's hand."""

    def __init__(self, disk, error=None):
        self.disk = disk
        self.error = error
        self.written = 0
        self.synced = 0
        self.failures = []

    def take_ticket(self):
        return Ticket(self, self.written) if self.written > self.synced else None

    def settle(self, ticket):
        self.synced = ticket.offset

    def sync_failed(self, error):
        self.failures.append(error)


def run(work):
    async def main():
        flusher = Flusher(asyncio.get_running_loop(), threads=4)
        try:
            await asyncio.wait_for(work(flusher), 20)
        finally:
            flusher.stop()

    asyncio.run(main())


def test_one_sync_settles_everything_appended_before_it():
    async def work(flusher):
        disk = Disk(held=True)
        journal = Journal(disk)
        for _ in range(100):
            journal.written += 1
            flusher.schedule(journal)
        await asyncio.to_thread(disk.entered.acquire)
        # While the first sync runs, later appends gather for the second one.
        for _ in range(100):
            journal.written += 1
            flusher.schedule(journal)
        # Time for a second sync of the same partition to begin, if it wrongly would.
        for _ in range(5):
            await asyncio.sleep(0)
        disk.gate.set()
        await flusher.drain()
        assert journal.synced == 200
        assert disk.syncs == 2
        assert disk.most_running == 1

    run(work)


def test_partitions_sync_side_by_side_in_a_bounded_number_of_threads():
    async def work(flusher):
        disk = Disk(held=True)
        journals = [Journal(disk) for _ in range(20)]
        for journal in journals:
            journal.written = 1
            flusher.schedule(journal)
        for _ in range(4):
            await asyncio.to_thread(disk.entered.acquire)
        disk.gate.set()
        await flusher.drain()
        assert disk.most_running == 4
        assert disk.syncs == 20
        assert all(journal.synced == 1 for journal in journals)

    run(work)


def test_a_failed_sync_is_told_to_its_partition_alone(caplog):
    async def work(flusher):
        disk = Disk()
        broken, sound = Journal(disk, OSError(5, "Input/output error")), Journal(disk)
        for journal in (broken, sound):
            journal.written = 1
            flusher.schedule(journal)
        await flusher.drain()
        assert [str(error) for error in broken.failures] == ["[Errno 5] Input/output error"]
        assert (broken.synced, sound.synced) == (0, 1)

    run(work)
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_partition_with_nothing_to_sync_leaves_the_flusher_quiet():
    async def work(flusher):
        disk = Disk()
        flusher.schedule(Journal(disk))
        await flusher.drain()
        assert disk.syncs == 0

    run(work)
