"""A bundle that no longer fits is refused with the reason; where it may be stale, what still fits is applied."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from autotune.export.bundle import export_bundle
from autotune.records.configuration import Configuration
from autotune.records.fingerprint import script_sha256
from autotune.records.outcome import Measured
from autotune.records.plan import Plan
from autotune.records.study import StudySpec
from tests.fakes.study_record import study_record

from .conftest import Once
from .inside import run_inside
from .processes import SCRIPTS, Finished, autotune_command, discover, measure, run_command, run_warm

BLOCKS, GELU = Plan("Block+", 1, 2), Plan("gelu+", 1, -1)
SETTING = Configuration("aot", (BLOCKS, GELU), batch_size=16)
REFUSED = "autotune: the bundle cannot be applied to this script: "
NEXT = "  next: `autotune run` on this script writes a bundle for it; `--allow-stale` applies what still fits\n"
ALL_APPLIED = """autotune: note: the bundle is stale, and applied as far as it fits
  applied: Block+:1:2, to 2 occurrences
  applied: gelu+:1:-1, to 3 occurrences
  applied: batch size 16
"""
SIZE_NOTE = "autotune: note: the batch size is the bundle's, 16, instead of 8\n"


def copy_script(folder: Path) -> Path:
    for name in ("blocks.py", "toy.py"):
        shutil.copy(SCRIPTS / name, folder)
    return folder / "blocks.py"


def export_measured(folder: Path) -> Path:
    """A bundle as a study writes it, of one trial that was measured: no search has to find it."""
    script = copy_script(folder)
    facts = discover(script, folder=folder, may_fork=True).facts
    facts = dataclasses.replace(facts, script_sha256=script_sha256(str(script)))
    run = measure(script, configurations=(SETTING,), folder=folder, control=facts.batch_control, may_fork=True)
    (outcome,) = run.result.outcomes
    assert isinstance(outcome, Measured), outcome
    record = study_record(spec=StudySpec(script=str(script)), facts=facts, repeats=())
    trial = dataclasses.replace(record.trials[0], configuration=SETTING, outcome=outcome, environment=facts.environment)
    return export_bundle(dataclasses.replace(record, trials=(trial,)), folder / "bundle", configuration=SETTING)


@pytest.fixture
def folder(tmp_path: Path, once: Once) -> Path:
    """A folder with a copy of the script, and of the bundle that was measured of it."""
    copy_script(tmp_path)
    shutil.copytree(once(export_measured, "measured bundle"), tmp_path / "bundle")
    return tmp_path


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def edit_stack(folder: Path, **changes: object) -> None:
    path = folder / "bundle/stack.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def stack_of(folder: Path) -> dict[str, object]:
    stack: dict[str, object] = json.loads((folder / "bundle/stack.json").read_text())
    return stack


def launch(folder: Path, *arguments: str) -> Finished:
    return run_inside("launch", "bundle", *arguments, folder=folder)


def refusal(*reasons: str) -> str:
    first, *others = reasons
    return f"{REFUSED}{first}\n" + "".join(f"  also: {one}\n" for one in others) + NEXT


# The script


def test_what_was_measured_is_applied_also_when_it_has_another_name(folder: Path) -> None:
    stack = stack_of(folder)
    assert [file["path"] for file in stack["files"]] == ["blocks.py", "toy.py"]  # type: ignore[attr-defined]
    assert stack["occurrences"] == {"Block+:1:2": 2, "gelu+:1:-1": 3}
    by_hand = folder / "by_hand.py"
    by_hand.write_text((folder / "blocks.py").read_text().replace("batch_size=8", "batch_size=16"))
    (folder / "blocks.py").rename(folder / "renamed.py")

    launched = launch(folder, "renamed.py")

    assert (launched.status, launched.errors) == (0, SIZE_NOTE)
    assert launched.output == run_warm(by_hand, folder=folder).output
    assert len(launched.losses) == 64


def test_a_script_that_has_changed_is_refused_before_it_begins(folder: Path) -> None:
    edit(folder / "blocks.py", "torch.manual_seed(0)\n", "# a comment\ntorch.manual_seed(0)\nprint('begun')\n")
    edit(folder / "toy.py", "nn.GELU()", "nn.SiLU()")

    launched = launch(folder, "blocks.py")

    assert (launched.status, launched.output) == (3, b"")
    assert launched.errors == refusal(
        "blocks.py has changed since it was measured",
        "toy.py has changed since it was measured",
    )


def test_a_module_that_is_gone_is_named(folder: Path) -> None:
    (folder / "toy.py").rename(folder / "toys.py")

    launched = launch(folder, "blocks.py")

    assert (launched.status, launched.output) == (3, b"")
    assert launched.errors == refusal("toy.py, which the script imports, is not there any more")


def test_another_script_is_refused_as_that(folder: Path) -> None:
    (folder / "other.py").write_text("print('begun')\n")

    launched = launch(folder, "other.py")

    assert (launched.status, launched.output) == (3, b"")
    assert launched.errors == refusal("other.py is not the blocks.py that was measured")


@pytest.mark.slow
def test_a_script_that_has_changed_is_run_where_it_may_be_stale(folder: Path) -> None:
    edit(folder / "blocks.py", "range(2)", "range(1)")

    launched = launch(folder, "blocks.py", "--allow-stale")

    note = "autotune: note: blocks.py has changed since it was measured\n"
    assert (launched.status, launched.errors) == (0, note + SIZE_NOTE + ALL_APPLIED)
    assert len(launched.losses) == 32


# torch


def test_another_release_of_torch_is_refused_as_soon_as_it_is_imported(folder: Path) -> None:
    environment = stack_of(folder)["environment"]
    assert isinstance(environment, dict)
    edit_stack(folder, environment=environment | {"torch": "2.10.0"})

    launched = launch(folder, "blocks.py")

    assert (launched.status, launched.output) == (3, b"")
    assert launched.errors == SIZE_NOTE + refusal(
        f"the bundle was measured with torch 2.10.0, and this is torch {environment['torch']}"
    )


@pytest.mark.slow
def test_another_release_of_torch_runs_where_it_may_be_stale(folder: Path) -> None:
    environment = stack_of(folder)["environment"]
    assert isinstance(environment, dict)
    edit_stack(folder, environment=environment | {"torch": "2.10.0"})

    launched = launch(folder, "blocks.py", "--allow-stale")

    note = f"autotune: note: the bundle was measured with torch 2.10.0, and this is torch {environment['torch']}\n"
    assert (launched.status, launched.errors) == (0, SIZE_NOTE + note + ALL_APPLIED)
    assert len(launched.losses) == 64


# The model, and what the plans find in it

LARGER = (
    "the model ToyNet has changed: 12 Linear instead of 8, 5 Block instead of 3, 5 LayerNorm instead of 3, "
    "5 GELU instead of 3, and 1 more, 5,681 parameters instead of 3,473"
)
MORE = "gelu+:1:-1 recomputes 5 occurrences, 3 when it was measured"
LARGER_APPLIED = f"""autotune: note: the bundle is stale, and applied as far as it fits
  {LARGER}
  {MORE}
  applied: Block+:1:2, to 2 occurrences
  applied: gelu+:1:-1, to 5 occurrences (3 when it was measured)
  applied: batch size 16
