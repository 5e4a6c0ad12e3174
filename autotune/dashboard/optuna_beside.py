"""Optuna's own dashboard on the same database: with a note of what each trial came to, and its logs as artifacts.

Notes and artifacts are made when they are looked at and kept in memory: nothing is written into the database. They are
made by the functions that Optuna and its dashboard have for that, so how they are named stays their affair. Imports
Optuna, so it is imported at first use.
"""

from __future__ import annotations

import copy
import functools
import io
import threading
import warnings
from collections.abc import Callable, Container
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, BinaryIO, Concatenate, ParamSpec, TypeVar, cast
from urllib.parse import quote

import optuna
from optuna.artifacts import upload_artifact
from optuna.artifacts.exceptions import ArtifactNotFound
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from ..errors import StorageError
from ..records.printable import markdown, printable
from ..records.study import Trial
from ..records.words import brief_words
from ..report.answer import headline
from ..report.record import Point
from .logs import log_files, open_log
from .seen import Reports, Seen

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


OWN_PATHS = ("/dashboard", "/api", "/csv", "/static", "/artifacts", "/favicon.ico")
"""Where Optuna's dashboard answers: its pages name these themselves."""

P = ParamSpec("P")
T = TypeVar("T")


def make_optuna_app(storage: BaseStorage, reports: Reports) -> WSGIApplication:
    """Optuna's dashboard; it finds out of each study of ours what to note, whenever one is looked at."""
    from optuna_dashboard import wsgi

    logs = _Logs()
    return cast("WSGIApplication", wsgi(_Noted(storage, reports, logs), artifact_store=logs))


class _Logs:
    """An artifact store of files that stay where they are."""

    def __init__(self) -> None:
        self._paths: dict[str, Path] = {}

    def write(self, artifact_id: str, content_body: BinaryIO) -> None:
        """Remember where it is."""
        self._paths[artifact_id] = Path(content_body.name)

    def open_reader(self, artifact_id: str) -> BinaryIO:
        """Open it; where it is not what it was, say so in its place, since Optuna's dashboard would not."""
        path = self._paths.get(artifact_id)
        if path is None or path not in log_files(str(path.parent)):
            return io.BytesIO(b"This log is no longer there.\n")
        return open_log(path)

    def remove(self, artifact_id: str) -> None:
        """Nobody gets so far: the dashboard only reads."""
        raise ArtifactNotFound(artifact_id)


class _Note:
    """A stand-in storage, into which Optuna's dashboard writes one note of a study or a trial.

    The dashboard itself names the attributes that hold the note.
    """

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {}

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:  # noqa: ARG002
        return self.attributes

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:  # noqa: ARG002
        self.attributes[key] = value


