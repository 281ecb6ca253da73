from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SettingError
from headrace.settings import (
    Kind,
    Layers,
    Row,
    Source,
    at_least,
    between,
    by_name,
    list_of,
    load,
    one_of,
    rows,
    setting,
    settings,
    show,
)


@settings
class Pond:
    depth_cm: int = setting(name="depth.cm", default=10, doc="How deep.", check=at_least(1))
    fish: tuple[str, ...] = setting(name="fish", default=("carp",), doc="Who swims.")
    frozen: bool = setting(name="frozen", default=False, doc="Whether it is ice.")


def row(kind: Kind, **facts: Any) -> Row:
    return Row(name="x.y", kind=kind, default=None, doc="", **facts)


def test_load_takes_texts_by_kafka_name_and_leaves_the_rest_at_their_defaults():
    assert load(Pond, {"depth.cm": " 20 "}) == Pond(depth_cm=20, fish=("carp",), frozen=False)


def test_an_unknown_name_is_refused_with_the_nearest_known_one():
    with pytest.raises(SettingError, match=r"did you mean depth\.cm") as error:
        load(Pond, {"dept.cm": "1"})
    assert error.value.name == "dept.cm"


def test_a_name_like_no_other_gets_no_suggestion():
    with pytest.raises(SettingError, match=r"unknown name$"):
        load(Pond, {"zzzzzz": "1"})


def test_a_check_speaks_of_the_setting_and_the_value():
    with pytest.raises(SettingError, match=r"depth\.cm.*'0'.*at least 1"):
        load(Pond, {"depth.cm": "0"})


def test_rows_know_their_attributes():
    assert {it.name: it.attribute for it in rows(Pond)} == {
        "depth.cm": "depth_cm",
        "fish": "fish",
        "frozen": "frozen",
    }
    assert by_name(Pond)["fish"].kind is Kind.LIST


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.INT, ""),
        (Kind.INT, "1e3"),
        (Kind.INT, "1_000"),
        (Kind.INT, "٣"),
        (Kind.INT, "--1"),
        (Kind.INT, "2147483648"),
        (Kind.SHORT, "32768"),
        (Kind.LONG, "9223372036854775808"),
        (Kind.BOOLEAN, "yes"),
        (Kind.BOOLEAN, ""),
        (Kind.DOUBLE, "x"),
        (Kind.DOUBLE, "nan"),
        (Kind.DOUBLE, "1_0.0"),
    ],
)
def test_text_that_java_would_not_take_is_refused(kind, text):
    with pytest.raises(SettingError):
        row(kind).parse(text)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.INT, "+5", 5),
        (Kind.INT, "-2147483648", -(2**31)),
        (Kind.BOOLEAN, "TRUE", True),
        (Kind.LIST, "", ()),
        (Kind.LIST, "a , b,a", ("a", "b")),
        (Kind.DOUBLE, "0.25", 0.25),
        (Kind.STRING, " a b ", "a b"),
    ],
)
def test_text_is_read_as_java_reads_it(kind, text, value):
    assert row(kind).parse(text) == value


VALUES = {
    Kind.INT: st.integers(-(2**31), 2**31 - 1),
    Kind.LONG: st.integers(-(2**63), 2**63 - 1),
    Kind.BOOLEAN: st.booleans(),
    Kind.DOUBLE: st.floats(allow_nan=False),
    Kind.LIST: st.lists(st.text("abc.", min_size=1), unique=True).map(tuple),
}


@given(st.sampled_from(sorted(VALUES)).flatmap(lambda kind: st.tuples(st.just(kind), VALUES[kind])))
def test_what_is_shown_parses_back(pair):
    kind, value = pair
    assert row(kind).parse(show(value)) == value


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (at_least(1), (1, 2, None), (0, -1)),
        (between(1, 9, besides=-1), (-1, 1, 9, None), (0, 10, -2)),
        (one_of("a", "b"), ("a",), ("A", "", "c")),
        (list_of("a", "b"), (("a",), ("b", "a")), ((), ("c",), ("a", ""))),
        (list_of("a", empty=True), ((), ("a",)), (("b",),)),
    ],
)
def test_checks_say_what_is_wrong_and_only_then(check, good, bad):
    assert [check(value) for value in good] == [None] * len(good)
    assert all(check(value) for value in bad)


def test_layers_speak_strongest_first():
    layers = Layers(
        dynamic_broker={"a": "1"}, dynamic_default={"a": "2", "b": "5"}, static={"a": "3"}
    )
    assert list(layers.stated(["a"])) == [
        ("a", "1", Source.DYNAMIC_BROKER_CONFIG),
        ("a", "2", Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("a", "3", Source.STATIC_BROKER_CONFIG),
    ]
    assert layers.merged() == {"a": "1", "b": "5"}
