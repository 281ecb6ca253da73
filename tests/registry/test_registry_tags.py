"""Tags in the text of a schema."""

import json

import pytest

from headrace.registry.refusals import Refusal, Refused
from headrace.registry.schema import Schema
from headrace.registry.tags import entities, found, retagged

INNER = {"type": "record", "name": "In", "fields": [{"name": "g", "type": "int"}]}
OUTER = {
    "type": "record",
    "name": "Out",
    "namespace": "n",
    "fields": [{"name": "f", "type": ["null", {"type": "array", "items": INNER}]}],
}
SCHEMA = Schema("AVRO", json.dumps(OUTER))


def place(kind: str, path: str, *tags: str) -> list[dict[str, object]]:
    return [{"schemaEntity": {"entityType": kind, "entityPath": path}, "tags": list(tags)}]


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("sr_record", "n.Out"),
        ("SR_FIELD", "n.Out.f"),
        ("sr_record", "n.In"),
        ("sr_field", "n.In.g"),
    ],
)
def test_a_tag_is_put_where_its_path_leads_and_taken_away_again(kind: str, path: str) -> None:
    tagged = retagged(SCHEMA, entities(place(kind, path, "PII", "PII", "A")), {})
    assert tagged.count('"confluent:tags":["A","PII"]') == 1
    plain = retagged(Schema("AVRO", tagged), {}, entities(place(kind, path, "PII", "A")))
    assert json.loads(plain) == OUTER


def test_a_place_that_is_not_there_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        retagged(SCHEMA, entities(place("sr_field", "n.Out.nothing", "PII")), {})
    assert refused.value.refusal is Refusal.INVALID_SCHEMA
    bad: object
    for bad in ([{}], [3], "x", 5):
        with pytest.raises(Refused):
            entities(bad)


def test_tags_are_found_by_name_or_all_of_them() -> None:
    tagged = retagged(SCHEMA, entities(place("sr_field", "n.In.g", "PII", "A")), {})
    shown = [
        {
            "schemaEntity": {"entityPath": "n.In.g", "entityType": "sr_field"},
            "tags": ["A", "PII"],
        }
    ]
    assert found(Schema("AVRO", tagged), ["PII"]) == shown
    assert found(Schema("AVRO", tagged), ["*"]) == shown
    assert found(Schema("AVRO", tagged), ["other"]) == []
