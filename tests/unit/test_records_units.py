"""Sizes, times and ranges, read and written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import UsageError
from autotune.records.units import (
    format_bytes,
    format_duration,
    format_ratio,
    format_share,
    parse_bytes,
    parse_duration,
    parse_range,
    parse_share,
)

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("24GiB", 24 * GIB),
        ("24 gib", 24 * GIB),
        ("900MB", 900_000_000),
        ("1.5g", 3 * GIB // 2),
        ("512M", 512 << 20),
        ("25769803776", 24 * GIB),
        ("7b", 7),
    ],
)
def test_sizes_are_read_as_people_write_them(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "12 parsecs", "-3g", "1e9", "0", "0.1b", "nan", "٣g", "1.2.3g"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(UsageError, match="size"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (900 << 20, "900 MiB"),
        (2 * GIB, "2 GiB"),
        (1.21 * GIB, "1.21 GiB"),
        (GIB - 1, "1 GiB"),
        (1000 << 20, "1000 MiB"),
        (-3 << 20, "-3 MiB"),
    ],
)
def test_sizes_are_written_with_three_digits(value, text):
    assert format_bytes(value) == text


@given(st.integers(min_value=1, max_value=1 << 59))
def test_a_written_size_reads_back_within_its_three_digits(size):
    assert parse_bytes(format_bytes(size)) == pytest.approx(size, rel=0.0051)


@given(st.integers(min_value=1, max_value=999), st.sampled_from(["B", "KiB", "MiB", "GiB", "TiB"]))
def test_a_size_in_whole_units_reads_back_exactly(number, unit):
    assert format_bytes(parse_bytes(f"{number}{unit}")) == f"{number} {unit}"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10m", 600.0),
        ("90s", 90.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        ("250ms", 0.25),
        ("2d", 172800.0),
    ],
)
def test_times_are_read_as_people_write_them(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "m", "10 parsecs", "-5s", "0", "1m1m", "5m3", "1h and 2m"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(UsageError, match="time"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.35, "350ms"), (12.5, "12.5s"), (59.99, "1m"), (90, "1m30s"), (3600, "1h"), (3661, "1h1m1s"), (-90, "-1m30s")],
)
def test_times_are_written_short(seconds, text):
    assert format_duration(seconds) == text


@given(st.integers(min_value=1, max_value=10**7))
def test_whole_seconds_read_back_exactly(seconds):
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.floats(min_value=1e-3, max_value=1e6))
def test_a_written_time_reads_back_within_its_digits(seconds):
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=0.0085)


@given(st.integers(min_value=1, max_value=10**6), st.integers(min_value=0, max_value=10**6))
def test_ranges_read_back(low, more):
    assert parse_range(f"{low}:{low + more}") == (low, low + more)
    assert parse_range(f"{low}") == (low, low)


@pytest.mark.parametrize(
    ("ratio", "text"), [(1.1239, "1.124x"), (0.5, "0.500x"), (3e14, "over 10x"), (0.0, "under 0.1x")]
)
def test_ratios_far_from_one_are_not_written_out(ratio, text):
    assert format_ratio(ratio) == text


@pytest.mark.parametrize("text", ["", "8:", ":8", "256:8", "0:8", "8:16:32", "a:b"])
def test_what_is_no_range_is_refused(text):
    with pytest.raises(UsageError, match="range"):
        parse_range(text)


@pytest.mark.parametrize(("text", "share"), [("3%", 0.03), ("0.5 %", 0.005), ("0.03", 0.03), ("0%", 0.0)])
def test_shares_are_read_as_people_write_them(text, share):
    assert parse_share(text) == pytest.approx(share)
    assert parse_share(format_share(share)) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "3", "100%", "-1%", "three", "%"])
def test_what_is_no_share_below_all_of_it_is_refused(text):
    with pytest.raises(UsageError, match="share"):
        parse_share(text)
