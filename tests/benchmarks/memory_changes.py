"""The effect of each change of ``autotune explain --changes``, against the same change made by hand.

``make bench-changes`` runs it in the environment of the GPU without kernels, whose card NULL_GPU names. Each change is
written into a copy of the script, which then runs on that device under torch's own allocator. A row has the peak of its
tensors as simulated, as measured, and the difference as a share of the peak.

The changes by hand are in ``memory_changes.toml``; ``--also`` names another such file, for scripts of others. An edit
there may name a third text: the file that it is in, beside the script.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import threading
import tomllib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from absent_witness import MIB, ROOT, count

from autotune import pipeline
from autotune.cli.local_launcher import make_launcher
from autotune.cli.spec import spec_of
from autotune.records.cards import CARDS, Card
from autotune.records.explanation import Explanation
from autotune.tuning.budget import Interruption

STEPS = 3
# Each edited script begins with it. AdamW8bit holds what that of bitsandbytes does, without temporary tensors.
PRELUDE = """
import torch
from functools import partial
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

aten = torch.ops.aten
only_others = partial(
    create_selective_checkpoint_contexts,
    [
        *(aten.mm.default, aten.addmm.default, aten.bmm.default, aten.convolution.default),
        *(aten._scaled_dot_product_flash_attention.default, aten._scaled_dot_product_efficient_attention.default),
    ],
)

class AdamW8bit(torch.optim.Optimizer):
    def __init__(self, parameters, lr, **_):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state, is_small = self.state[parameter], parameter.numel() < 4096
                for name in ("first", "second"):
                    if name not in state:
                        state[name] = torch.zeros_like(parameter, dtype=None if is_small else torch.uint8)
                        state[f"{name} scales"] = parameter.new_zeros(0 if is_small else -(-parameter.numel() // 256))
                parameter.add_(parameter.grad, alpha=-group["lr"])
"""


def explain(script: Path, arguments: list[str], card: Card, runs: Path) -> Explanation:
    """Simulate all changes of a script."""
    os.chdir(script.parent)
    spec = spec_of({"script": script, "arguments": tuple(arguments), "engine": "eager", "python": sys.executable})
    launcher = make_launcher(spec, runs)
    interruption = Interruption(threading.Event(), threading.Event())
    return pipeline.explain(spec, card, launcher=launcher, interruption=interruption, runs=runs, tries_changes=True)


def edit(script: Path, edits: list[list[str]], folder: Path) -> Path:
    """Copy a script's folder, and make edits there; return the edited script.

    Raises:
        ValueError: a text to be replaced does not occur once.
    """
    shutil.copytree(script.parent, folder, dirs_exist_ok=True)
    edited = folder / script.name
    for old, new, *file in edits:
        path = folder / file[0] if file else edited
        text = path.read_text()
        if text.count(old) != 1:
            raise ValueError(f"{path.name} has {old!r} {text.count(old)} times")
        path.write_text(text.replace(old, new.removeprefix("\n") if old.endswith("\n") else new))
    for path in {edited, *(folder / file[0] for _, _, *file in edits if file)}:
        path.write_text(PRELUDE + path.read_text())
    return edited


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--also", type=Path, help="a file of changes in scripts of others")
    parser.add_argument("names", nargs="*", help="the scripts; default: all")
    options = parser.parse_args()
    card = CARDS[os.environ["NULL_GPU"]]
    scripts: dict[str, Any] = {}
    for path in filter(None, (ROOT / "tests/benchmarks/memory_changes.toml", options.also)):
        scripts |= tomllib.loads(path.read_text())
    print(f"{card.title}\n{'MiB':36}{'simulated':>12}{'measured':>12}")
    for name in options.names or scripts:
        script, arguments, edits = ROOT / scripts[name]["script"], scripts[name]["arguments"], scripts[name]["edits"]
        with tempfile.TemporaryDirectory() as runs:
            explained = explain(script, arguments, card, Path(runs))
        for untried in explained.untried:
            print(f"{name}: no {untried.change}: {untried.reason}")
        told = {one.change: one.peak_bytes for one in explained.changes}
        for change, of_change in {"": [], **edits}.items():
            with tempfile.TemporaryDirectory() as folder:
                edited = edit(script, of_change, Path(folder))
                measured = count(edited, arguments, STEPS, tells_lines=False)[0].allocated
            simulated = told.get(change, 0) if change else explained.peak_bytes
            error = 100 * (simulated / measured - 1)
            print(f"{name + ' ' + change:36}{simulated / MIB:12,.1f}{measured / MIB:12,.1f}{error:+8.2f}%", flush=True)


if __name__ == "__main__":
    main()
