"""Comparing the first steps with those of another run."""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch
from torch import nn

from ...metering.trial_meter import Window
from ..proving.regions_off import RegionsOff
from ..proving.verification import Verification
from .base import Mode


def nudge(modules: Iterable[nn.Module]) -> None:
    """Multiply parameters by the number next to one, which changes a few activations by one bit."""
    # Parameters that are no finer than activations are changed in the first of each row only.
    with torch.no_grad():
        for module in modules:
            for parameter in module.parameters():
                if not parameter.is_floating_point():
                    continue
                step = torch.finfo(parameter.dtype).eps
                is_coarse = parameter.element_size() < 4 and parameter.dim() > 0
                (parameter[..., :1] if is_coarse else parameter).mul_(1 + step)


class VerifyMode(Mode):
    """Takes a ``Verification`` through the first steps."""

    def __post_init__(self) -> None:
        self._verification = Verification(self._process.request.verifying, self._process.directory)
        self._regions_off = RegionsOff() if self._process.request.verifying.without_regions else None

    def installed(self) -> None:
        """Switch the script's own regions off, where the request says so."""
        if self._regions_off is not None:
            self._regions_off.install()

    def process_began(self) -> None:
        """Seed what the steps draw from."""
        if self._process.request.verifying.is_nudged:
            nudge(self._script.roots.modules())
        self._verification.begin(self._process.rank)

    def ready(self) -> None:
        """Hold the run to its limit."""
        self._process.limit_memory()

    def loss(self, loss: torch.Tensor) -> None:
        """Keep it, to be compared with the step."""
        self._verification.add_loss(loss)

    def step(self, window: Window) -> None:
        """Compare a step; the first one also shows whether the configuration could be applied."""
        if self._process.steps == 1:
            failure = self._applied.problem() or self._applied.batch_problem(window.batch_size, window.micro_batches)
            if failure is not None:
                self._process.give_up(failure)
        if self._verification.step(self._script.roots.modules(), self._script.steps.optimizers):
            self._write()
            self._process.end()

    def ended_early(self) -> bool:
        """Write what the steps so far have shown."""
        if not self._verification.steps:
            return False
        self._write()
        return True

    def _write(self) -> None:
        engine = self._applied.engine
        is_compiled = engine is not None and engine.is_compiled
        result = self._verification.result(os.getpid(), is_compiled=is_compiled, regions_off=self._regions_off)
        self._process.write(result)
        self._process.has_result = True
