"""Subjects and versions over the API: numbering, deleting, finding."""

import asyncio

import pytest

from tests.registry.registry_in_memory import Api


@pytest.fixture
def api() -> Api:
    return Api()


def test_the_same_schema_has_one_id_under_every_subject(api: Api) -> None:
    assert api.register("a", "x y") == 1
    assert api.register("a", "x y") == 1
    assert api.register("b", "x y") == 1
    assert api.register("b", "x") == 2
    assert api.get("/subjects/a/versions").content == [1]
    assert api.get("/subjects/b/versions").content == [1, 2]


def test_a_registration_answers_version_id_and_guid(api: Api) -> None:
    answer = api.post("/subjects/a/versions", {"schema": "x  y"})
    assert answer.content == {
        "version": 1,
        "id": 1,
        # MD5 of the text "x y".
        "guid": "c8d1ae92-9633-5b1c-fc3d-0d1b47b664a7",
        "schemaType": "AVRO",
        "schema": "x y",
    }


def test_a_version_has_all_of_confluents_fields_and_no_other(api: Api) -> None:
    api.register("a", "x", schemaType="JSON")
    shown = api.get("/subjects/a/versions/1").content
    assert list(shown) == [
        "subject",
        "version",
        "id",
        "guid",
        "schemaType",
        "schema",
        "ts",
        "deleted",
    ]
    assert (shown["schemaType"], shown["deleted"]) == ("JSON", False)


def test_latest_and_minus_one_are_the_latest_version(api: Api) -> None:
    api.register("a", "x")
    api.register("a", "x y?")
    for latest in ("latest", "-1", "2"):
        assert api.get(f"/subjects/a/versions/{latest}").content["schema"] == "x y?"
    assert api.get("/subjects/a/versions/latest/schema").content == "x y?"


@pytest.mark.parametrize("version", ["0", "-2", "first", "2147483648", "1.0", ""])
def test_a_version_that_is_no_number_is_refused(api: Api, version: str) -> None:
    api.register("a", "x")
    answer = api.get(f"/subjects/a/versions/{version}%20")
    assert (answer.status, answer.code) == (422, 42202)


def test_what_is_missing_is_told_apart(api: Api) -> None:
    api.register("a", "x")
    assert api.get("/subjects/b/versions").code == 40401
    assert api.get("/subjects/b/versions/1").code == 40401
    assert api.get("/subjects/a/versions/2").code == 40402
    assert api.post("/subjects/b", {"schema": "x"}).code == 40401
    assert api.post("/subjects/a", {"schema": "y"}).code == 40403
    assert api.get("/schemas/ids/9").content == {
        "error_code": 40403,
        "message": "Schema 9 not found",
    }


def test_a_lookup_finds_the_version_of_a_schema(api: Api) -> None:
    api.register("a", "x")
    api.register("a", "x y?")
    found = api.post("/subjects/a", {"schema": "x   y?"}).content
    assert (found["subject"], found["version"], found["id"]) == ("a", 2, 2)


def test_versions_go_on_after_a_soft_delete_and_begin_anew_after_a_permanent_one(api: Api) -> None:
    api.register("a", "x")
    api.register("a", "x y?")
    assert api.delete("/subjects/a").content == [1, 2]
    assert api.register("a", "x z?") == 3
    assert api.get("/subjects/a/versions").content == [3]
    assert api.delete("/subjects/a").content == [3]
    assert api.delete("/subjects/a", permanent=True).content == [1, 2, 3]
    api.register("a", "x w?")
    assert api.get("/subjects/a/versions").content == [1]


def test_a_deleted_schema_comes_back_with_its_id_and_a_new_version(api: Api) -> None:
    assert api.register("a", "x") == 1
    api.delete("/subjects/a/versions/1")
    assert api.register("a", "x") == 1
    assert api.get("/subjects/a/versions", deleted=True).content == [2]


def test_a_stated_version_must_be_the_next_one(api: Api) -> None:
    api.register("a", "x")
    answer = api.post("/subjects/a/versions", {"schema": "x y?", "version": 3})
    assert (answer.status, answer.code) == (422, 42201)
    api.register("a", "x y?", version=2)
    metadata = api.get("/subjects/a/versions/2").content["metadata"]
    assert metadata == {"properties": {"confluent:version": "2"}}


def test_a_subject_gone_for_good_takes_its_settings_along(api: Api) -> None:
    for whole in ("/subjects/a", "/subjects/a/versions/1"):
        api.register("a", "x")
        api.put("/config/a", {"compatibility": "NONE"})
        api.put("/mode/a", {"mode": "READWRITE"})
        api.delete(whole)
        assert api.get("/config/a").status == 200
        api.delete(whole, permanent=True)
        assert api.get("/config/a").code == 40408
        assert api.get("/mode/a").code == 40409


