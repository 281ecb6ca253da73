"""The small text files of a data directory, to the byte as Kafka writes and reads them."""

import base64
import json
import uuid
from collections.abc import Iterable, Mapping

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANED_OFFSETS = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"
META_VERSION = 1
_VERSION = 0


def write_rows(rows: Iterable[str]) -> bytes:
    """A version, a count, then a row per line."""
    listed = list(rows)
    return "".join(f"{line}\n" for line in (_VERSION, len(listed), *listed)).encode()


def read_rows(content: bytes) -> list[str]:
    """The rows of such a file; ValueError when it is torn, empty or of another version."""
    lines = content.decode("utf-8").splitlines()
    if len(lines) < 2 or int(lines[0]) != _VERSION:
        raise ValueError("the file is empty, torn or of a newer version")
    count = int(lines[1])
    if len(lines) - 2 != count or not content.endswith(b"\n"):
        raise ValueError(f"{count} rows are announced, {len(lines) - 2} are there")
    return lines[2:]


def write_offsets(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """One offset per partition."""
    return write_rows(
        f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()
    )


def read_offsets(content: bytes) -> dict[tuple[str, int], int]:
    """One offset per partition; ValueError when the file is not to be trusted."""
    offsets = {}
    for row in read_rows(content):
        topic, partition, offset = row.split(" ")
        if int(offset) < 0:
            raise ValueError(f"offset {offset}")
        offsets[topic, int(partition)] = int(offset)
    return offsets


def write_clean_shutdown() -> bytes:
    return json.dumps({"version": 0, "brokerEpoch": -1}, separators=(",", ":")).encode()


def write_uuid(value: uuid.UUID) -> str:
    """Kafka's text of a UUID: URL-safe base64 of its 16 bytes, without padding."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def read_uuid(text: str) -> uuid.UUID:
    content = base64.urlsafe_b64decode(text + "==")
    return uuid.UUID(bytes=content)


def write_partition_metadata(topic_id: uuid.UUID) -> bytes:
    return f"version: 0\ntopic_id: {write_uuid(topic_id)}".encode()


def read_partition_metadata(content: bytes) -> uuid.UUID:
    """The topic's id; ValueError when the file is torn or of another version."""
    fields = dict(line.split(": ", 1) for line in content.decode("utf-8").splitlines() if line)
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise ValueError("no version or no topic id")
    return read_uuid(fields["topic_id"])


def write_properties(properties: Mapping[str, str]) -> bytes:
    return "".join(f"{name}={value}\n" for name, value in properties.items()).encode()


def read_properties(content: bytes) -> dict[str, str]:
    """Java properties as Kafka writes them into meta.properties: no escapes, no continuations."""
    properties = {}
    for line in content.decode("utf-8").splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith(("#", "!")):
            name, _equals, value = stripped.partition("=")
            properties[name.strip()] = value.strip()
    return properties
