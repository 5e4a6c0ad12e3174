"""The reference studies' own script."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.cli import load_command
from autotune.records.units import parse_bytes

pytestmark = pytest.mark.slow  # guards benchmarks, and nothing that is shipped

PATH = Path(__file__).resolve().parents[2] / "trials/run.py"


def load():
    spec = importlib.util.spec_from_file_location("reference_studies", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


RUN = load()
CASES = [case for device in ("cpu", "cuda") for case in RUN.cases(device)]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name} on {case.device}")


@pytest.fixture
def workloads(tmp_path):
    """A folder of one workload with a limit for all devices, one for CPUs and two named ones for GPUs."""

    def write(name, study, expected=""):
        (tmp_path / name).mkdir()
        (tmp_path / name / "study.toml").write_text(study)
        (tmp_path / name / "expected.toml").write_text(expected)

    write(
        "gpt",
        """
        arguments = ["--size", "large"]
        time_budget = "5m"
        [cpu]
        arguments = ["--size", "tiny"]
        [cuda]
        batch_sizes = "8:64"
        [cuda.40GB]
        memory_limit = "39GiB"
        time_budget = "9m"
        batch_sizes = "16:64"
        [cuda.24GB]
        memory_limit = "23GiB"
        leave_files = true
        """,
        """
        [cuda]
        answers = ["winner", "baseline_best"]
        least_gain = 1.0
        [cuda.40GB]
        least_gain = 1.2
        """,
    )
    return tmp_path


def test_a_limit_adds_to_its_device_and_a_device_to_what_holds_for_all(workloads):
    (cpu,) = RUN.cases("cpu", folder=workloads)
    assert (cpu.name, cpu.limit, cpu.arguments) == ("gpt", "", ("--size", "tiny"))
    assert cpu.options == {"time_budget": "5m"}
    small, large = RUN.cases("cuda", folder=workloads)
    assert (small.name, large.name) == ("gpt-24GB", "gpt-40GB")
    assert large.arguments == ("--size", "large")
    assert large.options == {"time_budget": "9m", "batch_sizes": "16:64", "memory_limit": "39GiB"}
    assert (small.options["time_budget"], small.options["batch_sizes"]) == ("5m", "8:64")
    assert small.limit_bytes == 23 * 2**30
    assert cpu.limit_bytes is None
    assert small.expected == {"answers": ["winner", "baseline_best"], "least_gain": 1.0}
    assert large.expected == {"answers": ["winner", "baseline_best"], "least_gain": 1.2}


def test_a_case_is_named_by_workload_and_limit_and_a_workload_stands_for_all_of_its_cases(workloads):
    def named(*names):
        return [case.name for case in RUN.cases("cuda", names, folder=workloads)]

    assert named("gpt") == ["gpt-24GB", "gpt-40GB"]
    assert named("gpt-40GB") == ["gpt-40GB"]
    with pytest.raises(SystemExit, match=r"gpt-80GB.*gpt-24GB, gpt-40GB"):
        named("gpt-80GB")


def test_a_command_has_options_flags_and_the_scripts_own_arguments_and_some_of_them_changed(workloads):
    case = RUN.cases("cuda", ["gpt-24GB"], folder=workloads)[0]
    words = case.command(output=Path("build"), prints_json=True, time_budget="1m", batch_sizes=None)
    assert words[1:4] == ["-m", "autotune", "run"]
    options = "--study gpt-24GB --time-budget 1m --memory-limit 23GiB --leave-files --output build/autotune-gpt-24GB"
    assert shlex.join(words[5:]) == f"{options} --json -- --size large"


@each_case
def test_options_of_every_case_are_options_of_run(case):
    # Raises for an unknown option, and for a value that is not of the option's type.
    params = load_command("run").make_context("run", case.command()[4:]).params
    assert tuple(params["arguments"] or ()) == case.arguments
    low, high = params["batch_sizes"]
    if case.arguments and "--batch-size" in case.arguments:
        assert low <= int(case.arguments[case.arguments.index("--batch-size") + 1]) <= high


@each_case
def test_expected_facts_of_every_case_are_facts_that_are_compared(case):
    assert case.expected.keys() <= {"exit_status", "answers", "least_gain", "batch_control", "plans"}
    assert case.expected["answers"]
    assert case.expected["least_gain"] > 0


def test_cards_of_a_name_have_one_limit():
    limits = {}
    for case in RUN.cases("cuda"):
        if case.limit:
            limits.setdefault(case.limit.rpartition("-")[2], set()).add(case.limit_bytes)
    assert limits == {name: {parse_bytes(size)} for name, size in CARDS.items()}


def test_the_page_lists_every_workload():
    page = (PATH.parents[1] / "docs/design/house.md").read_text()
    listed = re.findall(r"^\| `([\w-]+)` \|", page.partition("## Reference studies")[2], re.MULTILINE)
    assert sorted(listed) == sorted({case.workload for case in CASES})


CARDS = {"24GB": "23.6GiB", "40GB": "39.3GiB", "80GB": "78GiB"}
TOLD = {
    "verdict": {"answer": "winner"},
    "batch_control": {"how": "loaders"},
    "plans": [{"cluster_id": "Block+"}, {"cluster_id": "gelu+"}],
    "winner": {"peak_bytes": 90, "samples_per_s": 12.0},
    "baseline": {"samples_per_s": 10.0},
    "limit_bytes": 100,
}
EXPECTED = {"answers": ["winner"], "least_gain": 1.17, "batch_control": "loaders", "plans": ["Block+"]}


def test_a_study_that_came_to_what_is_expected_has_no_problems():
    assert RUN.compare(EXPECTED, 0, TOLD) == []


@pytest.mark.parametrize(
    ("told", "status", "problem"),
    [
        ({}, 1, "exit status 1"),
        ({"verdict": {"answer": "undecided"}}, 0, "answered 'undecided'"),
        ({"batch_control": None}, 0, "set by None, expected 'loaders'"),
        ({"batch_control": {"how": "argument"}}, 0, "set by 'argument', expected 'loaders'"),
        ({"plans": [{"cluster_id": "gelu+"}]}, 0, "did not find Block+"),
        ({"winner": None}, 0, "nothing was exported"),
        ({"limit_bytes": 80}, 0, "over the limit"),
        ({"baseline": {"samples_per_s": 11.0}}, 0, "trains 1.09x the baseline, expected at least 1.17x"),
    ],
)
def test_whatever_differs_from_what_is_expected_is_told(told, status, problem):
    problems = RUN.compare(EXPECTED, status, {**TOLD, **told})
    assert len(problems) == 1
    assert problem in problems[0]


@pytest.fixture
def told_by(monkeypatch):
    """``told_by(document, status)`` has every study end so; gives the commands that were run."""
    commands = []

    def set_to(document, status=0):
        def run(command, **_):
            commands.append(command)
            return subprocess.CompletedProcess(command, status, json.dumps(document))

        monkeypatch.setattr(RUN.subprocess, "run", run)
        return commands

    return set_to


@pytest.mark.parametrize(
    ("is_confirmed", "within_s", "expected"),
    [(False, 140.0, None), (True, 140.0, True), (False, 3000.0, True), (True, None, True)],
)
def test_a_study_that_had_less_time_than_it_asks_for_goes_on_unless_its_answer_stands(
    workloads, told_by, is_confirmed, within_s, expected
):
    told = TOLD | {"verdict": {"answer": "winner", "is_confirmed": is_confirmed}, "limit_bytes": 100}
    commands = told_by(told)
    case = RUN.cases("cuda", ["gpt-24GB"], folder=workloads)[0]
    url = "sqlite:///there.db"
    assert RUN.run(case, output=Path(), check=True, storage=url, within_s=within_s) is expected
    words = shlex.join(commands[0])
    # Starting the program, and a tenth of its budget, come on top.
    assert f"--time-budget {'100s' if within_s == 140 else '5m'}" in words
    assert "--study gpt-24GB --time-budget" in words
    assert f"--storage {url}" in words


@pytest.mark.parametrize(
    ("plans", "check", "expected"),
    [(["gelu+"], True, False), (["gelu+"], False, None), (["Block+"], True, None), ([], True, None)],
)
def test_more_time_does_not_help_a_study_whose_discovery_found_something_else(
    workloads, told_by, capsys, plans, check, expected
):
    told_by(
        TOLD | {"verdict": {"answer": "undecided", "is_confirmed": False}, "plans": [{"cluster_id": p} for p in plans]}
    )
    case = RUN.cases("cuda", ["gpt-24GB"], folder=workloads)[0]
    case = dataclasses.replace(case, expected={**EXPECTED, **case.expected})
    assert RUN.run(case, output=Path(), check=check, within_s=140.0) is expected
    assert ("did not find Block+" in capsys.readouterr().out) is (expected is False)


@pytest.mark.parametrize("check", [True, False])
def test_a_study_that_ended_without_a_word_has_failed_however_little_time_it_had(workloads, monkeypatch, check, capsys):
    def run(command, **_):
        return subprocess.CompletedProcess(command, 1, "")

    monkeypatch.setattr(RUN.subprocess, "run", run)
    case = RUN.cases("cuda", ["gpt-24GB"], folder=workloads)[0]
    assert RUN.run(case, output=Path(), check=check, within_s=140.0) is False
    assert "goes on" not in capsys.readouterr().out


def test_a_limit_is_for_devices_that_have_as_much(workloads):
    small, large = RUN.cases("cuda", folder=workloads)
    assert [case.is_for(24 * 2**30) for case in (small, large)] == [True, False]
    assert large.is_for(80 * 2**30)
    assert large.is_for(None)


def test_a_limit_may_be_so_far_above_what_the_script_takes(tmp_path, capsys):
    folder = tmp_path / "grows"
    folder.mkdir()
    (folder / "study.toml").write_text('time_budget = "1m"\n[cpu]\nspare = "1GiB"\n')
    (folder / "expected.toml").write_text("")
    (folder / "train.py").write_text("import sys\nassert sys.argv[1] == '--steps'\nheld = b'1' * (300 << 20)\n")
    (case,) = RUN.cases("cpu", folder=tmp_path)
    case = dataclasses.replace(case, workload=str(folder))
    remembered = tmp_path / "state" / "taken.json"
    limit_bytes = case.with_limit(remembered).limit_bytes
    assert 1324 << 20 <= limit_bytes <= 1424 << 20
    assert "to measure its peak memory" in capsys.readouterr().out
    assert case.with_limit(remembered).limit_bytes == limit_bytes
    assert "to measure its peak memory" not in capsys.readouterr().out, "the same study goes on"
    (folder / "train.py").write_text("raise SystemExit(1)")
    with pytest.raises(SystemExit, match="failed by itself"):
        case.with_limit(remembered)
