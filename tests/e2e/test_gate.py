"""``autotune gate BUNDLE SCRIPT``: what a bundle comes to now, held against what it came to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.cli.gate_answer import EXITS
from autotune.records.arrivals import Arrivals, Arrived
from autotune.records.codec import from_json
from autotune.records.configuration import Configuration
from autotune.records.facts import BatchControl
from autotune.records.fingerprint import script_sha256
from autotune.records.gate import Gate, LimitGate, PastGate
from autotune.records.plan import Plan
from autotune.verdict.gate.baseline import read_baseline
from tests.documents import checked

from .conftest import MakeBundle
from .inside import run_inside
from .processes import SCRIPTS, Finished

SCRIPT = SCRIPTS / "loader_loop.py"
SETTING = Configuration("aot", (Plan("gelu+", 1, -1),), batch_size=16)
# Noise is for the benchmark: a test has to hold on any machine.
COARSE = ("--max-slowdown", "99%", "--max-memory-growth", "99%", "--time-budget", "60m")


def gate_of(finished: Finished) -> Gate:
    assert finished.output, finished.errors
    gate: Gate = from_json(Gate, json.loads(finished.output))
    assert finished.status == json.loads(finished.output)["exit_code"] == EXITS[gate.answer], gate.sentences
    return gate


def planted(folder: Path) -> Path:
    """The script with an edit of a colleague's, who waits for something in each step and keeps what he should not."""
    slow = "loss.backward()\n        import time; time.sleep(0.3); kept.append(torch.ones(2**22))"
    text = SCRIPT.read_text().replace("loss.backward()", slow).replace("for epoch", "kept = []\nfor epoch")
    path = folder / "edited.py"
    path.write_text(f"import sys; sys.path.insert(0, {str(SCRIPTS)!r})\n{text}")
    return path


@pytest.mark.slow
def test_an_edit_that_slows_the_script_down_and_leaks_turns_it_red(tmp_path: Path, make_bundle: MakeBundle) -> None:
    bundle = make_bundle(SCRIPT, SETTING)
    edited = planted(tmp_path)

    found = run_inside(
        *("gate", bundle, edited, "--against", SCRIPT, "--junit", "junit.xml", "--json", "--time-budget", "60m"),
        folder=tmp_path,
    )

    gate = gate_of(found)
    assert (gate.answer, gate.reference) == ("regression", "other")
    gauges = {gauge.name: gauge for gauge in gate.gauges}
    assert gauges["speed"].found == "worse"
    assert gauges["speed"].change < 0.5
    assert gauges["memory"].change > 1.05
    assert " slower" in gate.sentences[0]
    assert gate.sentences[0].endswith("against the other version of the script.")
    assert '<failure message="Regression: ' in (tmp_path / "junit.xml").read_text()


@pytest.mark.slow
def test_a_baseline_is_taken_and_held_against(tmp_path: Path, make_bundle: MakeBundle) -> None:
    bundle, file = make_bundle(SCRIPT, SETTING), tmp_path / "ci" / "gate.json"

    taken = run_inside(
        *("gate", bundle, SCRIPT, "--against", SCRIPT, *COARSE, "--baseline", file, "--update-baseline", "--json"),
        folder=tmp_path,
    )
    held = run_inside("gate", bundle, SCRIPT, "--baseline", file, *COARSE, "--json", folder=tmp_path)

    assert gate_of(taken).answer in ("pass", "improvement"), taken.errors
    assert file.exists(), taken.errors
    baseline = read_baseline(file, SETTING.key)
    assert baseline.setting == gate_of(taken).reading
    gate = gate_of(held)
    assert gate.reference == "stored"
    assert gate.answer in ("pass", "improvement", "not_comparable"), "another program may keep the machine busy"
    assert gate.differs == ()


