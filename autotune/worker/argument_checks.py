"""Check of what a caller's own program hands to the functions of the package."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..errors import UsageError


def check_module(model: Any, function: str) -> None:
    """Raise a UsageError unless it is a module; ``function`` is the name of who takes it."""
    if isinstance(model, nn.Module):
        return
    is_class = isinstance(model, type)
    what = f"the class {model.__name__}" if is_class else f"a {type(model).__name__}"
    raise UsageError(
        f"{function} takes a torch.nn.Module, not {what}",
        hint=f"{model.__name__}(...) makes one" if is_class else "hand over the model itself",
    )
