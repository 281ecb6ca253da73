"""Producer ids given out from blocks that the metadata log remembers."""

from collections import deque
from typing import Any

from headrace.broker.shard import Shard
from headrace.coordination.catalog import Catalog


class ProducerIds:
    """No id is given out twice, not even after a restart: the rest of a block is then skipped."""

    def __init__(self, shard: Shard[Catalog, Any]) -> None:
        self._shard = shard
        self._free: deque[int] = deque()

    async def next(self) -> int:
        while not self._free:
            (block,) = await self._shard.run(lambda: self._shard.machine.allocate_producer_ids())
            self._free.extend(range(block.first, block.first + block.count))
        return self._free.popleft()
