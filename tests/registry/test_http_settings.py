"""Configs, modes and contexts over the API: who inherits what, and what each allows."""

import pytest

from tests.registry.registry_in_memory import Api


@pytest.fixture
def api() -> Api:
    return Api()


def test_levels_are_a_subjects_own_or_the_contexts_or_the_global_one(api: Api) -> None:
    assert api.get("/config").content == {"compatibilityLevel": "BACKWARD"}
    assert api.get("/config/a").code == 40408
    assert api.put("/config", {"compatibility": "full"}).content == {"compatibility": "FULL"}
    inherited = api.get("/config/a", defaultToGlobal=True).content
    assert inherited == {"compatibilityLevel": "FULL"}
    api.put("/config/:.c:", {"compatibility": "NONE"})
    assert api.get("/config/:.c:a", defaultToGlobal=True).content["compatibilityLevel"] == "NONE"
    assert (
        api.get("/config/:.d:a", defaultToGlobal=True).content["compatibilityLevel"] == "BACKWARD"
    )
    api.put("/config/a", {"compatibility": "FORWARD"})
    assert api.get("/config/a").content == {"compatibilityLevel": "FORWARD"}
    assert api.delete("/config/a").content == {"compatibilityLevel": "FORWARD"}
    assert api.delete("/config/a").code == 40401
    assert api.delete("/config").content == {"compatibilityLevel": "FULL"}
    assert api.get("/config").content == {"compatibilityLevel": "BACKWARD"}


def test_the_global_context_stands_behind_all_others(api: Api) -> None:
    api.put("/config/:.__GLOBAL:", {"compatibility": "NONE"})
    for subject in ("a", ":.c:a"):
        found = api.get(f"/config/{subject}", defaultToGlobal=True).content
        assert found["compatibilityLevel"] == "NONE"


def test_unknown_levels_and_modes_are_refused(api: Api) -> None:
    answer = api.put("/config", {"compatibility": "SIDEWAYS"})
    assert (answer.status, answer.code) == (422, 42203)
    answer = api.put("/mode", {"mode": "SOMETIMES"})
    assert (answer.status, answer.code) == (422, 42204)
    assert api.put("/mode/a", {"mode": "FORWARD"}).code == 42204


@pytest.mark.parametrize(
    ("level", "text", "fits"),
    [
        ("BACKWARD", "z", False),
        ("BACKWARD", "x? y?", True),
        ("FORWARD", "x y z", True),
        ("FORWARD", "z", False),
        ("FULL", "x y? z?", True),
        ("FULL", "x y? z", False),
        ("NONE", "z", True),
    ],
)
def test_a_level_decides_which_schemas_go_together(
    api: Api, level: str, text: str, fits: bool
) -> None:
    api.register("a", "x y?")
    api.put("/config/a", {"compatibility": level})
    asked = api.post("/compatibility/subjects/a/versions/latest", {"schema": text}, verbose=True)
    assert asked.content["is_compatible"] is fits
    assert bool(asked.content["messages"]) is not fits
    status = api.post("/subjects/a/versions", {"schema": text}).status
    assert status == (200 if fits else 409)


def test_transitive_levels_look_at_every_version(api: Api) -> None:
    api.register("a", "x")
    api.register("a", "x y?")
    api.register("a", "x y")
    schema = {"schema": "x y"}
    api.put("/config/a", {"compatibility": "BACKWARD_TRANSITIVE"})
    answer = api.post("/compatibility/subjects/a/versions", schema, verbose=True).content
    assert answer["is_compatible"] is False
    assert "{oldSchemaVersion: 1}" in answer["messages"]
    api.put("/config/a", {"compatibility": "BACKWARD"})
    assert api.post("/compatibility/subjects/a/versions", schema).content == {"is_compatible": True}


def test_compatibility_with_what_is_missing(api: Api) -> None:
    schema = {"schema": "x"}
    path = "/compatibility/subjects/a/versions"
    assert api.post(f"{path}/latest", schema).content == {"is_compatible": True}
    assert api.post(path, schema).content == {"is_compatible": True}
    assert api.post(f"{path}/3", schema).code == 40402
    assert api.post(f"{path}/x", schema).code == 42202
    assert api.post(path, {"schema": "!"}).code == 42201
    bad = api.post(path, {"schema": "!"}, verbose=True).content
    assert bad["is_compatible"] is False
    assert "is a mistake" in bad["messages"][0]


def test_compatibility_is_asked_within_a_group_of_versions(api: Api) -> None:
    def versioned(major: str) -> dict[str, object]:
        return {"properties": {"major": major}}

    api.put("/config/a", {"compatibilityGroup": "major"})
    api.register("a", "x", metadata=versioned("1"))
    api.register("a", "z", metadata=versioned("2"))
    answer = api.post("/subjects/a/versions", {"schema": "x y", "metadata": versioned("1")})
    assert answer.status == 409
    assert api.register("a", "x y?", metadata=versioned("1")) == 3


