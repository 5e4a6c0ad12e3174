"""What replayed studies come to: figures over all of them, and the marks that the figures are held against."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .replay import LEVELS, NEAR, OTHERS, Replayed
from .rivals import BY_HAND, Effort
from .table import Table

__all__ = ["Figures", "Played", "judge", "marks", "summary"]

Figures = dict[str, float | None]
Marks = Mapping[str, tuple[float, float]]

_WHEN = ("before", "after_three", "at_the_stop")
# Each with the least and the most that it may be. Those of files are what the search has reached on them.
_OF_FILES: Marks = {
    "runs_median": (0, 5),
    "runs_p90": (0, 9),
    "out_of_memory_share": (0, 0.10),
    "loss_median": (0, 0.01),
    "stop_ratio": (0, 1.5),
    "false_win_share": (0, 0.01),
    "times_tpe": (8, math.inf),
    "duplicates": (0, 0),
}
_OF_FILES_ALONE: Marks = {
    **{name: mark for name, mark in _OF_FILES.items() if name not in ("runs_median", "runs_p90", "times_tpe")},
    "trials_median": (0, 10),
    "trials_p90": (0, 20),
}
# Executed steps are not what the search was made with: these are asked of landscapes that nobody has looked at.
_OF_PHYSICS: Marks = {
    "loss_under_1_percent_share": (0.90, 1),
    "loss_under_3_percent_share": (0.98, 1),
    "runs_median": (0, 3),
    "runs_p90": (0, 8),
    "out_of_memory_share": (0, 0.12),
    **{f"{what}_within_90_{when}": (0.85, 0.95) for what in ("peaks", "speeds") for when in _WHEN},
    "stop_ratio": (0, 1.5),
    "stops_elsewhere_share": (0, 0.05),
    "times_tpe": (10, math.inf),
    "times_heuristic": (1.5, math.inf),
    "loss_above_heuristic": (-math.inf, 0),
    "false_win_share": (0, 0.01),
    "duplicates": (0, 0),
}


@dataclass(frozen=True)
class Played:
    """One study, and what each rival took on the same landscape with the same seed."""

    row: Replayed
    rivals: Mapping[str, Effort] = field(default_factory=dict)


def marks(*, physics: bool, alone: bool) -> Marks:
    """What is asked of the figures; ``alone`` is a fresh process for each trial."""
    if physics:
        return _OF_PHYSICS
    return _OF_FILES_ALONE if alone else _OF_FILES


def judge(figures: Figures, asked: Marks) -> list[str]:
    """The names of the figures that miss their marks; what was not found out misses none."""
    known = {name: value for name in asked if (value := figures.get(name)) is not None}
    return [name for name, value in known.items() if not asked[name][0] <= value <= asked[name][1]]


def summary(tables: Sequence[Table], played: Sequence[Played], wins: Sequence[bool]) -> Figures:
    """Figures over all studies. Percentiles count a study that never found the best as one that takes for ever."""
    rows = [one.row for one in played]
    runs = [math.inf if row.found is None else row.found.runs for row in rows]
    trials = [math.inf if row.found is None else row.found.trials for row in rows]
    tried = sum(row.stopped.trials for row in rows)
    hard = [row for row in rows if row.found is None or row.found.runs]
    ratios = [row.stopped.trials / row.found.trials for row in hard if row.found is not None]
    return {
        "studies": len(rows),
        "found_share": sum(row.found is not None for row in rows) / len(rows),
        "runs_median": percentile(runs, 0.5),
        "runs_p90": percentile(runs, 0.9),
        "trials_median": percentile(trials, 0.5),
        "trials_p90": percentile(trials, 0.9),
        "runs_median_of_not_given": percentile([r for r in runs if r], 0.5),
        "stop_runs_median": percentile([row.stopped.runs for row in rows], 0.5),
        "stop_trials_median": percentile([row.stopped.trials for row in rows], 0.5),
        "stop_ratio": percentile(ratios, 0.5),
        "stop_ratio_of_sums": sum(r.stopped.trials for r in hard if r.found)
        / max(1, sum(r.found.trials for r in hard if r.found)),
        **stops(rows),
        **losses([row.loss for row in rows]),
        **losses([row.answer_loss for row in rows], "answer_"),
        "loss_median": percentile([row.loss for row in rows], 0.5),
        "answer_loss_median": percentile([row.answer_loss for row in rows], 0.5),
        "loss_p90": percentile([row.loss for row in rows], 0.9),
        "out_of_memory_share": sum(row.out_of_memory for row in rows) / max(tried, 1),
        "duplicates": sum(row.duplicates for row in rows),
        "peak_error_at_once": percentile(kept(row.peak_error_at_once for row in rows), 0.5),
        "peak_error_after_three": percentile(kept(row.peak_error_after_three for row in rows), 0.5),
        "speed_error_at_stop": percentile(kept(row.speed_error_at_stop for row in rows), 0.5),
        **beside(played),
        "false_win_share": statistics.fmean(wins) if wins else None,
        **coverage(rows),
        **landscapes(tables),
    }


def losses(found: Sequence[float], prefix: str = "") -> dict[str, float]:
    """Shares of studies whose loss is small, and the mean."""
    return {
        f"{prefix}loss_under_1_percent_share": sum(loss < 0.01 for loss in found) / len(found),
        f"{prefix}loss_under_3_percent_share": sum(loss < 0.03 for loss in found) / len(found),
        f"{prefix}loss_mean": statistics.fmean(found),
    }


def stops(rows: Sequence[Replayed]) -> Figures:
    """How much of a stop is in the draws: of the other seeds the share that would have gone on, and of the stops."""
    asked = kept(row.gone_on for row in rows)
    return {
        "stops_elsewhere_share": sum(asked) / (OTHERS * len(asked)) if asked else None,
        "stops_not_by_all_share": sum(map(bool, asked)) / len(asked) if asked else None,
    }


def beside(played: Sequence[Played]) -> Figures:
    """Device seconds of each rival in those of the search: until near the best, or at the stops of both.

    Where the search never found it, it is taken to have gone on with the rival from there. A rival that gave up counts
    with what it had spent, which is less than it needs.
    """
    figures: Figures = {}
    for name in dict.fromkeys(name for one in played for name in one.rivals):
        pairs = [(one.row, one.rivals[name]) for one in played]
        if name in BY_HAND:
            theirs = [effort.stopped.seconds for _, effort in pairs]
            ours = [row.stopped.seconds for row, _ in pairs]
            figures |= losses([effort.loss for _, effort in pairs], f"{name}_")
            above = statistics.fmean(row.loss - effort.loss for row, effort in pairs)
            figures[f"loss_above_{name}"] = above
        else:
            theirs = [(effort.found or effort.stopped).seconds for _, effort in pairs]
            ours = [
                row.stopped.seconds + seconds if row.found is None else row.found.seconds
                for (row, _), seconds in zip(pairs, theirs, strict=True)
            ]
        found = [math.inf if effort.found is None else effort.found.trials for _, effort in pairs]
        figures[f"{name}_trials_median"] = percentile(found, 0.5)
        figures[f"times_{name}"] = sum(theirs) / sum(ours) if any(ours) else None
    return figures


def coverage(rows: Sequence[Replayed]) -> dict[str, float]:
    """The share of what was compared that lies within intervals of 50, 90 and 99 %, by when and of what."""
    shares: dict[str, float] = {}
    for when in _WHEN:
        found = [one for row in rows for one in row.covered if one.when.replace(" ", "_") == when and one.compared]
        whole = sum(one.compared for one in found)
        for place, level in enumerate(LEVELS if whole else ()):
            for what in ("peaks", "speeds"):
                name = f"{what}_within_{100 * level:.0f}_{when}"
                shares[name] = sum(getattr(one, what)[place] for one in found) / whole
    return shares


def landscapes(tables: Sequence[Table]) -> Figures:
    """What the landscapes are like: where nothing has to be recomputed, and what a finer grid of batch sizes brings."""
    able = [table for table in tables if table.best]
    figures: Figures = {
        "best_without_plans_share": statistics.fmean(one.best_without_plans >= NEAR * one.best for one in able)
    }
    gains = [one.best / one.best_of_listed - 1 for one in able if one.landscape.between and one.best_of_listed]
    if gains:
        figures |= {"finer_gain_median": statistics.median(gains), "finer_gain_max": max(gains)}
    return figures


def percentile(values: Sequence[float], share: float) -> float | None:
    """The least value that this share of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else None


def kept(values: Iterable[Any]) -> list[Any]:
    """What is not None."""
    return [value for value in values if value is not None]
