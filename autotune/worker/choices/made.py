"""All choices of a run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ...records import ENGINES, Choice, Configuration, Fallback, made_choices
from .allocator import AllocatorSetting
from .optimizers import OptimizerKeyword
from .port import MadeChoice
from .precision import Autocast

__all__ = ["MadeChoices"]


class MadeChoices:
    """The choices of a configuration that are torch's; those of an engine itself are the engine's to make.

    Args:
        configuration: any one of a run's, as they share their choices.
        note: called with what the user should know.
    """

    def __init__(self, configuration: Configuration, note: Callable[[str], None]) -> None:
        made = made_choices(configuration.engine, configuration.choices)
        known = ENGINES[configuration.engine].choices
        names = {known[one.partition("=")[0]]: one for one in configuration.choices}
        self._made = {names[choice]: one for choice in made if (one := _made(choice, note)) is not None}

    def install(self) -> None:
        """Called once per process, when the script has imported torch."""
        for one in self._made.values():
            one.install()

    def around(self, root: nn.Module, call: Callable[..., Any]) -> Callable[..., Any]:
        """Give what is called in the place of a root's training call."""
        return functools.reduce(lambda inner, one: one.around(root, inner), self._made.values(), call)

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to make a step."""
        for one in self._made.values():
            one.before_step(optimizer)

    def problem(self) -> Fallback | None:
        """Say which choice has changed nothing, and why; to be asked after a training step."""
        for name, one in self._made.items():
            reason = one.problem()
            if reason:
                return Fallback(
                    cause=f"{name} changed nothing: {reason}", advice="Leave it out: the search goes on without it."
                )
        return None


def _made(choice: Choice, note: Callable[[str], None]) -> MadeChoice | None:
    if choice.optimizer:
        return OptimizerKeyword(choice.optimizer, note)
    if choice.autocast:
        return Autocast(choice.autocast, note)
    return AllocatorSetting(choice) if choice.setting else None