def test_metadata_and_rules_are_defaulted_overridden_and_inherited(api: Api) -> None:
    rule = {"name": "check", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "true"}
    api.put(
        "/config/a",
        {
            "defaultMetadata": {"properties": {"owner": "nobody", "team": "t"}},
            "overrideMetadata": {"properties": {"level": "high"}},
            "defaultRuleSet": {"domainRules": [rule]},
        },
    )
    api.register("a", "x", metadata={"properties": {"owner": "me", "level": "low"}})
    shown = api.get("/subjects/a/versions/1").content
    assert shown["metadata"] == {"properties": {"level": "high", "owner": "me", "team": "t"}}
    assert shown["ruleSet"] == {"domainRules": [{**rule, "disabled": False}]}
    # The next version has what the one before has, unless it says otherwise.
    api.register("a", "x y?")
    assert api.get("/subjects/a/versions/2").content["metadata"] == shown["metadata"]
    assert api.register("a", "x y?") == 2


def test_metadata_makes_another_schema_and_can_be_searched(api: Api) -> None:
    first = api.register("a", "x", metadata={"properties": {"v": "1"}})
    second = api.register("a", "x", metadata={"properties": {"v": "2"}})
    assert first != second
    assert api.get("/subjects/a/metadata", key="v", value="1").content["id"] == first
    assert api.get("/subjects/a/metadata", key="v", value="3").code == 40403
    assert api.get("/subjects/b/metadata", key="v", value="3").code == 40401


@pytest.mark.parametrize(
    "rule",
    [
        {"type": "CEL", "mode": "WRITE"},
        {"name": "1st", "type": "CEL", "mode": "WRITE"},
        {"name": "a", "mode": "WRITE"},
        {"name": "a", "type": "CEL", "mode": "UPGRADE"},
        {"name": "a", "type": "CEL", "mode": "WRITE", "onFailure": "DLQ,ERROR"},
    ],
)
def test_rules_that_cannot_run_are_refused(api: Api, rule: dict[str, str]) -> None:
    body = {"schema": "x", "ruleSet": {"domainRules": [rule]}}
    answer = api.post("/subjects/a/versions", body)
    assert (answer.status, answer.code) == (422, 42210)


def test_read_only_subjects_are_not_written(api: Api) -> None:
    api.register("a", "x")
    assert api.put("/mode/a", {"mode": "READONLY"}).content == {"mode": "READONLY"}
    # What is there already is still found by registering it.
    assert api.register("a", "x") == 1
    assert api.post("/subjects/a/versions", {"schema": "x y?"}).code == 42205
    assert api.delete("/subjects/a").code == 42205
    assert api.delete("/subjects/a/versions/1").code == 42205
    assert api.put("/config/a", {"compatibility": "NONE"}).code == 42205
    assert api.register("b", "x y?") == 2
    assert api.delete("/mode/a").content == {"mode": "READONLY"}
    assert api.delete("/mode/a").code == 40401
    assert api.register("a", "x y?") == 2


def test_modes_are_inherited_as_configs_are(api: Api) -> None:
    assert api.get("/mode").content == {"mode": "READWRITE"}
    assert api.get("/mode/a").code == 40409
    api.put("/mode/:.c:", {"mode": "READONLY"})
    assert api.get("/mode/:.c:a", defaultToGlobal=True).content == {"mode": "READONLY"}
    assert api.get("/mode/a", defaultToGlobal=True).content == {"mode": "READWRITE"}
    assert api.post("/subjects/:.c:a/versions", {"schema": "x"}).code == 42205
    api.put("/mode/:.c:b", {"mode": "READWRITE"})
    assert api.delete("/mode/:.c:", recursive=True).content == {"mode": "READONLY"}
    assert api.get("/mode/:.c:b").code == 40409


def test_schemas_are_imported_with_their_ids_and_versions(api: Api) -> None:
    assert api.post("/subjects/a/versions", {"schema": "x", "id": 7}).code == 42205
    api.put("/mode/a", {"mode": "IMPORT"})
    assert api.post("/subjects/a/versions", {"schema": "x"}).code == 42205
    assert api.register("a", "x", id=7, version=3) == 7
    assert api.register("a", "z", id=9, version=5) == 9
    assert api.get("/subjects/a/versions").content == [3, 5]
    # An id means one schema for ever.
    assert api.post("/subjects/a/versions", {"schema": "q", "id": 7}).code == 42205
    api.put("/mode/a", {"mode": "READWRITE"})
    assert api.register("a", "z y?") == 10
    assert api.get("/subjects/a/versions").content == [3, 5, 6]


