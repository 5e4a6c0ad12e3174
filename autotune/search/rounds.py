"""How the rounds of a final compare: of one final only, since nothing else was measured in turns.

What is compared is what the aim says a measurement is worth: samples/s, or the inverse of the peak. The noise of the
machine is taken from the rounds themselves, so that chance rarely wins.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from ..records import Comparison, Configuration, Measured, Measurement, Repeat
from ..records.figures import peak_bytes, rounds_of
from .aim import Aim
from .judging import is_feasible

__all__ = [
    "baseline_rates",
    "compare",
    "gain",
    "holds",
    "is_beaten",
    "is_lost",
    "is_slow",
    "is_win",
    "least_gain",
    "rates_of",
    "tells",
]

LEAST_GAIN = 1.01
"""What is better by less is no win."""
_P_VALUE = 0.05 * (1 + 1e-9)  # 1/20 is the least p-value of three against three rounds, and has no exact binary form
_EFFECT = 0.9
# How often all finalists together may win by accident where nothing is faster than the baseline. The rank test alone
# can't be that strict: with three rounds each its p-value never goes below one in twenty.
_FALSE_WINS = 0.005
# Three rounds can agree by luck more closely than any machine repeats itself.
_LEAST_NOISE = 0.002


def holds(repeats: Sequence[Repeat], configuration: Configuration, aim: Aim, *, baseline_is_finite: bool) -> bool:
    """Tell whether every round of a configuration, in any final, could have won (``judging.is_feasible``).

    So it is with no rounds.
    """
    return all(
        isinstance(repeat.outcome, Measured)
        and is_feasible(repeat.outcome.measurement, aim.limit_bytes, baseline_is_finite=baseline_is_finite)
        for repeat in repeats
        if repeat.configuration.key == configuration.key
    )


def rates_of(repeats: Sequence[Repeat], configuration: Configuration) -> list[float]:
    """Give the samples/s of a configuration's measured rounds."""
    return _rates(_measured(rounds_of(repeats, configuration)))


def baseline_rates(repeats: Sequence[Repeat], configuration: Configuration, baseline: Configuration) -> list[float]:
    """Give the samples/s of the baseline's measured rounds in the final that the configuration's rounds are of."""
    return _rates(_measured(_beside(repeats, configuration, baseline)))


def tells(repeats: Sequence[Repeat], configuration: Configuration, baseline: Configuration) -> bool:
    """Tell whether there are rounds enough for the rank test to find for the configuration, were it always better."""
    ours, others = len(rounds_of(repeats, configuration)), len(baseline_rates(repeats, configuration, baseline))
    return _are_enough(ours, others)


def is_lost(
    repeats: Sequence[Repeat], configuration: Configuration, baseline: Configuration, aim: Aim, rounds: int
) -> bool:
    """Tell whether a finalist can't win any more, even if it is the better one in all that is left of its rounds.

    So it is with the first round of three in which it is no better: all three have to be better then. Rounds too few to
    find for anybody do not find against it either.
    """
    ours, others = _merits(repeats, configuration, aim), _baseline_merits(repeats, configuration, baseline, aim)
    if not ours or not others or not _are_enough(rounds, rounds):
        return False
    # Whatever is left lies above, or below, all that was measured.
    ours += [2 * max(*ours, *others)] * (rounds - len(ours))
    others += [0.0] * (rounds - len(others))
    return not _is_significant(_p_value(ours, others), _effect(ours, others))


def is_beaten(repeats: Sequence[Repeat], configuration: Configuration, other: Configuration, aim: Aim) -> bool:
    """Tell whether another finalist was better, and no slower, in each of the rounds that both have."""
    ours, others = _by_round(repeats, configuration), _by_round(repeats, other)
    both = ours.keys() & others.keys()
    return bool(both) and all(
        aim.merit_of(others[one]) >= aim.merit_of(ours[one]) and others[one].samples_per_s >= ours[one].samples_per_s
        for one in both
    )


