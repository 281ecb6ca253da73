"""Metadata and rule sets: their JSON shape, how they merge, and what they add to a schema's hash.

Both stay JSON objects in Confluent's order of fields, empty fields left out, so that what is
stored, hashed and answered is one value.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from headrace.registry.refusals import Refusal, Refused

Metadata = Mapping[str, Any]
RuleSet = Mapping[str, Any]

VERSION_PROPERTY = "confluent:version"
RULE_LISTS = ("migrationRules", "domainRules", "encodingRules")
RULE_KINDS = ("TRANSFORM", "CONDITION")
MIGRATION_MODES = ("UPGRADE", "DOWNGRADE", "UPDOWN")
DOMAIN_MODES = ("WRITE", "READ", "WRITEREAD")
MAX_RULE_NAME = 64
RULE_TEXTS = ("name", "doc", "kind", "mode", "type", "tags", "params", "expr")
RULE_ENDS = ("onSuccess", "onFailure")
# Distinguishes metadata without content from none (Confluent's hash).
PRESENT: Final = b"\x01"


def metadata(given: object) -> Metadata | None:
    """The metadata of a request or a record, in order; raises 400 if it has another shape."""
    if given is None:
        return None
    fields = _mapping(given, "metadata")
    tags = {
        key: _texts(values, "tags")
        for key, values in sorted(_mapping(fields.get("tags") or {}, "tags").items())
    }
    properties = _text_map(fields.get("properties"), "properties")
    sensitive = _texts(fields.get("sensitive") or (), "sensitive")
    return _filled({"tags": tags, "properties": properties, "sensitive": sensitive})


def rule_set(given: object) -> RuleSet | None:
    """The rule set of a request or a record, in order; raises 400 if it has another shape."""
    if given is None:
        return None
    fields = _mapping(given, "ruleSet")
    lists = {
        name: [_rule(each) for each in _list(fields.get(name) or (), name)] for name in RULE_LISTS
    }
    return _filled({**lists, "enableAt": fields.get("enableAt")})


def require_valid_rules(rules: RuleSet | None) -> None:
    """Raise 42210 for rules that no client could run."""
    names: set[str] = set()
    for list_name in RULE_LISTS:
        for rule in (rules or {}).get(list_name, ()):
            _require_valid_rule(rule)
            if rule["name"] in names:
                _refuse_rule(f"Found rule with duplicate name '{rule['name']}'")
            names.add(rule["name"])
            _require_mode(list_name, rule.get("mode"))


def merged_metadata(old: Metadata | None, new: Metadata | None) -> Metadata | None:
    """Both, the new one's entries winning."""
    if old is None or new is None:
        return new if old is None else old
    maps = {
        name: dict(sorted({**old.get(name, {}), **new.get(name, {})}.items()))
        for name in ("tags", "properties")
    }
    sensitive = sorted({*old.get("sensitive", ()), *new.get("sensitive", ())})
    return _filled({**maps, "sensitive": sensitive})


def merged_rules(old: RuleSet | None, new: RuleSet | None) -> RuleSet | None:
    """Both, a rule of the new one replacing the old one of its name."""
    if old is None or new is None:
        return new if old is None else old
    lists = {}
    for name in RULE_LISTS:
        mine = new.get(name, [])
        taken = {rule["name"] for rule in mine}
        lists[name] = [rule for rule in old.get(name, []) if rule["name"] not in taken] + mine
    return _filled({**lists, "enableAt": new.get("enableAt") or old.get("enableAt")})


def without_rules(rules: RuleSet | None, names: Iterable[str]) -> RuleSet | None:
    if rules is None:
        return None
    dropped = set(names)
    lists = {
        name: [rule for rule in rules.get(name, ()) if rule["name"] not in dropped]
        for name in RULE_LISTS
    }
    return _filled({**lists, "enableAt": rules.get("enableAt")})


def with_version(given: Metadata | None, version: int) -> Metadata:
    """The metadata with the version written into its properties."""
    merged = merged_metadata(given, {"properties": {VERSION_PROPERTY: str(version)}})
    return merged or {}


def stated_version(given: Metadata | None) -> str | None:
    text: str | None = (given or {}).get("properties", {}).get(VERSION_PROPERTY)
    return text


