"""Run a training script so that all its steps compute the same, and tell what they compute.

``python same_steps.py TOLD LENGTH SCRIPT ARGUMENTS...``: the second of each LENGTH steps, which are a trial's, leaves a
line in the file TOLD: a digest of its gradients, and the most bytes that it held beyond what was held before it.

Random numbers are drawn anew from one seed in each step. The script's part: a learning rate of zero, and epochs of one
batch.
"""

from __future__ import annotations

import hashlib
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from autotune.worker.describing.allocations import Allocations


class Teller:
    """Between the steps of the script's optimizer."""

    def __init__(self, told: Path, length: int) -> None:
        self._told = told
        self._length = length
        self._steps = 0
        self._allocations: Allocations | None = None

    def step_begins(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """The gradients are there."""
        allocations, self._allocations = self._allocations, None
        if allocations is None:
            return
        allocations.mark()
        allocations.__exit__(None, None, None)
        line = {"gradients": digest(optimizer), "peak_bytes": allocations.stretches[-1].peak}
        with self._told.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def step_ended(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """What follows is the next step."""
        self._steps += 1
        torch.manual_seed(0)
        if self._steps % self._length == 1:
            # On CPU the end of what was allocated before is not seen, or taken for that of something else.
            optimizer.zero_grad()
            self._allocations = Allocations()
            self._allocations.__enter__()
            self._allocations.mark()


def digest(optimizer: torch.optim.Optimizer) -> str:
    """A hash of the bits of all gradients."""
    found = hashlib.blake2b(digest_size=16)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                found.update(parameter.grad.cpu().contiguous().view(torch.uint8).numpy())
    return found.hexdigest()


if __name__ == "__main__":
    _, told, length, script, *arguments = sys.argv
    teller = Teller(Path(told), int(length))
    register_optimizer_step_pre_hook(teller.step_begins)
    register_optimizer_step_post_hook(teller.step_ended)
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).parent)
    runpy.run_path(script, run_name="__main__")
