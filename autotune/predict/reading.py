"""What a script's graphs alone say of a setting's memory, for who compares two versions of the script."""

from __future__ import annotations

from dataclasses import replace

from ..records import Configuration, Facts, GraphReading
from .formulas import Formula
from .prediction import Predictor

__all__ = ["read_graphs"]


def read_graphs(facts: Facts, configuration: Configuration) -> GraphReading:
    """Simulate a setting on the graphs that discovery left.

    Args:
        facts: what discovery found.
        configuration: the setting; it is simulated under the engine that the graphs are of.

    Raises:
        PredictionError: the graphs cannot be simulated, or have no such cluster, or not at this batch size.
    """
    predictor = Predictor(facts)
    assert facts.calibration is not None, "there is no predictor without one"
    prediction = predictor.predict(replace(configuration, engine=facts.calibration.engine))
    sizes = predictor.dimensions_at(configuration.batch_size)
    return GraphReading(
        batch_size=sizes.get("batch", configuration.batch_size),
        peak_bytes=prediction.peak_bytes,
        step_bytes=prediction.step_bytes,
        stashes={row.cluster_id: int(Formula(row.saving_formula)(sizes)) for row in facts.clusters},
        torch=facts.environment.torch,
        device_kind=facts.environment.device_kind,
    )
