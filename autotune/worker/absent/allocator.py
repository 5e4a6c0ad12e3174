"""The settings of torch's allocator for GPUs that a script has, or its environment."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch

from ...records.allocations import Workspaces
from ...records.allocator_settings import ALLOCATOR_VARIABLES, EXPANDABLE_SEGMENTS, split_settings


def expands(note: Callable[[str], None]) -> bool:
    """Return whether the allocator's segments are expandable, and note settings that are not followed."""
    settings = split_settings(_settings())
    value = settings.pop(EXPANDABLE_SEGMENTS, "False")
    if settings:
        others = ",".join(f"{name}:{setting}" for name, setting in settings.items())
        note(f"the settings {others} of torch's allocator are not followed")
    return value == "True"


def workspaces() -> Workspaces:
    """Return how this torch treats the workspaces of matrix products, as tests on the GPU without kernels show."""
    return "kept apart" if torch.__version__ < "2.12" else "kept" if torch.__version__ < "2.15" else "freed"


def _settings() -> str:
    # Where torch does not tell (2.11), what a script sets by a call is not seen.
    tell = getattr(torch._C, "_accelerator_getAllocatorSettings", None)
    set_outside = (os.environ.get(name, "") for name in ALLOCATOR_VARIABLES)
    return tell() if tell is not None else next(filter(None, set_outside), "")
