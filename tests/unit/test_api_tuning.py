"""A study as a function: how options become words, what comes back, and every way for it to fail."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import autotune
from autotune.api import calling, source
from autotune.api.tuning import Tuned
from autotune.cli import load_command
from autotune.errors import InterruptionError, RunError, UsageError
from autotune.records.codec import to_json
from autotune.records.study import StudySpec
from autotune.report.build import build_report
from tests.fakes.study_record import study_record

REPORT = build_report(
    study_record(), bundle="autotune-train-9f2c", command="autotune launch autotune-train-9f2c train.py"
)
Told = Callable[..., list[list[str]]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Told:
    """``told(status, printed, errors)`` is what the command line will do; gives the commands that it gets."""
    monkeypatch.chdir(tmp_path)

    def tell(status: int = 0, printed: str | None = None, errors: str = "") -> list[list[str]]:
        commands: list[list[str]] = []

        def run(command: list[str], show: Callable[[str], None], *_: Any, **__: Any) -> tuple[int, str]:
            commands.append(command)
            for line in errors.splitlines():
                show(line)
            return status, json.dumps(to_json(REPORT)) if printed is None else printed

        monkeypatch.setattr(calling, "_run", run)
        return commands

    return tell


def typed(commands: list[list[str]]) -> list[str]:
    """What stands behind ``autotune``, but for what is always there."""
    (command,) = commands
    assert command[:2] == [sys.executable, "-P"]
    behind = command[command.index("run") :]
    assert behind[:2] == ["run", "--json"]
    return behind[2:]


def parsed(words: list[str], tmp_path: Path) -> dict[str, Any]:
    return dict(load_command("run").make_context("run", words).params)


# -- options


def test_options_are_those_of_the_command_line(told: Told, tmp_path: Path) -> None:
    commands = told()
    autotune.tune(
        "train.py",
        ["--epochs", 1],
        memory_limit="24GiB",
        batch_sizes=(8, 64),
        time_budget=90,
        start_timeout="2m",
        target_memory=2**30,
        max_slowdown=0.05,
        study="mine",
        storage="studies.db",
        keep_global_batch=True,
        scratch=False,
        allow=["bf16", "fused-optimizer"],
        devices=[0, 1],
        repetitions=3,
        output=tmp_path / "bundle",
        seed=None,
    )
    given = parsed(typed(commands), tmp_path)
    assert given["script"] == Path("train.py")
    assert given["arguments"] == ["--epochs", "1"]
    assert (given["memory_limit_bytes"], given["batch_sizes"], given["time_budget_s"]) == (24 * 2**30, (8, 64), 90.0)
    assert (given["start_timeout_s"], given["target_memory_bytes"], given["max_slowdown"]) == (120.0, 2**30, 0.05)
    assert (given["study"], given["storage"], given["finalist_repetitions"]) == ("mine", "studies.db", 3)
    assert (given["keep_global_batch"], given["scratch"], given["seed"]) == (True, False, StudySpec.seed)
    assert (given["choices"], given["devices"]) == (("bf16", "fused-optimizer"), (0, 1))
    assert given["output"] == tmp_path / "bundle"


def test_every_option_of_run_can_be_given(told: Told) -> None:
    for option in load_command("run").params:
        key = option.opts[-1].removeprefix("--").replace("-", "_")
        if option.param_type_name == "argument" or key in ("json", "help"):
            continue
        commands = told()
        autotune.tune("train.py", **{key: True if option.is_flag else ["some"] if option.multiple else "some"})
        assert typed(commands)[: 1 if option.is_flag else 2] == [option.opts[-1], *([] if option.is_flag else ["some"])]


def test_arguments_are_given_one_by_one(told: Told) -> None:
    commands = told()
    with pytest.raises(UsageError, match="one by one") as refused:
        autotune.tune("train.py", "--epochs 1")
    assert refused.value.hint == "a list: ['--epochs', '1']"
    with pytest.raises(UsageError, match="one by one"):
        autotune.tune("train.py", "it's")
    assert commands == []


@pytest.mark.parametrize("script", [None, 3])
def test_what_is_no_script_is_refused(script: Any, told: Told) -> None:
    commands = told()
    with pytest.raises(UsageError, match="the path of a script or a function"):
        autotune.tune(script)
    assert commands == []


@pytest.mark.parametrize(
    ("options", "cause", "hint"),
    [
        ({"memory_limt": 1}, "no option 'memory_limt'", "did you mean memory_limit?"),
        ({"json": True}, "takes no 'json'", "leave it out"),
        ({"whatever": 1}, "no option 'whatever'", "autotune run --help"),
    ],
)
def test_other_options_are_refused_before_anything_is_started(
    options: dict[str, Any], cause: str, hint: str, told: Told
) -> None:
    commands = told()
    with pytest.raises(UsageError, match=cause) as refused:
        autotune.tune("train.py", **options)
    assert hint in refused.value.hint
    assert commands == []


# -- a function


def nothing() -> None:
    """Trains nothing."""


def test_a_function_is_written_where_it_is_found_again(told: Told, tmp_path: Path) -> None:
    commands = told()
    tuned = autotune.tune(nothing, progress=False)
    assert tuned.script == tmp_path / ".autotune/functions/nothing_function.py"
    assert f"from {__name__} import nothing" in tuned.script.read_text()
    assert tmp_path / typed(commands)[-1] == tuned.script


@pytest.mark.parametrize("link", [".autotune/functions", ".autotune/functions/nothing_function.py"])
def test_nothing_is_written_through_a_link(link: str, told: Told, tmp_path: Path) -> None:
    told()
    (tmp_path / link).parent.mkdir(parents=True)
    (tmp_path / link).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="autotune does not write through it"):
        autotune.tune(nothing)
    assert not (tmp_path / "elsewhere").exists()


# -- what comes back


def test_the_result_is_typed_frozen_and_says_what_the_command_line_says(told: Told) -> None:
    told()
    tuned = autotune.tune("train.py")
    assert isinstance(tuned, Tuned)
    assert tuned.answer == REPORT.verdict.answer  # type: ignore[union-attr]
    assert tuned.winner == REPORT.winner
    assert tuned.baseline == REPORT.baseline
    assert tuned.bundle == Path("autotune-train-9f2c").absolute()
    assert tuned.record == REPORT
    lines = str(tuned).splitlines()
    assert lines[0] == tuned.sentence
    assert [line.split("  ")[0] for line in lines[1:]] == ["Your script", "Winner", "Run it"]
    assert lines[-1].endswith("autotune launch autotune-train-9f2c train.py")
    with pytest.raises(dataclasses.FrozenInstanceError):
        tuned.study = "other"  # type: ignore[misc]


def test_it_shows_its_report_in_a_frame_of_its_own(told: Told) -> None:
    told()
    tuned = autotune.tune("train.py")
    page = tuned.report()
    assert page.startswith("<!doctype html>")
    shown = tuned._repr_html_()
    assert shown.startswith("<iframe ")
    assert shown.endswith('"></iframe>')
    assert shown.count('"') == 6  # nothing of the page ends the attribute that holds it
    assert "<script" not in shown


def test_without_a_winner_there_is_a_result_too(told: Told) -> None:
    nothing = dataclasses.replace(
        REPORT, winner=None, launch=dataclasses.replace(REPORT.launch, bundle=None, command=None)
    )
    told(1, json.dumps(to_json(nothing)))
    tuned = autotune.tune("train.py")
    assert tuned.winner is None
    assert tuned.bundle is None


# -- progress


def test_progress_goes_to_standard_error_unless_nobody_wants_it(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    told(errors="Study train\nrepetition 1")
    autotune.tune("train.py")
    assert capsys.readouterr() == ("", "Study train\nrepetition 1\n")
    autotune.tune("train.py", progress=False)
    assert capsys.readouterr() == ("", "")


# -- how it fails


@pytest.mark.parametrize(
    ("status", "kind"), [(2, UsageError), (1, RunError), (130, InterruptionError), (-9, RunError), (3, RunError)]
)
def test_what_the_command_line_ends_with_is_raised(status: int, kind: type[Exception], told: Told) -> None:
    error = {"message": "the script ended", "hint": "give it more data", "detail": "Traceback\n  line"}
    told(status, json.dumps({"error": error, "exit_code": status}), "Study train\n")
    with pytest.raises(kind, match=r"^the script ended$") as raised:
        autotune.tune("train.py", progress=False)
    assert raised.value.hint == "give it more data"  # type: ignore[attr-defined]
    assert raised.value.detail == "Traceback\n  line"  # type: ignore[attr-defined]


def test_what_ends_without_a_word_is_told_with_its_last_lines(told: Told) -> None:
    told(-9, "", "Study train\n    1  12/s")
    with pytest.raises(RunError, match="was killed by signal 9 and said nothing of it") as raised:
        autotune.tune("train.py", progress=False)
    assert "goes on" in raised.value.hint
    assert raised.value.detail.endswith("12/s")


@pytest.mark.parametrize("sign", ["module", "variable"])
def test_a_trial_does_not_tune_itself(sign: str, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = told()
    if sign == "module":
        monkeypatch.setitem(sys.modules, source._WORKER, sys)
    else:
        monkeypatch.setenv("AUTOTUNE_RUN", "/somewhere")
    with pytest.raises(UsageError, match="a process that autotune runs itself") as refused:
        autotune.tune("train.py")
    assert "outside of what is tuned" in refused.value.hint
    assert commands == []
