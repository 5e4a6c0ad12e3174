"""All choices of a run, and what each does in a training process."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ...records.choice_types import Choice
from ...records.choices import made_choices
from ...records.configuration import Configuration
from ...records.outcome import Fallback


class MadeChoice:
    """A choice of a configuration, at work in this process until it ends, or until ``undo``.

    The class is the one that ``choice.made_by`` names. ``note`` is called with what the user should know.
    """

    def __init__(self, choice: Choice, note: Callable[[str], None]) -> None:
        self.choice = choice
        self.note = note

    def install(self) -> None:
        """Patch torch, where the choice needs that; called once the script has imported torch."""

    def around(self, root: nn.Module, call: Callable[..., Any]) -> Callable[..., Any]:
        """Give what is called in the place of a root's training call."""
        del root
        return call

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Prepare for a step that an optimizer is about to make."""

    def undo(self) -> None:
        """Put back what was changed of what the user holds."""

    def problem(self) -> str:
        """Say why nothing has changed, or nothing; to be asked after a training step."""
        raise NotImplementedError


class MadeChoices:
    """The choices of a configuration that are torch's; those of an engine itself are the engine's to make.

    ``configuration`` is any one of a run's, as they share their choices. ``note`` is called with what the user should
    know.
    """

    def __init__(self, configuration: Configuration, note: Callable[[str], None]) -> None:
        self._made: dict[str, MadeChoice] = {}
        for choice, value in made_choices(configuration.engine, configuration.choices).items():
            if choice.made_by:
                module, _, name = choice.made_by.partition(".")
                kind: type[MadeChoice] = getattr(importlib.import_module(f".{module}", __package__), name)
                self._made[f"{choice.name}={value}"] = kind(choice, note)

    def __bool__(self) -> bool:
        return bool(self._made)

    def install(self) -> None:
        """Patch torch, where choices need that; called once the script has imported torch."""
        for one in self._made.values():
            one.install()

    def around(self, root: nn.Module, call: Callable[..., Any]) -> Callable[..., Any]:
        """Give what is called in the place of a root's training call."""
        return functools.reduce(lambda inner, one: one.around(root, inner), self._made.values(), call)

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Prepare for a step that an optimizer is about to make."""
        for one in self._made.values():
            one.before_step(optimizer)

    def undo(self) -> None:
        """Put back what was changed of what the user holds."""
        for one in self._made.values():
            one.undo()

    def problem(self) -> Fallback | None:
        """Say which choice has changed nothing, and why; to be asked after a training step."""
        for name, one in self._made.items():
            if reason := one.problem():
                cause = f"{name} changed nothing: {reason}"
                return Fallback(cause, advice="Leave it out: the search goes on without it.")
        return None
