"""Comparison of the repetitions of a confirmation: of one confirmation only, since nothing else was measured in turns.

A repetition counts where both the baseline and the finalist were measured in it. The compared figure is what a
measurement is worth by the aim: samples/s, or the inverse of the peak.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from ..records.configuration import Configuration
from ..records.figures import summary_of
from ..records.measurement import Measurement
from ..records.study import Comparison, Repeat
from ..records.study_results import repetitions_of
from ..records.units import TELLS_NOTHING
from .aim import Aim
from .feasible import is_feasible
from .sequential import FIRST_LOOK, Finding, judge

_Entrant = TypeVar("_Entrant")

# A baseline that has failed so often in a confirmation fails the next time too, and repetitions without it tell
# nothing.
_MOST_BASELINE_FAILURES = 3


def holds(repeats: Sequence[Repeat], configuration: Configuration, aim: Aim, *, baseline_is_finite: bool) -> bool:
    """Tell whether no repetition of a configuration, in any confirmation, rules it out (``is_feasible``)."""
    return all(
        repeat.outcome.measurement is not None
        and is_feasible(repeat.outcome.measurement, aim.limit_bytes, baseline_is_finite=baseline_is_finite)
        for repeat in repeats
        if repeat.configuration.key == configuration.key
    )


def is_beaten(repeats: Sequence[Repeat], configuration: Configuration, other: Configuration, aim: Aim) -> bool:
    """Tell whether another finalist was better, and no slower, in each of the repetitions that both have."""
    ours, others = (
        {
            (one.confirmation, one.repetition): one.outcome.measurement
            for one in repetitions_of(repeats, each)
            if one.outcome.measurement
        }
        for each in (configuration, other)
    )
    both = ours.keys() & others.keys()
    return bool(both) and all(
        aim.merit_of(others[one]) >= aim.merit_of(ours[one]) and others[one].samples_per_s >= ours[one].samples_per_s
        for one in both
    )


def next_repetition(
    repeats: Sequence[Repeat],
    entrants: Sequence[Configuration],
    baseline: Configuration,
    aim: Aim,
    *,
    most_repetitions: int,
    baseline_is_finite: bool,
    baseline_fits: bool = True,
    seed: str,
) -> tuple[Configuration, ...]:
    """List in order what is measured in the next repetition of a confirmation; nothing once that is over.

    It is over with the last repetition, with a win, once nobody is left that may win, and once the baseline has failed
    too often. Unless the baseline fits, nothing is held against it: a setting is out that another has beaten in its
    repetitions and its trial. ``repeats`` are whole repetitions of this confirmation, ``entrants`` the best first.
    """
    number = 1 + max((one.repetition for one in repeats), default=-1)
    own = [one for one in entrants if one.key == baseline.key]
    left = [one for one in entrants if one.key != baseline.key]
    if number:
        latest = {one.configuration.key for one in repeats if one.repetition == number - 1}
        able = [one for one in left if holds(repeats, one, aim, baseline_is_finite=baseline_is_finite)]
        going = [one for one in able if one.key in latest]
        is_beside = bool(own) and baseline_fits
        left = (
            _open_beside(repeats, going, baseline, aim, most_repetitions)
            if is_beside
            else _unbeaten(repeats, going, aim)
        )
    failures = sum(one.configuration.key == baseline.key and not one.outcome.measurement for one in repeats)
    if not left or number >= most_repetitions or failures >= _MOST_BASELINE_FAILURES:
        return ()
    return tuple(one for one in order_of_repetition(entrants, number, seed) if one in own or one in left)


def order_of_repetition(entrants: Sequence[_Entrant], number: int, seed: object) -> list[_Entrant]:
    """Return everybody in the order of a repetition, which are numbered from 0; the same seed gives the same order."""
    # With a fixed order the first of each repetition may always be the slower one. The second repetition is the reverse
    # of the first, so that already two of them have each before every other and after it.
    chance = random.Random(f"{seed}, repetition {0 if number == 1 else number}")  # noqa: S311 - no secret
    order = chance.sample(entrants, len(entrants))
    return order[::-1] if number == 1 else order


def _open_beside(
    repeats: Sequence[Repeat],
    finalists: Sequence[Configuration],
    baseline: Configuration,
    aim: Aim,
    most_repetitions: int,
) -> list[Configuration]:
    """Return those that more repetitions may show to be better than the baseline; nothing once one has won."""
    compared = compare(repeats, baseline, aim, most_repetitions, is_over=False)
    if any(one.is_win for one in compared):
        return []
    told = {one.configuration.key for one in compared if not one.is_open}
    return [one for one in finalists if one.key not in told]


def _unbeaten(repeats: Sequence[Repeat], finalists: Sequence[Configuration], aim: Aim) -> list[Configuration]:
    """Return those that no other with a better trial was better than in its repetitions, too."""
    return [
        one
        for at, one in enumerate(finalists)
        if not any(is_beaten(repeats, one, other, aim) for other in finalists[:at])
    ]


def compare(
    repeats: Sequence[Repeat], baseline: Configuration, aim: Aim, most_repetitions: int, *, is_over: bool = True
) -> tuple[Comparison, ...]:
    """Hold each finalist against the baseline, within the repetitions of one confirmation that have both.

    A failure of the baseline is no merit of a finalist: such a repetition is left out. Of several confirmations the
    latest that tells counts, or else the one with the most repetitions. Unless it ``is_over``, more repetitions may
    follow, and less is taken for shown. Left out are finalists whose confirmations have no measured repetition of the
    baseline.
    """
    confirmations: dict[int, list[Repeat]] = {}
    for repeat in repeats:
        confirmations.setdefault(repeat.confirmation, []).append(repeat)
    chosen: dict[str, Comparison] = {}
    for number in sorted(confirmations):
        for one in _Confirmation(confirmations[number], baseline, aim).compare(most_repetitions, is_over=is_over):
            before = chosen.get(one.configuration.key)
            if before is None or not one.is_open or (before.is_open and one.repetitions >= before.repetitions):
                chosen[one.configuration.key] = one
    keys = dict.fromkeys(repeat.configuration.key for repeat in repeats)
    return tuple(chosen[key] for key in keys if key in chosen)


class _Confirmation:
    """The measurements of one confirmation, of the baseline and of each finalist, by the number of the repetition."""

    def __init__(self, repeats: Sequence[Repeat], baseline: Configuration, aim: Aim) -> None:
        self._repeats = repeats
        self._aim = aim
        self._own = _by_repetition(repeats, baseline)
        finite = not any(one.nonfinite_loss for one in self._own.values())
        self._finalists = {one.configuration.key: one.configuration for one in repeats}
        self._finalists.pop(baseline.key, None)
        self._ours = {key: _by_repetition(repeats, one) for key, one in self._finalists.items()}
        self._held = {
            key: repetitions
            for key, repetitions in self._ours.items()
            if holds(repeats, self._finalists[key], aim, baseline_is_finite=finite)
        }

    def compare(self, most_repetitions: int, *, is_over: bool) -> list[Comparison]:
        """Compare each finalist with the baseline, where that was measured at all."""
        if not self._own:
            return []
        return [self._compared(key, most_repetitions, is_over=is_over) for key in self._finalists]

    def _compared(self, key: str, most_repetitions: int, *, is_over: bool) -> Comparison:
        ours, repetitions = tuple(self._ours[key].values()), self._repetitions(key)
        pairs = [(self._own[number], self._ours[key][number]) for number in repetitions]
        described = Comparison(
            configuration=self._finalists[key],
            figures=summary_of(ours) if ours else None,
            baseline_figures=summary_of(tuple(self._own.values())),
            speedup=statistics.geometric_mean(b.samples_per_s / a.samples_per_s for a, b in pairs) if pairs else 0.0,
            speedup_low=None,
            speedup_high=None,
            peak_ratio=statistics.geometric_mean(_peak(b) / _peak(a) for a, b in pairs) if pairs else 1.0,
            repetitions=len(pairs),
            found="open" if key in self._held else "failed",
        )
        if key not in self._held or not repetitions:
            return described
        # Whoever was measured in all of these repetitions helps to tell the noise.
        beside = [one for one in self._held if one != key and set(repetitions) <= set(self._repetitions(one))]

        def look(value: Callable[[Measurement], float], allowed: float | None = None) -> Finding:
            blocks = [
                [math.log(value(each[number])) for each in (self._own, *(self._ours[one] for one in (key, *beside)))]
                for number in repetitions
            ]
            found = judge(
                blocks,
                finalists=len(self._finalists),
                most_repetitions=most_repetitions,
                is_over=is_over,
                allowed=allowed,
            )
            # Repetitions that failed are behind it as well. Too few repetitions leave it open, even if no more were
            # asked for.
            is_last = (
                1 + max(one.repetition for one in self._repeats) >= most_repetitions and len(repetitions) >= FIRST_LOOK
            )
            # It is not for lack of hope that no more repetitions follow if it was in the last, or if nothing can be
            # told.
            its_last = max(one.repetition for one in self._repeats if one.configuration.key == key)
            is_untold = 1 + its_last >= most_repetitions or (found.high or 0.0) > TELLS_NOTHING
            if (found.found == "open" and is_last) or (found.found == "futile" and is_untold):
                return replace(found, found="unresolved")
            return found

        if not self._aim.seeks_memory:
            speed = look(lambda one: one.samples_per_s)
            return replace(described, found=speed.found, speedup_low=speed.low, speedup_high=speed.high)
        size, speed = look(lambda one: 1 / _peak(one)), look(lambda one: one.samples_per_s, -self._aim.log_slowest)
        return replace(
            described,
            found=size.found,
            found_fast=speed.found,
            speedup_low=speed.low,
            speedup_high=speed.high,
            peak_ratio_low=None if size.high is None else 1 / size.high,
            peak_ratio_high=None if size.low is None else 1 / size.low,
        )

    def _repetitions(self, key: str) -> list[int]:
        """Return the repetitions in which both a finalist and the baseline were measured."""
        return sorted(self._own.keys() & self._ours[key].keys())


def _peak(measurement: Measurement) -> int:
    return measurement.peaks.fit_bytes or 0


def _by_repetition(repeats: Sequence[Repeat], configuration: Configuration) -> dict[int, Measurement]:
    """Return what was measured in each repetition of one confirmation, where samples and memory were seen."""
    return {
        one.repetition: one.outcome.measurement
        for one in repeats
        if one.configuration.key == configuration.key
        and one.outcome.measurement
        and one.outcome.measurement.samples_per_s > 0
        and _peak(one.outcome.measurement) > 0
    }
