"""What the broker does on its own: checkpoints, and removing what was deleted."""

import asyncio
import logging

from headrace.broker.context import Broker

logger = logging.getLogger(__name__)

LOOK_S = 1.0
# Recovery after a kill reads what was written since the last checkpoint: no more than about this.
CHECKPOINT_BYTES = 128 << 20
# Deleted partitions keep their files for a moment, for fetches that are sending them.
SWEEP_S = 10.0


async def keep_checkpoints(broker: Broker) -> None:
    """Note recovery points after so many bytes, and at the interval that the settings say."""
    interval_s = broker.settings.log_flush_offset_checkpoint_interval_ms / 1000
    done_at, done_bytes = broker.loop.time(), 0
    while True:
        await asyncio.sleep(min(LOOK_S, max(interval_s, 0.1)))
        synced_bytes = broker.flusher.synced_bytes
        due = broker.loop.time() - done_at >= interval_s
        if due or synced_bytes - done_bytes >= CHECKPOINT_BYTES:
            done_at, done_bytes = broker.loop.time(), synced_bytes
            await checkpoint(broker)


async def checkpoint(broker: Broker) -> None:
    """Take the offsets on the loop, put them on disk off it."""
    try:
        begun = broker.store.begin_checkpoint()
        if begun is not None:
            await asyncio.to_thread(begun.write)
            broker.store.finish_checkpoint(begun)
    except OSError as error:
        logger.error("checkpoint failed reason=%s", error)


async def sweep_deleted(broker: Broker) -> None:
    """Remove files once they are due, and the directories of deleted partitions now and then."""
    swept_at = broker.loop.time()
    while True:
        await asyncio.sleep(LOOK_S)
        due = broker.store.deleted.due(broker.clock.monotonic_ms())
        if not due and broker.loop.time() - swept_at < SWEEP_S:
            continue
        swept_at = broker.loop.time()
        try:
            await asyncio.to_thread(broker.store.sweep)
        except OSError as error:
            logger.error("sweep failed reason=%s", error)
