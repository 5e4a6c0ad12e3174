"""`autotune explain`: where the memory of a script for GPUs goes, on a machine that has none."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from tests.documents import checked

from .inside import run_inside
from .processes import SCRIPTS
from .told import check_told

SCRIPT = SCRIPTS / "cuda_outright.py"
LINES = SCRIPT.read_text().splitlines()


def line_of(text: str) -> str:
    """Return the place of a line as answers name it."""
    return f"{SCRIPT}:{1 + next(number for number, line in enumerate(LINES) if text in line)}"


def test_the_first_sentences_name_the_peak_and_the_line_that_holds_most(tmp_path: Path) -> None:
    run = run_inside("explain", SCRIPT, "--for", "a100-40g", folder=tmp_path)

    assert run.status == 0, run.errors
    first, second, *_ = run.output.decode().lstrip().splitlines()
    assert first.startswith("The step at batch size 256 holds ")
    assert "at its peak, in the forward of module 2 at " in first
    made = line_of("cross_entropy(model(x)")
    assert f"of that comes from {made}: " in second
    assert "256x4096 float16" in second
    said = " ".join(run.output.decode().split())
    assert "saved activations" in said
    assert "loss = nn.functional.cross_entropy(model(x)" in said, "the line's text"
    assert "None of it ran on a GPU" in said
    assert said.endswith("The same command with --changes tells what would lower the peak.")


def test_the_document_has_every_tensor_with_its_module_line_and_end(tmp_path: Path) -> None:
    run = run_inside("explain", SCRIPT, "--for", "a100-40g", "--json", folder=tmp_path)

    assert run.status == 0, run.errors
    document = checked("explain", run.output)
    assert document["batch_size"] == 256
    assert document["peak_bytes"] == sum(one["bytes"] for one in document["held"]) + document["workspace_bytes"]
    held = {(one["kind"], one["parameter"]) for one in document["held"]}
    names = ("0.weight", "0.bias", "3.weight", "3.bias")
    assert {("parameters", name) for name in names} <= held
    assert {("optimizer state", name) for name in names} <= held
    saved = next(one for one in document["held"] if one["made"]["place"]["operator"] == "addmm")
    assert saved["made"]["place"]["module"] == "0"
    assert (saved["shape"], saved["dtype"]) == ([256, 4096], "float16")
    assert saved["kind"] == "saved activations"
    assert (saved["freed"]["phase"], saved["freed"]["place"]["module"]) == ("backward", "1"), "GELU needs it"


def test_a_parameter_of_no_module_is_known_by_its_optimizer(tmp_path: Path) -> None:
    run = run_inside("explain", SCRIPT, "--for", "a100-40g", "--json", "--", "--two-optimizers", folder=tmp_path)

    assert run.status == 0, run.errors
    held = [one for one in json.loads(run.output)["held"] if one["shape"] == [4096] and not one["parameter"]]
    assert {"parameters", "optimizer state"} <= {one["kind"] for one in held}


IN_THE_BACKWARD = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(256, 512), nn.Linear(512, 512)).cuda()
optimizers = {weight: torch.optim.SGD([weight], lr=0.1) for weight in model.parameters()}

def step(weight):
    optimizers[weight].step()
    weight.grad = None

for weight in model.parameters():
    weight.register_post_accumulate_grad_hook(step)
for _ in range(20):
    model(torch.ones(64, 256, device="cuda")).sum().backward()
"""


def test_a_step_that_ends_in_the_backward_begins_the_next_one_after_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(IN_THE_BACKWARD)
    run = run_inside("explain", "train.py", "--for", "a100-40g", "--json", folder=tmp_path)

    assert run.status == 0, run.errors
    document = json.loads(run.output)
    assert document["moment"]["phase"] == "backward"
    phases = [phase for phase, _ in itertools.groupby(phase for phase, _ in document["timeline"])]
    assert phases == ["start", "forward", "backward"]


