"""MLflow: the study is a parent run, each trial a run below it. Where it goes is as MLflow's own variables say."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

from ...records.printable import shell_word
from .sending import Sent, TrackedRun, TrackedStudy

NEXT = "see whether MLFLOW_TRACKING_URI is right and the server runs; what has arrived is not sent twice"
_STUDY, _RUN = "autotune.study", "autotune.run"
_PARENT = "study"
# What may be there at one sending and gone at the next.
_TAGS = frozenset({"answer", "reason", "confirmed", "winner", "outcome", "cause", "notes", "standing"})
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
        else:
            _set_tags(client, earlier, run.tags)  # which of them is the best changes as the study goes on
    ended_at = max((run.ended_at for run in study.runs), default=study.created_at)
    client.log_batch(
        parent.info.run_id, metrics=_metrics(study.metrics, ended_at), params=_params(study.params, parent)
    )
    _set_tags(client, parent, study.tags)
    if bundle is not None:
        client.log_artifacts(parent.info.run_id, str(bundle), "bundle")
    client.set_terminated(parent.info.run_id, "FINISHED", _milliseconds(ended_at))
    address = client.tracking_uri
    look = f"open {address}" if address.startswith("http") else f"mlflow ui --backend-store-uri {shell_word(address)}"
    return Sent(f"{address}, experiment {title!r}, run {study.name!r}", look, new)


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
    client.log_batch(made.info.run_id, metrics=_metrics(run.metrics, run.ended_at), params=_params(run.params, made))
    _set_tags(client, made, run.tags)
    client.set_terminated(made.info.run_id, "FAILED" if run.failed else "FINISHED", _milliseconds(run.ended_at))


def _metrics(values: Any, at: float) -> list[Metric]:
    return [Metric(name, value, _milliseconds(at), 0) for name, value in values.items()]


def _params(values: Mapping[str, Any], run: Any) -> list[Param]:
    """Those that the run does not have: MLflow takes none twice."""
    return [Param(name, str(value)) for name, value in values.items() if name not in run.data.params]


def _set_tags(client: MlflowClient, run: Any, tags: Mapping[str, str]) -> None:
    """Have a run carry these of our tags and no others of ours."""
    for name in _TAGS & run.data.tags.keys() - tags.keys():
        client.delete_tag(run.info.run_id, name)
    changed = [RunTag(name, value) for name, value in tags.items() if run.data.tags.get(name) != value]
    if changed:
        client.log_batch(run.info.run_id, tags=changed)


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)
