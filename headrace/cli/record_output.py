"""Records as lines for people and for programs."""

import base64
import json
import re
from collections.abc import Callable, Collection
from typing import Any

from headrace.cli.quantities import iso_time
from headrace.client.consumer import Received

FIELDS: dict[str, Callable[[Received], bytes]] = {
    "topic": lambda record: record.topic.encode(),
    "partition": lambda record: b"%d" % record.partition,
    "offset": lambda record: b"%d" % record.offset,
    "timestamp": lambda record: b"%d" % record.timestamp_ms,
    "time": lambda record: iso_time(record.timestamp_ms).encode(),
    "key": lambda record: b"null" if record.key is None else record.key,
    "value": lambda record: b"null" if record.value is None else record.value,
    "headers": lambda record: _headers(record),
}
ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\0": "\0", "\\\\": "\\", "\\{": "{"}
TIMESTAMP_LABELS = {"create": b"CreateTime", "append": b"LogAppendTime", "none": b"NoTimestampType"}

Format = Callable[[Received], bytes]


def plain(shown: Collection[str]) -> Format:
    """Kafka's console form: the value, after those of timestamp, partition, ... asked for."""
    if not shown:
        return lambda record: (b"null" if record.value is None else record.value) + b"\n"
    parts: list[Format] = []
    if "timestamp" in shown:
        parts.append(
            lambda record: b"%s:%d" % (TIMESTAMP_LABELS[record.timestamp_type], record.timestamp_ms)
        )
    if "partition" in shown:
        parts.append(lambda record: b"Partition:%d" % record.partition)
    if "offset" in shown:
        parts.append(lambda record: b"Offset:%d" % record.offset)
    if "headers" in shown:
        parts.append(lambda record: FIELDS["headers"](record) or b"NO_HEADERS")
    if "key" in shown:
        parts.append(FIELDS["key"])
    parts.append(FIELDS["value"])
    return lambda record: b"\t".join(part(record) for part in parts) + b"\n"


def template(text: str) -> Format:
    r"""A form of one's own: {key} and the like are filled in, \n and \t are what they say."""
    parts: list[bytes | Format] = []
    for literal, escape, field in re.findall(r"([^\\{]+)|(\\.?)|\{(\w*)\}?", text):
        if literal or escape:
            parts.append(ESCAPES.get(escape, literal or escape).encode())
        elif field in FIELDS:
            parts.append(FIELDS[field])
        else:
            raise ValueError(f"unknown field {{{field}}}; known are {', '.join(FIELDS)}")
    return lambda record: b"".join(
        part if isinstance(part, bytes) else part(record) for part in parts
    )


def json_line(record: Received) -> bytes:
    """One JSON object; what is not UTF-8 is given in base64 under key_base64 or value_base64."""
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": record.timestamp_type,
        **_content("key", record.key),
        **_content("value", record.value),
        "headers": [[name, _header_value(value)] for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _content(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}


def _header_value(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _headers(record: Received) -> bytes:
    return b",".join(
        name.encode() + b":" + (b"null" if value is None else value)
        for name, value in record.headers
    )
