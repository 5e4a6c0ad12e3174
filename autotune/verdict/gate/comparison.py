"""Comparison of speed and memory, by the repetitions of a sitting, with a baseline or another version of the script.

That a figure is *worse* has to be shown, or a gate fails from noise. That it is no worse than is allowed has to be
shown too, or a gate passes because nothing could be seen. A regression is shown to be worse, and not shown to be
within. What neither shows passes where the middle of what is left open is within, and the decision says so.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...records.gate import GateBaseline, Gauge, GaugeFound, Reference
from ...records.measurement import Measurement
from ...records.outcome import Outcome
from ..sequential import FIRST_LOOK, LEAST_GAIN, LEAST_NOISE, error_quantile

LEAST_ALLOWED = LEAST_GAIN - 1
"""The smallest share that can be allowed: a difference below it is none."""


@dataclass(frozen=True)
class Allowed:
    """The largest losses that pass, as shares of what was there before."""

    slowdown: float = 0.05
    memory_growth: float = 0.03


@dataclass(frozen=True)
class GateRepetition:
    """A repetition of a sitting: how the setting came out, and beside it the reference, where there is one."""

    setting: Outcome
    reference: Outcome | None = None


@dataclass(frozen=True)
class Loss:
    """The logarithm of how many times as bad it has become, and how far off that may be to either side."""

    found: GaugeFound
    loss: float
    error: float


def judge_loss(
    now: Sequence[float], before: Sequence[float], *, allowed: float, most_repetitions: int, is_over: bool
) -> Loss:
    """Test the difference of two means by Student's t with pooled variance (levels: ``error_quantile``).

    Args:
        now: Logarithms of what this sitting measured, more being worse: one for each repetition, of the setting, or of
            how it compares with a reference in the repetition.
        before: The same of an earlier sitting; empty where this one has a reference of its own.
        allowed: The largest loss that passes, as a share.
        most_repetitions: How many repetitions this sitting may have.
        is_over: This is the last look.
    """
    loss = statistics.fmean(now) - (statistics.fmean(before) if before else 0.0)
    freedom = len(now) - 1 + max(0, len(before) - 1)
    if len(now) < FIRST_LOOK:
        return Loss("open", loss, math.inf)
    squares = sum((value - statistics.fmean(row)) ** 2 for row in (now, before) if row for value in row)
    variance = max(squares / freedom, LEAST_NOISE**2)
    deviation = math.sqrt(variance * (1 / len(now) + (1 / len(before) if before else 0.0)))
    error = deviation * error_quantile(
        freedom, repetitions=len(now), most_repetitions=most_repetitions, is_over=is_over
    )
    shown = max(math.log(LEAST_GAIN), error)
    found: GaugeFound = "open"
    if loss <= -shown:
        found = "better"
    elif loss + error < math.log1p(allowed):
        found = "within"
    elif loss >= shown:
        found = "worse"
    return Loss(found, loss, error)


def weigh(
    repetitions: Sequence[GateRepetition],
    baseline: GateBaseline | None,
    reference: Reference,
    allowed: Allowed,
    *,
    most_repetitions: int,
    is_over: bool,
) -> tuple[Gauge, ...]:
    """Judge speed and memory by the repetitions in which everybody was measured; nothing if there is none.

    With the script as it stands as the reference, ratios to it are compared, now and before.
    """
    pairs = [
        (one.setting.measurement, None if one.reference is None else one.reference.measurement)
        for one in repetitions
        if one.setting.measurement and (one.reference is None or one.reference.measurement)
    ]
    figures: tuple[tuple[Literal["speed", "memory"], float], ...] = (
        ("speed", allowed.slowdown),
        ("memory", allowed.memory_growth),
    )
    gauges = []
    for name, share in figures:
        own = [_value(name, setting) for setting, _ in pairs]
        others = [_value(name, other) for _, other in pairs if other is not None]
        if not own or min(own + others) <= 0:
            continue  # samples that nobody could count
        now = [mine / other for mine, other in zip(own, others, strict=True)] if others else own
        before = _before(name, baseline, reference)
        sign = -1 if name == "speed" else 1
        judged = judge_loss(
            [sign * math.log(one) for one in now],
            [sign * math.log(one) for one in before],
            allowed=share,
            most_repetitions=most_repetitions,
            is_over=is_over,
        )
        ends = sorted(math.exp(sign * (judged.loss + error)) for error in (judged.error, -judged.error))
        is_known = math.isfinite(judged.error)
        # Of medians, the ratio could be on the other side of 1 than the change that was judged.
        gauges.append(
            Gauge(
                name=name,
                before=statistics.geometric_mean(others if reference == "other" else before),
                now=statistics.geometric_mean(own if reference == "other" else now),
                change=math.exp(sign * judged.loss),
                low=ends[0] if is_known else None,
                high=ends[1] if is_known else None,
                allowed=share,
                found=judged.found,
            )
        )
    return tuple(gauges)


def is_told(gauges: Sequence[Gauge]) -> bool:
    """Return whether more repetitions would change nothing."""
    return bool(gauges) and all(one.found != "open" for one in gauges)


def _value(name: Literal["speed", "memory"], measurement: Measurement) -> float:
    return measurement.samples_per_s if name == "speed" else measurement.peaks.fit_bytes or 0


def _before(name: Literal["speed", "memory"], baseline: GateBaseline | None, reference: Reference) -> list[float]:
    if reference == "other":
        return []
    assert baseline is not None, "what was stored, or how the script compared, is in the baseline"
    setting, script = (
        [] if one is None else [*(one.samples_per_s if name == "speed" else one.peak_bytes)]
        for one in (baseline.setting, baseline.script)
    )
    return setting if reference == "stored" else [mine / own for mine, own in zip(setting, script, strict=True)]
