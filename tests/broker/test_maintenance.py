import asyncio
from contextlib import suppress

from headrace.broker import maintenance
from headrace.testing.filesystems import MemoryFilesystem
from headrace.testing.virtual_time import VirtualClock, run_virtually
from tests.broker.broker_in_memory import running_broker


def test_a_file_is_removed_when_its_delay_is_over_and_not_before(monkeypatch):
    """The delay is the topic's; a sweep at an interval of its own would add to it."""
    swept: list[tuple[int, bool]] = []

    async def on_the_loop(work):
        # A thread would be overtaken by the time that jumps.
        work()

    async def main() -> None:
        filesystem = MemoryFilesystem()
        async with running_broker(filesystem, VirtualClock()) as broker:
            filesystem.open("/data/dropped.log.deleted", create=True)
            broker.store.remove_later(["/data/dropped.log.deleted"], 2_500)
            sweep = broker.store.sweep

            def noted() -> None:
                sweep()
                there = filesystem.exists("/data/dropped.log.deleted")
                swept.append((round(broker.loop.time()), there))

            monkeypatch.setattr(broker.store, "sweep", noted)
            with suppress(TimeoutError):
                await asyncio.wait_for(maintenance.sweep_deleted(broker), 15)

    monkeypatch.setattr(asyncio, "to_thread", on_the_loop)
    run_virtually(main)
    # Once for the file, and ten seconds later for the directories of deleted partitions.
    assert swept == [(3, False), (13, False)]
