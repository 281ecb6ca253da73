"""The rules of Avro's schema resolution one by one, and what is said when they are broken."""

import json
import time

import pytest

from headrace.registry.compatibility import avro as compatibility
from headrace.registry.language import InvalidSchema
from headrace.registry.languages import LANGUAGES
from headrace.registry.languages.avro import LANGUAGE
from tests.registry.tiny_language import TinySchema


def record(*fields, name="R", **more):
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(type_, name="f", **more):
    return {"name": name, "type": type_, **more}


def enum(*symbols, **more):
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def fixed(size, name="F", **more):
    return {"type": "fixed", "name": name, "size": size, **more}


def found(reader, writer):
    """Kind and path of what breaks."""
    return [(each.kind, each.path) for each in breakages(reader, writer)]


def breakages(reader, writer):
    old, new = (LANGUAGE.parse(json.dumps(each), {}, new=True) for each in (writer, reader))
    return LANGUAGE.incompatibilities(new, old)


ID = field("long", "id")


def test_backward_takes_the_deletion_of_any_field_and_asks_a_default_of_an_added_one():
    assert found(record(), record(ID)) == []
    assert found(record(ID, field("string", default="CREATED")), record(ID)) == []
    assert found(record(ID, field(["null", "string"], default=None)), record(ID)) == []
    assert found(record(ID, field("string")), record(ID)) == [
        ("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/1")
    ]


def test_forward_takes_any_added_field_and_asks_a_default_of_a_removed_one():
    old, new = record(ID), record(ID, field("string"))
    assert found(old, new) == []
    assert found(new, old) == [("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/1")]
    assert found(record(ID, field("string", default="x")), record(ID)) == []


ORDER = ("int", "long", "float", "double")
NUMBERS = [(reader, writer) for reader in ORDER for writer in ORDER]


@pytest.mark.parametrize(("reader", "writer"), NUMBERS)
def test_numbers_are_read_as_wider_ones_only(reader, writer):
    readable = ORDER.index(reader) >= ORDER.index(writer)
    assert found(reader, writer) == ([] if readable else [("TYPE_MISMATCH", "/")])


def test_strings_and_bytes_are_read_as_each_other_and_as_nothing_else():
    assert found("string", "bytes") == found("bytes", "string") == []
    assert found("string", "int") == found("boolean", "string") == [("TYPE_MISMATCH", "/")]


RULES = [
    (record(name="S"), record(), [("NAME_MISMATCH", "/name")]),
    (record(name="S", aliases=["R"]), record(), []),
    (record(name="S", namespace="n", aliases=["R"]), record(), [("NAME_MISMATCH", "/name")]),
    (record(namespace="n"), record(namespace="m"), []),
    (fixed(2), fixed(3), [("FIXED_SIZE_MISMATCH", "/size")]),
    (fixed(2, name="G"), fixed(2), [("NAME_MISMATCH", "/name")]),
    (fixed(2), "bytes", [("TYPE_MISMATCH", "/")]),
    (enum("A"), enum("A", "B"), [("MISSING_ENUM_SYMBOLS", "/symbols")]),
    (enum("A", default="A"), enum("A", "B"), []),
    (enum("B", "A"), enum("A"), []),
    (["null", "int"], "int", []),
    (["null", "long"], "int", []),
    ("int", ["int"], []),
    ("int", ["int", "string"], [("TYPE_MISMATCH", "/1")]),
    (["null", "int"], "string", [("MISSING_UNION_BRANCH", "/")]),
    (["null", "int"], ["string", "null"], [("MISSING_UNION_BRANCH", "/0")]),
    (record(field("int", "g", aliases=["f"])), record(field("int")), []),
    (
        record(field(["int", "null"])),
        record(field({"type": "array", "items": "int"})),
        [("MISSING_UNION_BRANCH", "/fields/0/type")],
    ),
    (
        {"type": "map", "values": {"type": "array", "items": "int"}},
        {"type": "map", "values": {"type": "array", "items": "long"}},
        [("TYPE_MISMATCH", "/values/items")],
    ),
    (
        record(field(enum("A", default="A"))),
        record(),
        [("TYPE_MISMATCH", "/fields/0/type")],
    ),
    (
        record(field("int", "g", aliases=["a", "b"])),
        record(field("int", "a"), field("int", "b")),
        [("READER_FIELD_AMBIGUOUS", "/fields/0")],
    ),
    (
        record(field("int", "a"), field("int", "b", aliases=["a"], default=1)),
        record(field("int", "a")),
        [("READER_FIELD_AMBIGUOUS", "/fields/0")],
    ),
]


@pytest.mark.parametrize(("reader", "writer", "expected"), RULES)
def test_the_rules_of_apache_avro(reader, writer, expected):
    assert found(reader, writer) == expected


