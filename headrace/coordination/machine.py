"""What every replayed state machine is: decisions made of records and effects, and a replay."""

from typing import Generic, NamedTuple, Protocol, TypeVar

R = TypeVar("R")
E = TypeVar("E")
R_contra = TypeVar("R_contra", contravariant=True)


class Decision(NamedTuple, Generic[R, E]):
    """Records to append and replay, then effects to carry out once those records are durable."""

    records: tuple[R, ...] = ()
    effects: tuple[E, ...] = ()


class Machine(Protocol[R_contra]):
    """State that changes by replay alone, the same way live and at load."""

    def replay(self, record: R_contra) -> None: ...
