"""The calls that are under way in a training process, of modules outside of graphs and of a backward, and hooks."""

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


def hook_on_saved_tensors() -> Any:
    """Return the innermost hook that packs what autograd saves; None without one."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return None if hooks is None else hooks[0]


def is_of_checkpoint(hook: Any) -> bool:
    """Return whether a hook is that of torch's checkpoint without reentrance."""
    return getattr(hook, "__module__", None) == "torch.utils.checkpoint"


def is_of_script(hook: Any) -> bool:
    """Return whether there is a hook, and it is neither torch's checkpoint's nor ours."""
    module = getattr(getattr(hook, "func", hook), "__module__", None) or ""
    return hook is not None and not is_of_checkpoint(hook) and module.partition(".")[0] != __name__.partition(".")[0]