def test_the_batch_size_is_that_of_a_whole_batch(tmp_path: Path) -> None:
    """Guards short epochs, whose last batch is among the steps that are followed."""
    lines = IN_THE_BACKWARD.replace("for _ in range(20)", "for size in (64, 64, 64, 10, 10)").replace(
        "64, 256", "size, 256"
    )
    (tmp_path / "train.py").write_text(lines)
    run = run_inside("explain", "train.py", "--for", "a100-40g", "--json", folder=tmp_path)

    assert run.status == 0, run.errors
    assert json.loads(run.output)["batch_size"] == 64


SHORT = """
import sys

import torch
from torch import nn

model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
kept = []
for _ in range(int(sys.argv[1])):
    x = torch.ones(4096, 512, device="cuda")
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    kept.append(torch.ones(2**20, device="cuda"))
sys.exit(int(sys.argv[2]))
"""


def test_a_script_of_one_or_two_steps_is_explained_by_what_it_does(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SHORT)
    peaks = {}
    for steps in (1, 2, 3):
        options = ("--for", "a100-40g", "--json", "--", str(steps), "0")
        run = run_inside("explain", "train.py", *options, folder=tmp_path)
        assert run.status == 0, run.errors
        document = json.loads(run.output)
        assert (document["batch_size"], bool(document["leaks"])) == (4096, steps == 3)
        of_end = [note for note in document["notes"] if "ended" in note]
        assert of_end == ([f"the script ended after {steps} training step{'s' * (steps > 1)}"] if steps < 3 else [])
        peaks[steps] = document["peak_bytes"]
    kept = 4 << 20
    assert peaks[2] - peaks[1] > kept, "the second step has the optimizer's state, too"
    assert peaks[3] - peaks[2] == kept


def test_a_short_script_that_fails_is_not_explained(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SHORT)
    run = run_inside("explain", "train.py", "--for", "a100-40g", "--", "2", "5", folder=tmp_path)
    assert run.status == 1
    assert "the script exited with status 5 after 2 training steps" in run.errors


SAVING = """
import torch
from safetensors.torch import _find_shared_tensors, save_file, save_model
from torch import nn

model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 64)).cuda()
model[2].weight = model[0].weight
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    optimizer.zero_grad()
    model(torch.ones(32, 64, device="cuda")).sum().backward()
    optimizer.step()
    shared = [one for one in _find_shared_tensors(model.state_dict()) if len(one) > 1]
    assert shared == [{"0.weight", "2.weight"}], shared
    torch.save(model.state_dict(), "model.pt")
    save_model(model, "model.safetensors")
    save_file({"bias": model[0].bias}, "bias.safetensors")
"""


def test_a_script_that_saves_at_each_step_is_followed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SAVING)
    run = run_inside("explain", "train.py", "--for", "a100-40g", "--json", folder=tmp_path)
    assert run.status == 0, run.errors
    assert not json.loads(run.output)["asked"]


def test_a_script_without_seeds_has_the_same_answer_twice_and_leaves_no_run_folder(tmp_path: Path) -> None:
    lines = IN_THE_BACKWARD.replace("import torch\n", "import random\n\nimport torch\n", 1)
    lines = lines.replace("torch.ones(64, 256", "torch.ones(int(torch.randint(9, 999, ())) + random.randrange(99), 256")
    assert "randrange" in lines
    (tmp_path / "train.py").write_text(lines)
    first, second = (
        run_inside("explain", "train.py", "--for", "a100-40g", "--json", folder=tmp_path) for _ in range(2)
    )
    assert (first.status, second.status) == (0, 0), first.errors
    assert first.output == second.output
    assert not list((tmp_path / ".autotune/runs/explain").glob("trace*"))


def test_one_card_at_a_time_is_explained(tmp_path: Path) -> None:
    run = run_inside("explain", SCRIPT, "--for", "t4-16g,a100-40g", folder=tmp_path)
    check_told(run, status=2, cause="lines are told for one card at a time", next_step="--for t4-16gb")


