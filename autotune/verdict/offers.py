"""Return what compiling would bring where a study was not allowed it."""

from __future__ import annotations

import math
from statistics import fmean, stdev

from ..records.figures import rounds_of
from ..records.outcome import Measured
from ..records.study import StudyRecord
from .aim import Aim
from .contention import times_as_fast_alone
from .feasible import is_feasible
from .finalists import baseline_is_finite
from .sequential import FIRST_LOOK, LEAST_NOISE, student_quantile

# What compiling brings is told from here on, and where nothing says how far runs scatter, from there. One run in twenty
# that is no better may seem to be: what is offered is to look for more, and nothing is answered by it.
_WORTH_TELLING, _WITHOUT_ROUNDS = 1.05, 1.1
_LEVEL = 0.05


def compiled_gain(record: StudyRecord) -> float | None:
    """Return how many times as good as the answer its setting was compiled, in one run; None where that shows no gain.

    Good is what the objective says; where that is less memory, no slower than the answer's slowest round. A gain is
    more than one run and rounds like the answer's may differ by chance.
    """
    facts, verdict = record.facts, record.verdict
    run, winner = (None, None) if verdict is None else (verdict.compiled, verdict.winner)
    if facts is None or verdict is None or run is None or winner is None or run.answer.key != winner.key:
        return None
    aim = Aim(record.spec.objective, verdict.memory_limit_bytes)
    rounds = [one.outcome for one in rounds_of(record.repeats, winner)]
    trials = [trial.outcome for trial in record.trials if trial.configuration.key == winner.key]
    own = [one.measurement for one in rounds if isinstance(one, Measured)]
    own = own or [one.measurement for one in trials if isinstance(one, Measured)]
    merits = [aim.merit_of(one) for one in own]
    if not isinstance(run.outcome, Measured) or not merits or min(merits) <= 0:
        return None
    measurement = run.outcome.measurement
    is_finite = baseline_is_finite(record.trials, facts)
    if not is_feasible(measurement, aim.limit_bytes, baseline_is_finite=is_finite) or not aim.merit_of(measurement):
        return None
    if aim.seeks_memory and measurement.samples_per_s < min(one.samples_per_s for one in own):
        return None
    logs = [math.log(one) for one in merits]
    gain = math.log(aim.merit_of(measurement)) - fmean(logs)
    alone = 1.0 if aim.seeks_memory else max(map(times_as_fast_alone, own))
    least = math.log(_WITHOUT_ROUNDS * alone)
    if len(logs) >= FIRST_LOOK:  # how busy the machine was is in how they scatter
        scatter = max(stdev(logs), LEAST_NOISE) * math.sqrt(1 + 1 / len(logs))
        least = max(math.log(_WORTH_TELLING), student_quantile(_LEVEL, len(logs) - 1) * scatter)
    return math.exp(gain) if gain > least else None
