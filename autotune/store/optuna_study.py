"""Optuna's half of a study, in whichever Optuna storage it is. Public Optuna only, imported at first use."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..errors import StorageError

if TYPE_CHECKING:
    import optuna

__all__ = ["create_study", "load_study", "requeue", "running_trials"]


def create_study(name: str, storage: optuna.storages.BaseStorage) -> optuna.Study:
    """Create the study, or take up one of ours that a crash left before anything was written about it.

    Raises:
        StorageError: Another tool has a study of that name there.
    """
    import optuna

    with _quiet():
        directions = [optuna.study.StudyDirection.MAXIMIZE, optuna.study.StudyDirection.MINIMIZE]
        study = optuna.create_study(study_name=name, storage=storage, directions=directions, load_if_exists=True)
        if study.directions != directions or study.get_trials(deepcopy=False):
            raise StorageError(
                f"the name {name!r} belongs to an Optuna study that is not autotune's",
                hint="choose another name with --study",
            )
        study.set_metric_names(["samples_per_s", "peak_bytes"])
    return study


def load_study(name: str, storage: optuna.storages.BaseStorage) -> optuna.Study:
    """Load the study; StorageError if another tool has deleted it."""
    import optuna

    with _quiet():
        try:
            return optuna.load_study(study_name=name, storage=storage)
        except KeyError:
            raise StorageError(
                f"study {name!r} was deleted from Optuna's tables by another tool",
                hint="its record can still be shown and exported; to search again, choose another name with --study",
            ) from None


def running_trials(study: optuna.Study) -> dict[int, float]:
    """The numbers of the trials that were given out and not told yet, and when, in seconds since the epoch."""
    import optuna

    with _quiet():
        trials = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,))
    return {trial.number: trial.datetime_start.timestamp() for trial in trials if trial.datetime_start is not None}


def requeue(study: optuna.Study, number: int) -> None:
    """Fail a trial and enqueue its parameters again.

    The caller holds the claim to do so. Doing it again does nothing, wherever it was cut off before: the enqueued
    trial carries its history, so it is seen whether it is there already.
    """
    import optuna

    with _quiet():
        retry = optuna.storages.RetryHeartbeatStaleTrialCallback()
        # A copy: the callback extends the history that it finds in the trial.
        trials = study.get_trials(deepcopy=True)
        if not any(retry.retry_history(trial)[-1:] == [number] for trial in trials):
            retry(study, trials[number])
        study.tell(number, state=optuna.trial.TrialState.FAIL, skip_if_finished=True)


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna without its INFO lines, and without its warnings about the experimental parts used here."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield
