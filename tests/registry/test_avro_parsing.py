"""What an Avro schema must be, and its text, held to what Apache Avro 1.12 for Java wrote."""

import json

import pytest

from headrace.registry.language import InvalidSchema
from headrace.registry.languages.avro import LANGUAGE
from headrace.registry.languages.avro_json import MAX_TEXT


def text(schema, *, new=True):
    given = schema if isinstance(schema, str) else json.dumps(schema)
    return LANGUAGE.parse(given, {}, new=new).text


def record(*fields, name="R", **more):
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(type_, name="f", **more):
    return {"name": name, "type": type_, **more}


E = {"type": "enum", "name": "E", "symbols": ["A"]}

# Each text was written by Apache Avro 1.12.0 for the schema before it.
JAVA = [
    ('"string"', '"string"'),
    ('{"type":"string","doc":"dropped"}', '"string"'),
    (
        '{"type":"string","avro.java.string":"String"}',
        '{"type":"string","avro.java.string":"String"}',
    ),
    (
        '{"x":1.50,"y":1e10,"z":1e-5,"w":100000000.0,"v":0.001,"u":-12345678.9,"n":null,"b":true,'
        '"l":[],"o":{},"nz":-0.0,"items":"int","type":"array"}',
        '{"type":"array","items":"int","x":1.5,"y":1.0E10,"z":1.0E-5,"w":1.0E8,"v":0.001,'
        '"u":-1.23456789E7,"n":null,"b":true,"l":[],"o":{},"nz":-0.0}',
    ),
    (
        '{"symbols":["A","B"],"aliases":["X","a.Y"],"x":1,"default":"A","doc":"d","name":"E",'
        '"type":"enum"}',
        '{"type":"enum","name":"E","doc":"d","symbols":["A","B"],"default":"A","x":1,'
        '"aliases":["X","a.Y"]}',
    ),
    (
        '{"type":"fixed","name":"a.b.F","namespace":"c","size":3}',
        '{"type":"fixed","name":"F","namespace":"a.b","size":3}',
    ),
    ('{"type":"error","name":"Er","fields":[]}', '{"type":"error","name":"Er","fields":[]}'),
    ('/* c */ {"type":"map", // d\n"values":"int"}', '{"type":"map","values":"int"}'),
    (
        record(field("double", default="NaN", order="DESCENDING", aliases=["b", "b"], k=1)),
        '{"type":"record","name":"R","fields":[{"name":"f","type":"double","default":"NaN",'
        '"order":"descending","aliases":["b"],"k":1}]}',
    ),
    (
        record(field("int", doc='\x01\x1f\x7f é"\\/\n'), doc=""),
        '{"type":"record","name":"R","doc":"","fields":[{"name":"f","type":"int",'
        '"doc":"\\u0001\\u001F\x7f é\\"\\\\/\\n"}]}',
    ),
    (
        record(
            field(record(field("n.R", "g"), name="S", namespace="")), field("S", "g"), namespace="n"
        ),
        '{"type":"record","name":"R","namespace":"n","fields":[{"name":"f","type":{"type":"record",'
        '"name":"S","namespace":"","fields":[{"name":"g","type":"n.R"}]}},{"name":"g",'
        '"type":"S"}]}',
    ),
    (
        record(field("E"), field(E, "g"), field(E, "h")),
        '{"type":"record","name":"R","fields":[{"name":"f","type":{"type":"enum","name":"E",'
        '"symbols":["A"]}},{"name":"g","type":"E"},{"name":"h","type":"E"}]}',
    ),
]


@pytest.mark.parametrize(("given", "written"), JAVA)
def test_the_text_is_what_java_writes_and_reads_back_the_same(given, written):
    assert text(given) == written
    assert text(written) == written


