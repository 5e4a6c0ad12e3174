"""Optuna's own tables in our database, and its half of a study. Public Optuna only, imported at first use."""

from __future__ import annotations

import threading
import time
import warnings
from typing import TYPE_CHECKING

import sqlalchemy as sa

from ..errors import StorageError
from .connections import Location, connect

if TYPE_CHECKING:
    import optuna


_RETRY_OF = "autotune_retry_of"  # user attribute of an enqueued trial: the number of the one it repeats


def create_study(name: str, storage: optuna.storages.BaseStorage) -> optuna.Study:
    """Create the study, or take up one of ours that a crash left before anything was written about it.

    Raises:
        StorageError: Another tool has a study of that name there.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    directions = [optuna.study.StudyDirection.MAXIMIZE, optuna.study.StudyDirection.MINIMIZE]
    study = optuna.create_study(study_name=name, storage=storage, directions=directions, load_if_exists=True)
    if study.directions != directions or study.get_trials(deepcopy=False):
        raise StorageError(
            f"the name {name!r} belongs to an Optuna study that is not autotune's",
            hint="choose another name with --study",
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names(["samples_per_s", "peak_bytes"])
    return study


def load_study(name: str, storage: optuna.storages.BaseStorage) -> optuna.Study:
    """Load the study; StorageError if another tool has deleted it."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.load_study(study_name=name, storage=storage)
    except KeyError:
        raise StorageError(
            f"study {name!r} was deleted from Optuna's tables by another tool",
            hint="its record can still be shown and exported; to search again, choose another name with --study",
        ) from None


def running_trials(study: optuna.Study) -> dict[int, float]:
    """Return the numbers of the trials that were given out and not told yet, and when, in seconds since the epoch."""
    from optuna.trial import TrialState

    trials = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    return {trial.number: trial.datetime_start.timestamp() for trial in trials if trial.datetime_start is not None}


def requeue(study: optuna.Study, number: int) -> None:
    """Fail a trial and enqueue its parameters again; the caller holds the claim to do so.

    Doing it again does nothing, wherever it was cut off before: the enqueued trial says which one it repeats.
    """
    from optuna.trial import TrialState, create_trial

    trials = study.get_trials(deepcopy=False)
    if not any(trial.user_attrs.get(_RETRY_OF) == number for trial in trials):
        lost = trials[number]
        # With the system attributes too: they hold what the trial was enqueued with, and the sampler's notes on it.
        again = create_trial(
            state=TrialState.WAITING,
            params=lost.params,
            distributions=lost.distributions,
            user_attrs=lost.user_attrs | {_RETRY_OF: number},
            system_attrs=lost.system_attrs,
        )
        study.add_trial(again)
    study.tell(number, state=TrialState.FAIL, skip_if_finished=True)


class OptunaTables:
    """Opens Optuna's storage at first use, with connections of its own that ``close`` ends."""

    def __init__(self, location: Location, *, timeout_s: float) -> None:
        self._location = location
        self._timeout_s = timeout_s
        self._engine = connect(location, timeout_s=timeout_s, synchronous="NORMAL")
        self._lock = threading.Lock()
        self._storage: optuna.storages.BaseStorage | None = None

    def storage(self) -> optuna.storages.BaseStorage:
        """Open Optuna's storage on this database; StorageError if its tables are for another version of Optuna."""
        with self._lock:
            if self._storage is None:
                # What Optuna makes of an RDBStorage itself: the same, with the finished trials kept in memory.
                from optuna.storages import get_storage

                self._storage = get_storage(self._create())
            return self._storage

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def _create(self) -> optuna.storages.RDBStorage:
        """Create Optuna's tables; it looks and creates in two steps, so another process may come between."""
        from optuna.storages import RDBStorage

        # Optuna fills {SCHEMA_VERSION} into the URL with str.format.
        url = self._location.url.render_as_string(hide_password=False).replace("{", "{{").replace("}", "}}")
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return RDBStorage(url, engine_kwargs={"pool": self._engine.pool})
            except (sa.exc.IntegrityError, sa.exc.OperationalError, sa.exc.ProgrammingError) as error:
                lost_the_race = isinstance(error, sa.exc.IntegrityError) or "already exists" in str(error)
                if not lost_the_race or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            except RuntimeError as error:  # another Optuna made them
                raise StorageError(f"Optuna's tables in {self._location}: {error}", hint="do as Optuna says") from None