def compare(repeats: Sequence[Repeat], baseline: Configuration, aim: Aim) -> tuple[Comparison, ...]:
    """Hold each finalist's rounds against those that the baseline had in the same final.

    A finalist's round that failed, thrashed or passed the limit is worth nothing. The baseline's failed rounds are left
    out: a failure of the baseline is no merit of a finalist.

    Returns:
        One comparison per finalist, in the order of first appearance; none for one without a measured round of the
        baseline beside it.
    """
    configurations = {repeat.configuration.key: repeat.configuration for repeat in repeats}
    configurations.pop(baseline.key, None)
    compared = (_comparison(repeats, one, baseline, aim) for one in configurations.values())
    return tuple(comparison for comparison in compared if comparison is not None)


def is_win(comparison: Comparison, aim: Aim) -> bool:
    """Tell whether a finalist was better in its rounds, by enough, and no slower than may be.

    What is left to see is whether it was by more than chance makes likely (``least_gain``).
    """
    significant = _is_significant(comparison.p_value, comparison.effect)
    return significant and aim.ratio(comparison) >= LEAST_GAIN and not is_slow(comparison)


def is_slow(comparison: Comparison) -> bool:
    """Tell whether rounds leave open that a finalist is slower than may be; never where any speed will do."""
    return comparison.slowdown_p_value is not None and comparison.slowdown_p_value > _P_VALUE


def gain(repeats: Sequence[Repeat], configuration: Configuration, baseline: Configuration, aim: Aim) -> float:
    """The ratio of the geometric means of what rounds are worth; less noisy than that of the medians."""
    ours, others = _merits(repeats, configuration, aim), _baseline_merits(repeats, configuration, baseline, aim)
    return statistics.geometric_mean(ours) / statistics.geometric_mean(others)


def least_gain(repeats: Sequence[Repeat], others: Sequence[Configuration], baseline: Configuration, aim: Aim) -> float:
    """The gain that identical configurations reach by accident in at most one of 200 studies.

    A t-test on the logarithms of what rounds are worth, with the variance pooled over all configurations (noise is the
    machine's, not the configuration's) and the error divided among the finalists (Bonferroni). Those that lost before
    their last round count in both, and not among those that may come to the gain.
    """
    from scipy.stats import t  # late for the same reason as in _comparison()

    own = {other.key: _baseline_merits(repeats, other, baseline, aim) for other in others}
    ours = {other.key: _merits(repeats, other, aim) for other in others}
    measured = (*{tuple(merits) for merits in own.values()}, *ours.values())
    groups = [[math.log(merit) for merit in merits] for merits in measured if merits]
    freedom = sum(len(group) - 1 for group in groups)
    if freedom == 0:
        return math.inf
    squares = sum(statistics.variance(group) * (len(group) - 1) for group in groups if len(group) > 1)
    noise = max(math.sqrt(squares / freedom), _LEAST_NOISE)
    most = max(map(len, ours.values()))
    fewest = min(len(merits) for key in ours if len(ours[key]) == most for merits in (ours[key], own[key]))
    factor = float(t.ppf(1 - _FALSE_WINS / len(others), freedom))
    return math.exp(factor * noise * math.sqrt(2 / fewest))


def _beside(repeats: Sequence[Repeat], configuration: Configuration, baseline: Configuration) -> list[Repeat]:
    final = {repeat.final for repeat in rounds_of(repeats, configuration)}
    return [one for one in repeats if one.final in final and one.configuration.key == baseline.key]


