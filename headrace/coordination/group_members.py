"""The members of a classic group as a value, of which the next version costs no copy.

Every version shares one table, which stands as the version last used; each other version knows the
one step that leads towards it. So the newest version, which is all a coordinator asks, answers and
changes at once, and an older one, which a failed write goes back to, is still what it was.
"""

from collections.abc import Iterable, Iterator, Mapping, ValuesView

from headrace.coordination.group_member import Member


class _Table:
    """Members in the order in which they came, and what a join asks of all of them, counted."""

    __slots__ = ("by_id", "by_instance", "joining", "support")

    def __init__(self, members: Iterable[Member]) -> None:
        self.by_id: dict[str, Member] = {}
        self.by_instance: dict[str, str] = {}
        self.support: dict[str, int] = {}
        self.joining = 0
        for member in members:
            self.set(member.member_id, member)

    def set(self, member_id: str, member: Member | None) -> Member | None:
        """Put a member in the place of that id, or at the end; None takes it away again."""
        before = self.by_id.get(member_id)
        if before is not None:
            self._count(before, -1)
        if member is None:
            del self.by_id[member_id]
        else:
            self.by_id[member_id] = member
            self._count(member, 1)
        return before

    def _count(self, member: Member, step: int) -> None:
        if member.join_ticket is not None:
            self.joining += step
        for name in member.names:
            self.support[name] = self.support.get(name, 0) + step
            if not self.support[name]:
                del self.support[name]
        if member.group_instance_id is not None:
            if step > 0:
                self.by_instance[member.group_instance_id] = member.member_id
            else:
                self.by_instance.pop(member.group_instance_id, None)


class _Version:
    """One version of the table; `step` leads to the one it stands as, from which it is made again.

    A step is the neighbour on that way, an id, and what this version has under that id.
    """

    __slots__ = ("step", "table")

    def __init__(self, table: _Table) -> None:
        self.table = table
        self.step: tuple[_Version, str, Member | None] | None = None

    def standing(self) -> _Table:
        """The table, made to stand as this version."""
        away: list[_Version] = []
        version = self
        while version.step is not None:
            away.append(version)
            version = version.step[0]
        for neighbour in reversed(away):
            neighbour.stand_next()
        return self.table

    def stand_next(self) -> None:
        """The table stands as the neighbour, and then as this one."""
        if self.step is not None:
            neighbour, member_id, member = self.step
            neighbour.step = (self, member_id, self.table.set(member_id, member))
            self.step = None

    def having(self, member: Member) -> "_Version":
        table = self.standing()
        newer = _Version(table)
        self.step = (newer, member.member_id, table.set(member.member_id, member))
        return newer


class Members(Mapping[str, Member]):
    """By id, in the order in which they came; equal to any mapping of the same."""

    __slots__ = ("_version",)

    def __init__(self, members: Iterable[Member] = (), *, version: _Version | None = None) -> None:
        self._version = version or _Version(_Table(members))

    def __getitem__(self, member_id: str) -> Member:
        return self._version.standing().by_id[member_id]

    def __len__(self) -> int:
        return len(self._version.standing().by_id)

    def __iter__(self) -> Iterator[str]:
        # Of a copy: whoever goes through one version may make others meanwhile.
        return iter(tuple(self._version.standing().by_id))

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._version.standing().by_id

    def values(self) -> ValuesView[Member]:
        return self._version.standing().by_id.copy().values()

    def __repr__(self) -> str:
        return f"Members({list(self.values())})"

    @property
    def joining(self) -> int:
        """How many wait for the answer to a join."""
        return self._version.standing().joining

    def all_support(self, protocol: str) -> bool:
        table = self._version.standing()
        return table.support.get(protocol, 0) == len(table.by_id)

    def of_instance(self, group_instance_id: str) -> str | None:
        return self._version.standing().by_instance.get(group_instance_id)

    def supported(self) -> frozenset[str]:
        """The protocols that every member supports."""
        return frozenset(filter(self.all_support, tuple(self._version.standing().support)))

    def having(self, member: Member) -> "Members":
        """With this member in the place of the one of its id, or at the end."""
        return Members(version=self._version.having(member))
