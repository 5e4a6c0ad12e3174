"""The settings of torch's allocator for GPUs that a script has, or its environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...records.allocator_settings import EXPANDABLE_SEGMENTS, split_settings


def expands(note: Callable[[str], None]) -> bool:
    """Return whether the allocator's segments are expandable, and note settings that are not followed."""
    native: Any = torch._C
    settings = split_settings(native._accelerator_getAllocatorSettings())
    value = settings.pop(EXPANDABLE_SEGMENTS, "False")
    if settings:
        others = ",".join(f"{name}:{setting}" for name, setting in settings.items())
        note(f"the settings {others} of torch's allocator are not followed")
    return value == "True"
