"""JSON as Apache Avro reads and writes it: comments allowed, nesting bounded, numbers as Java's."""

import json
import math
import re
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, Final, NoReturn

from headrace.registry.language import InvalidSchema

# A schema must fit a record of the topic it is stored in: 1 MB unless an operator allows more.
MAX_TEXT: Final = 2_000_000
# Levels of brackets. It leaves room for MAX_TYPE_DEPTH records, three levels each, and defaults.
MAX_JSON_DEPTH: Final = 256

_BRACKETS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|([\[{])|([\]}])', re.DOTALL)
_COMMENTS: Final = re.compile(r'("(?:[^"\\]|\\.)*")|/\*.*?\*/|//[^\n\r]*', re.DOTALL)
_SURROGATES: Final = re.compile(r"[\ud800-\udfff]|\\u[dD][89a-fA-F]")
_ESCAPED: Final = re.compile(r"\\u00[0-9a-f]{2}")
# Between these, Java writes a double without an exponent.
_PLAIN: Final = (1e-3, 1e7)


def read_json(text: str) -> Any:
    """Raises InvalidSchema, naming line and column."""
    if len(text) > MAX_TEXT:
        raise InvalidSchema(f"it has {len(text)} characters; at most {MAX_TEXT} are taken")
    require_shallow(text)
    try:
        value = _loads(text)
    except ValueError as error:
        value = _read_uncommented(text, error)
    if _SURROGATES.search(text):
        _require_encodable(text, value)
    return value


def require_shallow(text: str) -> None:
    """Refuses what is nested too deeply, before anything recurses into it."""
    if text.count("[") + text.count("{") <= MAX_JSON_DEPTH:
        return
    depth = 0
    for match in _BRACKETS.finditer(text):
        if match[1]:
            depth += 1
            if depth > MAX_JSON_DEPTH:
                raise InvalidSchema(f"its brackets are nested more than {MAX_JSON_DEPTH} deep")
        elif match[2]:
            depth -= 1


def write_json(value: Any) -> str:
    """Compact JSON, byte for byte as Java's Jackson writes it."""
    pieces: list[str] = []
    _write(value, pieces)
    return "".join(pieces)


def quoted(text: str) -> str:
    written = encode_basestring(text)
    if "\\u00" in written:
        written = _ESCAPED.sub(lambda match: "\\u" + match[0][2:].upper(), written)
    return written


def _read_uncommented(text: str, why: ValueError) -> Any:
    uncommented = _COMMENTS.sub(lambda match: match[1] or " ", text)
    if uncommented == text:
        raise InvalidSchema(f"it is not JSON: {why}") from why
    try:
        return _loads(uncommented)
    except ValueError as error:
        raise InvalidSchema(f"it is not JSON: {error}") from error


def _require_encodable(text: str, value: Any) -> None:
    try:
        text.encode()
        write_json(value).encode()
    except UnicodeEncodeError as error:
        raise InvalidSchema("it holds half of a surrogate pair, which is no character") from error


def _loads(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _write(value: Any, pieces: list[str]) -> None:
    if isinstance(value, str):
        pieces.append(quoted(value))
    elif isinstance(value, dict):
        opening = "{"
        for key, each in value.items():
            pieces.append(f"{opening}{quoted(key)}:")
            _write(each, pieces)
            opening = ","
        pieces.append("}" if value else "{}")
    elif isinstance(value, list):
        opening = "["
        for each in value:
            pieces.append(opening)
            _write(each, pieces)
            opening = ","
        pieces.append("]" if value else "[]")
    else:
        pieces.append(_scalar(value))


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _double(value) if isinstance(value, float) else str(value)


def _double(value: float) -> str:
    """Java's Double.toString; what is no number is a string, as Jackson writes it."""
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    low, high = _PLAIN
    if value == 0 or low <= abs(value) < high:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, rest = str(digits[0]), "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{first}.{rest}E{int(exponent) + len(digits) - 1}"
