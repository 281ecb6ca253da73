import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.offset_reset import (
    Bounds,
    Planned,
    TopicChoice,
    choices_of,
    csv_line,
    plan,
    read_csv,
    shift_by,
    to_current,
    to_earliest,
    to_latest,
    to_offset,
    to_offsets,
    topic_choice,
)
from headrace.client.librdkafka import TopicPartition

PLACE = TopicPartition("orders", 2)
places = st.builds(TopicPartition, st.sampled_from(["orders", "a.b"]), st.integers(0, 50))


@st.composite
def bounds(draw: st.DrawFn) -> Bounds:
    earliest = draw(st.integers(0, 1_000))
    latest = draw(st.integers(earliest, 2_000))
    return Bounds(earliest, latest, draw(st.none() | st.integers(0, 3_000)))


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("orders", TopicChoice("orders")),
        ("orders:2", TopicChoice("orders", (2,))),
        ("orders:0,1,1", TopicChoice("orders", (0, 1))),
        ("orders:2:10000", TopicChoice("orders", (2,), 10_000)),
    ],
)
def test_a_topic_is_named_as_in_kafkas_tool(text: str, choice: TopicChoice) -> None:
    assert topic_choice(text) == choice


@pytest.mark.parametrize("text", ["", ":2", "orders:", "orders:x", "orders:1:2:3", "orders:-1"])
def test_a_topic_named_badly_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        topic_choice(text)


@given(st.dictionaries(places, bounds(), min_size=1), st.integers(0, 5_000))
def test_a_new_offset_always_lies_in_the_log_and_a_correction_is_told(
    known: dict[TopicPartition, Bounds], asked: int
) -> None:
    for row in plan(known, to_offset(asked)):
        held = known[row.place]
        assert held.earliest <= row.after <= held.latest
        assert (row.after == asked) == (not row.warning)
        assert row.before == held.committed


@given(bounds(), st.integers(-3_000, 3_000))
def test_a_shift_counts_from_the_committed_offset(held: Bounds, records: int) -> None:
    if held.committed is None:
        with pytest.raises(ValueError, match="no committed offset"):
            plan({PLACE: held}, shift_by(records))
        return
    (row,) = plan({PLACE: held}, shift_by(records))
    assert row.after == min(max(held.committed + records, held.earliest), held.latest)


def test_each_rule_names_its_offset() -> None:
    known = {PLACE: Bounds(5, 50, 20)}
    rules = [to_earliest, to_latest, to_current, to_offsets({PLACE: 7}), to_offsets({PLACE: None})]
    assert [plan(known, rule)[0].after for rule in rules] == [5, 50, 20, 7, 50]
    assert plan({PLACE: Bounds(5, 50, None)}, to_current)[0].after == 50


def test_a_partition_without_an_offset_in_the_file_is_refused() -> None:
    with pytest.raises(ValueError, match="no offset is given for orders-2"):
        plan({PLACE: Bounds(0, 9, None)}, to_offsets({}))


@given(st.dictionaries(places, st.integers(0, 10**12), min_size=1))
def test_an_exported_file_is_read_back(offsets: dict[TopicPartition, int]) -> None:
    lines = [csv_line(Planned(place, None, offset)) for place, offset in offsets.items()]
    assert read_csv(lines, "billing") == offsets
    assert {TopicPartition(c.topic, c.partitions[0]) for c in choices_of(offsets)} == set(offsets)


def test_a_file_of_several_groups_gives_each_its_own() -> None:
    lines = ["billing,orders,2,10", '"other","orders",2,11', "", "billing, orders, 3, 12"]
    assert read_csv(lines, "billing") == {PLACE: 10, TopicPartition("orders", 3): 12}


@pytest.mark.parametrize("line", ["orders,2", "orders,x,1", "orders,2,-1", "other,orders,2,1"])
def test_a_file_that_says_nothing_usable_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"line 1|holds no offset"):
        read_csv([line], "billing")
