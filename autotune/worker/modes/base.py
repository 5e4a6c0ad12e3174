"""Interface of the modes of a run: what a mode is told, and what it may say."""

from __future__ import annotations

from typing import Any

import torch

from ...metering.trial_meter import Window
from ...records.matrix import MemoryPhase
from ...records.outcome import Outcome
from ..applied import AppliedConfiguration
from ..describing.root_inputs import RootCall
from ..hooks.hooked_script import HookedScript
from ..process import TrainingProcess


class Mode:
    """A purpose of a run, which the conductor calls at the boundaries of the script's training steps.

    By itself a mode hears of nothing.
    """

    def __init__(self, process: TrainingProcess, script: HookedScript, applied: AppliedConfiguration) -> None:
        self._process = process
        self._script = script
        self._applied = applied

    def installed(self) -> None:
        """The script has imported torch, and the other hooks are in place: the moment for those of this mode alone."""

    def script_begins(self) -> None:
        """The same moment, in the process that runs the script; not in those that the script starts."""

    def process_began(self) -> None:
        """This process is about to make its first training call."""

    def ready(self) -> None:
        """A training call, or a step without one, is about to be counted."""

    def inputs(self, call: RootCall) -> None:
        """A root is called in training."""

    def inner_inputs(self, tensors: list[torch.Tensor]) -> None:
        """A module that is compiled apart, inside of a root's call, has these tensors."""

    def backward_begins(self, loss: Any) -> None:
        """The script's backward is about to begin from this: a tensor, or several."""

    def backward_done(self) -> None:
        """The script's backward has ended."""

    def loss(self, loss: torch.Tensor) -> None:
        """The script's backward ran from this number."""

    def memory(self, phase: MemoryPhase) -> None:
        """A phase of a step begins or has ended: the moment for a row of the memory matrix."""

    def step(self, window: Window) -> None:
        """The script's optimizer has made a step; ``window`` is what the batches since the last one held."""

    def ended_early(self) -> bool:
        """The script is over. Write what there is of the configuration under way; False if that is nothing."""
        return False

    def measured(self) -> Outcome | None:
        """The outcome of the configuration under way, where it is known already and not yet written."""
        return None

    def script_over(self) -> None:
        """The script is over, and the configuration under way has its outcome."""

    def failed(self, outcome: Outcome) -> None:
        """The script ended with this failure, which is about to be written."""
