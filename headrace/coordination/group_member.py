"""One member of a classic group: what it asked for, and which of its answers are parked."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.coordination.group_records import StoredMember


class MemberProtocol(NamedTuple):
    """One way of assigning that a member can follow, with its own opaque metadata."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Member:
    """A ticket names a parked answer: it is answered, once, before it is cleared."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    join_ticket: int | None = None
    sync_ticket: int | None = None
    names: frozenset[str] = field(init=False, repr=False, compare=False, default=frozenset())
    """Of the protocols; kept because every join asks it of every member."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", frozenset(each.name for each in self.protocols))

    @property
    def satisfies_heartbeat(self) -> bool:
        """Whoever waits for us cannot heartbeat; but a new member may have gone unnoticed."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)

    def metadata(self, protocol: str | None) -> bytes:
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")

    def vote(self, candidates: Collection[str]) -> str:
        return next(each.name for each in self.protocols if each.name in candidates)

    def stored(self, protocol: str | None) -> StoredMember:
        return StoredMember(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            self.assignment,
        )

    @classmethod
    def from_stored(cls, stored: StoredMember, protocol: str | None) -> "Member":
        return cls(
            stored.member_id,
            stored.group_instance_id,
            stored.client_id,
            stored.client_host,
            stored.rebalance_timeout_ms,
            stored.session_timeout_ms,
            (MemberProtocol(protocol or "", stored.subscription),),
            stored.assignment,
        )
