"""The calls that are under way in a training process: of modules, outside of graphs, and of a backward."""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch import nn

_CALL = nn.Module._call_impl.__code__


def in_backward() -> bool:
    """Return whether this thread runs a backward, where a checkpoint calls modules again."""
    return bool(torch._C._current_graph_task_id() != -1)


def modules_under_way(frame: FrameType | None) -> Iterator[tuple[nn.Module, Any]]:
    """Yield the modules whose calls are under way on a stack, innermost first, with the frames of these calls."""
    while frame is not None:
        if frame.f_code is _CALL:
            yield frame.f_locals["self"], frame
        frame = frame.f_back
