"""`autotune fit --for`: scripts for GPUs are followed on a machine that has none."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from autotune.records.cards import CARDS
from tests.documents import checked

from .inside import run_inside
from .processes import SCRIPTS
from .told import check_told

SCRIPT = SCRIPTS / "cuda_outright.py"


def test_a_script_that_says_cuda_outright_is_followed_unmodified(tmp_path: Path) -> None:
    run = run_inside("fit", SCRIPT, "--for", "t4-16g,a100-40g", "--json", folder=tmp_path)

    assert run.status == 0, run.errors
    document = checked("fit-for", run.output)
    assert document["batch_size"] == 256
    assert document["sentences"][0].startswith("The script should fit ")
    assert [one["card"]["name"] for one in document["fits"]] == ["t4-16gb", "a100-40gb"]
    for fit in document["fits"]:
        card, largest = CARDS[fit["card"]["name"]], fit["plain"]["largest"]
        assert 0.9 * card.memory_bytes < largest["peak_bytes"] * (1 + fit["error"]) <= card.memory_bytes
        # Two layers of half precision: input, activations before and after, mask; each sample takes some 40 kB.
        assert 20_000 < card.memory_bytes / largest["batch_size"] < 80_000
    assert all(line.startswith(f"{SCRIPT}:") for line in document["asked"]), document["asked"]


def test_the_answer_names_the_card_and_what_it_rests_on(tmp_path: Path) -> None:
    run = run_inside("fit", SCRIPT, "--for", "24GiB", folder=tmp_path)

    assert run.status == 0, run.errors
    said = " ".join(run.output.decode().split())
    assert "The script should fit 24GiB at its own batch size of 256: it needs" in said
    assert re.search(r"24GiB 24 GiB 1\.\d+ GiB fits \d{5,} ", said), said
    assert "None of it ran on a GPU" in said
    assert f"The script asked for values, which were not computed, at {SCRIPT}:" in said


@pytest.mark.parametrize(("arguments", "steps"), [((), 2), (("--two-optimizers",), 3)], ids=["one", "two"])
def test_every_optimizer_takes_the_step_after_the_one_that_makes_its_state(
    arguments: tuple[str, ...], steps: int, tmp_path: Path
) -> None:
    run = run_inside("fit", SCRIPT, "--for", "a100-40g", "--", *arguments, folder=tmp_path)

    assert run.status == 0, run.errors
    assert f"None of it ran on a GPU: {steps} optimizer steps were followed" in run.output.decode()


def test_a_model_that_trains_in_evaluation_mode_has_its_batch_size_looked_for(tmp_path: Path) -> None:
    """Guards scripts that call from_pretrained() and no train()."""
    run = run_inside("fit", SCRIPT, "--for", "a100-40g", "--", "--in-evaluation-mode", folder=tmp_path)

    assert run.status == 0, run.errors
    assert re.search(r"a100-40gb +39\.4 GiB +1\.\d+ GiB +fits +\d{5,}", run.output.decode())


def test_a_size_that_data_decide_is_told_at_the_script_s_own_batch_size(tmp_path: Path) -> None:
    run = run_inside("fit", SCRIPT, "--for", "a100-40g", "--", "--sized-by-data", folder=tmp_path)

    assert run.status == 0, run.errors
    said = run.output.decode()
    assert "at its own batch size of" in said
    assert "Other batch sizes are not told: " in said


def test_several_loaders_of_a_step_have_their_parts_of_another_size(tmp_path: Path) -> None:
    run = run_inside("fit", SCRIPT, "--for", "a100-40g", "--", "--two-loaders", folder=tmp_path)

    assert run.status == 0, run.errors
    said = run.output.decode()
    assert "at its own batch size of 320" in said
    assert "Other batch sizes are not told" not in said


def test_a_size_that_the_script_keeps_elsewhere_is_told_with_how_to_pass_it(tmp_path: Path) -> None:
    run = run_inside("fit", SCRIPT, "--for", "a100-40g", "--", "--keeps-batch-size", folder=tmp_path)

    assert run.status == 0, run.errors
    (reason,) = [line for line in run.output.decode().splitlines() if line.startswith("Other batch sizes are not told")]
    assert "The error names 256, your own batch size" in reason
    assert "as `--batch-size={batch_size:256}`" in reason


def test_a_size_that_the_model_decides_is_refused_with_its_line(tmp_path: Path) -> None:
    run = run_inside("fit", SCRIPT, "--for", "a100-40g", "--", "--sized-by-model", folder=tmp_path)

    line = 1 + SCRIPT.read_text().splitlines().index("        x, y = x[sure], y[sure]")
    cause = rf"cannot be followed without the GPU: the size of what \w+ returns depends on .* at {SCRIPT}:{line}"
    check_told(run, status=1, cause=cause, next_step="On a machine with such a GPU, run `autotune fit` without --for")


def torchrun(processes: int, card: str = "24GiB") -> tuple[str, ...]:
    command = str(Path(sys.executable).with_name("torchrun"))
    return (command, "--for", card, "--", "--nproc-per-node", str(processes), str(SCRIPTS / "nccl.py"))


def test_a_process_that_torchrun_starts_alone_is_followed_over_nccl(tmp_path: Path) -> None:
    run = run_inside("fit", *torchrun(1), folder=tmp_path)

    assert run.status == 0, run.errors
    assert "The script should fit 24GiB at its own batch size of 32" in run.output.decode()


@pytest.mark.parametrize("card", ["24GiB", "2x24GiB"])
def test_a_launcher_of_several_processes_is_refused(card: str, tmp_path: Path) -> None:
    run = run_inside("fit", *torchrun(2, card), folder=tmp_path)

    cause = "cannot be followed without the GPU: the script trains in 2 processes, and only the first can be followed"
    check_told(run, status=1, cause=cause, next_step="Give the script itself, .* as in --for 2xh100-80gb")


def test_a_script_is_followed_as_the_first_of_eight_processes(tmp_path: Path) -> None:
    run = run_inside("fit", SCRIPTS / "nccl.py", "--for", "8xt4-16g", folder=tmp_path)

    assert run.status == 0, run.errors
    said = " ".join(run.output.decode().split())
    assert said.startswith("The script should fit 8xt4-16gb at its own batch size of 32 in each process: it needs ")
    assert "on each GPU." in said
    assert "8xt4-16gb 8 x 14.6 GiB " in said
    assert "Memory is that of one GPU: the first process was followed, and sent nothing to the others." in said
    # Each has 64 of the 512 samples.
    assert "cannot be followed without the GPU at batch 64" in said


def test_a_variable_that_no_launcher_has_set_keeps_no_script_from_being_followed(tmp_path: Path) -> None:
    run = run_inside("fit", SCRIPT, "--for", "24GiB", folder=tmp_path, environment={"WORLD_SIZE": "4"})

    assert run.status == 0, run.errors
    assert "The script should fit 24GiB" in run.output.decode()


def test_a_script_that_trains_in_one_process_on_several_gpus_is_told(tmp_path: Path) -> None:
    run = run_inside("fit", SCRIPT, "--for", "2xa100-40g", folder=tmp_path)

    assert run.status == 0, run.errors
    told = "Note: the script trained in one process: it makes no process group for 2 GPUs"
    assert told in " ".join(run.output.decode().split())


def test_an_unknown_card_is_refused_before_anything_runs(tmp_path: Path) -> None:
    run = run_inside("fit", SCRIPT, "--for", "a100", folder=tmp_path)

    assert run.status == 2
    assert "there is no card 'a100'" in run.errors
    assert not (tmp_path / ".autotune").exists()


def test_a_script_that_trains_on_the_cpu_needs_no_card(tmp_path: Path) -> None:
    run = run_inside("fit", SCRIPTS / "loader_loop.py", "--for", "a100-40g", folder=tmp_path)
    check_told(run, status=1, cause="nothing of the script's is on the GPU", next_step="must move its model to CUDA")


@pytest.mark.parametrize(
    ("option", "value"), [("--memory-limit", "1GiB"), ("--batch-sizes", "8:16"), ("--devices", "0")]
)
def test_options_that_do_not_go_together_with_cards_are_refused(option: str, value: str, tmp_path: Path) -> None:
    run = run_inside("fit", SCRIPT, "--for", "a100-40g", option, value, folder=tmp_path)
    check_told(run, status=2, cause=f"--for does not go together with {option}", next_step=f"leave {option} out")
