from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.quantities import (
    FIRST_EPOCH_MS,
    assignments,
    duration_ms,
    instant_ms,
    iso_time,
    size_bytes,
)

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("250ms", 250),
        ("90s", 90_000),
        ("15m", 900_000),
        ("1h30m", 5_400_000),
        ("7d", 604_800_000),
        ("2w", 1_209_600_000),
        ("1.5h", 5_400_000),
        ("PT1H30M", 5_400_000),
        ("P7D", 604_800_000),
        ("P1DT2H3M4.5S", 93_784_500),
    ],
)
def test_a_duration_is_read_in_short_and_in_iso_form(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "7", "d", "7x", "P", "PT", "-5m", "5m ", "1h-3m"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        duration_ms(text)


@given(
    st.integers(0, 99),
    st.integers(0, 23),
    st.integers(0, 59),
    st.integers(0, 59),
    st.integers(1, 999),
)
def test_both_forms_of_a_duration_say_the_same(
    days: int, hours: int, minutes: int, seconds: int, millis: int
) -> None:
    short = f"{days}d{hours}h{minutes}m{seconds}s{millis}ms"
    iso = f"P{days}DT{hours}H{minutes}M{seconds}.{millis:03}S"
    assert duration_ms(short) == duration_ms(iso)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1024", 1024), ("64k", 65_536), ("1KiB", 1024), ("1KB", 1000), ("1.5GiB", 3 << 29), ("0", 0)],
)
def test_a_size_is_read_with_its_unit(text: str, expected: int) -> None:
    assert size_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "ten", "-1", "1x", "1ib", "k"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        size_bytes(text)


def test_a_time_without_a_zone_is_utc_as_in_kafkas_tools() -> None:
    utc = datetime(2024, 1, 15, tzinfo=UTC).timestamp() * 1_000
    assert instant_ms("2024-01-15T00:00:00.000", NOW_MS) == utc
    assert instant_ms("2024-01-15T02:00:00+02:00", NOW_MS) == utc
    assert instant_ms("2024-01-15T00:00:00Z", NOW_MS) == utc


def test_a_duration_as_a_time_is_so_long_ago() -> None:
    assert instant_ms("15m", NOW_MS) == NOW_MS - 900_000
    assert instant_ms("now", NOW_MS) == NOW_MS


def test_a_small_epoch_number_is_seconds_and_a_large_one_milliseconds() -> None:
    assert instant_ms("1705276800", NOW_MS) == 1_705_276_800_000
    assert instant_ms("1705276800000", NOW_MS) == 1_705_276_800_000


@given(st.integers(FIRST_EPOCH_MS, 4_000_000_000_000))
def test_a_printed_time_is_read_back(timestamp_ms: int) -> None:
    assert instant_ms(iso_time(timestamp_ms), NOW_MS) == timestamp_ms


def test_settings_in_ms_and_bytes_take_durations_and_sizes() -> None:
    given_pairs = ["retention.ms=7d", "segment.bytes=1GiB", "cleanup.policy=compact,delete"]
    assert assignments(given_pairs) == {
        "retention.ms": "604800000",
        "segment.bytes": "1073741824",
        "cleanup.policy": "compact,delete",
    }


def test_plain_and_negative_numbers_stay_as_they_are() -> None:
    assert assignments(["retention.ms=-1", "retention.bytes=-1"]) == {
        "retention.ms": "-1",
        "retention.bytes": "-1",
    }


@pytest.mark.parametrize("pair", ["retention.ms", "=7d", ""])
def test_a_pair_needs_a_name_and_a_value(pair: str) -> None:
    with pytest.raises(ValueError, match="is not name=value"):
        assignments([pair])
