"""The gate that holds a script against a memory limit: its answer by a run or for cards, its files, its options."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from autotune import pipeline
from autotune.cli import main
from autotune.errors import DiscoveryError, InterruptionError
from autotune.export.bundle import Bundle, export_bundle, read_bundle
from autotune.files.changes import Changes
from autotune.launch.port import RunResult
from autotune.records.allocations import AllocationTrace, Traced
from autotune.records.cards import CARDS, CardFit, CardPeak, Way
from autotune.records.facts import BatchControl
from autotune.records.gate import LimitCheck, LimitGate
from autotune.records.measurement import Peaks
from autotune.records.outcome import HostOutOfMemory, Measured, Outcome, OutOfMemory, ScriptError
from autotune.records.run import Request
from autotune.records.study import StudySpec
from autotune.tuning.budget import Interruption
from autotune.verdict.gate.limit import decide_by_cards, decide_by_run, decide_without_answer
from autotune.verdict.gate.rendering import render_junit, render_markdown
from tests.documents import checked
from tests.fakes.landscape import ENVIRONMENT, measured
from tests.fakes.study_record import study_record

MIB, GIB = 1 << 20, 1 << 30
SMALL = replace(ENVIRONMENT, device_memory_bytes=8 * GIB)


def fit(name: str, gib: float, *, fits: bool) -> CardFit:
    peak = CardPeak(4, 0, int(gib * GIB), int(gib * GIB), fits)
    return CardFit(CARDS[name], Way(peak, None), error=0.06)


class TestByARun:
    def test_a_peak_at_the_limit_is_within_it(self) -> None:
        found = decide_by_run(measured(8.0, 16, 2 * GIB), ENVIRONMENT, 2 * GIB)
        assert (found.answer, found.batch_size) == ("pass", 16)
        assert found.sentences == (
            "Within the limit: the script peaks at 2 GiB; the limit is 2 GiB.",
            "Measured on Formula 1 in 7 optimizer steps at batch 16.",
        )
        assert found.checks == (LimitCheck("Formula 1", 2 * GIB, "within", 2 * GIB),)

    def test_a_peak_above_it_is_over(self) -> None:
        found = decide_by_run(measured(8.0, 16, 2 * GIB + 1), ENVIRONMENT, 2 * GIB)
        assert found.answer == "over_limit"
        assert found.sentences[0].startswith("Over the limit: the script peaks at 2 GiB")
        assert found.checks[0].found == "over"

    def test_memory_that_ran_out_below_the_limit_is_over(self) -> None:
        found = decide_by_run(OutOfMemory("it asked for 3 GiB", limit_bytes=2 * GIB), ENVIRONMENT, 2 * GIB)
        assert found.answer == "over_limit"
        assert found.sentences == ("Over the limit: the script needs more than 2 GiB.", "It asked for 3 GiB.")
        assert found.checks == (LimitCheck("Formula 1", 2 * GIB, "over"),)

    def test_a_device_with_less_than_the_limit_that_runs_out_tells_nothing(self) -> None:
        """Guards a limit of 24 GiB held on a card of 8 GiB: more than 8 GiB are needed, and maybe not 24."""
        found = decide_by_run(OutOfMemory("full"), SMALL, 24 * GIB)
        assert found.answer == "failed"
        assert "No answer up to 24 GiB: the script needs more than the 8 GiB that Formula 1 has." in found.sentences
        assert "--for" in found.reason
        assert decide_by_run(OutOfMemory("full"), SMALL, 8 * GIB).answer == "over_limit"
        assert decide_by_run(measured(8.0, 16, GIB), SMALL, 24 * GIB).answer == "pass"

    @pytest.mark.parametrize(
        "outcome", [ScriptError("ValueError: no.", advice="mend it."), HostOutOfMemory("the host killed it")]
    )
    def test_a_run_that_failed_otherwise_tells_nothing(self, outcome: Outcome) -> None:
        found = decide_by_run(outcome, ENVIRONMENT, 2 * GIB)
        assert (found.answer, found.checks) == ("failed", ())
        assert found.sentences[0].startswith("The script could not be measured: ")
        assert found.sentences[1:] == (("Mend it.",) if isinstance(outcome, ScriptError) else ())

    def test_a_run_without_a_peak_tells_nothing(self) -> None:
        outcome = measured(8.0, 16, GIB)
        assert isinstance(outcome, Measured)
        unseen = Measured(replace(outcome.measurement, peaks=Peaks()))
        assert decide_by_run(unseen, None, 2 * GIB).answer == "failed"

    def test_what_the_allocator_freed_to_stay_below_is_said(self) -> None:
        found = decide_by_run(measured(8.0, 16, GIB, allocator_retries=2), None, 2 * GIB)
        assert found.sentences[1] == "Measured on this device in 7 optimizer steps at batch 16."
        assert found.sentences[2] == "torch freed what it had cached 2 times to stay below the limit."


def decided(*fits: CardFit, cautions: Sequence[str] = (), setting: str = "") -> LimitGate:
    return decide_by_cards(fits, batch_size=4, steps=2, cautions=cautions, setting=setting)


MISSING = CardFit(CARDS["t4-16gb"], None, problem="it asks for bfloat16", error=0.06)


class TestByCards:
    def test_one_card_is_answered_in_one_sentence(self) -> None:
        found = decided(fit("a100-40gb", 15, fits=True), cautions=["it may differ."])
        assert (found.answer, found.batch_size) == ("pass", 4)
        assert found.sentences == (
            "Within the limit: on a100-40gb, the script needs 15 GiB (14.1 GiB to 15.9 GiB); the limit is 39.4 GiB.",
            "It may differ.",
            (
                "None of it ran on a GPU: 2 optimizer steps were followed by the sizes of their tensors. "
                "A peak is within the limit if one that is 6% higher is, too."
            ),
        )

    def test_each_of_several_cards_has_a_sentence(self) -> None:
        found = decided(fit("t4-16gb", 15, fits=False), fit("a100-40gb", 15, fits=True))
        assert found.answer == "over_limit"
        assert found.sentences[:3] == (
            "Over the limit on t4-16gb, within the limit on a100-40gb.",
            "On t4-16gb, the script needs 15 GiB (14.1 GiB to 15.9 GiB); the limit is 14.6 GiB.",
            "On a100-40gb, the script needs 15 GiB (14.1 GiB to 15.9 GiB); the limit is 39.4 GiB.",
        )
        assert [check.found for check in found.checks] == ["over", "within"]

    def test_a_setting_is_named(self) -> None:
        found = decided(fit("a100-40gb", 15, fits=True), setting="batch 8, gelu+:1:-1")
        assert found.sentences[0].startswith("Within the limit: on a100-40gb, the setting needs 15 GiB")
        assert found.sentences[1] == "The setting is batch 8, gelu+:1:-1."

    def test_a_peak_that_is_too_near_the_limit_does_not_pass_and_says_so(self) -> None:
        found = decided(fit("t4-16gb", 14.5, fits=False))
        assert (found.answer, found.checks[0].found) == ("over_limit", "near")
        assert found.sentences[0].startswith("Too near the limit to tell: on t4-16gb, the script needs 14.5 GiB")

    def test_a_peak_that_fits_is_at_most_the_card(self) -> None:
        (check,) = decided(fit("t4-16gb", 14.5, fits=True)).checks
        assert check.interval == (int(14.5 * GIB * 0.94), CARDS["t4-16gb"].memory_bytes)

    def test_a_card_that_the_script_does_not_run_on_has_no_answer(self) -> None:
        found = decided(MISSING)
        assert found.answer == "failed"
        assert found.sentences[0] == "No answer: on t4-16gb, it asks for bfloat16."
        assert found.checks == (LimitCheck("t4-16gb", CARDS["t4-16gb"].memory_bytes, "not_known"),)

    def test_a_card_without_an_answer_hides_no_other(self) -> None:
        beside = decided(MISSING, fit("a100-40gb", 15, fits=True))
        assert beside.answer == "failed"
        assert beside.sentences[0] == "Within the limit on a100-40gb, not known on t4-16gb."
        assert beside.sentences[1] == "On t4-16gb, it asks for bfloat16."
        assert decided(MISSING, fit("a100-40gb", 50, fits=False)).answer == "over_limit"

    def test_without_any_answer_the_cause_and_the_next_step_are_told(self) -> None:
        error = DiscoveryError("the script cannot be followed", hint="mend it")
        found = decide_without_answer(error, [CARDS["t4-16gb"]])
        assert found.answer == "failed"
        assert found.sentences == ("No answer: the script cannot be followed.", "Mend it.")
        assert [check.found for check in found.checks] == ["not_known"]


OVER = decided(fit("t4-16gb", 15, fits=False), fit("a100-40gb", 15, fits=True))
FAILED = decide_by_run(ScriptError("<no>"), None, GIB)


class TestFiles:
    def test_junit_has_a_case_for_each_device(self) -> None:
        suite = ET.fromstring(render_junit(OVER, "train.py"))[0]
        assert [case.get("name") for case in suite] == ["memory on t4-16gb", "memory on a100-40gb"]
        assert [case.find("failure") is not None for case in suite] == [True, False]
        assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")

    def test_junit_has_an_error_where_nothing_was_told(self) -> None:
        suite = ET.fromstring(render_junit(FAILED, "train.py"))[0]
        assert [case.find("error") is not None for case in suite] == [True]
        beside = ET.fromstring(render_junit(decided(MISSING, fit("a100-40gb", 15, fits=True)), "train.py"))[0]
        assert [case.find("error") is not None for case in beside] == [True, False]

    def test_markdown_has_a_row_for_each_device(self) -> None:
        text = render_markdown(OVER, "train.py")
        assert "train.py: over the limit" in text
        assert "| t4-16gb | 15 GiB | 14.6 GiB | over |" in text
        assert "| a100-40gb | 15 GiB | 39.4 GiB | within |" in text
        assert "|---" not in render_markdown(FAILED, "train.py")
        unseen = decide_by_run(OutOfMemory("full"), ENVIRONMENT, GIB)
        assert "| Formula 1 |  | 1 GiB | over |" in render_markdown(unseen, "train.py")
        assert "| t4-16gb |  | 14.6 GiB | not known |" in render_markdown(decided(MISSING), "train.py")


class TestRuns:
    def test_the_script_runs_once_as_it_is_below_the_limit(self, tmp_path: Path) -> None:
        asked: list[Request] = []
        result = held(tmp_path, asked, measured(8.0, 16, GIB))
        assert result is not None
        assert result.answer == "pass"
        (request,) = asked
        assert (request.mode, request.memory_limit_bytes, request.arguments) == ("measure", 2 * GIB, ("-b", "4"))
        assert request.configurations[0].is_untouched

    def test_a_bundles_setting_runs_below_the_limit(self, tmp_path: Path) -> None:
        asked: list[Request] = []
        bundle = bundle_in(tmp_path)
        found = held(tmp_path, asked, measured(8.0, 16, GIB), bundle)
        assert found is not None
        assert found.sentences[0].startswith("Within the limit: the setting peaks at 1 GiB")
        assert found.sentences[-1] == f"The setting is {bundle.configuration}."
        (request,) = asked
        assert request.configurations == (bundle.configuration,)
        assert request.arguments == ("-b", str(bundle.configuration.batch_size))
        assert request.batch_control == bundle.stack.batch_control

    def test_an_interrupted_run_has_no_answer(self, tmp_path: Path) -> None:
        assert held(tmp_path, [], None) is None


def bundle_in(folder: Path) -> Bundle:
    export_bundle(study_record(), folder / "bundle", report_html="<p>")
    return read_bundle(folder / "bundle")


def held(folder: Path, asked: list[Request], outcome: Outcome | None, bundle: Bundle | None = None) -> LimitGate | None:
    class Launcher:
        def run(self, request: Request, directory: Path, **_: Any) -> RunResult:
            asked.append(request)
            return RunResult((outcome,), ENVIRONMENT, None, directory)

    spec = StudySpec("/train.py", engine="eager", arguments=("-b", "{batch_size:4}"))
    launcher: Any = Launcher()
    return pipeline.gate_limit(spec, 2 * GIB, bundle, launcher=launcher, interruption=Interruption(), runs=folder)


Gate = Callable[..., tuple[int, str, str]]


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gate:
    """``gate("train.py", "--limit", "2GiB")`` runs the command; gives exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import torch\n")
    launcher = SimpleNamespace(changes=Changes(removed=["/elsewhere/out"]))
    monkeypatch.setattr("autotune.cli.local_launcher.make_launcher", lambda *_: launcher)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["autotune", "gate", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("it runs nothing")


class TestCommand:
    def test_a_script_alone_takes_its_arguments_as_they_are(self, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
        """Guards ``-- https://…``: the first of the arguments stands where a bundle's script does."""
        specs: list[StudySpec] = []

        def found(spec: StudySpec, limit_bytes: int, *_: Any, **__: Any) -> LimitGate:
            specs.append(spec)
            return decide_by_run(measured(8.0, 16, GIB), ENVIRONMENT, limit_bytes)

        monkeypatch.setattr(pipeline, "gate_limit", found)
        code, output, errors = gate("train.py", "--limit", "2GiB", "--", "https://x//y", "--lr", "1")
        assert (code, output.splitlines()[0]) == (
            0,
            "Within the limit: the script peaks at 1 GiB; the limit is 2 GiB.",
        )
        assert specs[0].arguments == ("https://x//y", "--lr", "1")
        assert Path(specs[0].script).name == "train.py"
        assert "/elsewhere/out" in errors
        gate("train.py", "--limit", "2GiB")
        assert specs[1].arguments == ()

    def test_over_the_limit_is_exit_code_3_in_every_form(self, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pipeline, "gate_limit", lambda *_, **__: OVER)
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
        code, output, _ = gate("train.py", "--limit", "2GiB", "--json", "--junit", "j.xml", "--markdown", "m.md")
        document = checked("gate", output)
        assert (code, document["exit_code"], document["answer"]) == (3, 3, "over_limit")
        assert "<failure" in Path("j.xml").read_text()
        assert Path("m.md").read_text() == Path("summary.md").read_text() == render_markdown(OVER, "train.py")

    def test_a_failure_is_exit_code_1(self, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pipeline, "gate_limit", lambda *_, **__: FAILED)
        assert gate("train.py", "--limit", "2GiB")[0] == 1

    def test_a_run_that_was_stopped_has_no_answer(self, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pipeline, "gate_limit", lambda *_, **__: None)
        code, output, errors = gate("train.py", "--limit", "2GiB")
        assert (code, output) == (130, "")
        assert "there is no answer" in errors

    def test_cards_are_followed_at_the_own_batch_size_alone(self, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[Request] = []

        def found(cards: Sequence[Any], request_for: Any, *_: Any, **__: Any) -> tuple[Traced, tuple[CardFit, ...]]:
            asked.extend(map(request_for, cards))
            traced = Traced(AllocationTrace("", (), ()), 4, BatchControl("none"), steps=2, process=0)
            return traced, tuple(replace(fit("a100-40gb", 3, fits=False), card=card) for card in cards)

        monkeypatch.setattr(pipeline, "trace_setting", found)
        code, output, _ = gate("train.py", "--for", "a100-40g", "--limit", "2GiB")
        assert code == 3
        assert output.startswith(
            "Over the limit: on a100-40gb, the script needs 3 GiB (2.82 GiB to 3.18 GiB); the limit is 2 GiB."
        )
        assert "None of it ran on a GPU" in output
        assert [(one.mode, one.configurations[0].is_untouched) for one in asked] == [("trace", True)]
        assert "the limit is 39.4 GiB" in gate("train.py", "--for", "a100-40g")[1]
        assert "the limit is 39.4 GiB" in gate("train.py", "--for", "a100-40g", "--limit", "80GiB")[1]

    def test_a_bundle_may_stand_before_the_script(self, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
        bundle = bundle_in(Path.cwd())
        asked: list[Any] = []

        def found(spec: StudySpec, _: Any, read: Bundle | None, **__: Any) -> LimitGate:
            asked.append((spec.arguments, None if read is None else read.configuration))
            return OVER

        monkeypatch.setattr(pipeline, "gate_limit", found)
        monkeypatch.setattr(pipeline, "gate_cards", found)
        assert gate("bundle", "train.py", "--limit", "2GiB", "--", "--lr", "1")[0] == 3
        assert gate("bundle", "train.py", "--for", "a100-40g")[0] == 3
        assert asked == [(("--lr", "1"), bundle.configuration), ((), bundle.configuration)]

    def test_a_setting_of_generated_code_is_not_followed(self, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
        bundle_in(Path.cwd())
        stack = Path("bundle/stack.json")
        stack.write_text(json.dumps(json.loads(stack.read_text()) | {"engine": "inductor"}))
        monkeypatch.setattr(pipeline, "gate_cards", never)
        code, _, errors = gate("bundle", "train.py", "--for", "a100-40g")
        assert code == 2
        assert "what engine 'inductor' allocates cannot be followed without the GPU" in errors
        assert "--limit SIZE" in errors

    def test_cards_that_were_interrupted_have_no_answer(self, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
        def stopped(*_: Any, **__: Any) -> Any:
            raise InterruptionError("stopped before the script was followed", hint="again")

        monkeypatch.setattr(pipeline, "gate_cards", stopped)
        assert gate("train.py", "--for", "a100-40g")[0] == 130

    @pytest.mark.parametrize(
        ("options", "cause", "step"),
        [
            (["--limit", "2GiB", "--baseline", "b.json"], "--limit does not go together with --baseline", "leave --b"),
            (["--for", "a100-40g", "--history"], "--for does not go together with --history", "leave --history out"),
            (["--for", "a100-40g", "--devices", "0"], "--for does not go together with --devices", "leave --devices"),
            (["--limit", "2GiB", "--shape", "seq=2"], "--limit does not go together with --shape", "leave --shape out"),
            (["--limit", "2GiB", "--junit", "gone/j.xml"], "there is no folder for 'gone/j.xml'", "mkdir -p gone"),
            (["--limit", "much"], "--limit: not a size in bytes: 'much'", "as in 24GiB"),
            (["--for", "a100"], "there is no card 'a100'", ""),
            (
                ["--limit", "2GiB", "--repetitions", "5"],
                "--limit does not go together with --repetitions",
                "leave --rep",
            ),
            ([], "a gate takes a bundle and a script, and one of them is missing", "autotune gate BUNDLE train.py"),
        ],
    )
    def test_what_does_not_go_together_is_refused(
        self, options: Sequence[str], cause: str, step: str, gate: Gate, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("gate", "gate_limit", "gate_cards"):
            monkeypatch.setattr(pipeline, name, never)
        code, _, errors = gate("train.py", *options)
        assert code == 2
        assert cause in errors
        assert step in errors

    @pytest.mark.parametrize(
        ("arguments", "cause", "step"),
        [
            (["bundle"], "'bundle' is a bundle, and the script is missing", "autotune gate BUNDLE train.py --limit"),
            ([], "the script is missing", "autotune gate train.py --limit"),
            (["typo", "train.py"], "there is no bundle in 'typo'", "a folder that `autotune run` has written"),
            (["nosuch.py"], "there is no script 'nosuch.py'", ""),
        ],
    )
    def test_what_is_missing_is_named(self, arguments: Sequence[str], cause: str, step: str, gate: Gate) -> None:
        bundle_in(Path.cwd())
        code, _, errors = gate(*arguments, "--limit", "2GiB")
        assert code == 2
        assert cause in errors
        assert step in errors

    def test_an_empty_argument_of_the_script_stays(self, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
        specs: list[StudySpec] = []
        monkeypatch.setattr(pipeline, "gate_limit", lambda spec, *_, **__: specs.append(spec) or OVER)
        gate("train.py", "--limit", "2GiB", "--", "", "--x")
        assert specs[0].arguments == ("", "--x")

    def test_limits_of_a_projects_settings_are_for_scripts_without_a_bundle(
        self, gate: Gate, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Guards a gate that compares a bundle in CI: a key for `fit --for` must not make it another gate."""
        bundle_in(Path.cwd())
        Path("pyproject.toml").write_text('[tool.autotune]\nfor = "a100-40g"\ndevices = "0,1"\n')
        asked: list[str] = []
        monkeypatch.setattr(pipeline, "gate", lambda *_, **__: asked.append("compared"))
        monkeypatch.setattr(pipeline, "gate_cards", lambda *_, **__: asked.append("for cards") or OVER)
        monkeypatch.setattr(pipeline, "gate_limit", lambda *_, **__: asked.append("below a limit") or OVER)
        gate("bundle", "train.py", "--devices", "0")
        gate("train.py")
        gate("train.py", "--limit", "2GiB", "--devices", "0")
        assert asked == ["compared", "for cards", "below a limit"]

    def test_settings_of_a_project_for_bundles_do_not_stand_in_the_way(
        self, gate: Gate, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Path("pyproject.toml").write_text('[tool.autotune.gate]\nrepetitions = 12\nbaseline = "gate.json"\n')
        monkeypatch.setattr(pipeline, "gate_limit", lambda *_, **__: OVER)
        assert gate("train.py", "--limit", "2GiB")[0] == 3

    def test_a_model_is_refused(self, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pipeline, "gate_limit", never)
        Path("model.onnx").write_bytes(b"x")
        code, _, errors = gate("model.onnx", "--limit", "2GiB")
        assert code == 2
        assert "does not run an ONNX model" in errors
