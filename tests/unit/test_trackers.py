"""A study in experiment trackers: what arrives is read back with the trackers' own code."""

from __future__ import annotations

import dataclasses
import json
import re
import socket
import sys
import urllib.request
from html import unescape

import pytest

from autotune.errors import RunError, UsageError
from autotune.export.trackers.sending import TRACKERS, TrackedStudy, send, tracked
from autotune.report.build import build_report
from tests.fakes.hostile_names import HOSTILE_NAMES
from tests.fakes.study_record import WINNER, study_record

# The trackers' clients start processes of their own, and their servers warn of what is theirs.
pytestmark = [pytest.mark.process, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture(scope="module")
def study() -> TrackedStudy:
    return tracked(build_report(study_record()))


def half(study: TrackedStudy) -> TrackedStudy:
    """The study while it was still going on."""
    return dataclasses.replace(study, runs=study.runs[:3], tags={}, metrics={})


def test_a_run_has_what_its_trial_was_and_came_to(study):
    by_name = {run.name: run for run in study.runs}
    record = study_record()

    assert len(by_name) == len(record.shown)
    best = next(run for run in study.runs if "winner" in run.tags.get("standing", ""))
    assert best.params["configuration"] == str(WINNER)
    assert best.params["batch_size"] == WINNER.batch_size
    assert best.params["plans"] == " ".join(map(str, WINNER.plans))
    assert best.metrics["samples_per_s_low"] <= best.metrics["samples_per_s"] <= best.metrics["samples_per_s_high"]
    assert best.ended_at - best.started_at == best.metrics["took_s"]
    failed = [run for run in study.runs if run.failed]
    assert failed
    assert all(run.tags["cause"] and "samples_per_s" not in run.metrics for run in failed)


def test_the_study_s_run_has_the_answer(study):
    assert study.tags["answer"] == "winner"
    assert study.tags["confirmed"] == "true"
    assert study.metrics["winner_samples_per_s"] > study.metrics["baseline_samples_per_s"]
    assert study.metrics["gain_samples_per_s"] > 1


def test_a_study_is_itself_again_and_no_other(study):
    record = study_record()
    assert tracked(build_report(record)).identity == study.identity
    later = dataclasses.replace(record, created_at=record.created_at + 1)
    assert tracked(build_report(later)).identity != study.identity


def test_what_nobody_has_measured_yet_is_left_out():
    record = dataclasses.replace(study_record(), verdict=None, facts=None)
    record = dataclasses.replace(
        record, trials=(dataclasses.replace(record.trials[0], finished_at=None, outcome=None, state="running"),)
    )

    found = tracked(build_report(record))

    assert (found.runs, found.metrics, found.tags) == ((), {}, {})


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_that_is_not_installed_is_named_with_its_extra(study, name, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, f"autotune.export.trackers.{name}", None)

    with pytest.raises(UsageError) as refused:
        send(study, name, folder=tmp_path, bundle=None)

    assert refused.value.hint == f"pip install 'autotune-memory[{name}]'"


# -- TensorBoard


@pytest.fixture
def hparams(tmp_path):
    """TensorBoard's own server on a folder: gives what its HParams page asks for."""
    from tensorboard import program

    def read():
        server = program.TensorBoard()
        server.configure(argv=["", "--logdir", str(tmp_path / "runs"), "--load_fast", "false", "--port", "0"])
        url = server.launch()

        def ask(what, **body):
            request = urllib.request.Request(
                f"{url}data/plugin/hparams/{what}",
                data=json.dumps({"experimentName": "", **body}).encode(),
                headers={"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)

        experiment = ask("experiment", includeMetrics=True, hparamsLimit=1000)
        statuses = ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"]
        columns = [{"metric": one["name"]} for one in experiment["metricInfos"]]
        groups = ask("session_groups", allowedStatuses=statuses, colParams=columns, startIndex=0, sliceSize=1000)
        return experiment, {one["name"]: one for one in groups["sessionGroups"]}

    return read


def test_tensorboard_has_trials_as_sessions_with_their_figures(study, tmp_path, hparams):
    sent = send(study, "tensorboard", folder=tmp_path / "runs/x", bundle=None)

    assert sent.new == len(study.runs)
    assert sent.look == f"tensorboard --logdir {tmp_path / 'runs/x'}"
    experiment, groups = hparams()
    assert {one["name"]: one["type"] for one in experiment["hparamInfos"]} == {
        "batch_size": "DATA_TYPE_FLOAT64",
        "configuration": "DATA_TYPE_STRING",
        "engine": "DATA_TYPE_STRING",
        "level": "DATA_TYPE_FLOAT64",
        "plans": "DATA_TYPE_STRING",
    }
    assert groups.keys() == {run.name for run in study.runs}
    for run in study.runs:
        shown = groups[run.name]
        assert shown["hparams"] == dict(run.params)
        figures = {one["name"]["tag"]: one["value"] for one in shown["metricValues"]}
        assert figures == pytest.approx(dict(run.metrics), rel=1e-6)  # float32, as all scalars there
        (session,) = shown["sessions"]
        assert session["status"] == ("STATUS_FAILURE" if run.failed else "STATUS_SUCCESS")
        assert (session["startTimeSecs"], session["endTimeSecs"]) == (run.started_at, run.ended_at)


@pytest.mark.parametrize("what", ["HTML", "Markdown", "other letters"])
def test_tensorboard_s_text_shows_a_script_s_name_and_makes_nothing_of_it(study, tmp_path, what):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugin_util import markdown_to_safe_html

    script = f"{HOSTILE_NAMES[what]}.py"
    named = dataclasses.replace(study, params={"script": script}, tags={})

    send(named, "tensorboard", folder=tmp_path / "x", bundle=None)

    events = EventAccumulator(str(tmp_path / "x/autotune-study")).Reload()
    (text,) = events.Tensors(study.name)[0].tensor_proto.string_val
    html = markdown_to_safe_html(text)
    assert re.findall("<[^>]+>", html) == ["<ul>", "<li>", "</li>", "</ul>"]
    assert unescape(re.sub("<[^>]+>", "", html)).strip() == f"script: {script}"


def test_tensorboard_is_sent_nothing_twice_and_what_was_missing(study, tmp_path, hparams):
    folder = tmp_path / "runs/x"
    send(half(study), "tensorboard", folder=folder, bundle=None)
    mine = folder / "mine.txt"
    mine.write_text("a user's")

    assert send(study, "tensorboard", folder=folder, bundle=None).new == len(study.runs) - 3
    assert send(study, "tensorboard", folder=folder, bundle=None).new == 0
    assert mine.read_text() == "a user's"
    experiment, groups = hparams()
    assert len(groups) == len(study.runs)
    assert "winner_samples_per_s" not in {one["name"]["tag"] for one in experiment["metricInfos"]}


def test_another_study_of_the_same_name_is_not_mixed_in(study, tmp_path):
    send(study, "tensorboard", folder=tmp_path / "runs", bundle=None)
    other = dataclasses.replace(study, identity="another")

    with pytest.raises(UsageError, match="has another study of that name") as refused:
        send(other, "tensorboard", folder=tmp_path / "runs", bundle=None)

    assert "--output" in refused.value.hint


def test_a_folder_of_the_user_s_that_stands_in_the_way_is_kept(study, tmp_path):
    about = tmp_path / "autotune-study"
    about.mkdir()
    (about / "notes.txt").write_text("a user's")

    with pytest.raises(RunError, match="TensorBoard did not take the study") as refused:
        send(study, "tensorboard", folder=tmp_path, bundle=None)

    assert (about / "notes.txt").read_text() == "a user's"
    assert "--output" in refused.value.hint


def test_a_trial_whose_writing_failed_is_not_there_in_part(study, tmp_path, monkeypatch):
    from autotune.export.trackers import tensorboard

    class Full(tensorboard.EventFileWriter):
        def add_event(self, event):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(tensorboard, "EventFileWriter", Full)
    with pytest.raises(RunError, match="No space left"):
        send(study, "tensorboard", folder=tmp_path / "runs", bundle=None)

    assert list((tmp_path / "runs").iterdir()) == []


# -- MLflow


@pytest.fixture(scope="module")
def empty_mlflow(tmp_path_factory):
    """A database of MLflow's with its tables, whose making takes longest."""
    file = tmp_path_factory.mktemp("mlflow") / "empty.db"
    from mlflow import MlflowClient

    MlflowClient(f"sqlite:///{file}").search_experiments()
    return file


@pytest.fixture
def mlflow(empty_mlflow, tmp_path, monkeypatch):
    """A client of MLflow's, with a database of its own."""
    from mlflow import MlflowClient, set_tracking_uri

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    (tmp_path / "mlflow.db").write_bytes(empty_mlflow.read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    set_tracking_uri(uri)
    yield MlflowClient(uri)
    set_tracking_uri(None)


def runs_of(client, title="autotune"):
    experiment = client.get_experiment_by_name(title).experiment_id
    return {run.info.run_name: run for run in client.search_runs([experiment], max_results=1000)}


def test_mlflow_has_the_study_as_a_parent_and_trials_as_its_runs(study, mlflow, tmp_path):
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "mem_opt.json").write_text("[]")

    sent = send(study, "mlflow", folder=tmp_path, bundle=bundle)

    assert sent.new == len(study.runs)
    found = runs_of(mlflow)
    parent = found.pop(study.name)
    assert parent.info.status == "FINISHED"
    assert parent.data.params == {name: str(value) for name, value in study.params.items()}
    assert parent.data.metrics == dict(study.metrics)
    assert dict(study.tags).items() <= parent.data.tags.items()
    assert [one.path for one in mlflow.list_artifacts(parent.info.run_id, "bundle")] == ["bundle/mem_opt.json"]
    assert found.keys() == {run.name for run in study.runs}
    for run in study.runs:
        there = found[run.name]
        assert there.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert there.data.params == {name: str(value) for name, value in run.params.items()}
        assert there.data.metrics == dict(run.metrics)
        assert there.info.status == ("FAILED" if run.failed else "FINISHED")
        assert (there.info.start_time, there.info.end_time) == (1000 * run.started_at, 1000 * run.ended_at)


def test_mlflow_is_sent_nothing_twice_and_what_was_missing_or_cut_off(study, mlflow, tmp_path):
    early = half(study)
    first = dataclasses.replace(early.runs[0], tags={"outcome": "measured", "standing": "winner, on front"})
    early = dataclasses.replace(early, runs=(first, *early.runs[1:]), params={"script": "train.py"})
    send(early, "mlflow", folder=tmp_path, bundle=None)
    mlflow.update_run(runs_of(mlflow)[study.name].info.run_id, status="RUNNING")
    mlflow.update_run(runs_of(mlflow)["trial-1"].info.run_id, status="RUNNING")  # as a kill leaves it

    assert send(study, "mlflow", folder=tmp_path, bundle=None).new == len(study.runs) - 2
    assert send(study, "mlflow", folder=tmp_path, bundle=None).new == 0
    found = runs_of(mlflow)
    assert len(found) == len(study.runs) + 1
    assert found[study.name].data.tags["answer"] == "winner"
    assert found[study.name].data.params == {name: str(value) for name, value in study.params.items()}
    ours = ("outcome", "cause", "notes", "standing")
    for run in study.runs:
        assert {name: tag for name, tag in found[run.name].data.tags.items() if name in ours} == dict(run.tags)


@pytest.mark.slow
def test_two_studies_of_one_name_are_two_in_mlflow(study, mlflow, tmp_path):
    send(study, "mlflow", folder=tmp_path, bundle=None)
    other = dataclasses.replace(study, identity="another")

    assert send(other, "mlflow", folder=tmp_path, bundle=None).new == len(study.runs)


def test_mlflow_s_own_variable_names_the_experiment(study, mlflow, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")

    send(half(study), "mlflow", folder=tmp_path, bundle=None)

    assert len(runs_of(mlflow, "mine")) == 4


def test_a_server_that_is_not_there_is_told_with_the_next_step(study, tmp_path, monkeypatch):
    from mlflow import set_tracking_uri

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    set_tracking_uri("http://127.0.0.1:9")  # the port of `discard`, which nobody serves
    try:
        with pytest.raises(RunError, match="MLflow did not take the study") as failed:
            send(study, "mlflow", folder=tmp_path, bundle=None)
    finally:
        set_tracking_uri(None)

    assert "MLFLOW_TRACKING_URI" in failed.value.hint


# -- Weights & Biases


def test_wandb_keeps_a_run_for_each_trial_and_one_for_the_study(study, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setattr(socket, "gethostname", lambda: "secret-host")
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "mem_opt.json").write_text("[]")

    sent = send(half(study), "wandb", folder=tmp_path, bundle=bundle)
    first = {file.name for file in tmp_path.rglob("*.wandb")}
    send(half(study), "wandb", folder=tmp_path, bundle=None)

    assert sent.new == 3
    assert sent.where == str(tmp_path / "wandb")
    assert sent.look == "wandb sync --sync-all"
    assert len(first) == 4
    assert {file.name for file in tmp_path.rglob("*.wandb")} == first, "each run has its own id for good"
    kept = b"".join(file.read_bytes() for file in tmp_path.rglob("*.wandb"))
    for run in study.runs[:3]:
        assert run.name.encode() in kept
        assert str(run.params["configuration"]).encode() in kept
        assert json.dumps(run.metrics["samples_per_s"]).encode() in kept
    assert b"mem_opt.json" in kept
    assert b"secret-host" not in kept
    names = {file.name for file in tmp_path.rglob("*")}
    assert not names & {"requirements.txt", "wandb-metadata.json", "diff.patch", "output.log"}


def test_wandb_without_a_key_is_told_with_the_next_step(study, tmp_path, monkeypatch):
    import wandb

    def refuse(**_):
        raise wandb.errors.UsageError("api_key not configured (no-tty). call wandb.login(key=[your_api_key])")

    monkeypatch.setattr(wandb, "init", refuse)
    with pytest.raises(RunError, match="Weights & Biases did not take the study: api_key not configured") as failed:
        send(half(study), "wandb", folder=tmp_path, bundle=None)

    assert "WANDB_MODE=offline" in failed.value.hint


def test_wandb_switched_off_is_refused(study, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")

    with pytest.raises(UsageError, match="keeps nothing"):
        send(half(study), "wandb", folder=tmp_path, bundle=None)
