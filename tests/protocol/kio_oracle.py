"""Random messages of any schema, as ours and as kio's, so that the two can be compared."""

import io
import random
import uuid
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import settings
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import uuid_zero

from headrace.protocol.schemas import Message
from tests.protocol.kio_schemas import KioRow, plain, rows_of

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
ERROR_CODES = [code.value for code in ErrorCode]


def few_examples() -> settings:
    """A fraction of the profile's examples, for tests that repeat over every API and version."""
    return settings(max_examples=max(2, (settings.default or settings()).max_examples // 10))


def random_message(entity: Any, rng: random.Random) -> Message:
    rows = rows_of(entity)
    return Message(**{row.name: random_value(row, rng) for row in rows})


def random_value(row: KioRow, rng: random.Random) -> Any:
    if row.tag is not None and rng.random() < 0.5:
        return row.default
    # Null in a tagged field is its absence, which only a default of null can say.
    nullable = row.is_nullable and (row.tag is None or row.default is None)
    if nullable and rng.random() < 0.25:
        return None
    if row.is_array:
        return [random_element(row, rng) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    return random_element(row, rng)


def random_element(row: KioRow, rng: random.Random) -> Any:
    kind = row.kafka_type
    if row.entity is not None:
        return random_message(row.entity, rng)
    if kind in BITS:
        half = 1 << BITS[kind] - 1
        return rng.choice((0, -1, 1, half - 1, -half, rng.randrange(-half, half)))
    if kind == "uint16":
        return rng.randrange(1 << 16)
    if kind == "error_code":
        return rng.choice(ERROR_CODES)
    if kind == "string":
        size = rng.choice((0, 1, 5, 126, 127, 128, 300))
        return "".join(rng.choice("abcé漢😀 .-") for _ in range(size))
    return {
        "bool": lambda: rng.random() < 0.5,
        "float64": lambda: rng.uniform(-1e9, 1e9),
        "timedelta_i32": lambda: rng.randrange(-(1 << 31), 1 << 31),
        "timedelta_i64": lambda: rng.randrange(-(1 << 40), 1 << 40),
        # kio holds whole seconds only.
        "datetime_i64": lambda: rng.randrange(1 << 31) * 1000,
        "uuid": lambda: rng.choice((uuid_zero, uuid.UUID(int=rng.getrandbits(128)))),
        "bytes": lambda: rng.randbytes(rng.choice((0, 1, 127, 200))),
        "records": lambda: rng.randbytes(rng.choice((0, 1, 127, 200))),
    }[kind]()


def to_kio(entity: Any, message: Message) -> Any:
    values = {}
    for row, field in zip(rows_of(entity), fields(entity), strict=True):
        value = getattr(message, row.name)
        if isinstance(value, list | tuple):
            values[field.name] = tuple(_kio_element(row, item) for item in value)
        else:
            values[field.name] = _kio_element(row, value)
    return entity(**values)


def _kio_element(row: KioRow, value: Any) -> Any:
    if isinstance(value, Message):
        return to_kio(row.entity, value)
    if row.kafka_type.startswith("timedelta"):
        return timedelta(milliseconds=value)
    if row.kafka_type == "datetime_i64":
        return None if value == -1 else datetime.fromtimestamp(value / 1000, UTC)
    if row.kafka_type == "error_code":
        return ErrorCode(value)
    if row.kafka_type == "uuid" and value == uuid_zero:
        # kio writes None as zeros, and calls a tagged uuid of None absent.
        return None
    return value


def kio_bytes(entity: Any, message: Message) -> bytes:
    out = io.BytesIO()
    entity_writer(entity)(out, to_kio(entity, message))
    return out.getvalue()


def kio_value(entity: Any, body: bytes) -> Any:
    return plain(entity_reader(entity)(body, 0)[0], "struct")
