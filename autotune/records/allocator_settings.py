"""Settings of torch's allocator for GPUs, as in ``max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2]``."""

from __future__ import annotations

import re

ALLOCATOR_SETTINGS = re.compile(r"[A-Za-z0-9_:,.\[\]> ]{1,512}")
"""What such settings consist of."""

ALLOCATOR_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""The variables with them. The first is the older name; torch 2.13 looks at the other only where that is not set."""

EXPANDABLE_SEGMENTS = "expandable_segments"

# A list in brackets has commas of its own.
_BETWEEN = re.compile(r",(?![^\[]*\])")


def split_settings(text: str) -> dict[str, str]:
    """Return the settings by name, the last of those with one name."""
    parts = (part.partition(":") for part in _BETWEEN.split(text))
    return {name.strip(): value.strip() for name, _, value in parts if name.strip()}
