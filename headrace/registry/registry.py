"""The registry: its state, and how a request becomes records that are in the log."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from headrace.registry.decision import Decision
from headrace.registry.language import Language
from headrace.registry.parsing import Parser
from headrace.registry.records import BadRecord, Record
from headrace.registry.refusals import Refusal, Refused
from headrace.registry.registration import Registrar
from headrace.registry.subjects import RejectedRecord, Subjects

logger = logging.getLogger(__name__)

A = TypeVar("A")

# How long a write waits for those before it.
QUEUE_LIMIT_S = 30.0


class Log(Protocol):
    """Where records are kept; what it holds comes back through Registry.replay."""

    @property
    def position(self) -> int:
        """The offset after the last record replayed."""
        ...

    async def settle(self) -> None: ...

    async def append(self, records: Sequence[Record]) -> None: ...

    async def reached(self, offset: int) -> None: ...


class Registry:
    """Decides on memory, writes to the log, and answers when memory has it from the log."""

    def __init__(
        self,
        languages: Mapping[str, Language],
        *,
        group_id: str = "schema-registry",
        kafka_cluster_id: str = "",
    ) -> None:
        self.group_id = group_id
        self.kafka_cluster_id = kafka_cluster_id
        self.subjects = Subjects()
        self.parser = Parser(self.subjects, languages)
        self.registrar = Registrar(self.subjects, self.parser)
        self.log: Log | None = None
        # Not worth parsing if larger: the log would not take it.
        self.max_schema_bytes: int | None = None
        # Moves with every record, so that answers made before can be told from those after.
        self.generation = 0
        self.skipped_records = 0
        self._writing = asyncio.Lock()

    def replay(self, record: Record | BadRecord, offset: int) -> None:
        """Apply what was read from the log; what cannot be applied is reported and skipped."""
        try:
            if isinstance(record, BadRecord):
                raise record
            self.subjects.replay(record)
        except (BadRecord, RejectedRecord) as error:
            self.skipped_records += 1
            logger.warning("record skipped offset=%d reason=%s", offset, error)
        self.generation += 1

    async def write(self, decide: Callable[[], Decision[A]]) -> A:
        """Decide, write, and answer once it was read back."""
        if self.log is None:
            raise Refused(Refusal.UNKNOWN_LEADER)
        await self._turn()
        try:
            # Decided only now: what was written while this one waited counts.
            await self.log.settle()
            decision = decide()
            if decision.records:
                await self.log.append(decision.records)
            return decision.answer
        finally:
            self._writing.release()

    async def _turn(self) -> None:
        try:
            async with asyncio.timeout(QUEUE_LIMIT_S):
                await self._writing.acquire()
        except TimeoutError:
            raise Refused(Refusal.TIMED_OUT, "too many writes are waiting") from None
