"""Figures of a setting, over its repetitions or of one trial, and how tables and sentences show them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from .measurement import Measurement, Peaks
from .units import format_bytes, format_rate, format_speed


@dataclass(frozen=True)
class Figures:
    """The measured figures of a configuration: samples/s with their spread, the step time in seconds, and the peaks.

    The spread is over the repetitions; of a single measurement it is the 95 % confidence interval. The peaks are those
    of the repetition that took the most memory.
    """

    samples_per_s: float
    samples_per_s_low: float
    samples_per_s_high: float
    step_time_s: float
    peaks: Peaks
    repetitions: int


def summary_of(repetitions: Sequence[Measurement]) -> Figures:
    """Summarize the repetitions of one setting, one at least."""
    rates = [one.samples_per_s for one in repetitions]
    low, high = (min(rates), max(rates)) if len(repetitions) > 1 else repetitions[0].samples_per_s_interval
    return Figures(
        samples_per_s=statistics.median(rates),
        samples_per_s_low=low,
        samples_per_s_high=high,
        step_time_s=statistics.median(one.step_time_s for one in repetitions),
        peaks=max((one.peaks for one in repetitions), key=lambda peaks: peaks.fit_bytes or 0),
        repetitions=len(repetitions),
    )


def figure_cells(figures: Figures | None) -> dict[str, str]:
    """Write the figures of a setting for a table, by the headings of its columns; empty where a figure is not known."""
    return {
        "Samples/s": format_rate(figures.samples_per_s) if figures and figures.samples_per_s else "",
        "Spread": _range(figures) if figures and figures.samples_per_s else "",
        "Peak": "" if figures is None or figures.peaks.fit_bytes is None else format_peak(figures.peaks),
    }


def format_peak(peaks: Peaks) -> str:
    """Write the peak that a memory limit is held against, with its unit: ``22.1 GiB``; ``not known`` without one."""
    peak = peaks.fit_bytes
    return "not known" if peak is None else format_bytes(peak)


def format_measured(measured: Measurement | Figures) -> str:
    """Write samples/s and the peak: ``187.2 samples/s, 22.1 GiB``."""
    return f"{format_speed(measured.samples_per_s)}, {format_peak(measured.peaks)}"


def format_spread(figures: Figures) -> str:
    """Write the spread of samples/s, of repetitions or of one median: ``185.4 to 187.7, 3 repetitions``."""
    of = f"{figures.repetitions} repetitions" if figures.repetitions > 1 else "95 %"
    return f"{_range(figures)}, {of}"


def format_figures(figures: Figures | None) -> str:
    """Write samples/s with their spread, and the peak where there is one."""
    if figures is None:
        return "not measured"
    memory = "" if figures.peaks.fit_bytes is None else f" at a peak of {format_peak(figures.peaks)}"
    if not figures.samples_per_s:
        return f"samples not counted{memory}"
    return f"{format_speed(figures.samples_per_s)} ({format_spread(figures)}){memory}"


def _range(figures: Figures) -> str:
    return f"{format_rate(figures.samples_per_s_low)} to {format_rate(figures.samples_per_s_high)}"
