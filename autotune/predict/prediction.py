"""Predicting a configuration from a script's facts, or refusing to, with the reason."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import PredictionError
from ..records import Configuration, Environment, Facts, PrecisionFacts
from .simulation import Simulated, Simulation

__all__ = ["Prediction", "Predictor"]

# The self-check's error, as a fraction: predictions that are further off would mislead more than help.
_MOST_ERROR = 0.10


@dataclass(frozen=True)
class Prediction:
    """What a training step of one configuration takes, as the allocator counts what it is asked for.

    ``saved_bytes`` go from forward to backward. ``peak_bytes`` is the highest point from the beginning of the forward
    to the end of the backward: ``step_bytes`` on top of what is there all the time (parameters, buffers, optimizer
    state, and gradients that the forward finds). ``recompute_time_s`` is the time of what is recomputed in one step, at
    the batch size of discovery. ``error`` is the self-check's largest error, as a fraction of ``step_bytes``.
    """

    saved_bytes: int
    step_bytes: int
    peak_bytes: int
    recompute_time_s: float
    error: float
    simulated: Simulated


class Predictor:
    """Predicts configurations of one script.

    Args:
        facts: what discovery found.
        environment: where the configurations are to run; None for where discovery ran.
        precision: what they are to run in; None for what discovery found.

    Raises:
        PredictionError: the facts have no graphs, or were calibrated with another torch, device or number of threads,
            or with an error of more than 10 %.
    """

    def __init__(
        self, facts: Facts, environment: Environment | None = None, precision: PrecisionFacts | None = None
    ) -> None:
        calibration = facts.calibration
        if calibration is None or calibration.error is None or not facts.graphs:
            reason = (
                "discovery left no graphs (an older version, or too short a script)"
                if calibration is None
                else calibration.reason
            )
            raise PredictionError(
                f"memory cannot be predicted: {reason or 'no graph was captured'}",
                hint="trials measure it; `autotune discover SCRIPT` describes the script anew",
            )
        if calibration.error > _MOST_ERROR:
            raise PredictionError(
                f"memory cannot be predicted: what was measured at discovery is {calibration.error:.0%} off what is "
                f"simulated, and more than {_MOST_ERROR:.0%} is no prediction",
                hint="trials measure it",
            )
        own = precision or facts.precision
        here = environment or facts.environment
        for what, there, wanted in (
            ("torch", calibration.torch, here.torch),
            ("device", calibration.device_name, here.device_name),
            ("number of threads", calibration.num_threads, here.num_threads),
            ("data type", calibration.dtype, "" if own is None else own.dtype),
        ):
            if there != wanted:
                raise PredictionError(
                    f"memory cannot be predicted: the {what} is {wanted!r}, and {there!r} where operators' workspaces "
                    "were measured",
                    hint="`autotune discover SCRIPT` measures them here",
                )
        self._facts = facts
        self._engine = calibration.engine
        self._error = calibration.error
        self._dimensions = calibration.dimensions
        self._simulation = Simulation(facts.graphs)

    def predict(self, configuration: Configuration) -> Prediction:
        """Predict a configuration under the engine whose graphs discovery left.

        Raises:
            PredictionError: it is of another engine, has a plan that the script has no cluster for, a level where it
                has no repeated blocks, or another batch size where the graphs were traced with a fixed one.
        """
        if configuration.engine != self._engine:
            raise PredictionError(
                f"memory of engine {configuration.engine!r} cannot be predicted, of {self._engine!r} only",
                hint=f"`autotune discover SCRIPT --engine {configuration.engine}` describes the script under it",
            )
        if configuration.level and not any(graph.layers for graph in self._facts.graphs):
            raise PredictionError(
                f"level {configuration.level} recomputes layers, and the script has no repeated blocks",
                hint="`autotune discover SCRIPT` lists its plans",
            )
        dimensions = dict(self._dimensions)
        if configuration.batch_size is not None and configuration.batch_size != self._facts.batch_size:
            if "batch" not in dimensions:
                raise PredictionError(
                    f"memory at batch size {configuration.batch_size} cannot be predicted: torch traced the script's "
                    f"graphs for batch size {self._facts.batch_size} only"
                )
            dimensions["batch"] = configuration.batch_size
        simulated = self._simulation.run(configuration.plans, configuration.level, dimensions=dimensions)
        if simulated.unmatched:
            unknown = ", ".join(map(str, simulated.unmatched))
            raise PredictionError(
                f"the script has no cluster for {unknown}", hint="`autotune discover SCRIPT` lists its plans"
            )
        split, boundary = self._facts.split, self._facts.graphs[0].boundary
        lasting = 0 if split is None else split.parameters + split.optimizer_state + split.buffers
        gradients = 0 if boundary is None else boundary.gradients
        if split is not None and self._facts.calls_per_step > 1:
            # From the second call of a step on, the gradients of those before are there.
            gradients = max(gradients, split.gradients)
        return Prediction(
            saved_bytes=simulated.saved_bytes,
            step_bytes=simulated.peak_bytes,
            peak_bytes=lasting + gradients + simulated.peak_bytes,
            recompute_time_s=self._facts.calls_per_step * simulated.recompute_time_s,
            error=self._error,
            simulated=simulated,
        )
