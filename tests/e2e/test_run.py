"""``autotune run`` from a script to a bundle, and everything that looks at the study afterwards."""

from __future__ import annotations

import functools
import json
import shlex
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .conftest import Once
from .inside import run_inside
from .processes import DEADLINE_S, SCRIPTS, Finished, autotune_command, run_autotune, run_warm, variables, without_notes

SCRIPT = SCRIPTS / "loader_loop.py"
OPTIONS = ("--max-trials", "1", "--repetitions", "3", "--time-budget", "60m")
# A study that finds a compiler ends with a compiled run, which takes half a minute. test_inductor.py tests that run.
NO_COMPILER = {"CXX": "no-compiler"}
BUNDLE = {"README.txt", "env.sh", "mem_opt.json", "report.html", "stack.json"}


@dataclass(frozen=True)
class Study:
    """A study that ``autotune run`` has made in ``folder``, and how that went."""

    folder: Path
    run: Finished

    @property
    def document(self) -> dict[str, Any]:
        """What the run printed."""
        return read(self.run)

    @property
    def name(self) -> str:
        name: str = self.document["study"]["name"]
        return name

    def show(self) -> dict[str, Any]:
        """What the database holds now."""
        return read(run_inside("show", self.name, "--json", folder=self.folder))

    def logs(self) -> set[str]:
        """The folders of its runs so far."""
        return {path.name for path in (self.folder / ".autotune" / "runs" / self.name).iterdir()}


def read(finished: Finished) -> Any:
    assert finished.status == 0, finished.errors
    return json.loads(finished.output)


def settings(document: dict[str, Any]) -> Counter[tuple[object, ...]]:
    """How often each configuration was measured by a trial."""
    points = document["points"]
    return Counter((one["engine"], *one["plans"], one["level"], one["batch_size"]) for one in points)


@dataclass(frozen=True)
class Twice:
    """The study of a command, and of the same command again; between them, the folders of its runs and its bundle."""

    first: Study
    again: Study
    logs: set[str]
    bundle: set[str]


def run_twice(folder: Path) -> Twice:
    run = functools.partial(run_autotune, "run", SCRIPT, *OPTIONS, "--json", folder=folder, environment=NO_COMPILER)
    first = Study(folder, run())
    bundle = {path.name for path in (folder / first.document["launch"]["bundle"]).iterdir()}
    return Twice(logs=first.logs(), first=first, again=Study(folder, run()), bundle=bundle)


@pytest.fixture(scope="session")
def twice(once: Once) -> Twice:
    """Share ``run_twice`` among all processes. No test may change the study: other tests read it meanwhile."""
    return once(run_twice, "run")


@pytest.fixture
def study(twice: Twice) -> Study:
    return twice.first


def test_a_run_ends_with_a_verdict_and_a_bundle(twice: Twice) -> None:
    document = twice.first.document

    # One trial is fewer than this search would make.
    assert document["verdict"]["answer"] in ("winner", "baseline_best", "undecided")
    assert document["baseline"]["batch_size"] == 8
    assert {row["cluster_id"] for row in document["plans"]} >= {"gelu+", "native_layer_norm+"}
    assert [point["number"] for point in document["points"] if point["is_baseline"]] == [0]
    assert len(document["points"]) == 2, "the baseline, and one trial"
    assert twice.bundle == BUNDLE


def test_the_screen_shows_what_is_found_and_what_to_do(study: Study) -> None:
    screen = " ".join(study.run.errors.split())
    for words in (
        "ToyNet (3,473 parameters)",
        "gelu+:1:-1",
        "384*batch",
        "Baseline",
        "optimizer state",
        "samples/s",
        "Confirmation",
        "Your script ",
        "Files",
        f"autotune launch autotune-{study.name}",
    ):
        assert words in screen
    assert "\x1b[" not in study.run.errors, "no colours and no moving lines where nobody looks"


def test_the_command_that_it_names_runs_the_script_with_the_bundle(study: Study, tmp_path: Path) -> None:
    (line,) = (line for line in study.run.errors.splitlines() if line.strip().startswith("Run it"))
    words = shlex.split(line.partition("autotune ")[2])
    size = json.loads((study.folder / words[1] / "stack.json").read_text())["batch_size"]
    by_hand = tmp_path / "by_hand.py"
    by_hand.write_text(SCRIPT.read_text().replace("batch_size=8", f"batch_size={size}"))

    launched = run_autotune(*words, folder=study.folder)

    shutil.copy(SCRIPTS / "toy.py", tmp_path)
    plain = run_warm(by_hand, folder=tmp_path)
    assert (launched.status, without_notes(launched.errors)) == (0, "")
    assert launched.output == plain.output


def test_the_same_command_again_measures_nothing_again(twice: Twice) -> None:
    before, after = twice.first.document, twice.again.document

    assert twice.again.name == twice.first.name
    assert after["points"] == before["points"]
    assert after["verdict"]["answer"] == before["verdict"]["answer"]
    assert twice.again.logs() == twice.logs


