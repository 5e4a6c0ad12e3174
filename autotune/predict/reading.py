"""Memory of a setting from a script's graphs alone, for the comparison of two versions of the script."""

from __future__ import annotations

from dataclasses import replace

from ..errors import FormatError, PredictionError
from ..records.configuration import Configuration
from ..records.facts import ClusterFacts, Facts
from ..records.gate import GraphReading
from ..records.plan import ALL
from .formulas import Formula
from .prediction import Predictor


def read_graphs(facts: Facts, configuration: Configuration) -> GraphReading:
    """Simulate a setting on the graphs that discovery left.

    Raises:
        PredictionError: the graphs cannot be simulated, or have no such cluster, or not at this batch size.
    """
    predictor = Predictor(facts)
    assert facts.calibration is not None, "there is no predictor without one"
    prediction = predictor.predict(replace(configuration, engine=facts.calibration.engine))
    sizes = predictor.dimensions_at(configuration.batch_size)
    stashes: dict[str, int] = {}
    for row in facts.clusters:
        if not _is_recomputed(row, configuration):
            stash = _value(row.saving_formula, facts.dimensions | sizes)
            stashes[row.cluster_id] = max(stash, stashes.get(row.cluster_id, 0))  # a row for each strategy
    return GraphReading(
        batch_size=sizes.get("batch", configuration.batch_size),
        peak_bytes=prediction.peak_bytes,
        step_bytes=prediction.step_bytes,
        stashes=stashes,
        torch=facts.environment.torch,
        device_name=facts.environment.device_name,
        num_threads=facts.environment.num_threads if facts.environment.device_kind == "cpu" else 0,
    )


def _is_recomputed(row: ClusterFacts, configuration: Configuration) -> bool:
    """Return whether the setting recomputes all of a cluster, which then stashes nothing."""
    planned = any(plan.cluster_id == row.cluster_id and plan.count == ALL for plan in configuration.plans)
    return planned or (row.is_layer and configuration.level > 0)


def _value(formula: str, sizes: dict[str, int]) -> int:
    try:
        return Formula(formula)(sizes)
    except FormatError as error:
        raise PredictionError(f"a cluster's stash cannot be told: {error}", hint="trials measure it") from error