def test_a_subject_may_refer_to_itself_and_still_be_deleted(api: Api) -> None:
    api.register("a", "x")
    own = {"name": "old", "subject": "a", "version": 1}
    api.register("a", "@old y?", references=[own])
    assert api.delete("/subjects/a/versions/1").code == 42206
    assert api.delete("/subjects/a").content == [1, 2]
    assert api.delete("/subjects/a", permanent=True).content == [1, 2]


def test_deletes_are_soft_first_and_each_step_is_told(api: Api) -> None:
    api.register("a", "x")
    assert api.delete("/subjects/b").code == 40401
    assert api.delete("/subjects/a", permanent=True).code == 40405
    assert api.delete("/subjects/a/versions/1", permanent=True).code == 40407
    assert api.delete("/subjects/a/versions/7").code == 40402
    assert api.delete("/subjects/a/versions/latest").content == 1
    assert api.delete("/subjects/a/versions/1").code == 40406
    assert api.delete("/subjects/a").code == 40404
    assert api.delete("/subjects/a/versions/1", permanent=True).content == 1
    assert api.delete("/subjects/a").code == 40401


def test_what_is_deleted_shows_only_when_asked_for(api: Api) -> None:
    api.register("a", "x")
    api.register("a", "x y?")
    api.register("b", "x")
    api.delete("/subjects/a/versions/1")
    api.delete("/subjects/b")
    assert api.get("/subjects").content == ["a"]
    assert api.get("/subjects", deleted=True).content == ["a", "b"]
    assert api.get("/subjects", deletedOnly=True).content == ["b"]
    assert api.get("/subjects/a/versions").content == [2]
    assert api.get("/subjects/a/versions", deleted=True).content == [1, 2]
    assert api.get("/subjects/a/versions", deletedOnly=True).content == [1]
    assert api.get("/subjects/a/versions", deletedAsNegative=True).content == [-1, 2]
    assert api.get("/subjects/a/versions/1").code == 40402
    assert api.get("/subjects/a/versions/1", deleted=True).content["deleted"] is True
    # Data that was written with it can still be read.
    assert api.get("/schemas/ids/1").content["schema"] == "x"


def test_an_incompatible_schema_is_refused_with_its_reasons(api: Api) -> None:
    api.register("a", "x")
    answer = api.post("/subjects/a/versions", {"schema": "x y"})
    assert (answer.status, answer.code) == (409, 40901)
    assert "field y has no default" in answer.content["message"]
    assert api.get("/subjects/a/versions").content == [1]


def test_references_hold_what_they_refer_to(api: Api) -> None:
    api.register("base", "x")
    reference = {"name": "b", "subject": "base", "version": 1}
    number = api.register("a", "@b y", references=[reference])
    assert api.get(f"/schemas/ids/{number}").content["references"] == [reference]
    assert api.get(f"/schemas/ids/{number}", format="resolved").content["schema"] == "x y"
    assert api.get("/subjects/base/versions/1/referencedby").content == [number]
    assert api.delete("/subjects/base").code == 42206
    assert api.delete("/subjects/base/versions/1").code == 42206
    api.delete("/subjects/a")
    assert api.get("/subjects/base/versions/1/referencedby").content == []
    assert api.get("/subjects/base/versions/1/referencedby", deleted=True).content == [number]
    api.delete("/subjects/base")
    assert api.delete("/subjects/base", permanent=True).code == 42206


def test_a_reference_to_the_latest_version_is_kept_as_that_version(api: Api) -> None:
    api.register("base", "x")
    api.register("base", "x y?")
    latest = [{"name": "b", "subject": "base", "version": -1}]
    api.register("a", "@b", references=latest)
    assert api.get("/subjects/a/versions/1").content["references"][0]["version"] == 2
    assert api.post("/subjects/a", {"schema": "@b", "references": latest}).status == 200
    # A schema that was sent with its references written out is the same schema.
    assert api.post("/subjects/a", {"schema": "x y?"}).content["version"] == 1


@pytest.mark.parametrize(
    "reference",
    [
        {"name": "b", "subject": "base", "version": 2},
        {"name": "b", "subject": "nobody", "version": 1},
        {"name": "b", "subject": "gone", "version": 1},
        {"subject": "base", "version": 1},
        {"name": "b", "subject": "base"},
    ],
)
def test_references_that_lead_nowhere_are_refused(api: Api, reference: dict[str, object]) -> None:
    api.register("base", "x")
    api.register("gone", "z")
    api.delete("/subjects/gone")
    answer = api.post("/subjects/a/versions", {"schema": "@b", "references": [reference]})
    assert (answer.status, answer.code) == (422, 42201)


def test_lists_come_in_pages(api: Api) -> None:
    for name in "edcba":
        api.register(name, name)
    assert api.get("/subjects", offset=1, limit=2).content == ["b", "c"]
    assert api.get("/subjects", subjectPrefix="d").content == ["d"]
    shown = api.get("/schemas", offset=3).content
    assert [each["subject"] for each in shown] == ["d", "e"]


