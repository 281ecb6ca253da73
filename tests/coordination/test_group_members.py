"""Members as a value: every version, asked in any order, is what a plain dictionary is."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.coordination.group_member import Member, MemberProtocol
from headrace.coordination.group_members import Members

NAMES = ("range", "sticky", "other")

changes = st.builds(
    lambda number, names, ticket: Member(
        f"m{number}",
        # An instance id belongs to one member, as the group's rules see to.
        f"i{number}" if number % 2 else None,
        "client",
        "/127.0.0.1",
        60_000,
        10_000,
        tuple(MemberProtocol(name, b"") for name in names),
        join_ticket=ticket,
    ),
    st.integers(0, 4),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True),
    st.none() | st.integers(1, 3),
)


def check(members: Members, plain: dict[str, Member]) -> None:
    """Against the plain count of a plain dictionary."""
    assert list(members) == list(plain)
    assert list(members.values()) == list(plain.values())
    assert len(members) == len(plain)
    assert members == plain
    assert members.joining == sum(each.join_ticket is not None for each in plain.values())
    for name in NAMES:
        supported = all(name in each.names for each in plain.values())
        assert members.all_support(name) == supported
        assert (name in members.supported()) == (supported and bool(plain))
    for number in range(5):
        holders = [key for key, each in plain.items() if each.group_instance_id == f"i{number}"]
        assert members.of_instance(f"i{number}") == next(iter(holders), None)
        assert (f"m{number}" in members) == (f"m{number}" in plain)
        assert members.get(f"m{number}") == plain.get(f"m{number}")


@given(st.lists(changes, max_size=3), st.lists(st.tuples(st.integers(0, 99), changes), max_size=15))
def test_any_version_can_be_changed_and_none_changes_another(first, history):
    plains = [{each.member_id: each for each in first}]
    versions = [Members(plains[0].values())]
    for number, member in history:
        at = number % len(versions)
        versions.append(versions[at].having(member))
        plains.append({**plains[at], member.member_id: member})
        check(versions[number % len(versions)], plains[number % len(versions)])
    for members, plain in zip(versions, plains, strict=True):
        check(members, plain)


def test_whoever_goes_through_a_version_may_make_others_meanwhile():
    def member(number: int) -> Member:
        return Member(f"m{number}", None, "client", "/127.0.0.1", 60_000, 10_000, ())

    members = Members(member(number) for number in range(3))
    assert [len(members.having(member(3 + len(each)))) for each in members] == [4, 4, 4]
    assert [len(members.having(member(9))) for _ in members.values()] == [4, 4, 4]
    assert list(members) == ["m0", "m1", "m2"]
