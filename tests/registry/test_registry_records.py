"""The topic's records: Confluent's bytes, and state that any replay rebuilds."""

import asyncio
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.registry.configs import Mode
from headrace.registry.language import Reference
from headrace.registry.records import (
    BadRecord,
    ConfigRecord,
    ContextRecord,
    ModeRecord,
    Noop,
    SchemaRecord,
    SubjectCleared,
    SubjectDeleted,
    decode,
    encode,
)
from headrace.registry.registry import Registry
from headrace.registry.schema import Schema, SchemaVersion
from tests.registry.registry_in_memory import NOW_MS, Api
from tests.registry.tiny_language import TINY_LANGUAGES

SCHEMA = Schema("AVRO", '"int"')
VERSION = SchemaVersion("a", 1, 7, SCHEMA, SCHEMA.guid, timestamp_ms=NOW_MS)
RICH = Schema(
    "PROTOBUF",
    "ä",
    (Reference("r", "base", 2),),
    {"properties": {"k": "v"}},
    {"domainRules": [{"name": "n", "mode": "WRITE", "type": "CEL", "disabled": False}]},
)

# As Confluent's registry 8 writes them: its serializer's order of fields, without white space.
CONFLUENT: list[tuple[Any, str, str | None]] = [
    (
        SchemaRecord("a", 1, VERSION),
        '{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
        '{"subject":"a","version":1,"id":7,"schemaType":"AVRO","schema":"\\"int\\"",'
        '"deleted":false}',
    ),
    (
        SchemaRecord("b", 2, SchemaVersion("b", 2, 8, RICH, RICH.guid, True, NOW_MS)),
        '{"keytype":"SCHEMA","subject":"b","version":2,"magic":1}',
        '{"subject":"b","version":2,"id":8,"schemaType":"PROTOBUF","references":[{"name":"r",'
        '"subject":"base","version":2}],"metadata":{"properties":{"k":"v"}},"ruleSet":'
        '{"domainRules":[{"name":"n","mode":"WRITE","type":"CEL","disabled":false}]},'
        '"schema":"ä","deleted":true}',
    ),
    (
        SchemaRecord("a", 1, None),
        '{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
        None,
    ),
    (
        ConfigRecord(None, {"compatibilityLevel": "FULL"}),
        '{"keytype":"CONFIG","magic":0}',
        '{"compatibilityLevel":"FULL"}',
    ),
    (
        ConfigRecord("a", {"normalize": True, "compatibilityLevel": "FULL"}),
        '{"keytype":"CONFIG","subject":"a","magic":0}',
        '{"subject":"a","normalize":true,"compatibilityLevel":"FULL"}',
    ),
    (ConfigRecord("a", None), '{"keytype":"CONFIG","subject":"a","magic":0}', None),
    (
        ModeRecord("a", Mode.IMPORT),
        '{"keytype":"MODE","subject":"a","magic":0}',
        '{"subject":"a","mode":"IMPORT"}',
    ),
    (
        SubjectDeleted("a", 3),
        '{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}',
        '{"subject":"a","version":3}',
    ),
    (
        SubjectCleared("a"),
        '{"keytype":"CLEAR_SUBJECT","subject":"a","magic":0}',
        '{"subject":"a"}',
    ),
    (
        ContextRecord(".c", exists=True),
        '{"keytype":"CONTEXT","tenant":"default","context":".c","magic":0}',
        '{"tenant":"default","context":".c"}',
    ),
]


@pytest.mark.parametrize(
    ("record", "key", "value"), CONFLUENT, ids=lambda each: type(each).__name__
)
def test_records_are_confluents_bytes_and_come_back(
    record: Any, key: str, value: str | None
) -> None:
    encoded = encode(record)
    assert encoded == (key.encode(), None if value is None else value.encode())
    assert decode(*encoded, NOW_MS) == record


