"""Lines of text or of JSON as records to be written."""

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.cli.quantities import instant_ms
from headrace.client.producer import Headers, NewRecord

JSON_FIELDS = frozenset(
    ("key", "key_base64", "value", "value_base64", "headers", "timestamp", "partition")
)
# What `headrace consume --json` adds, so that its output can be written elsewhere as it is.
IGNORED_FIELDS = frozenset(("topic", "offset", "timestamp_type"))

Parse = Callable[[bytes], NewRecord]


@dataclass(frozen=True, slots=True)
class TextLines:
    """One record per line: the value, or key, separator and value."""

    key_separator: bytes | None = None
    null_marker: bytes | None = None
    headers: Headers = ()
    partition: int | None = None

    def __call__(self, line: bytes) -> NewRecord:
        key, value = self._split(line)
        return NewRecord(
            None if value == self.null_marker else value,
            None if key == self.null_marker else key,
            self.headers,
            self.partition,
        )

    def _split(self, line: bytes) -> tuple[bytes | None, bytes]:
        if not self.key_separator:
            return None, line
        key, found, value = line.partition(self.key_separator)
        if not found:
            raise ValueError(f"no key separator {self.key_separator.decode()!r} in the line")
        return key, value


@dataclass(frozen=True, slots=True)
class JsonLines:
    """One JSON object per line: key, value, headers, timestamp, partition, all optional."""

    headers: Headers = ()
    partition: int | None = None
    now_ms: int = 0

    def __call__(self, line: bytes) -> NewRecord:
        try:
            found = json.loads(line)
        except ValueError as error:
            raise ValueError(f"not JSON: {error}") from error
        if not isinstance(found, dict):
            raise ValueError("not a JSON object")
        unknown = found.keys() - JSON_FIELDS - IGNORED_FIELDS
        if unknown:
            raise ValueError(f"unknown field {min(unknown)!r}; known are {sorted(JSON_FIELDS)}")
        return NewRecord(
            _content(found, "value"),
            _content(found, "key"),
            (*self.headers, *_headers(found.get("headers"))),
            self._partition(found.get("partition")),
            self._timestamp(found.get("timestamp")),
        )

    def _partition(self, given: Any) -> int | None:
        if given is None:
            return self.partition
        if not isinstance(given, int) or isinstance(given, bool) or given < 0:
            raise ValueError(f"partition {given!r} is not a whole number from 0")
        # A partition on the command line overrides those of a copied topic.
        return given if self.partition is None else self.partition

    def _timestamp(self, given: Any) -> int | None:
        if given is None:
            return None
        if isinstance(given, bool) or not isinstance(given, int | str):
            raise ValueError(f"timestamp {given!r} is neither milliseconds nor an ISO 8601 time")
        return given if isinstance(given, int) else instant_ms(given, self.now_ms)


def header(text: str) -> tuple[str, bytes | None]:
    """name=value, or a bare name for a header without a value."""
    name, equals, value = text.partition("=")
    if not name:
        raise ValueError(f"{text!r} is not name=value")
    return name, value.encode() if equals else None


def _headers(given: Any) -> Headers:
    """An object, or a list of [name, value] where a name may come twice."""
    if given is None:
        return ()
    pairs = list(given.items()) if isinstance(given, dict) else given
    if not isinstance(pairs, list):
        raise ValueError("headers is neither an object nor a list of [name, value]")
    return tuple(_header(pair) for pair in pairs)


def _header(pair: Any) -> tuple[str, bytes | None]:
    if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
        raise ValueError(f"header {pair!r} is not [name, value]")
    name, value = pair
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return name, _base64(value["base64"])
    return name, _encoded(value)


def _content(found: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in found:
        if name in found:
            raise ValueError(f"both {name} and {name}_base64 are given")
        return _base64(found[f"{name}_base64"])
    return _encoded(found.get(name))


def _base64(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, binascii.Error) as error:
        raise ValueError(f"{text!r} is not base64") from error


def _encoded(value: Any) -> bytes | None:
    """Text as it is; anything else as JSON; null as null (a tombstone, if it is the value)."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
