"""Predicting a configuration from a script's facts, or refusing to, with the reason."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import PredictionError
from ..records.configuration import Configuration
from ..records.engines import ENGINES
from ..records.facts import Facts
from ..records.outcome import Measured
from .formulas import Formula
from .memory_timeline import MemoryTimeline
from .simulation import Kept, Simulated, Simulation

# The self-check's error, as a fraction: predictions that are further off would mislead more than help. Where an engine
# fuses what is simulated operator by operator, they are brought to scale.
_MOST_ERROR, _MOST_ERROR_FUSED = 0.10, 0.35


@dataclass(frozen=True)
class Prediction:
    """The memory and recompute time of one configuration's training step; bytes are those requested of the allocator.

    ``saved_bytes`` go from forward to backward. ``peak_bytes`` is the highest point from the beginning of the forward
    to the end of the backward. It is ``step_bytes`` on top of what is there all the time: parameters, buffers,
    optimizer state, and gradients that the forward finds. ``recompute_time_s`` is the time of the recomputation in one
    step, at the batch size of discovery.
    """

    saved_bytes: int
    step_bytes: int
    peak_bytes: int
    recompute_time_s: float
    simulated: Simulated


class Predictor:
    """Predicts configurations of one script.

    Raises:
        PredictionError: the facts have no graphs, or were calibrated elsewhere, or the self-check's error is too large.
    """

    def __init__(self, facts: Facts) -> None:
        calibration = facts.calibration
        if calibration is None or calibration.error is None or not facts.graphs:
            undescribed = facts.undescribed
            reason = "" if calibration is None else calibration.reason
            if undescribed is not None and not isinstance(undescribed, Measured):
                reason = undescribed.cause
            raise PredictionError(
                f"memory cannot be predicted: {reason or 'no graph was captured'}",
                hint="trials measure it; `autotune discover SCRIPT` describes the script anew",
            )
        if not facts.traces:
            raise PredictionError(
                "memory cannot be predicted: an older version of autotune did not record what a step runs",
                hint="trials measure it; `autotune discover SCRIPT` describes the script anew",
            )
        fuses = ENGINES[calibration.engine].fuses
        most = _MOST_ERROR_FUSED if fuses else _MOST_ERROR
        if calibration.error > most:
            raise PredictionError(
                f"memory cannot be predicted: what was measured at discovery is {calibration.error:.0%} off what is "
                f"simulated, and more than {most:.0%} is no prediction",
                hint="trials measure it",
            )
        own, here = facts.precision, facts.environment
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
        self._share = 1.0 if calibration.generated_share is None else calibration.generated_share
        # The largest seen, where the step that was calibrated had less.
        sizes = {name: facts.dimensions.get(name, size) for name, size in calibration.dimensions.items()}
        if facts.batch_size is not None and "batch" in sizes:
            sizes["batch"] = facts.batch_size
        self._dimensions = sizes
        self._simulation = Simulation(facts.graphs, facts.traces)
        names = [{name for text in graph.formulas for name in Formula(text).names} for graph in facts.graphs]
        self._is_fixed = any(own.isdisjoint({"batch", *facts.per_sample}) for own in names)

    def dimensions_at(self, batch_size: int | None) -> dict[str, int]:
        """Return the sizes of all dimensions at a batch size; None is the script's own.

        Raises:
            PredictionError: the graphs were traced with a fixed one, and it is another.
        """
        dimensions = dict(self._dimensions)
        if batch_size is None or batch_size == self._facts.batch_size:
            return dimensions
        # Of several graphs one may have been traced with the sizes of another's results.
        if "batch" not in dimensions or self._is_fixed:
            raise PredictionError(
                f"memory at batch size {batch_size} cannot be predicted: torch traced the script's graphs for batch "
                f"size {self._facts.batch_size} only"
            )
        dimensions["batch"] = batch_size
        growing = self._facts.per_sample.items()
        return dimensions | {name: math.ceil(share * batch_size) for name, share in growing if name in dimensions}

    def timeline(self, configuration: Configuration) -> MemoryTimeline:
        """Return what a step of a configuration holds, moment by moment, on top of what is there all the time.

        Raises:
            PredictionError: as with ``predict``, or the engine fuses operators, which run at other moments then.
        """
        if ENGINES[self._engine].fuses:
            raise PredictionError(f"engine {self._engine} fuses operators, so the moments of a step are not known")
        self.predict(configuration)
        return self._simulation.timeline(
            configuration.plans,
            configuration.level,
            dimensions=self.dimensions_at(configuration.batch_size),
            accumulates=self._accumulates(configuration),
        )

    def kept(self, configuration: Configuration) -> list[Kept]:
        """Return what each of the facts' graphs hands to the backward: the ``saved_bytes`` of ``predict``.

        Raises:
            PredictionError: as with ``predict``.
        """
        self.predict(configuration)
        return self._simulation.kept(
            configuration.plans, configuration.level, dimensions=self.dimensions_at(configuration.batch_size)
        )

    def _accumulates(self, configuration: Configuration) -> bool:
        return configuration.accumulation != 1 or self._facts.accumulation_control.steps == 1

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
        dimensions = self.dimensions_at(configuration.batch_size)
        accumulation, own = configuration.accumulation, self._facts.accumulation_control.steps
        simulated = self._simulation.run(
            configuration.plans,
            configuration.level,
            dimensions=dimensions,
            accumulates=self._accumulates(configuration),
        )
        if simulated.unmatched:
            unknown = ", ".join(map(str, simulated.unmatched))
            raise PredictionError(
                f"the script has no cluster for {unknown}", hint="`autotune discover SCRIPT` lists its plans"
            )
        split = self._facts.split
        lasting = 0 if split is None else split.parameters + split.optimizer_state + split.buffers
        calls, gradients = self._facts.calls_per_step, simulated.gradient_bytes
        if accumulation and own:
            calls *= accumulation / own
        if split is not None and accumulation > 1 and own == 1:
            # No step was recorded in which a micro-batch finds the gradients of those before it.
            gradients = max(gradients, split.gradients)
        step_bytes = round(self._share * simulated.peak_bytes)
        return Prediction(
            saved_bytes=simulated.saved_bytes,
            step_bytes=step_bytes,
            peak_bytes=lasting + gradients + step_bytes,
            recompute_time_s=calls * simulated.recompute_time_s,
            simulated=simulated,
        )