def test_a_script_that_fails_is_told_with_its_cause(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = tmp_path / "broken.py"
    script.write_text("raise KeyError('learning_rate')\n")
    summary, baseline = tmp_path / "summary.md", tmp_path / "gate.json"
    summary.write_text("The step before.\n")

    found = run_inside(
        *("gate", make_bundle(SCRIPT, SETTING), script, "--against", SCRIPT),
        *("--baseline", baseline, "--update-baseline"),
        folder=tmp_path,
        environment={"GITHUB_STEP_SUMMARY": str(summary)},
    )

    assert found.status == 1
    assert not baseline.exists(), "nothing was measured"
    assert "The baseline stays as it was" in found.errors
    told = summary.read_text()
    assert told.startswith("The step before.\n")
    assert "could not be measured" in told
    assert found.output.decode().startswith("The setting could not be measured: ")
    assert "KeyError: 'learning_rate'" in found.output.decode()
    history = run_inside("gate", make_bundle(SCRIPT, SETTING), script, "--history", "--json", folder=tmp_path)
    (past,) = from_json(tuple[PastGate, ...], json.loads(history.output))
    assert (past.script_name, past.configuration, past.gate.answer) == ("broken.py", SETTING.key, "failed")
    assert past.script_sha256 == script_sha256(str(script))


def test_an_answer_that_cannot_be_kept_is_told_all_the_same(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = tmp_path / "broken.py"
    script.write_text("raise KeyError('learning_rate')\n")

    found = run_inside(
        *("gate", make_bundle(SCRIPT, SETTING), script, "--against", SCRIPT, "--storage", "none/studies.db"),
        folder=tmp_path,
    )

    assert found.status == 1
    assert "could not be measured" in found.output.decode()
    assert "The answer is not kept for --history: no folder " in found.errors


def test_a_script_alone_is_held_against_a_limit(tmp_path: Path) -> None:
    options = ("--junit", "junit.xml", "--json")

    within = run_inside("gate", SCRIPT, "--limit", "16GiB", *options, folder=tmp_path)
    found: LimitGate = from_json(LimitGate, json.loads(within.output))
    (check,) = found.checks
    assert (within.status, found.answer, check.found) == (0, "pass", "within")
    assert check.peak_bytes is not None
    assert 100 << 20 < check.peak_bytes < 8 << 30
    assert "<failure" not in (tmp_path / "junit.xml").read_text()

    over = run_inside("gate", SCRIPT, "--limit", "60MiB", *options, folder=tmp_path)
    assert over.status == 3, over.errors
    assert json.loads(over.output)["sentences"][0] == "Over the limit: the script needs more than 60 MiB."
    assert '<failure message="Over the limit' in (tmp_path / "junit.xml").read_text()


def test_a_script_for_a_gpu_is_held_against_cards_without_one(tmp_path: Path) -> None:
    script = SCRIPTS / "cuda_outright.py"

    found = run_inside("gate", script, "--for", "t4-16g,a100-40g", "--limit", "16GiB", "--json", folder=tmp_path)
    gate: LimitGate = from_json(LimitGate, checked("gate", found.output))
    assert (found.status, gate.answer, gate.batch_size) == (0, "pass", 256)
    assert [check.device for check in gate.checks] == ["t4-16gb", "a100-40gb"]
    assert gate.checks[1].limit_bytes == 16 << 30
    assert gate.sentences[0] == "Within the limit on t4-16gb and a100-40gb."

    over = run_inside("gate", script, "--for", "a100-40g", "--limit", "1GiB", folder=tmp_path)
    assert over.status == 3, over.errors
    assert over.output.decode().startswith("Over the limit: on a100-40gb, the script needs 1.")


BLOCKS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(256, 1024), nn.Linear(1024, 256)
    def forward(self, x):
        y = self.down(nn.functional.gelu(self.up(x))).view(-1, 4, 8, 8)
        return x + nn.functional.scaled_dot_product_attention(y, y, y).flatten(1)
model = nn.Sequential(*(Block() for _ in range(8)), nn.Linear(256, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters())
data = TensorDataset(torch.randn(65536, 256), torch.randint(0, 10, (65536,)))
for x, y in DataLoader(data, 1024):
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_the_plans_of_a_bundle_are_followed_without_the_gpu(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = tmp_path / "blocks.py"
    script.write_text(BLOCKS)

    def peak_with(*plans: Plan) -> int:
        setting = Configuration("aot", plans, batch_size=8192)
        bundle = make_bundle(script, setting, name=f"with-{len(plans)}")
        found = run_inside("gate", bundle, script, "--for", "h100-80g", "--json", folder=tmp_path)
        assert found.status == 0, found.errors
        gate: LimitGate = from_json(LimitGate, json.loads(found.output))
        assert gate.sentences[1] == f"The setting is {setting}."
        assert gate.batch_size == 8192
        (check,) = gate.checks
        assert check.peak_bytes is not None
        return check.peak_bytes

    # Each block but the one that is being recomputed keeps 2,048 numbers of a sample less, besides attention's.
    assert peak_with() - peak_with(Plan("Block+", 1, -1)) > 7 * 2048 * 4 * 8192


def test_a_plan_that_the_script_lacks_is_told_without_the_gpu(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = SCRIPTS / "cuda_outright.py"
    bundle = make_bundle(script, Configuration("aot", (Plan("nosuch+", 1, -1),), batch_size=256))
    found = run_inside("gate", bundle, script, "--for", "h100-80g", "--junit", "junit.xml", folder=tmp_path)
    assert found.status == 1
    assert "the script has no cluster nosuch+:1; it has " in found.output.decode()
    assert "`autotune discover SCRIPT` lists the plans of a script." in found.output.decode()
    assert "<error" in (tmp_path / "junit.xml").read_text()


def test_a_batch_size_that_does_not_arrive_is_told_without_the_gpu(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = SCRIPTS / "cuda_outright.py"
    control = BatchControl("loaders", (7,))
    bundle = make_bundle(script, Configuration("aot", batch_size=512), control=control)
    found = run_inside("gate", bundle, script, "--for", "h100-80g", folder=tmp_path)
    assert found.status == 1
    assert found.output.decode().startswith("No answer: batch size 512 was asked for, but the batches of the training ")


def test_a_batch_of_which_the_model_sees_no_more_is_told_without_the_gpu(
    tmp_path: Path, make_bundle: MakeBundle
) -> None:
    script = tmp_path / "cut.py"
    script.write_text(BLOCKS.replace("loss =", "x, y = x[:256], y[:256]; loss ="))
    elements = 256 * 256
    own = Arrivals(1024, (Arrived("Sequential 0", elements, usual=elements, shape=(256, 256)),))
    bundle = make_bundle(
        script, Configuration("aot", batch_size=8192), control=BatchControl("loaders", (0,), arrivals=own)
    )
    found = run_inside("gate", bundle, script, "--for", "h100-80g", folder=tmp_path)
    assert found.status == 1
    assert "a batch brings as much data to the model as at batch size 1024" in found.output.decode()


def test_a_bundle_without_figures_names_the_ways_out(tmp_path: Path, make_bundle: MakeBundle) -> None:
    found = run_inside("gate", make_bundle(SCRIPT, SETTING), SCRIPT, folder=tmp_path)

    assert found.status == 2
    assert "has no figures of its setting" in found.errors
    assert "--against PATH" in found.errors


def test_a_share_that_repetitions_cannot_tell_is_refused_before_anything_runs(
    tmp_path: Path, make_bundle: MakeBundle
) -> None:
    found = run_inside("gate", make_bundle(SCRIPT, SETTING), SCRIPT, "--max-slowdown", "0%", folder=tmp_path)

    assert found.status == 2
    assert "--max-slowdown: repetitions cannot show a loss below 0.5 %" in found.errors


def test_a_baseline_of_few_repetitions_is_refused_before_anything_runs(tmp_path: Path, make_bundle: MakeBundle) -> None:
    options = ("--baseline", tmp_path / "gate.json", "--update-baseline", "--repetitions", "7")
    found = run_inside("gate", make_bundle(SCRIPT, SETTING), SCRIPT, *options, folder=tmp_path)

    assert found.status == 2
    assert found.errors.splitlines() == ["autotune: a baseline takes 8 repetitions at least", "  next: --repetitions 8"]
