"""Whether a study can be had: the script before a run, what discovery brought back, choices, the limit."""

from __future__ import annotations

from .discovered import (
    check_batch_sizes,
    check_choices,
    check_global_batch,
    described_at_smaller,
    described_later,
    judge,
    smaller_to_describe,
)
from .memory_limit import check_limit
from .script import MODEL_SUFFIX, check_model, check_module, check_script

__all__ = [
    "MODEL_SUFFIX",
    "check_batch_sizes",
    "check_choices",
    "check_global_batch",
    "check_limit",
    "check_model",
    "check_module",
    "check_script",
    "described_at_smaller",
    "described_later",
    "judge",
    "smaller_to_describe",
]