def test_everything_that_breaks_is_told_and_not_only_the_first():
    reader = record(field("int", "a"), field("int", "b"), field("int", "c"), name="S")
    writer = record(field("string", "a"), field("int", "c"))
    assert found(reader, writer) == [
        ("NAME_MISMATCH", "/name"),
        ("TYPE_MISMATCH", "/fields/0/type"),
        ("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/1"),
    ]


def test_a_sentence_says_what_breaks_where_and_why():
    inner = record(field("int", "amount"), name="Item")
    other = record(field("string", "amount"), name="Item")
    [told] = breakages(record(field(["null", inner])), record(field(["null", other])))
    for words in ("'f'", "record R", "record Item", "'amount'", "string cannot be read as int"):
        assert words in told.message
    [told] = breakages(enum("A"), enum("C", "B", "A"))
    assert "[B, C]" in told.message


TREE = record(field("int", "v"), field(["null", "R"], "left"), field(["null", "R"], "right"))


def test_recursive_types_are_compared_and_each_breakage_told_once():
    assert found(TREE, TREE) == []
    broken = record(field("string", "v"), *TREE["fields"][1:])
    assert found(broken, TREE) == [("TYPE_MISMATCH", "/fields/0/type")]


def test_a_guess_about_a_recursive_type_is_taken_back_when_it_proves_wrong():
    # A is tried first for what was written as a.X, and C is found readable only as long as A is;
    # A is not, b.X takes its place, and C must then be found unreadable.
    def x(space, *fields):
        return record(*fields, name="X", namespace=space)

    def c(inner):
        return record(field(inner, "x"), name="C", namespace="")

    writer = record(
        field([x("a", field(["null", c("a.X")], "c"), field("int", "v"))], "u"),
        field("C", "d"),
    )
    reader = record(
        field(
            [
                x("a", field(["null", c("a.X")], "c"), field("string", "v")),
                x("b"),
            ],
            "u",
        ),
        field("C", "d"),
    )
    assert ("TYPE_MISMATCH", "/fields/1/type/fields/0/type/fields/1/type") in found(reader, writer)


def test_types_from_references_are_compared():
    item = record(field("int"), name="Item", namespace="n")
    changed = json.dumps(record(field("string"), name="Item", namespace="n"))
    text = json.dumps(record(field("n.Item", "item")))
    old = LANGUAGE.parse(text, {"n.Item": json.dumps(item)}, new=True)
    new = LANGUAGE.parse(text, {"n.Item": changed}, new=True)
    [told] = LANGUAGE.incompatibilities(new, old)
    assert told.path == "/fields/0/type/fields/0/type"


def test_logical_types_do_not_count():
    assert found({"type": "int", "logicalType": "date"}, "int") == []
    decimals = [
        {"type": "bytes", "logicalType": "decimal", "precision": each, "scale": 2}
        for each in (4, 9)
    ]
    assert found(*decimals) == []


def test_200_fields_are_compared_in_less_than_5_ms():
    fields = [field(["null", {"type": "array", "items": "int"}], f"f{i}") for i in range(200)]
    old = LANGUAGE.parse(json.dumps(record(*fields)), {}, new=True)
    new = LANGUAGE.parse(json.dumps(record(*fields[:-1], field("int", "g"))), {}, new=True)
    taken = []
    for _ in range(20):
        # The time of this process alone: other tests share the machine.
        start = time.process_time()
        assert len(LANGUAGE.incompatibilities(new, old)) == 1
        taken.append(time.process_time() - start)
    assert min(taken) < 0.005


def chain(length, last):
    """Records that each hold the one before, twice."""
    links = [record(field(last), name="C0")]
    links += [
        record(field(f"C{i - 1}", "a"), field(f"C{i - 1}", "b"), name=f"C{i}")
        for i in range(1, length)
    ]
    return json.dumps(links)


def test_long_chains_of_records_need_no_recursion_and_no_doubling():
    references = [{"chain": chain(2_000, last)} for last in ("int", "string")]
    old, new = (LANGUAGE.parse('"C1999"', each, new=True) for each in references)
    assert LANGUAGE.incompatibilities(old, old) == []
    [told] = LANGUAGE.incompatibilities(new, old)
    assert told.kind == "TYPE_MISMATCH"


def test_schemas_too_large_to_compare_are_refused_in_words(monkeypatch):
    monkeypatch.setattr(compatibility, "MAX_COMPARISONS", 100)
    wide = record(*(field("int", f"f{i}") for i in range(200)))
    [told] = breakages(wide, wide)
    assert told.kind == "COMPARISON_TOO_LARGE"
    assert "100" in told.message


def test_large_unions_are_compared_by_name():
    wide = [record(name=f"R{i}") for i in range(2_000)]
    assert found(wide, wide[::-1]) == []
    assert len(found(wide[1:], wide)) == 1


def test_only_avro_is_compared_with_avro():
    with pytest.raises(InvalidSchema, match="only Avro"):
        LANGUAGES["AVRO"].incompatibilities(
            TinySchema("TINY", "a", ("a",)), LANGUAGE.parse('"int"', {}, new=True)
        )
