"""Patterns that subscribe to topics, matched in time linear in the name.

A pattern becomes a machine of states without backtracking, so no pattern, however hostile, takes
long. It has to match the whole name.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from headrace.coordination.regular_expression_syntax import (
    WORD,
    Chars,
    Choice,
    Edge,
    Node,
    Parser,
    Repeat,
    Sequence,
)
from headrace.errors import ErrorCode, KafkaError

MAX_PATTERN = 1000
"""Characters of a pattern: several times the length of any topic name."""

MAX_STATES = 1000
"""Bounds the work for each character of a name."""

MAX_KEPT_STATES = 100_000
"""Sets of states that are kept hold no more than this in all, or they are found anew."""

MAX_COMPILED = 64

_NOTHING: frozenset[str] = frozenset()

Matcher = Callable[[str], bool]


@lru_cache(maxsize=MAX_COMPILED)
def compile_pattern(pattern: str) -> Matcher:
    """What tells whether a name matches, or KafkaError INVALID_REGULAR_EXPRESSION."""
    try:
        if len(pattern) > MAX_PATTERN:
            raise ValueError(f"pattern is longer than {MAX_PATTERN} characters")
        return _Machine(Parser(pattern).parse()).matches
    except ValueError as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}.",
        ) from error


class _State(NamedTuple):
    """Where a character of a set leads; without a set it leads on for nothing, on a condition."""

    found: frozenset[str]
    condition: str
    targets: list[int]


class _Reached:
    """All the states that a name can be in at once, and where each next character leads."""

    __slots__ = ("states", "steps")

    def __init__(self, states: frozenset[int]) -> None:
        self.states = states
        self.steps: dict[str, _Reached] = {}


class _Machine:
    """States are found as names need them and then kept: a known step is one look-up."""

    def __init__(self, node: Node) -> None:
        self._states: list[_State] = []
        self._last = self._state()
        self._first = self._compiled(node, self._last)
        self._looks_ahead = any(each.condition not in ("", "free") for each in self._states)
        self._kept: dict[frozenset[int], _Reached] = {}
        self._kept_states = 0

    def matches(self, name: str) -> bool:
        current = self._reached({self._first}, "", name[:1])
        for place, char in enumerate(name):
            after = name[place + 1 : place + 2] if self._looks_ahead else ""
            step = current.steps.get(char + after)
            if step is None:
                step = current.steps[char + after] = self._step(current, char, after)
            current = step
        return self._last in current.states

    def _step(self, current: _Reached, char: str, after: str) -> _Reached:
        targets = {
            target
            for each in current.states
            if char in self._states[each].found
            for target in self._states[each].targets
        }
        return self._reached(targets, char, after)

    def _reached(self, states: set[int], before: str, after: str) -> _Reached:
        closed = self._closure(states, before, after)
        reached = self._kept.get(closed)
        if reached is None:
            self._kept_states += len(closed) + 1
            if self._kept_states > MAX_KEPT_STATES:
                self._kept.clear()
                self._kept_states = len(closed) + 1
            reached = self._kept[closed] = _Reached(closed)
        return reached

    def _closure(self, states: set[int], before: str, after: str) -> frozenset[int]:
        """With every state that needs no further character."""
        boundary = (before in WORD) != (after in WORD)
        holds = {
            "free": True,
            "start": not before,
            "end": not after,
            "b": boundary,
            "B": not boundary,
        }
        found, waiting = set(states), list(states)
        while waiting:
            state = self._states[waiting.pop()]
            if holds.get(state.condition):
                new = [each for each in state.targets if each not in found]
                found.update(new)
                waiting.extend(new)
        return frozenset(found)

    def _state(
        self, found: frozenset[str] = _NOTHING, condition: str = "", targets: Iterable[int] = ()
    ) -> int:
        if len(self._states) >= MAX_STATES:
            raise ValueError("pattern too large")
        self._states.append(_State(found, condition, list(targets)))
        return len(self._states) - 1

    def _compiled(self, node: Node, after: int) -> int:
        """The state that matches a node and then goes on at `after`."""
        match node:
            case Chars(found):
                return self._state(found, targets=(after,))
            case Edge(kind):
                return self._state(condition=kind, targets=(after,))
            case Sequence(parts):
                for part in reversed(parts):
                    after = self._compiled(part, after)
                return after
            case Choice(options):
                return self._state(
                    condition="free", targets=[self._compiled(each, after) for each in options]
                )
            case Repeat(part, least, most):
                return self._compiled_repeat(part, least, most, after)

    def _compiled_repeat(self, part: Node, least: int, most: int | None, after: int) -> int:
        if most is None:
            loop = self._state(condition="free", targets=(after,))
            self._states[loop].targets.append(self._compiled(part, loop))
            after = loop
        else:
            end = after
            for _ in range(most - least):
                after = self._state(condition="free", targets=(end, self._compiled(part, after)))
        for _ in range(least):
            after = self._compiled(part, after)
        return after