def test_all_schemas_or_only_the_latest(api: Api) -> None:
    api.register("a", "x")
    api.register("a", "x y?")
    api.register("b", "z")
    assert [each["version"] for each in api.get("/schemas").content] == [1, 2, 1]
    latest = api.get("/schemas", latestOnly=True).content
    assert [(each["subject"], each["version"]) for each in latest] == [("a", 2), ("b", 1)]


def test_an_id_and_a_guid_lead_to_all_places_of_a_schema(api: Api) -> None:
    api.register("a", "x")
    api.register("b", "x")
    assert api.get("/schemas/ids/1/subjects").content == ["a", "b"]
    assert api.get("/schemas/ids/1/versions").content == [
        {"subject": "a", "version": 1},
        {"subject": "b", "version": 1},
    ]
    assert api.get("/schemas/ids/1/schema").content == "x"
    guid = api.get("/schemas/ids/1").content["guid"]
    assert api.get(f"/schemas/guids/{guid}").content["schema"] == "x"
    assert "subject" not in api.get(f"/schemas/guids/{guid}").content
    assert api.get(f"/schemas/guids/{guid}/ids").content == [{"context": ".", "id": 1}]
    assert api.get("/schemas/guids/nonsense").code == 40403
    assert api.get("/schemas/ids/5/versions").code == 40403
    assert api.get("/schemas/ids/1", fetchMaxId=True).content["maxId"] == 1


def test_formats_are_given_where_clients_ask_for_them(api: Api) -> None:
    metadata = {"properties": {"major": "1"}}
    api.register("a", "x", schemaType="PROTOBUF", metadata=metadata)
    for path in ("/schemas/ids/1", "/subjects/a/versions/1", "/subjects/a/versions/latest"):
        assert api.get(path, format="serialized").content["schema"] == "serialized(x)"
        assert api.get(path, format="ignore_extensions").content["schema"] == "x"
    found = api.get("/subjects/a/metadata", key="major", value="1", format="serialized")
    assert found.content["schema"] == "serialized(x)"


def test_normalized_schemas_are_one_schema(api: Api) -> None:
    first = api.post("/subjects/a/versions", {"schema": "y x"}, normalize=True).content
    assert first["schema"] == "x y"
    assert api.post("/subjects/a", {"schema": "y x"}).code == 40403
    assert api.post("/subjects/a", {"schema": "y x"}, normalize=True).content["version"] == 1
    api.put("/config/a", {"normalize": True})
    assert api.register("a", "y x") == first["id"]


def test_concurrent_registrations_get_one_id_each_and_the_same_schema_the_same(api: Api) -> None:
    async def register_all() -> list[int]:
        asked = (
            api.asked("POST", f"/subjects/s{n % 7}/versions", {"schema": f"f{n % 50}?"})
            for n in range(200)
        )
        return [each.content["id"] for each in await asyncio.gather(*asked)]

    ids = asyncio.run(register_all())
    assert len(set(ids)) == 50
    assert all(ids[n] == ids[n % 50] for n in range(200))
    assert sorted(set(ids)) == list(range(1, 51))


@pytest.mark.parametrize("subject", ["a/b", "a b", "ä", "..", "%", "a?b#c", "x/versions/1"])
def test_any_name_may_be_a_subject(api: Api, subject: str) -> None:
    from urllib.parse import quote

    quoted = quote(subject, safe="")
    assert api.register(quoted, "x") == 1
    assert api.get("/subjects").content == [subject]
    assert api.get(f"/subjects/{quoted}/versions/1").content["subject"] == subject


@pytest.mark.parametrize("subject", ["__GLOBAL", "__EMPTY", "a%00b", "a%0Ab", ":.__GLOBAL:a"])
def test_reserved_names_and_control_characters_are_refused(api: Api, subject: str) -> None:
    answer = api.post(f"/subjects/{subject}/versions", {"schema": "x"})
    assert (answer.status, answer.code) == (422, 42208)


def test_metadata_and_rules_of_a_version_are_changed_as_a_new_version(api: Api) -> None:
    api.register("a", "x")
    rule = {"name": "r", "mode": "WRITE", "type": "CEL"}
    body = {"metadata": {"properties": {"k": "v"}}, "rulesToMerge": {"domainRules": [rule]}}
    answer = api.post("/subjects/a/versions/latest/tags", {**body, "newVersion": 2})
    assert answer.content["version"] == 2
    assert answer.content["metadata"] == {"properties": {"confluent:version": "2", "k": "v"}}
    assert answer.content["ruleSet"] == {"domainRules": [{**rule, "disabled": False}]}
    answer = api.post("/subjects/a/versions/2/tags", {"newVersion": 3, "rulesToRemove": ["r"]})
    assert "domainRules" not in answer.content.get("ruleSet", {})
    assert api.post("/subjects/a/versions/9/tags", {}).code == 40402
    both = {"ruleSet": {}, "rulesToRemove": ["r"]}
    assert api.post("/subjects/a/versions/1/tags", both).code == 42210
