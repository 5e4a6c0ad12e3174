"""What of a bundle no longer matches, and in which words; and that a refusal is told once."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.export.stack import build_stack
from autotune.records.configuration import Configuration
from autotune.records.engines import Engine
from autotune.records.fingerprint import Fingerprint, ModelPrint, SourceFile, script_file, source_files, source_root
from autotune.records.plan import Plan
from autotune.records.stale import Mismatch, applied_text, mismatches, refusal_text
from autotune.worker import refusal
from tests.fakes.study_record import FACTS, WINNER, measured, study_record

GPT = ModelPrint("GPT", 1200, 1200, {"GPT": 1, "Block": 2}, "a")


def said(before: Fingerprint, now: Fingerprint, engine: Engine = "aot") -> list[str]:
    return [one.said for one in mismatches(before, now, engine=engine)]


def files_of(folder: Path, **texts: str) -> Fingerprint:
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    return Fingerprint(source_files([folder / f"{name}.py" for name in texts], folder))


# The script's files


def test_files_are_the_same_whatever_the_script_is_called(tmp_path: Path) -> None:
    before = files_of(tmp_path, train="import net\n", net="1\n")
    assert said(before, files_of(tmp_path, better="import net\n", net="1\n")) == []


def test_a_file_that_has_changed_is_named() -> None:
    before, now = (Fingerprint((SourceFile("train.py", one),)) for one in "ab")
    assert said(before, now) == ["train.py has changed since it was measured"]


def test_a_file_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)
    assert source_files([tmp_path / "gone.py", pipe], tmp_path) == ()


def test_the_script_is_found_behind_a_launcher_and_in_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, program, inner = tmp_path / "train.py", tmp_path / "torchrun", tmp_path / "package/inner"
    inner.mkdir(parents=True)
    for path in (script, program, inner / "train.py", inner / "__main__.py"):
        path.write_text("")
    monkeypatch.chdir(tmp_path)
    assert script_file(str(script), "", ()) == script
    assert script_file(str(program), "", ("--standalone", "train.py", "other.py")) == script
    assert script_file(str(program), "", ("-m", "package.inner.train")) is None
    assert script_file(str(inner / "train.py"), "package.inner.train", ("train.py",)) == inner / "train.py"
    assert source_root(script, "") == tmp_path
    assert source_root(inner / "train.py", "package.inner.train") == tmp_path
    assert source_root(inner / "__main__.py", "package.inner") == tmp_path
    assert source_root(inner / "__main__.py", "package.inner.__main__") == tmp_path


# torch


@pytest.mark.parametrize(
    ("now", "engine", "is_told", "is_harmless"),
    [
        ("2.13.0+cu130", "aot", False, True),
        ("2.13.1", "aot", True, True),
        ("2.14.0", "aot", True, False),
        ("2.14.0", "inductor", True, False),
        ("2.14.0", "eager", True, True),
        ("a0e1f2", "aot", True, False),
    ],
)
def test_another_release_of_torch_matters_where_its_graphs_do(
    now: str, engine: Engine, is_told: bool, is_harmless: bool
) -> None:
    found = mismatches(Fingerprint(torch="2.13.0+cpu"), Fingerprint(torch=now), engine=engine)
    assert [one.is_harmless for one in found] == [is_harmless] * is_told


# The model, and what plans find in it


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"modules": {"GPT": 1, "Block": 3}, "num_parameters": 1800, "num_trainable": 1800},
         "3 Block instead of 2, 1,800 parameters instead of 1,200"),
        ({"modules": {"GPT": 1, "Layer": 2}}, "0 Block instead of 2, 2 Layer instead of 0"),
        ({"num_trainable": 200}, "200 of them trainable instead of 1,200"),
        ({}, "its parts have other names, types or shapes"),
    ],
)  # fmt: skip
def test_it_is_told_what_of_the_model_has_changed(changes: dict[str, object], words: str) -> None:
    now = dataclasses.replace(GPT, structure="b", **changes)  # type: ignore[arg-type]
    assert said(Fingerprint(models=(GPT,)), Fingerprint(models=(now,))) == [f"the model GPT has changed: {words}"]


def test_models_are_compared_whichever_comes_first_and_however_often() -> None:
    other = dataclasses.replace(GPT, name="Critic", structure="c")
    assert said(Fingerprint(models=(GPT, other)), Fingerprint(models=(other, GPT, GPT))) == []
    assert said(Fingerprint(models=(GPT, other)), Fingerprint(models=(GPT,))) == []
    assert said(Fingerprint(models=(GPT,)), Fingerprint(models=(GPT, other))) == [
        "the script trains Critic, which it did not when it was measured"
    ]


def test_other_occurrences_are_told_and_none_are_for_the_engine_to_tell() -> None:
    before = Fingerprint(occurrences={"a+:1:-1": 4, "b+:1:-1": 4, "c+:1:2": 2, "level 1": 3})
    now = Fingerprint(occurrences={"a+:1:-1": 6, "b+:1:-1": 0, "c+:1:2": 2, "level 1": 2})
    assert said(before, now) == [
        "a+:1:-1 recomputes 6 occurrences, 4 when it was measured",
        "level 1 recomputes 2 occurrences, 3 when it was measured",
    ]


def test_what_is_not_known_is_not_compared(tmp_path: Path) -> None:
    known = dataclasses.replace(
        files_of(tmp_path, train="1"), torch="2.13.0", models=(GPT,), occurrences={"a+:1:-1": 1}
    )
    assert said(Fingerprint(), known) == []
    assert said(dataclasses.replace(known, occurrences={}), Fingerprint()) == []


# What a bundle remembers


def test_a_bundle_remembers_what_all_measurements_of_it_agree_on() -> None:
    trial = study_record().trials[0]
    first, second = (
        dataclasses.replace(measured(10.0, 48, 20.0).measurement, occurrences=occurrences)
        for occurrences in ({"gelu+:1:-1": 12, "Block+:1:4": 4}, {"gelu+:1:-1": 13, "Block+:1:4": 4})
    )
    trials = tuple(
        dataclasses.replace(trial, configuration=WINNER, outcome=dataclasses.replace(trial.outcome, measurement=one))
        for one in (first, second)
    )
    facts = dataclasses.replace(
        FACTS, models=(GPT,), files=tuple(SourceFile(name, "f") for name in ("a\n.py", "b\n.py", "net.py"))
    )
    stack = build_stack(study_record(trials=trials, repeats=(), facts=facts), WINNER)
    assert stack.fingerprint.occurrences == {"Block+:1:4": 4}
    assert stack.fingerprint.models == (GPT,)
    assert stack.fingerprint.torch == FACTS.environment.torch
    assert [one.path for one in stack.files[1:]] == ["net.py"], "b could not be found again by what is printed of it"


def test_an_older_bundle_has_the_scripts_hash_but_none_of_a_launchers() -> None:
    stack = build_stack(study_record(), WINNER)
    assert stack.files == ()
    assert [one.sha256 for one in stack.fingerprint.files] == [FACTS.script_sha256]
    assert dataclasses.replace(stack, script_name="torchrun").fingerprint.files == ()
    assert dataclasses.replace(stack, script_name="train", module="train").fingerprint.files


# Words


def test_a_refusal_gives_all_reasons_and_the_next_step() -> None:
    found = [Mismatch("script", "a\x1b[31m has changed"), Mismatch("setting", "b is gone")]
    first, second, third = refusal_text(found).splitlines()
    assert first == r"autotune: the bundle cannot be applied to this script: a\x1b[31m has changed"
    assert second == "  also: b is gone"
    assert third.startswith("  next: `autotune run`")


def test_what_was_applied_is_told_of_each_plan_and_size() -> None:
    plans = (Plan("a+", 1, -1), Plan("b+", 1, -1), Plan("c+", 1, 1))
    text = applied_text(
        [Mismatch("accumulation", "accumulation 4 was asked for, but ...")],
        Configuration("aot", plans, batch_size=16, accumulation=4),
        {"a+:1:-1": 4},
        {"a+:1:-1": 2, "b+:1:-1": 0, "c+:1:1": 1},
    )
    assert text.splitlines()[1:] == [
        "  accumulation 4 was asked for, but ...",
        "  applied: a+:1:-1, to 2 occurrences (4 when it was measured)",
        "  not applied: b+:1:-1",
        "  applied: c+:1:1, to 1 occurrence",
        "  applied: batch size 16",
        "  not applied: accumulation 4",
    ]


# Told once


_TELLS = "import sys; from autotune.worker import refusal; refusal.tell_refusal(sys.argv[1])"


@pytest.mark.process
def test_of_the_processes_of_a_launch_the_first_tells(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AUTOTUNE_REFUSAL", "")
    refusal.share_refusal()
    assert not refusal.was_refused()
    told = [
        subprocess.run([sys.executable, "-c", _TELLS, text], capture_output=True, check=True, timeout=60).stderr
        for text in ("first", "second")
    ]
    refusal.tell_refusal("third")
    assert told == [b"first", b""]
    assert capsys.readouterr().err == ""
    assert refusal.was_refused()


def test_processes_that_cannot_share_tell_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AUTOTUNE_REFUSAL", "/proc/0/fd/3")
    refusal.tell_refusal("once")
    refusal.tell_refusal(" and again")
    assert capsys.readouterr().err == "once and again"
    assert not refusal.was_refused()


def test_of_launches_that_a_launcher_has_started_the_first_speaks_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(refusal.time, "sleep", waited.append)
    monkeypatch.delenv("AUTOTUNE_REFUSAL", raising=False)
    for rank in ("0", "1"):
        monkeypatch.setenv("LOCAL_RANK", rank)
        refusal.tell_refusal(f"rank {rank}\n")
        refusal.note_once(f"note of {rank}\n")
    assert capsys.readouterr().err == "rank 0\nnote of 0\nrank 1\n"
    assert len(waited) == 1, "the other waits to be ended, and tells if it is not"
    monkeypatch.setenv("AUTOTUNE_REFUSAL", f"/proc/{os.getpid() + 1}/fd/3")
    refusal.note_once("a rank inside of a launch\n")
    assert capsys.readouterr().err == "a rank inside of a launch\n"
