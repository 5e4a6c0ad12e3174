"""Interface of a choice to a run: make the choice, and say whether it changed anything."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from ...records.choice import Choice

Kind = TypeVar("Kind", bound=Choice)


class MadeChoice(ABC, Generic[Kind]):
    """A choice of a configuration, at work in this process until it ends, or until ``undo``.

    Args:
        choice: of the kind whose ``made_by`` names the class.
        note: called with what the user should know.
    """

    def __init__(self, choice: Kind, note: Callable[[str], None]) -> None:
        self.choice = choice
        self.note = note

    def around(self, root: nn.Module, call: Callable[..., Any]) -> Callable[..., Any]:
        """Give what is called in the place of a root's training call."""
        del root
        return call

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to make a step."""

    def undo(self) -> None:
        """Put back what was changed of what the user holds."""

    @abstractmethod
    def problem(self) -> str:
        """Say why nothing has changed, or nothing; to be asked after a training step."""