WRONG = [
    ("", "not JSON"),
    ("{", "not JSON"),
    ('{"type":"map","values":"int"} x', "not JSON"),
    ('{"type":"string","x":NaN}', "not JSON"),
    ("5", "is no schema"),
    ("null", "is no schema"),
    ('"nope"', "'nope' is not defined"),
    ({"type": {"type": "string"}}, "no type"),
    ({"type": "array"}, "no items"),
    ({"type": "map"}, "no values"),
    (["null", "null"], "null twice"),
    ([["int"]], "holds a union"),
    ([E, "E"], "E twice"),
    ({"type": "enum", "name": "E"}, "no symbols"),
    ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "'A' twice"),
    ({"type": "enum", "name": "E", "symbols": ["A-B"]}, "'A-B' at /symbols/0"),
    ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "default 'B'"),
    ({"type": "fixed", "name": "F"}, "no size"),
    ({"type": "fixed", "name": "F", "size": -1}, "no size"),
    ({"type": "fixed", "name": "F", "size": True}, "no size"),
    ({"type": "fixed", "name": "int", "size": 1}, "primitive"),
    ({"type": "fixed", "name": "9F", "size": 1}, "'9F'"),
    ({"type": "fixed", "name": "F", "namespace": "a..b", "size": 1}, "namespace part"),
    ({"type": "fixed", "size": 1}, "no name"),
    ({"type": "record", "name": "R"}, "no fields"),
    (record(field("int"), field("int")), "two fields named 'f'"),
    (record({"type": "int"}), "no name"),
    (record({"name": "f"}), "no type"),
    (record(field("int", order="up")), "order"),
    (record(field("int", aliases="b")), "aliases"),
    (record(field(E), field({**E, "symbols": ["B"]}, "g")), "E is defined twice"),
    (record(field(record(name="S")), field(record(name="S"), "g")), "S is defined twice"),
    ('{"type":"string","x":"\\ud800"}', "surrogate"),
]


@pytest.mark.parametrize(("schema", "reason"), WRONG)
def test_what_is_wrong_is_refused_with_the_reason(schema, reason):
    with pytest.raises(InvalidSchema, match=reason):
        text(schema)


def test_a_refusal_says_where():
    with pytest.raises(InvalidSchema, match="/fields/1/type/items"):
        text(record(field("int"), field({"type": "array", "items": "Nope"}, "g")))


S = record(field("int", "a", default=1), field("int", "b"), name="S")
DEFAULTS = [
    ("int", 1, True),
    ("int", 1.0, False),
    ("int", 2**31, False),
    ("int", True, False),
    ("long", 2**31, True),
    ("long", 2**63, False),
    ("float", 1, True),
    ("boolean", 1, False),
    ("null", None, True),
    ("string", None, False),
    ("bytes", "\u00ff", True),
    (["null", "string"], "x", True),
    (["null", "string"], 5, False),
    (E, "A", True),
    (E, 1, False),
    ({"type": "array", "items": "int"}, [1, 2], True),
    ({"type": "array", "items": "int"}, [1, "x"], False),
    ({"type": "map", "values": "int"}, {"a": 1}, True),
    ({"type": "map", "values": "int"}, [], False),
    (S, {"b": 2}, True),
    (S, {"a": 2}, False),
]


@pytest.mark.parametrize(("type_", "default", "valid"), DEFAULTS)
def test_defaults_of_new_schemas_are_values_of_their_type(type_, default, valid):
    schema = record(field(type_, default=default))
    assert text(schema, new=False)
    if valid:
        assert json.loads(text(schema))["fields"][0]["default"] == default
    else:
        with pytest.raises(InvalidSchema, match="default"):
            text(schema)


def test_a_default_that_contains_itself_is_refused():
    with pytest.raises(InvalidSchema, match="without end"):
        text(record(field("R", default={})))
    a, b = record(field("B", default={}), name="A"), record(field("A", default={}), name="B")
    with pytest.raises(InvalidSchema, match="without end"):
        text([a, b])


def test_names_beyond_ascii_are_taken_from_stored_schemas_only():
    schema = {"type": "fixed", "name": "größe", "size": 1}
    assert text(schema, new=False)
    with pytest.raises(InvalidSchema, match="größe"):
        text(schema)


ITEM = json.dumps(record(field(E, "kind"), name="Item", namespace="shop"))
ORDER = json.dumps(record(field("shop.Item", "item"), field("shop.E", "kind"), namespace="o"))