def test_a_script_that_trains_on_the_cpu_cannot_be_explained(tmp_path: Path) -> None:
    run = run_inside("explain", SCRIPTS / "loader_loop.py", folder=tmp_path)
    check_told(run, status=1, cause="nothing of the script's is on the GPU", next_step="must move its model to CUDA")


def test_memory_that_every_step_keeps_is_named_with_its_line(tmp_path: Path) -> None:
    """A loss in a list is 4 bytes, and the whole graph of its step on the host."""
    leaking = tmp_path / "leaking.py"
    leaking.write_text("kept = []\n" + SCRIPT.read_text().replace("    schedule.step()", "    kept.append(loss)"))
    run = run_inside("explain", leaking, "--for", "a100-40g", folder=tmp_path)

    assert run.status == 0, run.errors
    line = 1 + next(number for number, text in enumerate(leaking.read_text().splitlines()) if "cross_entropy(" in text)
    kept = [one for one in run.output.decode().splitlines() if one.startswith("Each step that was followed keeps")]
    assert len(kept) == 1
    assert "keeps 4 B more" in kept[0]
    assert kept[0].endswith(f"leaking.py:{line}.")


def test_what_a_later_step_frees_is_not_said_to_be_kept(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    text = SCRIPT.read_text().replace("    schedule.step()", "    kept.append(loss)")
    script.write_text(f"from collections import deque\nkept = deque(maxlen=1)\n{text}")
    run = run_inside("explain", script, "--for", "a100-40g", folder=tmp_path)
    assert run.status == 0, run.errors
    assert "that was followed keeps" not in run.output.decode()


CHANGES = SCRIPTS / "memory_changes.py"
BY_HAND = (
    "checkpoint all blocks",
    "checkpoint half of the blocks",
    "checkpoint all but products",
    "chunk the loss",
    "offload activations",
    "bfloat16 autocast",
    "fused optimizer",
    "accumulate half batches",
    "free gradients early",
)


def test_a_change_has_the_peak_that_it_has_by_hand(tmp_path: Path) -> None:
    run = run_inside("explain", CHANGES, "--for", "a100-40g", "--changes", "--json", folder=tmp_path)

    assert run.status == 0, run.errors
    document = checked("explain", run.output)
    assert document["untried"] == []
    assert len([one for one in document["sentences"] if one.startswith("`")]) >= 3, "how to write a change"
    told = {one["change"]: one["peak_bytes"] for one in document["changes"]}
    of_traces = {"8-bit optimizer state", "expandable segments", "leave empty_cache out"}
    assert told.keys() == {*BY_HAND, *of_traces}
    assert told["checkpoint all blocks"] < 0.9 * document["peak_bytes"]
    for change in BY_HAND:
        by_hand = run_inside("explain", CHANGES, "--for", "a100-40g", "--json", "--", change, folder=tmp_path)
        assert told[change] == pytest.approx(json.loads(by_hand.output)["peak_bytes"], rel=0.005), change


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_loss_whose_logits_are_read_otherwise_is_not_chunked(tmp_path: Path, when: str) -> None:
    options = ("--for", "a100-40g", "--changes", "--", "--reads-logits", when)
    run = run_inside("explain", CHANGES, *options, folder=tmp_path)

    assert run.status == 0, run.errors
    said = " ".join(run.output.decode().split())
    line = 1 + CHANGES.read_text().splitlines().index(
        next(line for line in CHANGES.read_text().splitlines() if f'options.reads_logits == "{when}"' in line)
    )
    reason = f"the logits are read once more, by argmax at {CHANGES}:{line}"
    assert f"No `chunk the loss`: {reason}." in said
    assert "`checkpoint all blocks`: call each block by `torch.utils.checkpoint.checkpoint(" in said
    assert "with --changes tells" not in said