def _read(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """The method of the storage beneath."""
    name = method.__name__

    @functools.wraps(method, updated=())  # what is abstract of a method is in its __dict__
    def read(storage: _Noted, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        done: T = getattr(storage.beneath, name)(*arguments, **keywords)
        return done

    return read


def _refused(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """No writing method."""

    @functools.wraps(method, updated=())
    def refuse(_: _Noted, /, *_arguments: P.args, **_keywords: P.kwargs) -> T:
        raise PermissionError("the dashboard only reads")

    return refuse


class _Noted(BaseStorage):
    """A storage for reading, whose studies and trials have system attributes on top of those that are stored."""

    def __init__(self, beneath: BaseStorage, reports: Reports, logs: _Logs) -> None:
        self.beneath = beneath
        self._reports = reports
        self._logs = logs
        self._lock = threading.RLock()
        self._versions: dict[int, str] = {}
        self._notes: dict[int, dict[int | None, _Note]] = {}
        self._logs_of: dict[int, dict[str, Any]] = {}
        self._noted: dict[int, object] = {}  # what was noted of a trial last

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        """Those that are stored, and the notes, which live there for trials too."""
        self._look(study_id)
        return self.beneath.get_study_system_attrs(study_id) | self._noted_of(study_id)

    def get_all_studies(self) -> list[Any]:
        """Those that are stored; with the notes."""
        studies = [copy.copy(study) for study in self.beneath.get_all_studies()]
        for study in studies:
            self._look(study._study_id)
            study.system_attrs = study.system_attrs | self._noted_of(study._study_id)
        return studies

    def _noted_of(self, study_id: int) -> dict[str, Any]:
        with self._lock:
            noted: dict[str, Any] = {}
            for note in self._notes.get(study_id, {}).values():
                noted |= note.attributes
            return noted

    def get_trial_system_attrs(self, trial_id: int) -> dict[str, Any]:
        """Those that are stored, and the logs."""
        return self.beneath.get_trial_system_attrs(trial_id) | self._logs_of.get(trial_id, {})

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """Those that are stored; with the logs."""
        self._look(study_id)
        return [self._with_logs(one) for one in self.beneath.get_all_trials(study_id, deepcopy, states)]

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """The one that is stored; with the logs."""
        return self._with_logs(self.beneath.get_trial(trial_id))

    def _with_logs(self, trial: FrozenTrial) -> FrozenTrial:
        added = self._logs_of.get(trial._trial_id)
        if not added:
            return trial
        trial = copy.copy(trial)
        trial.system_attrs = trial.system_attrs | added
        return trial

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Keep a log here."""
        self._logs_of.setdefault(trial_id, {})[key] = value

    def _look(self, study_id: int) -> None:
        """Note what is new of a study; nothing of one that is not ours."""
        name = self.beneath.get_study_name_from_id(study_id)
        with self._lock:
            try:
                if self._versions.get(study_id) == self._reports.version(name):
                    return
                seen = self._reports.of(name)
            except StorageError:  # Optuna's tables may hold studies of others
                return
            self._versions[study_id] = seen.version
            self._note_study(study_id, seen)
            by_number = {trial.number: trial for trial in self.beneath.get_all_trials(study_id, deepcopy=False)}
            shown = zip(seen.record.shown, seen.report.points, strict=True)
            points = {(trial.started_at, trial.configuration): point for trial, point in shown}
            for trial in seen.record.trials:
                of_optuna, point = by_number.get(trial.number), points.get((trial.started_at, trial.configuration))
                if of_optuna is not None and self._noted.get(of_optuna._trial_id, "") != point:
                    self._noted[of_optuna._trial_id] = point
                    self._note_trial(study_id, of_optuna, trial, seen, point)

    def _note_study(self, study_id: int, seen: Seen) -> None:
        name = quote(seen.record.name, safe="")
        lines = [
            markdown(headline(seen.report)),
            f"[Report](/study?name={name}), [all studies](/)",
        ]
        self._save_note(study_id, None, "\n\n".join(lines))

    def _note_trial(self, study_id: int, of_optuna: FrozenTrial, trial: Trial, seen: Seen, point: Point | None) -> None:
        clusters = () if seen.record.facts is None else seen.record.facts.clusters
        words, exact = brief_words(trial.configuration, clusters), str(trial.configuration)
        lines = [markdown(words), *([f"`{_code(exact)}`"] if exact != words else [])]
        if point is not None:
            lines[0] = f"Trial {point.number} of autotune's: {lines[0]}"
            lines += [markdown(line) for line in (point.cause, point.advice, *point.notes) if line]
        self._save_note(study_id, of_optuna._trial_id, "\n\n".join(lines))
        if trial.outcome is None or self._logs_of.get(of_optuna._trial_id):
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            for path in log_files(trial.run_directory):
                upload_artifact(
                    artifact_store=self._logs,
                    file_path=str(path),
                    study_or_trial=of_optuna,
                    storage=self,
                    mimetype="text/plain",
                )

    def _save_note(self, study_id: int, trial_id: int | None, body: str) -> None:
        from optuna_dashboard import save_note

        note = self._notes.setdefault(study_id, {}).setdefault(trial_id, _Note())
        # What it reads of a trial; to make one of Optuna's own would have its sampler ask for parameters.
        noted = SimpleNamespace(storage=note, study=SimpleNamespace(_study_id=study_id), _trial_id=trial_id)
        save_note(cast("Any", noted), body)

    set_study_system_attr = _refused(BaseStorage.set_study_system_attr)
    create_new_study = _refused(BaseStorage.create_new_study)
    delete_study = _refused(BaseStorage.delete_study)
    set_study_user_attr = _refused(BaseStorage.set_study_user_attr)
    create_new_trial = _refused(BaseStorage.create_new_trial)
    set_trial_param = _refused(BaseStorage.set_trial_param)
    set_trial_state_values = _refused(BaseStorage.set_trial_state_values)
    set_trial_intermediate_value = _refused(BaseStorage.set_trial_intermediate_value)
    set_trial_user_attr = _refused(BaseStorage.set_trial_user_attr)
    get_study_id_from_name = _read(BaseStorage.get_study_id_from_name)
    get_study_name_from_id = _read(BaseStorage.get_study_name_from_id)
    get_study_directions = _read(BaseStorage.get_study_directions)
    get_study_user_attrs = _read(BaseStorage.get_study_user_attrs)
    get_trial_id_from_study_id_trial_number = _read(BaseStorage.get_trial_id_from_study_id_trial_number)


def _code(line: str) -> str:
    """Text between backticks, which has none."""
    return printable(line).replace("`", "'")