def test_types_come_from_references_by_full_name_and_stay_names_in_the_text():
    order = LANGUAGE.parse(ORDER, {"shop.Item": ITEM}, new=True)
    assert [each["type"] for each in json.loads(order.text)["fields"]] == ["shop.Item", "shop.E"]
    assert order.names == ("o.R",)
    assert LANGUAGE.parse(ITEM, {}, new=True).names == ("shop.Item", "shop.E")
    with pytest.raises(InvalidSchema, match=r"shop\.Item"):
        LANGUAGE.parse(ORDER, {}, new=True)


def test_resolved_puts_references_in_once():
    order = LANGUAGE.parse(ORDER, {"shop.Item": ITEM}, new=True)
    resolved = json.loads(order.resolved())
    assert resolved["fields"][0]["type"]["namespace"] == "shop"
    assert resolved["fields"][1]["type"] == "shop.E"
    alone = LANGUAGE.parse(order.resolved(), {}, new=True)
    assert LANGUAGE.incompatibilities(alone, order) == []


def test_a_fault_in_a_reference_names_it():
    with pytest.raises(InvalidSchema, match=r"shop\.Item"):
        LANGUAGE.parse(ORDER, {"shop.Item": "{"}, new=True)


def test_a_new_schema_may_not_redefine_what_it_refers_to():
    again = json.dumps(record(name="Item", namespace="shop"))
    with pytest.raises(InvalidSchema, match="defined twice"):
        LANGUAGE.parse(again, {"shop.Item": ITEM}, new=True)
    assert LANGUAGE.parse(again, {"shop.Item": ITEM}, new=False).names == ("shop.Item",)


def test_the_normal_form_sorts_what_has_no_order_and_keeps_the_rest():
    decimal = {"scale": 2, "z": {"b": 1, "a": 2}, "precision": 9, "logicalType": "decimal"}
    schema = record(
        field({"type": "bytes", **decimal}, aliases=["y", "x"], q=1, p=2),
        field("double", "g", default=1, doc=""),
        doc="",
        aliases=["Z", "A"],
    )
    assert LANGUAGE.parse(json.dumps(schema), {}, new=True).normalized().text == (
        '{"type":"record","name":"R","fields":[{"name":"f","type":{"type":"bytes",'
        '"logicalType":"decimal","precision":9,"scale":2,"z":{"a":2,"b":1}},'
        '"aliases":["x","y"],"p":2,"q":1},{"name":"g","type":"double","doc":"","default":1.0}],'
        '"aliases":["A","Z"]}'
    )


def test_a_normal_form_keeps_its_references():
    order = LANGUAGE.parse(ORDER, {"shop.Item": ITEM}, new=True).normalized()
    assert '"shop.Item"' in order.text
    assert order.serialized() == order.text
    assert order.language == "AVRO"


BOMBS = [
    ('{"type":"string","doc":"' + "x" * 10_000_000 + '"}', str(MAX_TEXT)),
    ("[" * 100_000, "nested"),
    ('{"type":"array","items":' * 100 + '"int"' + "}" * 100, "nested"),
    ('{"type":"string","x":' + "[" * 5_000 + "]" * 5_000 + "}", "nested"),
    ('{"type":"string","x":' + "1" * 5_000 + "}", "digits"),
]


@pytest.mark.parametrize(("bomb", "reason"), BOMBS, ids=range(len(BOMBS)))
def test_what_is_too_large_or_too_deep_is_refused_in_words(bomb, reason):
    with pytest.raises(InvalidSchema, match=reason):
        text(bomb)


def test_what_would_be_too_deep_written_out_is_refused():
    links = [record(name="C0")]
    links += [record(field(f"C{i - 1}"), name=f"C{i}") for i in range(1, 100)]
    assert text(links)
    with pytest.raises(InvalidSchema, match="written out"):
        text(links[::-1])
    with pytest.raises(InvalidSchema, match="written out"):
        LANGUAGE.parse('"C99"', {"links": json.dumps(links)}, new=True).resolved()


def test_defaults_within_defaults_take_no_time():
    names = [f"U{i}" for i in range(30)]
    value: object = 5
    for _ in range(60):
        value = {"f": value}
    unions = [record(field(names), name=each) for each in names]
    with pytest.raises(InvalidSchema, match="default"):
        text([*unions, record(field(names, default=value))])
