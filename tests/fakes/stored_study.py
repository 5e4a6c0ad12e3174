"""Writes a study's record into a database, as if the study had been run there."""

from __future__ import annotations

import time

from optuna.trial import TrialState, create_trial


def store_study(store, record, *, run_directory=None):
    """Store everything of a record; ``run_directory(trial)`` gives where its logs are. Trials that run are begun."""
    study = store.create(record.name, record.spec)
    if record.facts is not None:
        study.set_facts(record.facts)
    for number, trial in enumerate(record.trials, len(study.optuna.get_trials(deepcopy=False))):
        place = trial.run_directory if run_directory is None else str(run_directory(trial))
        if trial.outcome is None:
            assert study.optuna.ask().number == number
            study.begin(number, trial.configuration, place)
            continue
        study.optuna.add_trial(_of_optuna(trial))
        took_s = (trial.finished_at or trial.started_at) - trial.started_at
        study.add_trial(number, trial.configuration, trial.outcome, trial.environment, place, took_s=took_s)
        time.sleep(0.001)  # trials are told apart by when they ended
    for repeat in record.repeats:
        study.add_repeat(repeat)
    if record.verdict is not None:
        study.set_verdict(record.verdict)
    return study


def _of_optuna(trial):
    if trial.measured is None:
        return create_trial(state=TrialState.FAIL)
    measurement = trial.measured
    peak = float(measurement.peaks.fit_bytes or 0)
    return create_trial(state=TrialState.COMPLETE, values=[measurement.samples_per_s, peak])
