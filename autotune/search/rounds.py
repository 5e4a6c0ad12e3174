"""How the rounds of a final compare: of one final only, since nothing else was measured in turns.

The noise of the machine is taken from the rounds themselves, so that chance rarely wins.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from ..records import Comparison, Configuration, Measured, Measurement, Repeat
from ..records.figures import peak_bytes, rounds_of
from .judging import is_feasible

__all__ = ["baseline_rates", "compare", "gain", "holds", "least_gain", "rates_of", "tells"]

P_VALUE = 0.05
# How often all finalists together may win by accident where nothing is faster than the baseline. The rank test alone
# can't be that strict: with three rounds each its p-value never goes below one in twenty.
_FALSE_WINS = 0.005
# Three rounds can agree by luck more closely than any machine repeats itself.
_LEAST_NOISE = 0.002


def holds(
    repeats: Sequence[Repeat], configuration: Configuration, limit_bytes: int, *, baseline_is_finite: bool
) -> bool:
    """Tell whether every round of a configuration, in any final, could have won (``judging.is_feasible``).

    So it is with no rounds.
    """
    return all(
        isinstance(repeat.outcome, Measured)
        and is_feasible(repeat.outcome.measurement, limit_bytes, baseline_is_finite=baseline_is_finite)
        for repeat in repeats
        if repeat.configuration.key == configuration.key
    )


def rates_of(repeats: Sequence[Repeat], configuration: Configuration) -> list[float]:
    """Give the samples/s of a configuration's measured rounds."""
    return _rates(rounds_of(repeats, configuration))


def baseline_rates(repeats: Sequence[Repeat], configuration: Configuration, baseline: Configuration) -> list[float]:
    """Give the samples/s of the baseline's measured rounds in the final that the configuration's rounds are of."""
    return _rates(_beside(repeats, configuration, baseline))


def tells(repeats: Sequence[Repeat], configuration: Configuration, baseline: Configuration) -> bool:
    """Tell whether there are rounds enough for the rank test to find for the configuration, were it always faster."""
    ours, others = len(rounds_of(repeats, configuration)), len(baseline_rates(repeats, configuration, baseline))
    return 1 / math.comb(ours + others, ours) <= P_VALUE


def compare(repeats: Sequence[Repeat], baseline: Configuration, limit_bytes: int) -> tuple[Comparison, ...]:
    """Hold each finalist's rounds against those that the baseline had in the same final.

    A finalist's round that failed, thrashed or passed the limit counts as no samples at all. The baseline's failed
    rounds are left out: a failure of the baseline is no merit of a finalist.

    Returns:
        One comparison per finalist, in the order of first appearance; none for one without a measured round of the
        baseline beside it.
    """
    configurations = {repeat.configuration.key: repeat.configuration for repeat in repeats}
    configurations.pop(baseline.key, None)
    compared = (_comparison(repeats, one, baseline, limit_bytes) for one in configurations.values())
    return tuple(comparison for comparison in compared if comparison is not None)


def gain(repeats: Sequence[Repeat], configuration: Configuration, baseline: Configuration) -> float:
    """The ratio of the geometric means of the rounds; less noisy than that of the medians."""
    own = baseline_rates(repeats, configuration, baseline)
    return statistics.geometric_mean(rates_of(repeats, configuration)) / statistics.geometric_mean(own)


def least_gain(repeats: Sequence[Repeat], others: Sequence[Configuration], baseline: Configuration) -> float:
    """The gain that identical configurations reach by accident in at most one of 200 studies.

    A t-test on log rates, with the variance pooled over all configurations (noise is the machine's, not the
    configuration's) and the error divided among the finalists (Bonferroni).
    """
    from scipy.stats import t  # late for the same reason as in _comparison()

    own = {tuple(baseline_rates(repeats, other, baseline)) for other in others}
    groups = [[math.log(rate) for rate in rates] for rates in (*own, *(rates_of(repeats, one) for one in others))]
    groups = [group for group in groups if group]
    freedom = sum(len(group) - 1 for group in groups)
    if freedom == 0:
        return math.inf
    squares = sum(statistics.variance(group) * (len(group) - 1) for group in groups if len(group) > 1)
    noise = max(math.sqrt(squares / freedom), _LEAST_NOISE)
    fewest = min(len(group) for group in groups)
    factor = float(t.ppf(1 - _FALSE_WINS / len(others), freedom))
    return math.exp(factor * noise * math.sqrt(2 / fewest))


def _beside(repeats: Sequence[Repeat], configuration: Configuration, baseline: Configuration) -> list[Repeat]:
    final = {repeat.final for repeat in rounds_of(repeats, configuration)}
    return [one for one in repeats if one.final in final and one.configuration.key == baseline.key]


def _comparison(
    repeats: Sequence[Repeat], configuration: Configuration, baseline: Configuration, limit_bytes: int
) -> Comparison | None:
    own = _measured(_beside(repeats, configuration, baseline))
    own_rates = [one.samples_per_s for one in own]
    if not own or min(own_rates) <= 0:
        return None
    # scipy.stats takes most of a second to import, and a study needs it once, at its end.
    from scipy.stats import mannwhitneyu

    finite = not any(one.nonfinite_loss for one in own)
    rounds = rounds_of(repeats, configuration)
    measured = _measured(rounds)
    rates = [one.samples_per_s for one in measured if is_feasible(one, limit_bytes, baseline_is_finite=finite)]
    rates += [0.0] * (len(rounds) - len(rates))
    # Rates of rounds are continuous; ties come from failed rounds, and those make the exact test no more lenient.
    test = mannwhitneyu(rates, own_rates, alternative="greater", method="exact")
    wins = sum((a > b) + 0.5 * (a == b) for a in rates for b in own_rates)
    middle = statistics.median(own_rates)
    return Comparison(
        configuration=configuration,
        samples_per_s=statistics.median(rates),
        baseline_samples_per_s=middle,
        speedup=statistics.median(rates) / middle,
        speedup_low=min(rates) / max(own_rates),
        speedup_high=max(rates) / min(own_rates),
        p_value=float(test.pvalue),
        effect=wins / (len(rates) * len(own_rates)),
        peak_bytes=max((peak_bytes(one.peaks) or 0 for one in measured), default=0),
        baseline_peak_bytes=max(peak_bytes(one.peaks) or 0 for one in own),
    )


def _measured(rounds: Sequence[Repeat]) -> list[Measurement]:
    return [repeat.outcome.measurement for repeat in rounds if isinstance(repeat.outcome, Measured)]


def _rates(rounds: Sequence[Repeat]) -> list[float]:
    return [one.samples_per_s for one in _measured(rounds) if one.samples_per_s > 0]