def test_records_of_older_registries_are_read() -> None:
    key = b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":0}'
    value = b'{"subject":"a","version":1,"id":7,"schema":"\\"int\\"","deleted":false,"offset":3}'
    assert decode(key, value, NOW_MS) == SchemaRecord("a", 1, VERSION)
    null = b'{"keytype":"CONFIG","subject":null,"magic":0}'
    assert decode(null, b'{"compatibilityLevel":"NONE"}', 0) == ConfigRecord(
        None, {"compatibilityLevel": "NONE"}
    )
    assert encode(Noop()) == (b'{"keytype":"NOOP","magic":0}', None)
    assert decode(*encode(Noop()), 0) is None


def test_a_stored_md5_is_the_guid() -> None:
    value = b'{"subject":"a","version":1,"id":7,"md5":"AAAAAAAAAAAAAAAAAAAAAA==","schema":"x"}'
    record = decode(b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', value, 0)
    assert isinstance(record, SchemaRecord)
    assert record.value is not None
    assert record.value.guid == "00000000-0000-0000-0000-000000000000"


BAD = [
    (b"", b"{}"),
    (None, None),
    (b"[]", None),
    (b"\xff", None),
    (b"{}", b"{}"),
    (b'{"keytype":"POEM"}', b"{}"),
    (b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":9}', b"{}"),
    (b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', b"{}"),
    (b'{"keytype":"SCHEMA","subject":"a","version":"1","magic":1}', None),
    (b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', b'{"id":1,"schema":3}'),
    (b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', b"not json"),
    (b'{"keytype":"MODE","subject":"a"}', b'{"mode":"PERHAPS"}'),
    (b'{"keytype":"CONFIG","subject":"a"}', b'{"compatibilityLevel":"PERHAPS"}'),
    (b'{"keytype":"DELETE_SUBJECT","subject":"a"}', b"{}"),
]


@pytest.mark.parametrize(("key", "value"), BAD)
def test_a_bad_record_is_told_from_a_good_one(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(BadRecord):
        decode(key, value, 0)


@given(st.binary(max_size=60), st.none() | st.binary(max_size=60))
def test_no_bytes_break_the_reader(key: bytes, value: bytes | None) -> None:
    with contextlib.suppress(BadRecord):
        decode(key, value, 0)


shapes = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["name", "subject", "version", "tags"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
fields = st.sampled_from(
    [
        "subject",
        "version",
        "id",
        "schema",
        "schemaType",
        "references",
        "metadata",
        "ruleSet",
        "md5",
        "deleted",
        "mode",
        "compatibilityLevel",
        "normalize",
        "defaultMetadata",
        "context",
        "alias",
    ]
)
kinds = st.sampled_from(["SCHEMA", "CONFIG", "MODE", "DELETE_SUBJECT", "CLEAR_SUBJECT", "CONTEXT"])


def shown(registry: Registry) -> list[SchemaVersion]:
    return list(registry.subjects.all_versions(deleted=True))


@given(kinds, st.dictionaries(fields, shapes), st.dictionaries(fields, shapes))
def test_no_json_breaks_the_reader_or_the_state(
    kind: str, key: dict[str, Any], value: dict[str, Any]
) -> None:
    registry = Registry(TINY_LANGUAGES)
    whole = {"subject": "a", "version": 1, "magic": 1, **key, "keytype": kind}
    content = {"subject": "a", "version": 1, "id": 1, "schema": "x", **value}
    with contextlib.suppress(BadRecord):
        record = decode(json.dumps(whole).encode(), json.dumps(content).encode(), 0)
        if record is not None:
            registry.replay(record, 0)
            encode(record)
            assert all(isinstance(each.subject, str) for each in shown(registry))
            registry.subjects.aliases()


def test_a_record_that_gives_an_id_twice_is_skipped() -> None:
    registry = Registry(TINY_LANGUAGES)
    other = Schema("AVRO", "other")
    registry.replay(SchemaRecord("a", 1, VERSION), 0)
    registry.replay(BadRecord("nonsense"), 1)
    registry.replay(SchemaRecord("b", 1, SchemaVersion("b", 1, 7, other, other.guid)), 2)
    assert registry.skipped_records == 2
    assert registry.subjects.names() == ["a"]


subjects = st.sampled_from(["a", "b", ":.c:a"])
texts = st.sampled_from(["x", "x y?", "x z?", "y", "x? y? z?"])
steps = st.one_of(
    st.tuples(st.just("register"), subjects, texts),
    st.tuples(st.just("delete"), subjects, st.booleans()),
    st.tuples(st.just("delete_version"), subjects, st.tuples(st.integers(1, 4), st.booleans())),
    st.tuples(st.just("level"), subjects, st.sampled_from(["NONE", "FULL"])),
    st.tuples(st.just("mode"), subjects, st.sampled_from(["READONLY", "READWRITE", "IMPORT"])),
)


def run(api: Api, kind: str, subject: str, argument: Any) -> None:
    if kind == "register":
        api.post(f"/subjects/{subject}/versions", {"schema": argument})
    elif kind == "delete":
        api.delete(f"/subjects/{subject}", permanent=argument)
    elif kind == "delete_version":
        api.delete(f"/subjects/{subject}/versions/{argument[0]}", permanent=argument[1])
    elif kind == "level":
        api.put(f"/config/{subject}", {"compatibility": argument})
    else:
        api.put(f"/mode/{subject}", {"mode": argument})


def picture(registry: Registry) -> Any:
    """All that a client can see."""
    api = Api()
    api.registry.subjects = api.registry.parser._subjects = registry.subjects
    names = registry.subjects.names()
    return (
        names,
        [api.get("/schemas", deleted=True).content],
        [api.get(f"/schemas/ids/{n}", subject=s).content for n in range(8) for s in ("", ":.c:")],
        [api.get(f"/schemas/ids/{n}/versions", deleted=True).content for n in range(8)],
        [api.get(f"/config/{name}", defaultToGlobal=True).content for name in ("a", "b", ":.c:a")],
        [api.get(f"/mode/{name}", defaultToGlobal=True).content for name in ("a", "b", ":.c:a")],
        registry.subjects.contexts,
    )


@given(st.lists(steps, max_size=14))
def test_replaying_the_log_rebuilds_what_clients_saw(history: list[tuple[str, str, Any]]) -> None:
    api = Api()
    for step in history:
        run(api, *step)
    again = Registry(TINY_LANGUAGES)
    for offset, (key, value) in enumerate(api.log.records):
        record = decode(key, value, NOW_MS)
        if record is not None:
            again.replay(record, offset)
    assert again.skipped_records == 0
    assert picture(again) == picture(api.registry)


@given(st.lists(steps, max_size=14))
def test_an_id_never_means_two_schemas(history: list[tuple[str, str, Any]]) -> None:
    api = Api()
    meant: dict[tuple[str, int], str] = {}
    for step in history:
        run(api, *step)
        for version in api.registry.subjects.all_versions(deleted=True):
            context = ":.c:" if version.subject.startswith(":") else ""
            known = meant.setdefault((context, version.schema_id), version.schema.text)
            assert known == version.schema.text


@given(st.lists(steps, max_size=14))
def test_compaction_of_the_log_changes_nothing(history: list[tuple[str, str, Any]]) -> None:
    api = Api()
    for step in history:
        run(api, *step)
    last = {key: index for index, (key, _) in enumerate(api.log.records)}
    again = Registry(TINY_LANGUAGES)
    for index, (key, value) in enumerate(api.log.records):
        if last[key] == index:
            record = decode(key, value, NOW_MS)
            if record is not None:
                again.replay(record, index)
    assert again.subjects.names() == api.registry.subjects.names()
    for name in again.subjects.names():
        assert again.subjects.versions(name, deleted=True) == api.registry.subjects.versions(
            name, deleted=True
        )


def test_a_failed_write_changes_nothing() -> None:
    api = Api()

    async def refuse(records: object) -> None:
        raise RuntimeError("power cut")

    api.log.append = refuse  # type: ignore[method-assign]
    assert api.post("/subjects/a/versions", {"schema": "x"}).status == 500
    assert api.get("/subjects").content == []
    assert json.dumps(api.log.records) == "[]"
    assert asyncio.run(api.asked("GET", "/schemas/ids/1")).code == 40403
