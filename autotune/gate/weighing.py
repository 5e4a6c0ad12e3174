"""Comparison of speed and memory, by the rounds of a sitting, with a baseline or another version of the script."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..records.figures import peak_bytes
from ..records.gate import GateBaseline, Gauge, Reading, Reference
from ..records.measurement import Measurement
from ..records.outcome import Measured, Outcome
from .rule import judge_loss


@dataclass(frozen=True)
class Allowed:
    """The largest losses that pass, as shares of what was there before."""

    slowdown: float = 0.05
    memory_growth: float = 0.03


@dataclass(frozen=True)
class GateRound:
    """A round of a sitting: how the setting came out, and beside it the reference, where there is one."""

    setting: Outcome
    reference: Outcome | None = None


def weigh(
    rounds: Sequence[GateRound],
    baseline: GateBaseline | None,
    reference: Reference,
    allowed: Allowed,
    *,
    most_rounds: int,
    is_over: bool,
) -> tuple[Gauge, ...]:
    """Judge speed and memory by the rounds in which everybody was measured; nothing if there is none.

    Where the reference is the script as it stands, what is compared is how many times as fast the setting is, and how
    many times as large its peak, now and before.
    """
    pairs = [
        (one.setting.measurement, one.reference.measurement if isinstance(one.reference, Measured) else None)
        for one in rounds
        if isinstance(one.setting, Measured) and (one.reference is None or isinstance(one.reference, Measured))
    ]
    if not pairs:
        return ()
    gauges = (
        _gauge("speed", pairs, baseline, reference, allowed.slowdown, most_rounds, is_over),
        _gauge("memory", pairs, baseline, reference, allowed.memory_growth, most_rounds, is_over),
    )
    return tuple(one for one in gauges if one is not None)


def is_told(gauges: Sequence[Gauge]) -> bool:
    """Return whether more rounds would change nothing."""
    return bool(gauges) and all(one.found != "open" for one in gauges)


def _gauge(
    name: Literal["speed", "memory"],
    pairs: Sequence[tuple[Measurement, Measurement | None]],
    baseline: GateBaseline | None,
    reference: Reference,
    allowed: float,
    most_rounds: int,
    is_over: bool,
) -> Gauge | None:
    value: Callable[[Measurement], float] = _rate if name == "speed" else _peak
    if any(value(one) <= 0 for pair in pairs for one in pair if one is not None):
        return None  # samples that nobody could count
    now = [value(setting) / (1.0 if other is None else value(other)) for setting, other in pairs]
    before = _before(name, baseline, reference)
    sign = -1 if name == "speed" else 1
    judged = judge_loss(
        [sign * math.log(one) for one in now],
        [sign * math.log(one) for one in before],
        allowed=allowed,
        most_rounds=most_rounds,
        is_over=is_over,
    )
    ends = [math.exp(sign * (judged.loss + error)) for error in (judged.error, -judged.error)]
    if reference == "other":
        before = [value(other) for _, other in pairs if other is not None]
        now = [value(setting) for setting, _ in pairs]
    is_known = math.isfinite(judged.error)
    # Of medians, the ratio could be on the other side of 1 than the change that was judged.
    return Gauge(
        name=name,
        before=statistics.geometric_mean(before),
        now=statistics.geometric_mean(now),
        change=math.exp(sign * judged.loss),
        low=min(ends) if is_known else None,
        high=max(ends) if is_known else None,
        allowed=allowed,
        found=judged.found,
    )


def _before(name: Literal["speed", "memory"], baseline: GateBaseline | None, reference: Reference) -> list[float]:
    """Return what the figure was in each round of the earlier sitting; nothing where that is not compared."""
    if reference == "other":
        return []
    assert baseline is not None, "what was stored, or how the script compared, is in the baseline"

    def of(reading: Reading) -> tuple[float, ...]:
        return reading.samples_per_s if name == "speed" else reading.peak_bytes

    if reference == "stored":
        return list(of(baseline.setting))
    assert baseline.script is not None
    return [mine / own for mine, own in zip(of(baseline.setting), of(baseline.script), strict=True)]


def _rate(measurement: Measurement) -> float:
    return measurement.samples_per_s


def _peak(measurement: Measurement) -> int:
    return peak_bytes(measurement.peaks) or 0
