"""MLflow: the study is a parent run, each trial a run below it. Where it goes is as MLflow's own variables say."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

from .sending import Sent
from .tracked import TrackedRun, TrackedStudy

__all__ = ["NEXT", "send"]

NEXT = "see whether MLFLOW_TRACKING_URI is right and the server runs"
_STUDY, _RUN = "autotune.study", "autotune.run"
_PARENT = "study"
# MLflow waits for a server that does not answer: 120 s, seven times over.
_PATIENCE = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "30", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}
_PAGE = 1000


def send(study: TrackedStudy, *, folder: Path, bundle: Path | None) -> Sent:
    """See ``sending.send``. Trials are found again by a tag, and so is the study."""
    del folder  # the tracking URI says where
    for name, value in _PATIENCE.items():
        os.environ.setdefault(name, value)
    client = MlflowClient()
    title = os.environ.get("MLFLOW_EXPERIMENT_NAME", "autotune")
    found = client.get_experiment_by_name(title)
    experiment = client.create_experiment(title) if found is None else found.experiment_id
    there = _runs_there(client, experiment, study.identity)
    parent = there.get(_PARENT) or client.create_run(
        experiment,
        start_time=_milliseconds(study.created_at),
        run_name=study.name,
        tags={_STUDY: study.identity, _RUN: _PARENT},
    )
    new = 0
    for run in study.runs:
        earlier = there.get(run.name)
        if earlier is None or earlier.info.status == "RUNNING":  # its sending was cut off
            _log(client, experiment, parent.info.run_id, earlier, study, run)
            new += 1
    ended_at = max((run.ended_at for run in study.runs), default=study.created_at)
    client.log_batch(
        parent.info.run_id,
        metrics=_metrics(study.metrics, ended_at),
        params=_params(study.params) if parent.info.status == "RUNNING" else (),
        tags=[RunTag(name, value) for name, value in study.tags.items()],
    )
    if bundle is not None:
        client.log_artifacts(parent.info.run_id, str(bundle), "bundle")
    client.set_terminated(parent.info.run_id, "FINISHED", _milliseconds(ended_at))
    where = f"{client.tracking_uri}, experiment {title!r}, run {study.name!r}"
    return Sent(where, "mlflow ui", new)


def _runs_there(client: MlflowClient, experiment: str, identity: str) -> dict[str, Any]:
    """The study's runs that an earlier sending has made, by what they stand for."""
    found: dict[str, Any] = {}
    token = None
    while True:
        page = client.search_runs([experiment], f"tags.`{_STUDY}` = '{identity}'", max_results=_PAGE, page_token=token)
        found |= {run.data.tags[_RUN]: run for run in page}
        token = page.token
        if not token:
            return found


def _log(
    client: MlflowClient, experiment: str, parent: str, earlier: Any, study: TrackedStudy, run: TrackedRun
) -> None:
    made = earlier or client.create_run(
        experiment,
        start_time=_milliseconds(run.started_at),
        run_name=run.name,
        tags={_STUDY: study.identity, _RUN: run.name, "mlflow.parentRunId": parent},
    )
    client.log_batch(
        made.info.run_id,
        metrics=_metrics(run.metrics, run.ended_at),
        params=_params(run.params),
        tags=[RunTag(name, value) for name, value in run.tags.items()],
    )
    client.set_terminated(made.info.run_id, "FAILED" if run.failed else "FINISHED", _milliseconds(run.ended_at))


def _metrics(values: Any, at: float) -> list[Metric]:
    return [Metric(name, value, _milliseconds(at), 0) for name, value in values.items()]


def _params(values: Any) -> list[Param]:
    return [Param(name, str(value)) for name, value in values.items()]


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)
