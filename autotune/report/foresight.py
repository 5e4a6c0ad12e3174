"""What discovery alone tells of trials' peaks, without a trial."""

from __future__ import annotations

import dataclasses

from ..errors import PredictionError
from ..predict import Predictor
from ..records import Configuration, StudyRecord
from ..records.figures import peak_bytes

__all__ = ["foreseen_peaks"]

# Each is simulated, which takes milliseconds; so many are enough to see how far off they are.
_MOST = 200


def foreseen_peaks(record: StudyRecord) -> dict[str, int]:
    """Peaks, in bytes, by the keys of settings: the script's own as measured, and what graphs say differs from it.

    The script's own setting is not among them, as it is what the others are told from, nor is what cannot be simulated.
    """
    facts, baseline = record.facts, record.baseline
    own = None if baseline is None or baseline.measured is None else peak_bytes(baseline.measured.measurement.peaks)
    if facts is None or own is None:
        return {}
    try:
        predictor = Predictor(facts)
        # An engine without plans runs the script's operators, and these are whose graphs there are.
        same = Configuration(facts.calibration.engine if facts.calibration else "aot", (), 0, facts.baseline.batch_size)
        unit = predictor.predict(same).peak_bytes
    except PredictionError:
        return {}
    found: dict[str, int] = {}
    for trial in record.shown[:_MOST]:
        configuration = trial.configuration
        if trial.measured is None or configuration.key == facts.baseline.key or configuration.choices:
            continue
        if configuration.engine not in ("eager", same.engine):
            continue
        planned = dataclasses.replace(configuration, engine=same.engine)
        try:
            found[configuration.key] = own + predictor.predict(planned).peak_bytes - unit
        except PredictionError:
            continue
    return found
