"""The settings of torch's allocator for GPUs that a script has, or its environment."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from ...records.allocator_settings import ALLOCATOR_VARIABLES, EXPANDABLE_SEGMENTS, split_settings


def expands(note: Callable[[str], None]) -> bool:
    """Return whether the allocator's segments are expandable, and note settings that are not followed."""
    settings = split_settings(_settings())
    value = settings.pop(EXPANDABLE_SEGMENTS, "False")
    if settings:
        others = ",".join(f"{name}:{setting}" for name, setting in settings.items())
        note(f"the settings {others} of torch's allocator are not followed")
    return value == "True"


def _settings() -> str:
    native: Any = torch._C
    # Missing before torch 2.10.
    read = getattr(native, "_accelerator_getAllocatorSettings", None)
    if read is not None:
        return str(read())
    return next((os.environ[name] for name in ALLOCATOR_VARIABLES if name in os.environ), "")
