"""The commands that run scripts, with what they run replaced: what they refuse, what they say, how they exit."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from autotune import pipeline
from autotune.cli import main
from autotune.errors import StorageError
from autotune.export.bundle import export_bundle, read_bundle
from autotune.files.changes import Changes
from autotune.pipeline import Discovered
from autotune.records.configuration import Configuration
from autotune.records.gate import Gate, Reading
from autotune.records.outcome import ScriptError
from autotune.records.study import Fit
from autotune.store.database import Store
from autotune.verdict.gate.baseline import read_baseline
from tests.documents import checked
from tests.fakes.landscape import ENVIRONMENT, MIB, measured
from tests.fakes.study_record import FACTS, LIMIT_BYTES, proof, study_record

RATES = (400.0, 401.0, 399.0)
PASSED = Gate(
    "pass", ("All is well.",), "stored", 8, environment=ENVIRONMENT, reading=Reading(RATES, (900 * MIB,) * len(RATES))
)


@pytest.fixture
def autotune(monkeypatch, capsys):
    """``autotune("gate", "x")`` runs the command line in this process; gives exit code, output and errors."""
    launcher = SimpleNamespace(changes=Changes(removed=["/elsewhere/out"]))
    monkeypatch.setattr("autotune.cli.local_launcher.make_launcher", lambda *_: launcher)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["autotune", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return run


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with two scripts and a bundle in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("train.py", "before.py"):
        Path(name).write_text("import torch\n")
    export_bundle(study_record(), tmp_path / "bundle", report_html="<p>")
    return tmp_path


@pytest.fixture
def gate(autotune, here, monkeypatch):
    """``gate(found, *options)`` runs the gate; ``found`` is what its repetitions come to, or a function."""

    def run(found, *options):
        made = found if callable(found) else lambda *_, **__: found
        monkeypatch.setattr(pipeline, "gate", made)
        return autotune("gate", "bundle", "train.py", *options)

    return run


def edit_bundle(**changes):
    path = Path("bundle/stack.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# -- the gate


@pytest.mark.parametrize(
    ("options", "cause", "step"),
    [
        (["--update-baseline"], "--update-baseline needs to know which file", "--baseline autotune-gate.json"),
        (
            ["--baseline", "b.json", "--update-baseline", "--repetitions", "7"],
            "a baseline takes 8 repetitions",
            "--repetitions 8",
        ),
        (["--max-slowdown", "0.1%"], "--max-slowdown: repetitions cannot show a loss below", "--max-slowdown 0.5%\n"),
        (
            ["--max-memory-growth", "0.1%"],
            "--max-memory-growth: repetitions cannot show a loss",
            "--max-memory-growth 0.5%\n",
        ),
        (["--junit", "no/such/j.xml"], "there is no folder for 'no/such/j.xml'", "mkdir -p no/such"),
        (["--junit=-no/j.xml"], "there is no folder for '-no/j.xml'", "mkdir -p ./-no"),
        (["--markdown", "bundle"], "'bundle' is a folder", "name a file in it"),
        (["--against", "absent.py"], "absent.py", ""),
        (["--baseline", "absent.json"], "the baseline 'absent.json' cannot be read", ""),
    ],
)
def test_a_gate_that_cannot_be_held_is_refused_before_anything_runs(gate, options, cause, step):
    def never(*_, **__):
        raise AssertionError("it runs")

    code, output, errors = gate(never, *options)
    assert (code, output) == (2, "")
    assert cause in errors
    assert step in errors.split("next: ")[1]


def test_a_module_is_not_held_against_another_script(autotune, here, monkeypatch):
    monkeypatch.setattr("autotune.cli.spec.check_module", lambda name, **_: Path(f"{name}.py").absolute())
    code, _, errors = autotune("gate", "bundle", "-m", "train", "--against", "before.py")
    assert code == 2
    assert "run as a module or by a launcher" in errors


def test_a_bundle_without_figures_asks_for_another_version_of_the_script(gate):
    edit_bundle(reading=None, script_reading=None)
    code, _, errors = gate(PASSED)
    assert code == 2
    assert "has no figures of its setting" in errors
    assert gate(PASSED, "--against", "before.py")[0] == 0


def test_a_gate_measures_as_the_bundle_s_study_did(gate):
    def held(read, spec, *_, **__):
        assert spec.look_ahead == 1000
        return PASSED

    edit_bundle(look_ahead=1000)
    assert gate(held)[0] == 0


def test_a_gate_tells_each_run_its_answer_and_what_became_of_files(gate):
    def held(read, spec, before, *, told, other, allowed, **_):
        assert other is None
        assert before.setting.samples_per_s
        told("setting", 0, None)
        told("setting", 0, measured(400.0, 64, 900 * MIB))
        told("script", 0, ScriptError("KeyError: 'lr'\nand more"))
        return PASSED

    code, output, errors = gate(held)
    assert (code, output) == (0, "All is well.\n")
    assert errors.splitlines()[:2] == [
        "repetition  1  setting  400.0 samples/s, 900 MiB",
        "repetition  1  script   KeyError: 'lr'",
    ]
    assert "and more" not in errors
    assert "/elsewhere/out: removed after each run" in errors


@pytest.mark.parametrize(
    ("found", "options", "code", "next_step"),
    [
        (replace(PASSED, answer="regression"), [], 3, "the same command with --against PATH"),
        (replace(PASSED, answer="regression"), ["--against", "before.py"], 3, ""),
        (replace(PASSED, answer="not_comparable"), [], 4, "Try a quieter machine"),
        (
            replace(PASSED, answer="not_comparable", repetitions=0, differs=("torch 2.12 -> 2.13",)),
            [],
            4,
            "Name another version of the script with --against PATH, or take a baseline here",
        ),
        (replace(PASSED, answer="failed", repetitions=0), [], 1, ""),
        (None, [], 130, None),
    ],
)
def test_an_answer_has_its_exit_code_and_says_what_to_do_next(gate, found, options, code, next_step):
    ended, output, _ = gate(found, *options)
    assert ended == code
    if found is None:
        assert output == ""
    else:
        first, *more = output.splitlines()
        assert first == "All is well."
        assert len(more) == bool(next_step)
        assert next_step in output
        assert checked("gate", gate(found, *options, "--json")[1])["exit_code"] == code


def test_an_answer_goes_to_the_files_and_to_the_summary_of_the_job(gate, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    Path("summary.md").write_text("before\n")
    assert gate(PASSED, "--junit", "j.xml", "--markdown", "m.md")[0] == 0
    assert Path("j.xml").read_text().startswith("<?xml")
    assert Path("summary.md").read_text() == f"before\n{Path('m.md').read_text()}"


def test_a_file_that_takes_no_answer_is_named(gate):
    code, output, errors = gate(PASSED, "--markdown", "/dev/full")
    assert code == 1
    assert output == "All is well.\n", "the answer is told all the same"
    assert "the answer could not be written to '/dev/full'" in errors
    assert '"pass"' in gate(PASSED, "--history", "--json")[1], "and kept"


def test_a_summary_that_nobody_asked_for_does_not_turn_a_gate_red(gate, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "gone/summary.md")
    code, _, errors = gate(PASSED, "--junit", "j.xml")
    assert code == 0
    assert "The answer is not in the job's summary, 'gone/summary.md': No such file or directory." in errors
    assert Path("j.xml").exists()


def test_a_gate_that_was_stopped_before_it_told_says_so(gate):
    code, output, errors = gate(None)
    assert (code, output) == (130, "")
    assert "there is no answer" in errors


def test_a_baseline_is_taken_by_enough_repetitions_without_a_regression(gate, here):
    code, _, errors = gate(PASSED, "--baseline", "b.json", "--update-baseline")
    assert code == 0
    assert "Baseline written to b.json" in errors
    written = read_baseline(Path("b.json"), read_bundle(here / "bundle").configuration.key)
    assert written.setting.samples_per_s == RATES
    taken = Path("b.json").read_bytes()
    code, _, errors = gate(replace(PASSED, answer="regression"), "--baseline", "b.json", "--update-baseline")
    assert code == 3
    assert "The baseline stays as it was: it takes 8 repetitions without a regression." in errors
    assert Path("b.json").read_bytes() == taken


def test_a_baseline_of_first_steps_is_not_held_against_a_study_of_epochs(gate):
    gate(PASSED, "--baseline", "b.json", "--update-baseline")
    edit_bundle(look_ahead=1000)
    code, _, errors = gate(PASSED, "--baseline", "b.json")
    assert code == 2
    assert "were measured without --look-ahead, those of the bundle with" in errors


def test_a_baseline_that_cannot_be_written_leaves_nothing_behind(gate, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    code, _, errors = gate(PASSED, "--baseline", "b.json", "--update-baseline")
    assert code == 1
    assert "the baseline could not be written to 'b.json': No space left on device" in errors
    assert not [path for path in Path().iterdir() if "b.json" in path.name]


# -- one run


@pytest.mark.parametrize(("holds", "code"), [(True, 0), (False, 1)])
def test_a_proof_says_what_is_equal_and_exits_with_it(autotune, here, monkeypatch, holds, code):
    found = proof() if holds else replace(proof(), answer="inexact", statement="Gradients differ.")
    monkeypatch.setattr(pipeline, "verify", lambda *_, **__: found)
    ended, output, errors = autotune("verify", "bundle", "train.py")
    assert (ended, output) == (code, f"{found.statement}\n")
    assert "autotune: note: train.py has changed since it was measured\n" in errors
    assert "gradients" in errors
    ended, output, _ = autotune("verify", "bundle", "train.py", "--json")
    assert (ended, json.loads(output)["answer"]) == (code, found.answer)


def test_of_a_proof_without_steps_there_is_no_table(autotune, here, monkeypatch):
    failed = replace(proof(), answer="failed", statement="It could not be run.", steps=0)
    monkeypatch.setattr(pipeline, "verify", lambda *_, **__: failed)
    ended, output, errors = autotune("verify", "bundle", "train.py")
    assert (ended, output) == (1, "It could not be run.\n")
    assert "gradients" not in errors


def test_an_interrupted_proof_says_nothing(autotune, here, monkeypatch):
    monkeypatch.setattr(pipeline, "verify", lambda *_, **__: None)
    assert autotune("verify", "bundle", "train.py")[:2] == (130, "")


def test_a_proof_that_was_interrupted_past_its_answer_says_it_and_ends_as_interrupted(autotune, here, monkeypatch):
    def verify(*_, cancel, **__):
        cancel.set()
        return proof()

    monkeypatch.setattr(pipeline, "verify", verify)
    assert autotune("verify", "bundle", "train.py")[:2] == (130, f"{proof().statement}\n")


def interrupting(result):
    """What a command calls, which gives a result after Ctrl-C."""

    def call(*_, interruption, **__):
        interruption.finish.set()
        return result

    return call


def test_what_should_fit_is_told_and_ctrl_c_shows_in_the_exit_code(autotune, here, monkeypatch):
    monkeypatch.setattr(pipeline, "fit", lambda *_, **__: (FACTS, LIMIT_BYTES, ()))
    code, output, _ = autotune("fit", "train.py")
    assert code == 0
    assert "Nothing but the script as it is can be tried" in output
    assert "None of it was run" not in output
    monkeypatch.setattr(pipeline, "fit", interrupting((FACTS, LIMIT_BYTES, ())))
    code, output, _ = autotune("fit", "train.py", "--json")
    assert code == 130
    assert checked("fit", output)["limit_bytes"] == LIMIT_BYTES


def test_what_should_fit_of_a_model_is_told_without_plans(autotune, here, monkeypatch):
    (here / "m.onnx").touch()
    fit = Fit(Configuration("onnxruntime", batch_size=32), 800.0, 0.1, 2**30, 0.1, chance=0.97)
    monkeypatch.setattr(pipeline, "fit", lambda *_, **__: (FACTS, 2**31, (fit,)))
    code, output, _ = autotune("fit", "m.onnx")
    assert code == 0
    assert "Batch 32 should fit 2 GiB." in output
    assert "None of it was run but the model as it is." in output
    assert "lans" not in output


def test_what_discovery_found_is_told_and_ctrl_c_shows_in_the_exit_code(autotune, here, monkeypatch):
    baseline = study_record().trials[0].outcome
    monkeypatch.setattr(pipeline, "discover", lambda *_, **__: Discovered(FACTS, baseline, "runs", 1.0))
    code, output, _ = autotune("discover", "train.py", "--memory-matrix")
    assert code == 0
    assert "Block+:1:-1" in output
    assert output.endswith("".join(f"{row}\n" for row in FACTS.memory_matrix))
    monkeypatch.setattr(pipeline, "discover", interrupting(Discovered(FACTS, baseline, "runs", 1.0)))
    code, output, _ = autotune("discover", "train.py", "--json")
    assert code == 130
    assert json.loads(output)["baseline"]["kind"] == "measured"


# -- a study


def tuned(monkeypatch, *, finish=False, cancel=False, wins=True):
    """Let a study come to the winner of ``study_record``, or to no answer yet."""

    def tune(study, *, interruption, **_):
        for event, is_set in ((interruption.finish, finish or cancel), (interruption.cancel, cancel)):
            if is_set:
                event.set()
        record = study_record(name=study.name)
        return record if wins else replace(record, verdict=None)

    monkeypatch.setattr(pipeline, "tune", tune)
    monkeypatch.setattr(
        pipeline, "export", lambda study, folder: export_bundle(study_record(), folder, report_html="<p>")
    )


def test_a_study_ends_with_its_bundle_and_the_way_to_launch_it(autotune, here, monkeypatch):
    tuned(monkeypatch)
    code, output, errors = autotune("run", "train.py", "--study", "s", "--json")
    document = checked("run", output)
    assert code == 0
    assert document["launch"]["bundle"] == "autotune-s"
    assert "autotune launch autotune-s" in document["launch"]["command"]
    assert read_bundle(here / "autotune-s").configuration.key == study_record().verdict.winner.key
    assert "Study s in " in errors


@pytest.mark.parametrize(
    ("ways", "code", "says_answer"), [({"finish": True}, 130, True), ({"cancel": True}, 130, False)]
)
def test_an_interrupted_study_says_how_to_go_on(autotune, here, monkeypatch, ways, code, says_answer):
    tuned(monkeypatch, **ways)
    ended, output, errors = autotune("run", "train.py", "--study", "s")
    assert ended == code
    assert "autotune resume s" in errors
    assert ("train 48 instead of 16 at a time" in output) is says_answer
    assert (here / "autotune-s").exists() is says_answer


def test_where_another_process_measures_the_finalists_there_is_no_answer_yet(autotune, here, monkeypatch):
    tuned(monkeypatch, wins=False)
    code, output, _ = autotune("run", "train.py", "--study", "s")
    assert code == 0
    assert "Another process measures the finalists. Its answer: autotune show s" in output
    assert not (here / "autotune-s").exists()


def test_a_study_without_a_winner_exits_with_1(autotune, here, monkeypatch):
    verdict = replace(study_record().verdict, kind_of_answer="nothing_fits", winner=None, comparisons=(), proofs=())
    monkeypatch.setattr(pipeline, "tune", lambda study, **_: study_record(name=study.name, verdict=verdict))
    assert autotune("run", "train.py", "--study", "s")[0] == 1
    assert not (here / "autotune-s").exists()


def test_a_study_that_another_process_makes_at_the_same_moment_is_shared(autotune, here, monkeypatch):
    tuned(monkeypatch)
    create = Store.create

    def second(store, name, spec):
        create(store, name, spec)
        raise StorageError("it is there already")

    monkeypatch.setattr(Store, "create", second)
    assert autotune("run", "train.py", "--study", "s")[0] == 0


def test_a_study_that_cannot_be_made_is_no_race(autotune, here, monkeypatch):
    def refused(*_):
        raise StorageError("it does not permit this")

    tuned(monkeypatch)
    monkeypatch.setattr(Store, "create", refused)
    code, _, errors = autotune("run", "train.py", "--study", "s")
    assert code != 0
    assert "it does not permit this" in errors


def test_what_a_failure_says_does_not_move_a_terminal_s_cursor(autotune, monkeypatch):
    def fail(*_, **__):
        raise StorageError("a\x1b[2Jb\nc", hint="d\u202ee", detail="its log\n\tf\x07")

    monkeypatch.setattr("autotune.store.database.open_store", fail)

    assert autotune("show", "x") == (
        2,
        "",
        "its log\n        f\\x07\n\nautotune: a\\x1b[2Jb\\nc\n  next: d\\u202ee\n",
    )
