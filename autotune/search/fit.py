"""What should fit, going by discovery alone: the largest batch size at each depth of plans."""

from __future__ import annotations

import math

import numpy as np

from ..records import Facts, Fit, Measured, Measurement, Objective
from ..records.figures import peak_bytes
from .aim import Aim
from .judging import is_feasible
from .knowledge import Ground, Knowledge
from .observation import Observation
from .space import Space

__all__ = ["fits_of"]

# What is less likely to fit is not promised.
_LIKELY = 0.8
# Simulating takes milliseconds, so of each batch size only so many are simulated: the fastest that may fit.
_MAY_FIT, _SIMULATED = 0.2, 12


def fits_of(space: Space, facts: Facts, baseline: Measured, limit_bytes: int) -> tuple[Fit, ...]:
    """The fastest that should fit at each batch size; of sizes that take the same plans the largest.

    Args:
        space: what may vary.
        facts: what discovery found.
        baseline: the script as it is.
        limit_bytes: the memory limit.

    Returns:
        In ascending order of the batch size; empty where nothing should fit.
    """
    ground = Ground(space, facts, Aim(Objective(), limit_bytes))
    own = _observation(space, baseline.measurement, limit_bytes)
    model = Knowledge(ground, [own]).model
    log_rate, rate_sd = model.log_rates(own)
    candidates = ground.candidates
    fastest: dict[int, int] = {}
    for size in np.unique(candidates.batch_sizes):
        here = np.flatnonzero((candidates.batch_sizes == size) & (model.fits() >= _MAY_FIT))
        if not len(here):
            continue
        model.peaks.together(here[np.argsort(-log_rate[here])[:_SIMULATED]])
        fitting = here[model.fits()[here] >= _LIKELY]
        if len(fitting):
            fastest[int(size)] = int(fitting[np.argmax(log_rate[fitting])])
    peak, sd = model.peaks.of_all()
    largest: dict[object, Fit] = {}
    for index in fastest.values():
        configuration = candidates.configuration(index)
        key = configuration.plans, configuration.level
        largest.pop(key, None)
        if configuration.key == space.baseline.key:
            largest[key] = _measured(space, baseline.measurement)
            continue
        largest[key] = Fit(
            configuration,
            space.batch_size_of(configuration),
            samples_per_s=math.exp(log_rate[index]),
            rate_sd=float(rate_sd[index]),
            peak_bytes=int(peak[index]),
            peak_sd=float(np.hypot(sd[index] / peak[index], model.peaks.noise)),
        )
    return tuple(largest.values())


def _observation(space: Space, measurement: Measurement, limit_bytes: int) -> Observation:
    return Observation(
        number=0,
        configuration=space.baseline,
        origin="baseline",
        state="scored",
        samples_per_s=measurement.samples_per_s,
        peak_bytes=peak_bytes(measurement.peaks),
        feasible=is_feasible(measurement, limit_bytes, baseline_is_finite=not measurement.nonfinite_loss),
    )


def _measured(space: Space, measurement: Measurement) -> Fit:
    return Fit(
        space.baseline,
        space.batch_size_of(space.baseline),
        measurement.samples_per_s,
        rate_sd=0.0,
        peak_bytes=peak_bytes(measurement.peaks) or 0,
        peak_sd=0.0,
        is_measured=True,
    )