def _comparison(
    repeats: Sequence[Repeat], configuration: Configuration, baseline: Configuration, aim: Aim
) -> Comparison | None:
    own = _measured(_beside(repeats, configuration, baseline))
    own_rates, own_merits = [one.samples_per_s for one in own], [aim.merit_of(one) for one in own]
    if not own or min(*own_rates, *own_merits) <= 0:
        return None
    finite = not any(one.nonfinite_loss for one in own)
    rounds = rounds_of(repeats, configuration)
    measured = _measured(rounds)
    held = [one for one in measured if is_feasible(one, aim.limit_bytes, baseline_is_finite=finite)]
    failed = [0.0] * (len(rounds) - len(held))
    rates = [one.samples_per_s for one in held] + failed
    merits = [aim.merit_of(one) for one in held] + failed
    own_peaks, peaks = [peak_bytes(one.peaks) or 0 for one in own], [peak_bytes(one.peaks) or 0 for one in measured]
    middle = statistics.median(own_rates)
    ratio, ratio_low, ratio_high = _peak_ratios(peaks, own_peaks)
    return Comparison(
        configuration=configuration,
        samples_per_s=statistics.median(rates),
        baseline_samples_per_s=middle,
        speedup=statistics.median(rates) / middle,
        speedup_low=min(rates) / max(own_rates),
        speedup_high=max(rates) / min(own_rates),
        p_value=_p_value(merits, own_merits),
        effect=_effect(merits, own_merits),
        peak_bytes=max(peaks, default=0),
        baseline_peak_bytes=max(own_peaks),
        peak_ratio=ratio,
        peak_ratio_low=ratio_low,
        peak_ratio_high=ratio_high,
        slowdown_p_value=_p_value(rates, [aim.slowest * rate for rate in own_rates]) if aim.slowest else None,
    )


def _are_enough(ours: int, others: int) -> bool:
    """Whether the rank test could find for ours with so many rounds."""
    return 1 / math.comb(ours + others, ours) <= _P_VALUE


def _is_significant(p_value: float, effect: float) -> bool:
    return p_value <= _P_VALUE and effect >= _EFFECT


def _effect(ours: Sequence[float], others: Sequence[float]) -> float:
    """The share of pairs in which ours is better."""
    return sum((a > b) + 0.5 * (a == b) for a in ours for b in others) / (len(ours) * len(others))


def _p_value(ours: Sequence[float], others: Sequence[float]) -> float:
    """How likely ranks as good as ours are where neither is better; one-sided."""
    # scipy.stats takes most of a second to import, and a study needs it once, at its end.
    from scipy.stats import mannwhitneyu

    # Samples/s of rounds are continuous; ties come from failed rounds, and from peaks that repeat themselves. Neither
    # makes the exact test more lenient.
    return float(mannwhitneyu(ours, others, alternative="greater", method="exact").pvalue)


def _peak_ratios(ours: Sequence[int], others: Sequence[int]) -> tuple[float, float, float]:
    """Of the medians, the least and the most; all one where peaks were not measured."""
    if not ours or min(*ours, *others) <= 0:
        return 1.0, 1.0, 1.0
    middle = statistics.median(ours) / statistics.median(others)
    return middle, min(ours) / max(others), max(ours) / min(others)


def _measured(rounds: Sequence[Repeat]) -> list[Measurement]:
    return [repeat.outcome.measurement for repeat in rounds if isinstance(repeat.outcome, Measured)]


def _by_round(repeats: Sequence[Repeat], configuration: Configuration) -> dict[tuple[int, int], Measurement]:
    rounds = rounds_of(repeats, configuration)
    return {(one.final, one.round): one.outcome.measurement for one in rounds if isinstance(one.outcome, Measured)}


def _rates(measured: Sequence[Measurement]) -> list[float]:
    return [one.samples_per_s for one in measured if one.samples_per_s > 0]


def _merits(repeats: Sequence[Repeat], configuration: Configuration, aim: Aim) -> list[float]:
    return _positive(rounds_of(repeats, configuration), aim)


def _baseline_merits(
    repeats: Sequence[Repeat], configuration: Configuration, baseline: Configuration, aim: Aim
) -> list[float]:
    return _positive(_beside(repeats, configuration, baseline), aim)


def _positive(rounds: Sequence[Repeat], aim: Aim) -> list[float]:
    return [merit for one in _measured(rounds) if (merit := aim.merit_of(one)) > 0]