def test_new_ids_follow_the_highest_one_imported(api: Api) -> None:
    api.put("/mode/a", {"mode": "IMPORT"})
    api.register("a", "x", id=9)
    api.register("a", "z", id=7)
    assert api.register("b", "q") == 10


def test_a_schema_imported_twice_is_found_at_the_version_that_is_left(api: Api) -> None:
    api.put("/mode/a", {"mode": "IMPORT"})
    api.register("a", "x", id=1, version=1)
    api.register("a", "x", id=1, version=3)
    assert api.get("/subjects/a/versions").content == [1, 3]
    api.delete("/subjects/a/versions/1")
    assert api.get("/schemas/ids/1/versions").content == [{"subject": "a", "version": 3}]
    api.delete("/subjects/a/versions/3")
    api.delete("/subjects/a/versions/3", permanent=True)
    assert api.get("/schemas/ids/1").content["version"] == 1


def test_import_begins_empty_unless_forced(api: Api) -> None:
    api.register("a", "x")
    assert api.put("/mode/a", {"mode": "IMPORT"}).code == 42205
    assert api.put("/mode/a", {"mode": "IMPORT"}, force=True).status == 200
    api.delete("/mode/a")
    api.delete("/subjects/a")
    assert api.put("/mode", {"mode": "IMPORT"}).status == 200
    assert api.get("/subjects", deleted=True).content == []


def test_contexts_keep_ids_and_subjects_apart(api: Api) -> None:
    api.register("a", "x")
    assert api.register(":.c:a", "y") == 1
    assert api.register(":.c:b", "x") == 2
    assert api.get("/contexts").content == [".", ".c"]
    assert api.get("/subjects").content == [":.c:a", ":.c:b", "a"]
    assert api.get("/subjects", subjectPrefix=":.c:").content == [":.c:a", ":.c:b"]
    assert api.get("/schemas/ids/1").content["schema"] == "x"
    assert api.get("/schemas/ids/1", subject=":.c:").content["schema"] == "y"
    guid = api.get("/schemas/ids/1").content["guid"]
    assert api.get(f"/schemas/guids/{guid}/ids").content == [
        {"context": ".", "id": 1},
        {"context": ".c", "id": 2},
    ]


@pytest.mark.parametrize("context", [".c", "c", ":.c:"])
def test_a_context_may_stand_before_every_path(api: Api, context: str) -> None:
    prefix = f"/contexts/{context}"
    answer = api.post(f"{prefix}/subjects/a/versions", {"schema": "x"})
    assert answer.content["id"] == 1
    assert api.get("/subjects").content == [":.c:a"]
    assert api.get(f"{prefix}/subjects").content == [":.c:a"]
    assert api.get(f"{prefix}/subjects/a/versions").content == [1]
    assert api.get(f"{prefix}/subjects/:.c:a/versions").content == [1]
    assert api.get(f"{prefix}/schemas/ids/1").content["subject"] == ":.c:a"
    assert api.get("/schemas/ids/1").code == 40403
    api.put(f"{prefix}/config", {"compatibility": "NONE"})
    assert api.get("/config/:.c:").content == {"compatibilityLevel": "NONE"}
    api.put(f"{prefix}/mode/a", {"mode": "READONLY"})
    assert api.get("/mode/:.c:a").content == {"mode": "READONLY"}
    check = api.post(f"{prefix}/compatibility/subjects/a/versions/1", {"schema": "y"})
    assert check.content == {"is_compatible": True}


def test_an_empty_context_can_be_deleted(api: Api) -> None:
    api.register(":.c:a", "x")
    answer = api.delete("/contexts/.c")
    assert (answer.status, answer.code) == (422, 42211)
    api.delete("/subjects/:.c:a")
    api.delete("/subjects/:.c:a", permanent=True)
    assert api.delete("/contexts/.c").status == 204
    assert api.get("/contexts").content == ["."]


def test_a_subject_is_found_in_other_contexts_when_the_default_one_lacks_it(api: Api) -> None:
    api.register(":.c:a", "x")
    assert api.get("/subjects/a/versions/1").content["subject"] == ":.c:a"
    assert api.post("/subjects/a", {"schema": "x"}).content["subject"] == ":.c:a"
    assert api.get("/schemas/ids/1", subject="a").content["subject"] == ":.c:a"


def test_an_alias_stands_for_its_subject(api: Api) -> None:
    api.register("real", "x")
    api.put("/config/nick", {"alias": "real"})
    assert api.get("/subjects/nick/versions").content == [1]
    assert api.register("nick", "x y?") == 2
    assert api.get("/subjects/real/versions").content == [1, 2]
    assert api.get("/config/nick").content["alias"] == "real"
    listed = api.get("/schemas", aliases=True, latestOnly=True, subjectPrefix="nick").content
    assert [each["aliases"] for each in listed] == [["nick"]]
    api.put("/config/nick", {"alias": None})
    assert api.get("/subjects/nick/versions").code == 40401
