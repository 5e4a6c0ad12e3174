"""Worth of settings by the objective of their study: search, confirmations and verdict compare settings here alone.

Speeds are held against a reference: the script as it stands, or where that may not be the answer itself, the fastest
setting that may.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..records.choices import engine_choices
from ..records.engines import SWITCHING_ENGINES
from ..records.facts import ClusterFacts, Facts
from ..records.measurement import Measurement
from ..records.study import Comparison, Objective, StudyRecord
from ..records.units import format_bytes


@dataclass(frozen=True)
class Aim:
    """An objective under the memory limit of runs; ``clusters`` let sentences say how many of them are recomputed."""

    objective: Objective
    run_limit_bytes: int
    clusters: tuple[ClusterFacts, ...] = ()

    @property
    def limit_bytes(self) -> int:
        """Return what the answer may peak at."""
        return self.objective.limit_bytes(self.run_limit_bytes)

    @property
    def seeks_memory(self) -> bool:
        """Return whether less memory is better; else more samples/s are."""
        return self.objective.goal == "memory"

    @property
    def for_speed(self) -> Aim:
        """Return the same in search of samples/s."""
        return replace(self, objective=replace(self.objective, goal="throughput"))

    @property
    def slowest(self) -> float:
        """Return the least samples/s of an answer, as a share of the reference's."""
        return 1 - self.objective.max_slowdown if self.seeks_memory else 0.0

    def merit(self, samples_per_s: float, peak: float | None) -> float:
        """Return the worth of a setting, of which only ratios mean anything; 0.0 for what was not measured."""
        if self.seeks_memory:
            return 1 / peak if peak else 0.0
        return samples_per_s

    def merit_of(self, measurement: Measurement) -> float:
        """Return the worth of a measurement."""
        return self.merit(measurement.samples_per_s, measurement.peaks.fit_bytes)

    def ratio(self, comparison: Comparison) -> float:
        """Return how many times as good as the baseline a finalist was in its repetitions."""
        return 1 / comparison.peak_ratio if self.seeks_memory else comparison.speedup

    def bounds(self, comparison: Comparison) -> tuple[float, float] | None:
        """Return the interval of ``ratio`` by the repetitions; None where they are too few to tell."""
        if self.seeks_memory:
            low, high = comparison.peak_ratio_high, comparison.peak_ratio_low
            return None if low is None or high is None else (1 / low, 1 / high)
        low, high = comparison.speedup_low, comparison.speedup_high
        return None if low is None or high is None else (low, high)

    @property
    def log_slowest(self) -> float:
        """Return the logarithm of ``slowest``."""
        return math.log(self.slowest) if self.slowest else -math.inf

    def limit_text(self) -> str:
        """Write the answer's limit for people: ``900 MiB``, ``your target of 900 MiB``."""
        limit = format_bytes(self.limit_bytes)
        return f"your target of {limit}" if self.limit_bytes < self.run_limit_bytes else limit


def batch_size_stays(record: StudyRecord, facts: Facts) -> bool:
    """Tell whether the study searches no other batch size than the script's own."""
    own = facts.baseline.batch_size
    return not facts.batch_control.can_set or facts.batch_size is None or record.spec.batch_sizes == (own, own)


def plans_may_help(record: StudyRecord, facts: Facts, *, baseline_fits: bool) -> bool:
    """Tell whether a setting with plans may be better than the same without, or whether some were tried already.

    None is where the script fits, its batch size stays, and speed is what counts: recompute can only take time then.
    Given plans may be better all the same, and so may plans of an engine that compiles.
    """
    spec, stays = record.spec, batch_size_stays(record, facts)
    compiles = spec.engine not in SWITCHING_ENGINES or not engine_choices(spec.engine).keys().isdisjoint(spec.choices)
    are_tried = any(trial.configuration.plans for trial in record.trials)
    only_cost = baseline_fits and stays and spec.objective.goal != "memory" and not compiles
    return not only_cost or bool(spec.plans_first) or are_tried
