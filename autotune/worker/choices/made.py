"""All choices of a run."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ...records.choice import Choice
from ...records.chosen import made_choices
from ...records.configuration import Configuration
from ...records.outcome import Fallback
from .port import MadeChoice


class MadeChoices:
    """The choices of a configuration that are torch's; those of an engine itself are the engine's to make.

    Args:
        configuration: any one of a run's, as they share their choices.
        note: called with what the user should know.
    """

    def __init__(self, configuration: Configuration, note: Callable[[str], None]) -> None:
        made = made_choices(configuration.engine, configuration.choices)
        self._made = {f"{one.name}={value}": _made(one, note) for one, value in made.items() if one.made_by}

    def __bool__(self) -> bool:
        return bool(self._made)

    def around(self, root: nn.Module, call: Callable[..., Any]) -> Callable[..., Any]:
        """Give what is called in the place of a root's training call."""
        return functools.reduce(lambda inner, one: one.around(root, inner), self._made.values(), call)

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to make a step."""
        for one in self._made.values():
            one.before_step(optimizer)

    def undo(self) -> None:
        """Put back what was changed of what the user holds."""
        for one in self._made.values():
            one.undo()

    def problem(self) -> Fallback | None:
        """Say which choice has changed nothing, and why; to be asked after a training step."""
        for name, one in self._made.items():
            reason = one.problem()
            if reason:
                return Fallback(
                    cause=f"{name} changed nothing: {reason}", advice="Leave it out: the search goes on without it."
                )
        return None


def _made(choice: Choice, note: Callable[[str], None]) -> MadeChoice[Any]:
    module, _, name = choice.made_by.partition(".")
    kind: type[MadeChoice[Any]] = getattr(importlib.import_module(f".{module}", __package__), name)
    return kind(choice, note)
