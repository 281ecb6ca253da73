"""What a subject, a context or everyone is held to: the fields, and who inherits from whom."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from headrace.registry import contracts
from headrace.registry.compatibility.levels import Level
from headrace.registry.refusals import Refusal, Refused

# A config is a JSON object with some of FIELDS, in this order.
Config = Mapping[str, Any]

TEXTS = ("alias", "aliasForDeks", "compatibilityGroup")
FLAGS = ("normalize", "validateFields", "validateNewSchemas", "validateRules")
METADATA = ("defaultMetadata", "overrideMetadata")
RULE_SETS = ("defaultRuleSet", "overrideRuleSet")
FIELDS = (
    "alias",
    "aliasForDeks",
    "normalize",
    "validateFields",
    "validateNewSchemas",
    "validateRules",
    "compatibilityLevel",
    "compatibilityPolicy",
    "compatibilityGroup",
    *METADATA,
    *RULE_SETS,
)
# What a subject's own config takes from the global one where it says nothing itself.
INHERITED = (*FLAGS, "compatibilityPolicy", "compatibilityGroup")
POLICIES = ("STRICT", "LENIENT", "LOGICAL")
# In requests the level has a name of its own.
REQUEST_LEVEL = "compatibility"


class Mode(StrEnum):
    """What may be done with a subject."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"
    FORWARD = "FORWARD"

    @property
    def read_only(self) -> bool:
        return self in (Mode.READONLY, Mode.READONLY_OVERRIDE)

    @property
    def importing(self) -> bool:
        """Schemas come with ids of their own, from another registry."""
        return self in (Mode.IMPORT, Mode.FORWARD)


def parse_mode(text: object) -> Mode:
    try:
        return Mode(str(text).upper())
    except ValueError:
        raise Refused(Refusal.INVALID_MODE) from None


def parse_level(text: object) -> Level:
    try:
        return Level(str(text).upper())
    except ValueError:
        raise Refused(Refusal.INVALID_LEVEL) from None


def config(fields: Mapping[str, Any]) -> Config:
    """A config from a record's fields; what is not known is left out."""
    shaped = {name: _shaped(name, fields.get(name)) for name in FIELDS}
    return {name: value for name, value in shaped.items() if value is not None}


def updated(old: Config | None, request: Mapping[str, Any]) -> Config:
    """The config after a request; a field given as null is taken back, one not given stays."""
    given = dict(request)
    if REQUEST_LEVEL in given:
        given["compatibilityLevel"] = given.pop(REQUEST_LEVEL)
    for name in RULE_SETS:
        if name in given:
            contracts.require_valid_rules(contracts.rule_set(given[name]))
    return config({**(old or {}), **{name: given[name] for name in FIELDS if name in given}})


def requested(fields: Config) -> dict[str, Any]:
    """The config as an answer to the request that set it spells it."""
    spelled = {
        REQUEST_LEVEL if name == "compatibilityLevel" else name: value
        for name, value in fields.items()
    }
    return spelled


def inheriting(own: Config, top: Config) -> Config:
    """A subject's config with what it leaves to the global one."""
    taken = {name: top[name] for name in INHERITED if name in top}
    return config({**taken, **own})


def has_defaults(fields: Config) -> bool:
    """Whether schemas registered under it get metadata or rules they did not bring."""
    return any(name in fields for name in (*METADATA, *RULE_SETS))


def _shaped(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name == "compatibilityLevel":
        return str(parse_level(value))
    if name == "compatibilityPolicy":
        if str(value).upper() not in POLICIES:
            raise Refused(Refusal.UNPROCESSABLE, f"Invalid compatibility policy {value}")
        return str(value).upper()
    if name in METADATA:
        return contracts.metadata(value)
    if name in RULE_SETS:
        return contracts.rule_set(value)
    if name in FLAGS and not isinstance(value, bool):
        raise Refused(Refusal.BAD_REQUEST, f"{name} must be true or false")
    if name in TEXTS and not isinstance(value, str):
        raise Refused(Refusal.BAD_REQUEST, f"{name} must be a string")
    return value