def test_resume_goes_on_from_the_database_alone(tmp_path: Path) -> None:
    first, elsewhere = tmp_path / "first", tmp_path / "elsewhere"
    first.mkdir()
    elsewhere.mkdir()
    plans = first / "mem_opt.json"
    plans.write_text('["gelu+:1:-1"]')
    # What is given is tried first, at the script's own batch size; larger ones come then.
    options = ("--plans-from", plans, "--max-trials", "1", "--repetitions", "1")
    study = Study(first, run_inside("run", SCRIPT, *options, "--json", folder=first))
    before = study.show()
    assert len(before["points"]) == 2

    storage = first / ".autotune" / "studies.db"
    resumed = read(
        run_inside("resume", study.name, "--storage", storage, "--max-trials", "2", "--json", folder=elsewhere)
    )

    seen = [(one["number"], one["configuration"], one["figures"]) for one in before["points"]]
    assert [(one["number"], one["configuration"], one["figures"]) for one in resumed["points"]][:2] == seen
    assert len(resumed["points"]) == 3
    assert resumed["points"][-1]["outcome"] == "measured"
    assert set(settings(resumed).values()) == {1}, "no configuration is measured twice"
    assert {path.name for path in (elsewhere / f"autotune-{study.name}").iterdir()} == BUNDLE


def test_studies_are_listed(study: Study) -> None:
    listed = read(run_inside("studies", "--json", folder=study.folder))
    shown = run_inside("studies", folder=study.folder)

    assert [(one["name"], one["script"]) for one in listed] == [(study.name, str(SCRIPT))]
    assert listed[0]["answer"] == study.document["verdict"]["answer"]
    assert study.name in shown.output.decode()
    assert shown.errors == ""


def test_a_study_and_its_trials_are_shown(study: Study) -> None:
    document = study.show()
    screen = run_inside("show", study.name, folder=study.folder)
    trial = read(run_inside("show", study.name, "--trial", "1", "--json", folder=study.folder))
    detail = run_inside("show", study.name, "--trial", "1", folder=study.folder)

    assert document["study"]["name"] == study.name
    assert all(point["outcome"] == "measured" for point in document["points"])
    assert screen.status == detail.status == 0
    assert "gelu+" in screen.output.decode()
    assert (trial["number"], trial["state"], trial["outcome"]["kind"]) == (1, "finished", "measured")
    # Where its times do not settle, a large batch has few steps left after warm-up. No trial is judged by fewer.
    assert len(trial["outcome"]["measurement"]["step_times_s"]) >= 3
    assert "LOSS 0x" in detail.output.decode(), "the end of the script's own output"


def test_a_trial_that_is_not_there_is_named(study: Study) -> None:
    shown = run_inside("show", study.name, "--trial", "99", folder=study.folder)

    assert shown.status == 2
    assert "has no trial 99" in shown.errors


@pytest.mark.parametrize("trial", [None, 1], ids=["the answer", "a trial"])
def test_a_bundle_is_exported_again(study: Study, trial: int | None, tmp_path: Path) -> None:
    options = () if trial is None else ("--trial", str(trial))

    exported = read(
        run_inside("export", study.name, *options, "--output", tmp_path / "b", "--json", folder=study.folder)
    )

    assert exported["bundle"] == str(tmp_path / "b")
    assert {path.name for path in (tmp_path / "b").iterdir()} == BUNDLE
    stack = json.loads((tmp_path / "b" / "stack.json").read_text())
    if trial is not None:
        assert stack["batch_size"] == study.show()["points"][trial]["batch_size"]
    assert stack["study"] == study.name
    assert stack["accumulation"] == 1


@pytest.mark.slow
def test_two_controllers_share_a_study(tmp_path: Path) -> None:
    command = autotune_command(
        "run",
        SCRIPT,
        "--max-trials",
        "5",
        "--repetitions",
        "1",
        "--time-budget",
        "60m",
        "--batch-sizes",
        "8:16",
        "--json",
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    both = [subprocess.Popen(command, cwd=tmp_path, env=variables(), **pipes) for _ in range(2)]  # type: ignore[call-overload]
    try:
        ended = [
            Finished(one.returncode, output, errors.decode())
            for one in both
            for output, errors in [one.communicate(timeout=DEADLINE_S)]
        ]
    finally:
        for one in both:
            one.kill()

    names = {read(one)["study"]["name"] for one in ended}
    assert len(names) == 1
    document = read(run_autotune("show", *names, "--json", folder=tmp_path))
    assert set(settings(document).values()) == {1}, "no configuration is measured twice"
    assert {point["outcome"] for point in document["points"]} == {"measured"}
    assert len(document["points"]) >= 3
    assert [point["number"] for point in document["points"] if point["is_baseline"]] == [0]
    assert document["verdict"] is not None
