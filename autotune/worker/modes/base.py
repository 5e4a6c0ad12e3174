"""What every mode of a run is told, and what it may say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from ...records import MemoryPhase, Outcome
from ..hooks.samples import Window

if TYPE_CHECKING:
    from ..session import Session

__all__ = ["Mode"]


class Mode:
    """What a run is for. The session calls it at the boundaries of the script's training steps; by itself it is deaf.

    Args:
        session: the process that it works in.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def process_began(self) -> None:
        """This process is about to make its first training call."""

    def ready(self) -> None:
        """A training call, or a step without one, is about to be counted."""

    def inputs(self, root: nn.Module, tensors: Sequence[torch.Tensor], dimension: int) -> None:
        """A training call has these tensors; ``dimension`` of them is that of the batch."""

    def backward_began(self) -> None:
        """The script's backward begins."""

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
