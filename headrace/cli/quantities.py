"""What people type for times, sizes and settings, as the numbers Kafka takes."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime

MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
BYTES = {
    "": 1,
    "b": 1,
    "k": 1 << 10,
    "m": 1 << 20,
    "g": 1 << 30,
    "t": 1 << 40,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhdw]))+", re.IGNORECASE)
DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])", re.IGNORECASE)
ISO_DURATION = re.compile(
    r"P(?:(?P<w>\d+)W)?(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?b?)", re.IGNORECASE)
# Epoch numbers below this are seconds (until the year 5138), above it milliseconds (since 1973).
FIRST_EPOCH_MS = 100_000_000_000


def duration_ms(text: str) -> int:
    """90s, 15m, 1h30m, 7d, 250ms, or ISO 8601 as PT1H30M and P7D."""
    if DURATION.fullmatch(text):
        parts = DURATION_PART.findall(text)
        return round(sum(float(number) * MS[unit.lower()] for number, unit in parts))
    iso = ISO_DURATION.fullmatch(text)
    if iso is None or not any(iso.groupdict().values()):
        raise ValueError(f"{text!r} is not a duration such as 90s, 15m, 1h30m, 7d or PT1H30M")
    return round(sum(float(n) * MS[unit] for unit, n in iso.groupdict().items() if n))


def size_bytes(text: str) -> int:
    """1024, 64k, 512MiB, 10GB: k, m, g and KiB, MiB, GiB are powers of 1024; KB, MB, GB of 1000."""
    found = SIZE.fullmatch(text.strip())
    if found is None or found[2].lower() not in BYTES:
        raise ValueError(f"{text!r} is not a size such as 1024, 64KiB or 10GB")
    return round(float(found[1]) * BYTES[found[2].lower()])


def instant_ms(text: str, now_ms: int) -> int:
    """An ISO 8601 time (UTC unless it says otherwise), an epoch number, or a duration ago."""
    if text.lower() == "now":
        return now_ms
    if text.isdigit():
        number = int(text)
        return number if number >= FIRST_EPOCH_MS else number * 1_000
    try:
        return now_ms - duration_ms(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(
            f"{text!r} is not a time such as 2024-01-15T00:00:00.000, an epoch number, or 15m (ago)"
        ) from error
    # Kafka's tools read a time without a zone as UTC.
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(zoned.timestamp() * 1_000)


def iso_time(timestamp_ms: int) -> str:
    """A timestamp in UTC, to the millisecond."""
    moment = datetime.fromtimestamp(timestamp_ms / 1_000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def assignments(pairs: Iterable[str]) -> dict[str, str]:
    """name=value pairs; a duration for a *.ms name and a size for a *.bytes name are converted."""
    values: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name.strip() or not equals:
            raise ValueError(f"{pair!r} is not name=value")
        values[name.strip()] = _converted(name.strip(), value.strip())
    return values


def _converted(name: str, value: str) -> str:
    if name.endswith(".ms") and DURATION.fullmatch(value):
        return str(duration_ms(value))
    if name.endswith(".bytes") and value and not value.lstrip("-").isdigit():
        return str(size_bytes(value))
    return value