def without_version(given: Metadata | None) -> Metadata | None:
    """The metadata without that property; None if nothing else was in it."""
    if given is None:
        return None
    properties = {
        key: value for key, value in given.get("properties", {}).items() if key != VERSION_PROPERTY
    }
    return _filled({**given, "properties": properties}) or None


def metadata_hash(given: Metadata | None) -> bytes:
    """What metadata adds to the bytes a schema's GUID is made of."""
    if given is None:
        return b""
    parts: list[str] = []
    for key, values in given.get("tags", {}).items():
        parts += [key, *values]
    for key, value in given.get("properties", {}).items():
        parts += [key, value]
    parts += given.get("sensitive", ())
    return PRESENT + "".join(parts).encode()


def rules_hash(given: RuleSet | None) -> bytes:
    """What a rule set adds to the bytes a schema's GUID is made of."""
    if given is None:
        return b""
    parts = [_rule_hash(rule) for name in RULE_LISTS for rule in given.get(name, ())]
    return PRESENT + b"".join(parts) + (given.get("enableAt") or "").encode()


def _rule_hash(rule: Mapping[str, Any]) -> bytes:
    parts: list[str] = []
    for name in (*RULE_TEXTS, *RULE_ENDS):
        value = rule.get(name)
        if isinstance(value, dict):
            parts += [text for pair in value.items() for text in pair]
        elif isinstance(value, list):
            parts += value
        elif value is not None:
            parts.append(value)
    return "".join(parts).encode() + (PRESENT if rule.get("disabled") else b"")


def _rule(given: object) -> dict[str, Any]:
    fields = _mapping(given, "rule")
    rule: dict[str, Any] = {}
    for name in (*RULE_TEXTS, *RULE_ENDS):
        value = fields.get(name)
        if name == "tags":
            value = _texts(value or (), "tags")
        elif name == "params":
            value = _text_map(value, "params")
        elif value is not None and not isinstance(value, str):
            raise Refused(Refusal.BAD_REQUEST, f"{name} of a rule must be a string")
        rule[name] = value
    return {**_filled(rule), "disabled": bool(fields.get("disabled", False))}


def _require_valid_rule(rule: Mapping[str, Any]) -> None:
    name = rule.get("name", "")
    if not name:
        _refuse_rule("Missing rule name")
    if len(name) > MAX_RULE_NAME:
        _refuse_rule("Rule name too long")
    if not (name[0].isalpha() or name[0] == "_"):
        _refuse_rule(f"Illegal initial character in rule name: {name}")
    if not all(letter.isalnum() or letter in "_-" for letter in name[1:]):
        _refuse_rule(f"Illegal character in rule name: {name}")
    if "type" not in rule:
        _refuse_rule("Missing rule type")
    if rule.get("kind") not in (None, *RULE_KINDS):
        _refuse_rule(f"Illegal kind of rule {name}: {rule['kind']}")
    several = any("," in rule.get(end, "") for end in RULE_ENDS)
    if several and rule.get("mode") not in (None, "WRITEREAD", "UPDOWN"):
        _refuse_rule("Multiple actions only valid with WRITEREAD and UPDOWN")


def _require_mode(list_name: str, mode: str | None) -> None:
    if list_name == "migrationRules" and mode not in MIGRATION_MODES:
        _refuse_rule("Migration rules can only be UPGRADE, DOWNGRADE, UPDOWN")
    if list_name == "domainRules" and mode not in DOMAIN_MODES:
        _refuse_rule("Domain rules can only be WRITE, READ, WRITEREAD")
    if list_name == "encodingRules" and mode not in DOMAIN_MODES:
        _refuse_rule("Encoding rules can only be WRITE, READ, WRITEREAD")


def _refuse_rule(sentence: str) -> None:
    raise Refused(Refusal.INVALID_RULE_SET, sentence)


def _filled(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value or value is False}


def _mapping(given: object, name: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise Refused(Refusal.BAD_REQUEST, f"{name} must be an object")
    return given


def _list(given: object, name: str) -> Iterable[object]:
    if not isinstance(given, list | tuple):
        raise Refused(Refusal.BAD_REQUEST, f"{name} must be an array")
    return given


def _texts(given: object, name: str) -> list[str]:
    texts = [each for each in _list(given, name) if isinstance(each, str)]
    return sorted(set(texts))


def _text_map(given: object, name: str) -> dict[str, str]:
    return {
        key: value if isinstance(value, str) else str(value)
        for key, value in sorted(_mapping(given or {}, name).items())
    }
