"""What an audit says of scripts that checkpoint well, badly and to no effect, against their exact peaks."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.records.audit import Audit
from autotune.records.configuration import Configuration
from autotune.records.measuring import Measuring
from autotune.records.run import Request
from autotune.report.audit import audit_sentences, judge_audit
from tests.documents import checked

from .conftest import Once, Plain
from .inside import run_inside
from .processes import SCRIPTS, WorkerRun, in_worker, run_autotune

OWN, GPT2 = "checkpointing.py", "checkpointing_gpt2.py"
SHORT = Measuring(1, 1, 3, 3, min_measure_s=0.0)
WITHOUT = {OWN: "none", GPT2: "off"}

Audited = Callable[[str, str], WorkerRun]


@pytest.fixture(scope="session")
def audited(once: Once) -> Audited:
    """``audited(script, way)`` gives the run that audits a script, made once."""

    def get(script: str, way: str) -> WorkerRun:
        request = Request("audit", str(SCRIPTS / script), (way,), (Configuration(),), SHORT, may_fork=True)
        return once(lambda folder: in_worker(request, folder=folder), "audited", script, way)

    return get


def audit_of(run: WorkerRun) -> Audit:
    """What the audit found."""
    assert run.result.audit is not None, (run.result, run.errors)
    return run.result.audit


def exact_peak(plain: Plain, script: str, way: str) -> int:
    """What a step of a script that nothing of ours hooks has allocated at the most, in bytes."""
    done = plain(script, way, "exact")
    found = re.search(rb"^PEAK (\d+)$", done.output, re.MULTILINE)
    assert found is not None, done.errors
    return int(found[1])


@pytest.mark.parametrize(
    ("script", "way", "verdict", "reason"),
    [
        (OWN, "none", "unused", "6 repeated blocks (Block) checkpointed would free"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                (OWN, "blocks", "good", "would free no more"),
                (OWN, "two", "little", "between its regions: blocks.*.attention"),
                (OWN, "whole", "costly", "Model.through_blocks holds nearly all of it"),
                (OWN, "reentrant", "good", "would free no more"),
                (OWN, "wrapper", "good", "would free no more"),
                (GPT2, "enabled", "good", "would free no more"),
                (OWN, "children", "costly", "between its regions: what enters the regions"),
                (OWN, "save_on_cpu", "costly", "kept on the same device (cpu)"),
                (OWN, "frozen", "none", "where no gradient is computed"),
                (GPT2, "evaluation", "none", "they are in evaluation mode"),
                (GPT2, "elsewhere", "none", "they are no part of what is trained"),
            )
        ),
    ],
)
def test_the_verdict_is_that_of_the_measured_peaks(
    script: str, way: str, verdict: str, reason: str, audited: Audited, plain: Plain
) -> None:
    found = audit_of(audited(script, way))

    # Without dropout it is another model, which keeps less in any case.
    before = way if way == "evaluation" else WITHOUT[script]
    measured = exact_peak(plain, script, before) - exact_peak(plain, script, way)
    assert found.counted.saving_bytes == pytest.approx(measured, abs=0.04 * found.counted.without_bytes)
    assert found.counted.without_bytes == pytest.approx(exact_peak(plain, script, before), rel=0.1)
    assert judge_audit(found) == verdict, audit_sentences(found)
    assert reason in " ".join(audit_sentences(found))


@pytest.mark.slow
@pytest.mark.parametrize(("script", "way"), [(OWN, "reentrant"), (OWN, "save_on_cpu"), (OWN, "compile")])
def test_a_script_computes_what_it_does_without_being_audited(
    script: str, way: str, audited: Audited, plain: Plain
) -> None:
    own, run = plain(script, way), audited(script, way)

    assert len(run.losses) >= 8
    assert run.losses == own.losses[: len(run.losses)]


@pytest.mark.slow
def test_what_compiling_keeps_stands_beside_the_step_without_it(audited: Audited, plain: Plain) -> None:
    found = audit_of(audited(OWN, "compile"))

    assert found.compiled is not None
    assert (found.compiled.graphs, found.compiled.graph_breaks) == (1, 0)
    assert found.eager.kept_bytes == audit_of(audited(OWN, "none")).counted.kept_bytes
    measured = exact_peak(plain, OWN, "none") - exact_peak(plain, OWN, "compile")
    kept = found.eager.kept_bytes - found.counted.kept_bytes
    assert kept == pytest.approx(measured, abs=0.02 * found.eager.kept_bytes)
    assert judge_audit(found) == "unused"


def test_the_command_says_the_verdict_first_and_the_next_command_last(tmp_path: Path) -> None:
    script = SCRIPTS / OWN

    shown = run_inside("audit", script, "--", "whole", folder=tmp_path)

    assert shown.status == 0, shown.errors
    lines = shown.output.decode().strip().splitlines()
    assert lines[0].startswith("Your checkpointing costs more than it gives: ")
    assert lines[-1].endswith(f"autotune run {script} -- whole")
    assert re.search(r"^Model.through_blocks +checkpoint, use_reentrant=False +1 ", shown.output.decode(), re.MULTILINE)


def test_the_record_is_printed_as_json(tmp_path: Path) -> None:
    shown = run_inside("audit", SCRIPTS / OWN, "--json", "--", "frozen", folder=tmp_path)

    assert shown.status == 0, shown.errors
    document = checked("audit", shown.output)
    assert document["verdict"] == "none"
    assert document["baseline"]["kind"] == "measured"
    assert [(one["name"], one["calls"], one["calls_without_gradients"]) for one in document["regions"]] == [
        ("Block", 6, 6)
    ]


def test_a_script_that_fails_says_so(tmp_path: Path) -> None:
    shown = run_inside("audit", SCRIPTS / OWN, folder=tmp_path)

    assert shown.status == 1
    assert "autotune: the unmodified script could not be measured: IndexError" in shown.errors


@pytest.mark.slow
def test_a_script_that_fails_is_told_what_to_do_with_the_script_and_of_no_setting(tmp_path: Path) -> None:
    failed = run_autotune("audit", SCRIPTS / "bad/raises.py", folder=tmp_path)
    assert failed.status == 1
    assert "LookupError" in failed.errors
    assert "setting" not in failed.errors.partition("  next: ")[2]


@pytest.mark.parametrize(
    ("way", "first"),
    [
        ("wrapper", r"Your checkpointing loses gradients: 14 .* The graph is cut where Block begins, or in it\."),
        ("inside", r"Your checkpointing loses gradients: 14 .* The graph is cut where Model begins, or in it\."),
        ("no_grad", r"Your checkpointing loses gradients: 6 .* The graph is cut where Block begins, or in it\."),
        ("inputs", r"Your checkpointing loses gradients: 18 .* Without it there are some\."),
        ("dropout", r"Your checkpointing changes what is computed: .*gradients by up to \d+ % of the largest value"),
        ("buffer", r"Your checkpointing changes what is computed: .*counters by up to 100 % of the largest value"),
    ],
)
def test_checkpointing_that_loses_or_changes_gradients_is_said_first(way: str, first: str, tmp_path: Path) -> None:
    shown = run_inside("audit", SCRIPTS / "losing_gradients.py", "--", way, folder=tmp_path)

    assert shown.status == 3, shown.errors
    assert re.match(first, " ".join(shown.output.decode().split())), shown.output.decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "way"),
    [
        (SCRIPTS / "losing_gradients.py", "good"),
        *((SCRIPTS / OWN, way) for way in ("blocks", "two", "whole", "reentrant", "wrapper", "children")),
        *((SCRIPTS / OWN, way) for way in ("save_on_cpu", "frozen", "compile")),
        (SCRIPTS / GPT2, "enabled"),
    ],
)
def test_checkpointing_that_changes_nothing_is_proven(script: Path, way: str, tmp_path: Path) -> None:
    shown = run_inside("audit", script, "--json", "--", way, folder=tmp_path)

    assert shown.status == 0, shown.errors
    proof = checked("audit", shown.output)["proof"]
    assert way == "compile" or (proof["answer"], proof["steps"]) == ("same", 3)
