"""Optuna's storage on a database that may be gone for a while: each of its transactions is done again until it is done.

Imports Optuna, so it is imported at first use.
"""

from __future__ import annotations

import copy
import functools
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from .server import Server

_WRITTEN_AS = "autotune_written_as"  # system attribute of a trial: what tells its own writing from any other


P = ParamSpec("P")
T = TypeVar("T")


def _delegated(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """The method of the storage that is waited for, done again while the database is gone."""
    name = method.__name__

    @functools.wraps(method, updated=())  # what is abstract of a method is in its __dict__
    def delegated(storage: WaitingStorage, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        done: T = storage.server.run(lambda: getattr(storage.waited_for, name)(*arguments, **keywords))
        return done

    return delegated


class WaitingStorage(BaseStorage):
    """Optuna's own storage, whose methods are a transaction each.

    Most come to the same when they are done again after a commit whose answer was lost; the two that do not are told
    apart here: making a trial, and setting its state.
    """

    def __init__(self, storage: BaseStorage, server: Server) -> None:
        self.waited_for = storage
        self.server = server

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Make a trial, once: it is marked, so that it can be seen whether it is there."""
        template = create_trial(state=TrialState.RUNNING) if template_trial is None else copy.copy(template_trial)
        mark = uuid.uuid4().hex
        template.system_attrs = template.system_attrs | {_WRITTEN_AS: mark}

        was_tried = False

        def create() -> int:
            nonlocal was_tried
            trials = self.waited_for.get_all_trials(study_id, deepcopy=False) if was_tried else []
            written = [trial for trial in trials if trial.system_attrs.get(_WRITTEN_AS) == mark]
            was_tried = True
            return written[0]._trial_id if written else self.waited_for.create_new_trial(study_id, template)

        return self.server.run(create)

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        """Set a trial's state, once.

        Of a waiting trial that has started to run while the answer was lost we cannot tell whether we started it, or
        another controller. We say that we did: ``Study.begin`` gives it to one of us.
        """
        was_tried = False

        def set_state() -> bool:
            nonlocal was_tried
            if was_tried and self.waited_for.get_trial(trial_id).state == state:
                return True
            was_tried = True
            return self.waited_for.set_trial_state_values(trial_id, state, values)

        return self.server.run(set_state)

    create_new_study = _delegated(BaseStorage.create_new_study)
    delete_study = _delegated(BaseStorage.delete_study)
    get_all_studies = _delegated(BaseStorage.get_all_studies)
    get_study_id_from_name = _delegated(BaseStorage.get_study_id_from_name)
    get_study_name_from_id = _delegated(BaseStorage.get_study_name_from_id)
    get_study_directions = _delegated(BaseStorage.get_study_directions)
    get_study_user_attrs = _delegated(BaseStorage.get_study_user_attrs)
    get_study_system_attrs = _delegated(BaseStorage.get_study_system_attrs)
    set_study_user_attr = _delegated(BaseStorage.set_study_user_attr)
    set_study_system_attr = _delegated(BaseStorage.set_study_system_attr)
    get_trial = _delegated(BaseStorage.get_trial)
    get_all_trials = _delegated(BaseStorage.get_all_trials)
    get_trial_id_from_study_id_trial_number = _delegated(BaseStorage.get_trial_id_from_study_id_trial_number)
    set_trial_param = _delegated(BaseStorage.set_trial_param)
    set_trial_intermediate_value = _delegated(BaseStorage.set_trial_intermediate_value)
    set_trial_user_attr = _delegated(BaseStorage.set_trial_user_attr)
    set_trial_system_attr = _delegated(BaseStorage.set_trial_system_attr)
