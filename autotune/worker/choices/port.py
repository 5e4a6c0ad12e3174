"""What a run needs of a choice: make it, and say whether that changed anything."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

__all__ = ["MadeChoice"]


class MadeChoice(ABC):
    """A choice of a configuration, at work in this process until it ends."""

    def install(self) -> None:  # noqa: B027  (not every choice has to)
        """Called once per process, when the script has imported torch."""

    def around(self, root: nn.Module, call: Callable[..., Any]) -> Callable[..., Any]:
        """Give what is called in the place of a root's training call."""
        del root
        return call

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:  # noqa: B027  (not every choice has to know)
        """An optimizer is about to make a step."""

    @abstractmethod
    def problem(self) -> str:
        """Say why nothing has changed, or nothing; to be asked after a training step."""
