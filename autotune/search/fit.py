"""Predictions of what fits, from discovery alone: the largest batch size at each depth of plans."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ..records.facts import Facts
from ..records.outcome import Measured
from ..records.study import LIKELY, Fit, Objective
from ..verdict.aim import Aim
from ..verdict.feasible import is_feasible
from .candidates import Observation
from .cost.context import SearchContext
from .cost.model import CostModel
from .knowledge import Knowledge
from .space import Space

# Simulating takes milliseconds, so of each batch size only so many are simulated: the fastest with this chance before.
_MAY_FIT, _SIMULATED = 0.2, 12
# Where nothing is likely to fit, at so many batch sizes it is told what needs least.
_UNLIKELY = 3


def fits_of(space: Space, facts: Facts, baseline: Measured, limit_bytes: int) -> tuple[Fit, ...]:
    """Return the fastest that should fit at each batch size; of sizes with the same plans only the largest.

    They ascend by batch size. Where nothing is likely to fit, return what should need least at a few batch sizes.
    """
    context, measurement = SearchContext(space, facts, Aim(Objective(), limit_bytes)), baseline.measurement
    own = Observation(
        number=0,
        configuration=space.baseline,
        origin="baseline",
        state="scored",
        samples_per_s=measurement.samples_per_s,
        peak_bytes=measurement.peaks.fit_bytes,
        feasible=is_feasible(measurement, limit_bytes, baseline_is_finite=not measurement.nonfinite_loss),
    )
    model = Knowledge(context, [own]).model
    log_rate, rate_sd = model.log_rates(own)
    candidates = context.candidates
    fastest: dict[int, int] = {}
    for size in np.unique(candidates.batch_sizes):
        here = np.flatnonzero((candidates.batch_sizes == size) & (model.fits() >= _MAY_FIT))
        if not len(here):
            continue
        model.peaks.together(here[np.argsort(-log_rate[here])[:_SIMULATED]])
        fitting = here[model.fits()[here] >= LIKELY]
        if len(fitting):
            fastest[int(size)] = int(fitting[np.argmax(log_rate[fitting])])
    if not fastest:
        fastest = _smallest(model, np.where(model.ruled_out, -1, candidates.batch_sizes))
    chances = model.fits()
    peak, sd = model.peaks.of_all()
    largest: dict[object, Fit] = {}
    for index in fastest.values():
        configuration = candidates.configuration(index)
        key = configuration.plans, configuration.level
        largest.pop(key, None)
        if configuration.key == space.baseline.key:
            own_bytes = measurement.peaks.fit_bytes or 0
            chance = float(own_bytes <= limit_bytes)
            largest[key] = Fit(
                space.baseline, measurement.samples_per_s, 0.0, own_bytes, 0.0, is_measured=True, chance=chance
            )
            continue
        largest[key] = Fit(
            configuration,
            samples_per_s=math.exp(log_rate[index]),
            rate_sd=float(rate_sd[index]),
            peak_bytes=int(peak[index]),
            peak_sd=float(np.hypot(sd[index] / peak[index], model.peaks.noise)),
            chance=float(chances[index]),
        )
    return tuple(largest.values())


def _smallest(model: CostModel, batch_sizes: npt.NDArray[np.int64]) -> dict[int, int]:
    """Return by batch size the candidates that should need least memory; a batch size of -1 leaves one out."""
    for size in np.unique(batch_sizes[batch_sizes >= 0])[:_UNLIKELY]:
        here = np.flatnonzero(batch_sizes == size)
        peak, _ = model.peaks.of_all()
        model.peaks.together(here[np.argsort(peak[here])[:_SIMULATED]])
    peak, _ = model.peaks.of_all()
    by_size: dict[int, int] = {}
    for index in np.argsort(np.where(batch_sizes < 0, np.inf, peak)):
        if batch_sizes[index] >= 0 and len(by_size) < _UNLIKELY:
            by_size.setdefault(int(batch_sizes[index]), int(index))
    return dict(sorted(by_size.items()))
