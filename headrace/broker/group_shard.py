"""One partition of __consumer_offsets at work: its machine, its waiting clients, its deadlines."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from headrace.broker.shard import Journal, Producer, Shard
from headrace.clock import Clock
from headrace.coordination.consumer_group_draft import TopicCatalog
from headrace.coordination.consumer_groups import NoTopics
from headrace.coordination.coordinator import Coordinator
from headrace.coordination.group import GroupLimits, Now
from headrace.coordination.group_records import GroupCodec, GroupMetadata, GroupRecord
from headrace.coordination.groups import GroupDecision
from headrace.coordination.machine import Decision
from headrace.coordination.offsets import Outcome
from headrace.coordination.rebalance import Answer, Timer
from headrace.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

LOAD_STEP_BYTES = 64 << 10
"""How much of a long log is replayed before others on the loop have their turn: a few ms."""

RETRY_MS = 1000
"""A deadline whose record could not be written is tried again after this long."""

MAX_PARKED = 100_000
"""How many joins and syncs may wait in one shard."""

T = TypeVar("T")
Decide = Callable[[Coordinator], GroupDecision]
Spawn = Callable[[Coroutine[Any, Any, None]], None]

_NOTHING: GroupDecision = Decision()


class GroupShard:
    """One shard with the clients that wait in it.

    A ticket is answered once: by the machine, or, when the shard had to be loaded anew and so
    forgot who was waiting, by a refusal that sends the client back to find its coordinator.
    """

    def __init__(
        self,
        journal: Journal,
        limits: GroupLimits,
        clock: Clock,
        spawn: Spawn,
        *,
        topics: Callable[[], TopicCatalog] = NoTopics,
    ) -> None:
        self._limits = limits
        self._topics = topics
        self._clock = clock
        self._spawn = spawn
        self._loop = asyncio.get_running_loop()
        self._parked: dict[int, asyncio.Future[Any]] = {}
        self._tickets = 0
        self._closed = False
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = 0
        self._shard: Shard[Coordinator, GroupRecord] = Shard(
            journal, self._new_machine, GroupCodec(), clock
        )
        self._journal = journal
        self.loaded = asyncio.Event()

    def __str__(self) -> str:
        return self._journal.log.name

    @property
    def length(self) -> int:
        """How many records there are to load, about."""
        return self._journal.log.log_end_offset - self._journal.log.log_start_offset

    def load(self) -> None:
        self._shard.load()
        self._serve()

    async def load_in_steps(self) -> None:
        """Load while the broker serves: until this is done, clients are told to come again."""
        for _ in self._shard.load_steps(LOAD_STEP_BYTES):
            await asyncio.sleep(0)
        self._serve()

    @property
    def machine(self) -> Coordinator:
        return self._shard.machine

    async def run(self, decide: Decide, *, producer: Producer | None = None) -> None:
        effects = self.apply(decide, producer=producer)
        await self._shard.durable()
        self._carry_out(effects)

    def apply(self, decide: Decide, *, producer: Producer | None = None) -> tuple[Answer, ...]:
        self._check_loaded()
        try:
            return self._shard.apply(lambda: self._started(decide), producer=producer)
        finally:
            self._set_alarm()

    async def ask(self, decide: Callable[[Coordinator, int], GroupDecision]) -> Any:
        """Decide under a new ticket, and wait until it is answered."""
        if self._closed:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "the broker stops")
        if len(self._parked) >= MAX_PARKED:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too many members wait already")
        self._tickets += 1
        ticket = self._tickets
        answer: asyncio.Future[Any] = self._loop.create_future()

        def decide_with_ticket(machine: Coordinator) -> GroupDecision:
            # Only now: loading the shard anew turns away everyone who is parked already.
            self._parked[ticket] = answer
            return decide(machine, ticket)

        try:
            await self.run(decide_with_ticket)
            # The deadlines of the group bound this wait: a rebalance ends, with or without us.
            return await answer
        finally:
            self._parked.pop(ticket, None)
            if not answer.cancel() and not answer.cancelled():
                # Looked at, so that asyncio does not complain of a refusal nobody waits for.
                answer.exception()

    async def run_for(self, decide: Callable[[Coordinator], tuple[T, GroupDecision]]) -> T:
        """Run a decision that comes with an answer of its own, which counts once it is durable."""
        answers: list[T] = []

        def keep(machine: Coordinator) -> GroupDecision:
            answer, decision = decide(machine)
            answers.append(answer)
            return decision

        await self.run(keep)
        return answers[0]

    async def run_outcome(
        self, decide: Callable[[Coordinator], Outcome], *, producer: Producer | None = None
    ) -> tuple[ErrorCode, ...]:
        # Spelled out, not by `run`: no group settles here, and there is one for every commit.
        self._check_loaded()
        shard = self._shard
        shard.revive()
        try:
            outcome = decide(self._started_machine())
            shard.write(outcome.decision.records, producer)
        finally:
            self._set_alarm()
        await shard.durable()
        return outcome.errors

    async def look(self, question: Callable[[Coordinator], T]) -> T:
        """An answer that rests on nothing a power cut could take back."""
        found = self.peek(question)
        await self._shard.durable()
        return found

    def peek(self, question: Callable[[Coordinator], T]) -> T:
        """An answer from memory; a shard that failed is loaded anew first."""
        found: list[T] = []

        def ask(machine: Coordinator) -> GroupDecision:
            found.append(question(machine))
            return _NOTHING

        self.apply(ask)
        return found[0]

    async def write_marker(
        self, producer: Producer, *, committed: bool, coordinator_epoch: int
    ) -> None:
        self._check_loaded()
        await self._shard.write_marker(
            producer, committed=committed, coordinator_epoch=coordinator_epoch
        )

    def close(self) -> None:
        self._closed = True
        if self._alarm is not None:
            self._alarm.cancel()
        self._turn_away(ErrorCode.NOT_COORDINATOR)

    def now(self) -> Now:
        return Now(self._clock.now_ms(), self._clock.monotonic_ms())

    def _serve(self) -> None:
        self.loaded.set()
        self.peek(lambda _: None)

    def _check_loaded(self) -> None:
        if not self.loaded.is_set():
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "its log is being read")

    def _new_machine(self) -> Coordinator:
        self._turn_away(ErrorCode.NOT_COORDINATOR)
        return Coordinator(self._limits, self._topics)

    def _turn_away(self, code: ErrorCode) -> None:
        parked, self._parked = self._parked, {}
        for answer in parked.values():
            if not answer.done():
                answer.set_exception(KafkaError(code, "the coordinator starts anew"))

    def _started_machine(self) -> Coordinator:
        machine = self._shard.machine
        if not machine.started:
            machine.start(self.now())
        return machine

    def _started(self, decide: Decide) -> GroupDecision:
        decision = decide(self._started_machine())
        for record in decision.records:
            if isinstance(record, GroupMetadata):
                _say_settled(record)
        return decision

    def _carry_out(self, effects: Iterable[Answer]) -> None:
        for ticket, body in effects:
            answer = self._parked.pop(ticket, None)
            if answer is not None and not answer.done():
                answer.set_result(body)

    def _set_alarm(self) -> None:
        next_ms = self.machine.groups.deadlines.next_ms()
        if next_ms is None or (self._alarm is not None and self._alarm_ms <= next_ms):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        delay_ms = max(next_ms - self._clock.monotonic_ms(), 0)
        self._alarm_ms = next_ms
        self._alarm = self._loop.call_later(delay_ms / 1000, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        now = self.now()
        deadlines = self.machine.groups.deadlines
        effects: list[Answer] = []
        for timer in deadlines.due(now.monotonic_ms):
            try:
                effects += self.apply(partial(_fire, timer, now))
            except KafkaError as error:
                logger.warning("group deadline put off timer=%s error=%s", timer, error)
                deadlines.set(timer, now.monotonic_ms + RETRY_MS)
        self._set_alarm()
        if effects:
            self._spawn(self._carry_out_durable(effects))

    async def _carry_out_durable(self, effects: Sequence[Answer]) -> None:
        try:
            await self._shard.durable()
        except KafkaError as error:
            logger.warning("group answers withheld error=%s", error)
            for ticket, _ in effects:
                answer = self._parked.pop(ticket, None)
                if answer is not None and not answer.done():
                    answer.set_exception(error)
            return
        self._carry_out(effects)


def _say_settled(record: GroupMetadata) -> None:
    group = record.value
    if group is None:
        logger.info("group deleted group=%s", record.group_id)
        return
    logger.info(
        "group settled group=%s generation=%d protocol=%s members=%d",
        record.group_id,
        group.generation,
        group.protocol,
        len(group.members),
    )


def _fire(timer: Timer, now: Now, machine: Coordinator) -> GroupDecision:
    return machine.fire(timer, now)
