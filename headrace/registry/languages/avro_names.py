"""Which names Avro allows: ASCII ones in new schemas, any letters in those already stored."""

import re
from typing import Final

from headrace.registry.language import InvalidSchema
from headrace.registry.languages.avro_types import PRIMITIVES, Name

_STRICT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def require_name(name: object, what: str, where: str, *, strict: bool) -> str:
    """The name itself, if Avro allows it."""
    if not isinstance(name, str) or not name:
        raise InvalidSchema(f"{what} at {where or '/'} is empty or not a string")
    if strict:
        valid = _STRICT.fullmatch(name) is not None
    else:
        valid = (name[0] == "_" or name[0].isalpha()) and name.replace("_", "a").isalnum()
    if not valid:
        raise InvalidSchema(
            f"{what} {name!r} at {where or '/'} is not a name: it must start with a letter or _ "
            "and go on with letters, digits and _"
        )
    return name


def require_full_name(name: Name, where: str, *, strict: bool) -> None:
    """Namespaces of stored schemas are not looked at, as in Confluent's registry."""
    require_name(name.short, "the name", where, strict=strict)
    if name.full in PRIMITIVES:
        raise InvalidSchema(f"the type at {where or '/'} has the name of a primitive: {name.full}")
    if strict and name.space is not None:
        for part in name.space.split("."):
            require_name(part, "the namespace part", where, strict=True)
