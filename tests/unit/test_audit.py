"""What an audit is judged to show, and how it is said."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from autotune import pipeline
from autotune.cli import main
from autotune.errors import DiscoveryError, InterruptionError
from autotune.files.changes import Changes
from autotune.launch.port import RunResult
from autotune.records.audit import (
    Audit,
    AuditedBlocks,
    AuditedCompile,
    AuditedRegion,
    Counted,
    Holder,
    IdleSetting,
)
from autotune.records.measurement import Peaks
from autotune.records.measuring import Measuring
from autotune.records.outcome import ScriptError
from autotune.records.proof import GroupDifference
from autotune.records.run import Compared
from autotune.records.study import StudySpec
from autotune.records.units import format_bytes
from autotune.report.audit import (
    audit_rows,
    audit_sentences,
    blocks_would_free,
    holder_table,
    region_table,
)
from autotune.tuning.budget import Interruption
from autotune.verdict.auditing import judge_audit
from tests.documents import checked
from tests.fakes.landscape import measured
from tests.fakes.watcher import FakeWatcher

GIB = 1 << 30
REGION = AuditedRegion("Block", "non_reentrant", 12, 0, 20 * GIB, 18 * GIB)
BLOCKS = AuditedBlocks(("Block",), 12, 5 * GIB)


def audit(kept, peak, *, without=29, cost=0.2, regions=(REGION,), **fields):
    """An audit of a step of a second; sizes in GiB."""
    counted = Counted(kept * GIB, peak * GIB, without * GIB, step_s=1.0, recompute_s=cost)
    return Audit(counted, regions=regions, **{"blocks": BLOCKS, **fields})


UNUSED = audit(29, 29, cost=0.0, regions=())


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (UNUSED, "unused"),
        (audit(3, 5), "good"),
        (audit(3, 17), "good"),
        (audit(3, 18), "little"),
        (audit(20, 26, cost=0.3), "costly"),
        (audit(3, 29), "costly"),
        (audit(29, 31, cost=0.0), "costly"),
        (audit(29, 29, cost=0.0), "none"),
        (audit(29, 29, cost=0.0, regions=(), idle=(IdleSetting("gradient_checkpointing", 7, "so"),)), "none"),
        # What every block would free is not known, or nothing: a fifth of all is done well.
        (audit(3, 23, blocks=None), "good"),
        (audit(3, 24, blocks=None, cost=0.1), "little"),
        (audit(3, 24, blocks=replace(BLOCKS, peak_bytes=40 * GIB), cost=0.1), "little"),
        # Nothing was kept, by a script whose backward was not seen.
        (audit(0, 0, without=0, cost=0.0), "none"),
    ],
)
def test_the_verdict_weighs_what_is_freed_of_the_most_at_once(found, verdict):
    assert judge_audit(found) == verdict


def test_a_compiled_script_is_judged_by_its_step_without_compiling():
    eager = audit(3, 5).counted
    found = audit(2, 2, without=2, cost=0.0, compiled=AuditedCompile(2, 1, eager))
    assert judge_audit(found) == "good"
    assert blocks_would_free(found) == 24 * GIB
    said = audit_sentences(found)
    assert "frees 24 GiB of the 29 GiB" in said[0]
    assert said[-1] == (
        "torch.compile (2 graphs, 1 graph break) keeps 2 GiB for the backward and takes 1s a step; without it that is "
        "3 GiB and 1s. What is said of regions is of the step without it."
    )
    assert "The most at once" not in dict(audit_rows(found)), "what a graph computes again is not seen"


def test_a_script_that_only_fits_compiled_is_told_so():
    compiled = AuditedCompile(1, 0, reason="it does not fit the memory")
    said = audit_sentences(replace(UNUSED, compiled=compiled))
    assert said[-1].endswith("a step without it was not seen: it does not fit the memory.")


def test_what_the_rest_is_saved_by_is_named():
    holders = (
        Holder("", "", 12 * GIB, in_blocks=True, enters_regions=True),
        Holder("blocks.*.mlp", "MLP", 8 * GIB, in_blocks=True),
        Holder("", "Model", GIB),
    )
    found = audit(26, 26, cost=0.01, holders=holders)
    found = replace(found, counted=replace(found.counted, between_bytes=20 * GIB))
    first, second, third = audit_sentences(found)
    assert first == (
        "Your checkpointing has little effect: it frees 3 GiB of the 29 GiB that a step would keep for its backward, "
        "for 1 % of the step."
    )
    assert second == (
        "The rest is saved inside of the blocks, between its regions: what enters the regions 12 GiB and blocks.*.mlp "
        "8 GiB."
    )
    assert third == "Every one of the 12 repeated blocks (Block) checkpointed would free 24 GiB."
    outside = replace(found, counted=replace(found.counted, between_bytes=0))
    assert (
        "outside of its regions: what enters the regions 12 GiB, blocks.*.mlp 8 GiB and the model itself"
        in (audit_sentences(outside)[1])
    )
    assert [row[0] for row in holder_table(found).rows] == [
        "what enters the regions",
        "blocks.*.mlp",
        "the model itself",
        "(all others)",
    ]
    others = holder_table(found).rows[-1]
    assert others[2] == format_bytes(found.eager.kept_bytes - sum(one.saved_bytes for one in holders))
    assert "(all others)" not in [row[0] for row in holder_table(replace(found, holders=())).rows]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            audit(29, 29, cost=0.0, regions=(replace(REGION, calls_without_gradients=12),)),
            "All 12 calls of its regions",
        ),
        (audit(3, 28), "Its region Block holds nearly all of it and is computed again at once"),
        (
            audit(29, 31, cost=0.0, regions=(replace(REGION, name="save_on_cpu", kind="hooks"),)),
            "kept on the same device (cpu)",
        ),
        (
            audit(29, 29, cost=0.0, regions=(), idle=(IdleSetting("gradient_checkpointing", 7, "they sleep"),)),
            "gradient_checkpointing is set on 7 modules, and does nothing: they sleep.",
        ),
        (audit(3, 5), "Checkpointing every one of the 12 repeated blocks (Block) would free no more."),
    ],
)
def test_each_reason_is_said_where_it_holds(found, said):
    assert said in " ".join(audit_sentences(found))


def test_hooks_that_add_to_what_is_kept_are_not_called_checkpointing():
    hooks = replace(REGION, name="save_on_cpu", kind="hooks")
    first = audit_sentences(audit(31, 31, cost=0.1, regions=(hooks,)))[0]
    assert first == (
        "Your offloading costs more than it gives: for 10 % of the step it adds 2 GiB to the 29 GiB that a step would "
        "keep for its backward."
    )
    assert audit_sentences(audit(31, 31, regions=(replace(hooks, name="Mine"),)))[0].startswith(
        "Your saved-tensor hooks"
    )
    both = audit(31, 31, regions=(hooks, REGION))
    assert audit_sentences(both)[0].startswith("Your checkpointing with its offloading ")


def test_rows_hold_the_figures_and_leave_out_what_there_is_not():
    rows = dict(audit_rows(audit(3, 5, peaks=Peaks(resident=40 * GIB))))
    assert rows["Kept for the backward"] == "3 GiB"
    assert rows["The most at once"].startswith("5 GiB")
    assert rows["Computing again"] == "200ms, 20 % of the step"
    assert rows["Measured peak"].startswith("40 GiB resident")
    assert "Hooks" not in rows
    assert "Kept elsewhere" not in rows
    assert region_table(audit(3, 5)).rows[0][:5] == (
        "Block",
        "checkpoint, use_reentrant=False",
        "12",
        "20 GiB",
        "18 GiB",
    )


# -- the run, and the command


def run_of(tmp_path, result, interruption=None):
    """``pipeline.audit`` on a launcher that gives this result; with the request that it was asked for."""
    asked = []

    def run(request, **_):
        asked.append(request)
        return result

    script = tmp_path / "train.py"
    script.write_text("import torch\n")
    launcher = SimpleNamespace(run=run)
    spec = StudySpec(script=str(script), working_directory=str(tmp_path), devices=())
    interruption = interruption or Interruption()
    return pipeline.audit(
        spec, launcher=launcher, watcher=FakeWatcher(), interruption=interruption, runs=tmp_path
    ), asked


def test_an_audit_is_one_short_run_of_the_script_as_it_stands(tmp_path):
    baseline = measured(400.0, 16, GIB)
    (found, outcome), (request,) = run_of(tmp_path, RunResult((baseline,), None, None, tmp_path, audit=UNUSED))
    assert (found, outcome) == (UNUSED, baseline)
    assert (request.mode, request.configurations[0].plans, request.memory_matrix) == ("audit", (), False)
    assert request.measuring.max_steps < Measuring().min_steps


@pytest.mark.parametrize("stops_in", ["audit", "verify", ""])
def test_what_is_audited_is_told_though_it_is_not_proven(tmp_path, stops_in):
    interruption, baseline = Interruption(), measured(400.0, 16, GIB)

    def run(request, **_):
        if request.mode == stops_in:
            interruption.finish.set()
        if request.mode == "audit":
            return RunResult((baseline,), None, None, tmp_path, audit=audit(3, 5))
        compared = Compared(3, ((GroupDifference("gradients", 9),),), process=1, regions_off=2)
        return RunResult((None,), None, None, tmp_path, compared=() if stops_in else (compared,))

    script = tmp_path / "train.py"
    script.write_text("import torch\n")
    found, _ = pipeline.audit(
        StudySpec(script=str(script), working_directory=str(tmp_path), devices=()),
        launcher=SimpleNamespace(run=run),
        watcher=FakeWatcher(),
        interruption=interruption,
        runs=tmp_path,
    )
    assert replace(found, proof=None) == audit(3, 5)
    assert found.proof is None if stops_in else found.proof.answer == "same"


def test_a_script_that_fails_is_told_with_its_cause(tmp_path):
    failed = ScriptError("ValueError: no", advice="Mend it.", traceback="Traceback: no")
    with pytest.raises(DiscoveryError, match="could not be measured: ValueError: no"):
        run_of(tmp_path, RunResult((failed,), None, None, tmp_path))
    cut_short = RunResult((measured(400.0, 16, GIB),), None, None, tmp_path, reason="the script ended")
    with pytest.raises(DiscoveryError, match="was measured, but not audited: the script ended"):
        run_of(tmp_path, cut_short)
    with pytest.raises(InterruptionError):
        run_of(tmp_path, RunResult((None,), None, None, tmp_path))


@pytest.fixture
def autotune(monkeypatch, capsys, tmp_path):
    """``autotune("audit", "x")`` with an audit that finds nothing; gives exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import torch\n")
    launcher = SimpleNamespace(changes=Changes())
    monkeypatch.setattr("autotune.cli.local_launcher.make_launcher", lambda *_: launcher)

    def found(spec, *, interruption, **_):
        if "interrupted" in spec.arguments:
            interruption.finish.set()
        return UNUSED, measured(400.0, 16, GIB)

    monkeypatch.setattr(pipeline, "audit", found)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["autotune", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return run


def test_the_verdict_is_first_and_the_command_to_run_last(autotune):
    code, output, _ = autotune("audit", "train.py", "--", "--name", "a b")
    assert code == 0
    lines = output.strip().split("\n")
    assert lines[0].startswith("Your script uses neither activation checkpointing nor offloading: a step keeps 29 GiB")
    assert lines[-1].endswith("autotune run train.py -- --name 'a b'")


def test_json_is_the_record_with_its_verdict(autotune):
    code, output, _ = autotune("audit", "train.py", "--json", "--", "interrupted")
    assert code == 130
    document = checked("audit", output)
    assert document["sentences"][0].startswith("Your script uses neither")
    assert (document["verdict"], document["counted"]["kept_bytes"]) == ("unused", 29 * GIB)
    assert document["baseline"]["kind"] == "measured"


def test_a_model_is_no_script(autotune):
    Path("model.onnx").touch()
    code, _, errors = autotune("audit", "model.onnx")
    assert code == 2
    assert "an ONNX model keeps nothing for a backward" in errors