"""


def test_another_model_is_refused_after_one_step(folder: Path) -> None:
    launched = launch(folder, "blocks.py", "--", "--blocks", "5")

    assert launched.status == 3
    assert launched.errors == SIZE_NOTE + refusal(LARGER, MORE)
    assert len(launched.losses) <= 1


@pytest.mark.slow
def test_another_model_has_what_fits_it(folder: Path) -> None:
    launched = launch(folder, "blocks.py", "--allow-stale", "--", "--blocks", "5")

    assert (launched.status, launched.errors) == (0, SIZE_NOTE + LARGER_APPLIED)
    assert len(launched.losses) == 64


@pytest.mark.slow
def test_a_plan_that_is_gone_and_a_batch_size_that_cannot_be_set_are_not_applied(folder: Path) -> None:
    edit_stack(folder, models=[], batch_control={"how": "loaders", "loaders": [7], "sites": [], "reason": ""})

    refused = launch(folder, "blocks.py", "--", "--relu")
    stale = launch(folder, "blocks.py", "--allow-stale", "--", "--relu")

    assert refused.status == 3
    assert f"{REFUSED}the script has no cluster gelu+:1; it has Block+:1" in refused.errors
    assert "\n  also: batch size 16 was asked for, but the batches of the training steps have 8" in refused.errors
    assert len(refused.losses) <= 1
    assert stale.status == 0
    assert stale.errors.endswith(
        "  applied: Block+:1:2, to 2 occurrences\n  not applied: gelu+:1:-1\n  not applied: batch size 16\n"
    )
    assert len(stale.losses) == 128


@pytest.mark.slow
def test_an_older_bundle_is_not_refused_for_what_it_does_not_know(folder: Path) -> None:
    stack = stack_of(folder)
    for name in ("files", "models", "occurrences"):
        del stack[name]
    (folder / "bundle/stack.json").write_text(json.dumps(stack))
    edit(folder / "toy.py", "num_blocks=3", "num_blocks=5")

    launched = launch(folder, "blocks.py")
    edit(folder / "blocks.py", "manual_seed(0)", "manual_seed(1)")
    changed = launch(folder, "blocks.py")

    assert (launched.status, launched.errors) == (0, SIZE_NOTE)
    assert changed.errors == refusal("blocks.py has changed since it was measured")


# Ranks

# What torchrun logs of the processes that it starts.
_LOGGED = re.compile(r"^[EWI]\d{4} .*\n", re.MULTILINE)


def without_torch(errors: str) -> str:
    return _LOGGED.sub("", errors)


TORCHRUN = ("torchrun", "--standalone", "--nproc-per-node", "2")


@pytest.mark.slow
def test_ranks_that_torchrun_starts_have_the_setting(folder: Path) -> None:
    launched = launch(folder, "--", *TORCHRUN, "blocks.py")

    assert (launched.status, without_torch(launched.errors)) == (0, SIZE_NOTE)
    assert len(launched.losses) == 64


@pytest.mark.slow
def test_ranks_that_torchrun_starts_are_refused_once_and_without_its_traceback(folder: Path) -> None:
    launched = launch(folder, "--", *TORCHRUN, "blocks.py", "--blocks", "5")

    assert launched.status == 3
    assert without_torch(launched.errors) == SIZE_NOTE + refusal(LARGER, MORE)
    assert len(launched.losses) <= 1


@pytest.mark.slow
def test_ranks_say_once_what_of_a_stale_bundle_they_have(folder: Path) -> None:
    launched = launch(folder, "--allow-stale", "--", *TORCHRUN, "blocks.py", "--blocks", "5")

    assert (launched.status, without_torch(launched.errors)) == (0, SIZE_NOTE + LARGER_APPLIED)
    assert len(launched.losses) == 64


@pytest.mark.slow
def test_torchrun_around_launches_tells_the_reason_once(folder: Path) -> None:
    command = (str(Path(sys.executable).with_name("torchrun")), *TORCHRUN[1:], "--no-python")
    command = (*command, *autotune_command("launch", "bundle"))
    fits = run_command(*command, "blocks.py", folder=folder)
    other = run_command(*command, "blocks.py", "--", "--blocks", "5", folder=folder)
    edit(folder / "blocks.py", "manual_seed(0)", "manual_seed(1)")
    changed = run_command(*command, "blocks.py", folder=folder)

    assert (fits.status, without_torch(fits.errors)) == (0, SIZE_NOTE)
    assert len(fits.losses) == 64
    line = "blocks.py has changed since it was measured"
    for refused, reasons in ((other, (LARGER, MORE)), (changed, (line,))):
        assert refused.status == 1, "it is torchrun's own"
        assert refused.errors.count(REFUSED) == 1
        assert refusal(*reasons) in refused.errors
        assert "exitcode  : 3" in refused.errors
