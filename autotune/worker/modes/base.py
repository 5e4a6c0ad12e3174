"""Interface of the modes of a run: what a mode is told, and what it may say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from ...metering.trial_meter import Window
from ...records.matrix import MemoryPhase
from ...records.outcome import Outcome
from ..applied import AppliedConfiguration
from ..describing.root_inputs import RootCall
from ..hooks.hooked_script import HookedScript
from ..process import TrainingProcess


@dataclass(eq=False)
class Mode:
    """A purpose of a run, which the conductor tells of the script's training steps. This one does nothing."""

    _process: TrainingProcess
    _script: HookedScript
    _applied: AppliedConfiguration

    # Whether what a script has shown counts where it ends itself with an exit status other than 0.
    counts_if_failed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Make what the mode keeps from step to step."""

    @property
    def least_steps(self) -> int:
        """Return how many optimizer steps a script needs for the run's purpose."""
        return self._process.request.least_steps

    def installed(self) -> None:
        """Install the mode's own hooks: the script has imported torch, and the other hooks are in place."""

    def script_begins(self) -> None:
        """Act at the same moment, only in the process that runs the script."""

    def process_began(self) -> None:
        """Act before the first training call of this process."""

    def ready(self) -> None:
        """Act before a training call, or a step without one, is counted."""

    def inputs(self, call: RootCall) -> None:
        """See a root's training call."""

    def inner_inputs(self, module: nn.Module, inputs: Any) -> None:
        """See the inputs of a module that is called outside of graphs, inside of a root's call."""

    def backward_begins(self, loss: Any) -> None:
        """Act before the script's backward begins from ``loss``: a tensor, or several."""

    def backward_done(self) -> None:
        """Act after the script's backward."""

    def loss(self, loss: torch.Tensor) -> None:
        """See the number that the script's backward ran from."""

    def memory(self, phase: MemoryPhase) -> None:
        """Act as a phase of a step begins or has ended."""

    def step(self, window: Window) -> None:
        """Act after an optimizer step; ``window`` is what the batches since the last one held."""

    def ended_early(self) -> bool:
        """Write what there is of the configuration under way, as the script is over; False if that is nothing."""
        return False

    def measured(self) -> Outcome | None:
        """Return the outcome of the configuration under way, where it is known already and not yet written."""
        return None

    def script_over(self) -> None:
        """Act as the script is over and the configuration under way has its outcome."""

    def failed(self, outcome: Outcome) -> None:
        """Act before the failure that the script ended with is written."""
