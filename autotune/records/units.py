"""Bytes, seconds and shares as people write and read them; inside, everything is bytes, seconds and parts of one."""

from __future__ import annotations

import math
import re

from ..errors import UsageError

TELLS_NOTHING = 10.0
"""No setting is this many times as fast as another: what leaves such a ratio open tells nothing."""

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SI = ("b", "kb", "mb", "gb", "tb", "pb")
# A bare letter means the binary unit, as it does for docker, Slurm and the JVM: "24g" of a card is 24 GiB.
_BYTES: dict[str, int] = {"": 1} | {
    unit: size
    for power, (binary, si) in enumerate(zip(_BINARY, _SI, strict=True))
    for unit, size in ((si[0], 1024**power), (si, 1000**power), (binary.lower(), 1024**power))
}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

_NUMBER = r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
_SIZE = re.compile(rf"({_NUMBER})\s*([a-z]*)")
_PART = re.compile(rf"({_NUMBER})\s*([a-z]+)\s*")
_SHARE = re.compile(rf"({_NUMBER})\s*(%?)")
# A bare number below this is no size that anybody means in bytes.
_LEAST_BARE_BYTES = 1 << 20
_RANGE = re.compile(r"([0-9]+)\s*:\s*([0-9]+)")


def format_bytes(value: float) -> str:
    """Write bytes with three digits and the largest binary unit that leaves at least one: ``900 MiB``, ``23.5 GiB``."""
    size, unit = abs(value), 0
    # 999.5 shows as "1000", which is still shorter than the next unit's "0.98"; 1023.5 would show as "1024".
    while size >= 1023.5 and unit < len(_BINARY) - 1:
        size /= 1024
        unit += 1
    return f"{'-' if value < 0 else ''}{_three_digits(size)} {_BINARY[unit]}"


def format_duration(seconds: float) -> str:
    """Write seconds as ``350ms``, ``12.5s``, ``1m30s`` or ``1h5m``: whole seconds above one minute."""
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    if seconds < 0.9995:
        return f"{_three_digits(seconds * 1000)}ms"
    if seconds < 59.95:
        return f"{_three_digits(seconds)}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return "".join(f"{n}{unit}" for n, unit in ((hours, "h"), (minutes, "m"), (rest, "s")) if n)


def format_share(share: float) -> str:
    """Write a share as a percentage with up to three digits: ``3 %``, ``0.5 %``."""
    return f"{_three_digits(100 * share)} %"


def format_ratio(ratio: float) -> str:
    """Write how many times as much something is: ``1.124x``; far from one it is ``over 10x`` or ``under 0.1x``."""
    if ratio > TELLS_NOTHING:
        return f"over {TELLS_NOTHING:.0f}x"
    return f"{ratio:.3f}x" if ratio > 1 / TELLS_NOTHING else f"under {1 / TELLS_NOTHING}x"


def format_rate(samples_per_s: float) -> str:
    """Write samples/s with four digits, so that a difference of 0.1 % shows: ``0.532``, ``187.2``, ``12,480``."""
    decimals = 0 if samples_per_s >= 999.95 else 1 if samples_per_s >= 99.995 else 2 if samples_per_s >= 9.9995 else 3
    return f"{samples_per_s:,.{decimals}f}"


def format_speed(samples_per_s: float) -> str:
    """Write samples/s with their unit: ``187.2 samples/s``."""
    return f"{format_rate(samples_per_s)} samples/s"


def parse_bytes(text: str) -> int:
    """Read a size: ``24GiB``, ``1.5g`` and ``512M`` are powers of 1024, ``900MB`` of 1000, a bare number is bytes.

    UsageError for anything else, and for a bare number so small that its unit must have been forgotten.
    """
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None or match[2] not in _BYTES:
        raise UsageError(f"not a size in bytes: {text!r}", hint="a number and a unit, as in 24GiB, 900MB or 1.5g")
    size = round(float(match[1]) * _BYTES[match[2]])
    if size <= 0:
        raise UsageError(f"a size must be more than zero: {text!r}", hint="a number and a unit, as in 24GiB")
    if not match[2] and size < _LEAST_BARE_BYTES:
        unit = "GiB" if size <= 256 else "MiB"  # what cards have
        raise UsageError(f"a size without a unit is in bytes: {text!r}", hint=f"did you mean {match[1]}{unit}?")
    return size


def parse_duration(text: str) -> float:
    """Read a time in seconds: ``90s``, ``10m``, ``1h30m``, ``250ms``; UsageError for a bare number, be it zero."""
    lowered = text.strip().lower()
    if re.fullmatch(_NUMBER, lowered):
        meant, other, name = ("m", "s", "seconds") if float(lowered) < 60 else ("s", "m", "minutes")
        hint = f"did you mean {lowered}{meant}? In {name} it is {lowered}{other}"
        raise UsageError(f"a time without a unit: {text!r}", hint=hint)
    parts = _PART.findall(lowered)
    units = [unit for _, unit in parts]
    if not parts or _PART.sub("", lowered) or not _SECONDS.keys() >= set(units) or len(set(units)) != len(units):
        raise UsageError(f"not a time: {text!r}", hint="numbers with units, as in 90s, 10m or 1h30m")
    seconds = math.fsum(float(number) * _SECONDS[unit] for number, unit in parts)
    if seconds <= 0:
        raise UsageError(f"a time must be more than zero: {text!r}", hint="as in 90s, 10m or 1h30m")
    return seconds


def parse_range(text: str) -> tuple[int, int]:
    """Read an inclusive range of whole numbers, ``8:256``; one number alone is the range that holds only it."""
    stripped = text.strip()
    match = _RANGE.fullmatch(f"{stripped}:{stripped}" if stripped.isdecimal() else stripped)
    if match is None:
        raise UsageError(f"not a range: {text!r}", hint="two whole numbers with a colon, as in 8:256")
    low, high = int(match[1]), int(match[2])
    if not 1 <= low <= high:
        raise UsageError(f"an empty range: {text!r}", hint="the smaller number first, at least 1, as in 8:256")
    return low, high


def parse_share(text: str) -> float:
    """Read a share below one: ``3%``, ``0.5 %``, or the same as a part of one, ``0.03``."""
    match = _SHARE.fullmatch(text.strip())
    share = math.nan if match is None else float(match[1]) / (100 if match[2] else 1)
    if not share < 1:
        raise UsageError(f"not a share below 100 %: {text!r}", hint="a percentage, as in 3% or 0.5%")
    return share


def _three_digits(value: float) -> str:
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    written = f"{value:.{decimals}f}"
    return written.rstrip("0").rstrip(".") if decimals else written
