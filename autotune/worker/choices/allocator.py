"""A setting of torch's allocator for GPUs, which is read from the environment when a process first uses one."""

from __future__ import annotations

import torch

from ..device import uses_cuda
from .made import MadeChoice


class AllocatorSetting(MadeChoice):
    """Looks whether torch has made segments that grow."""

    def problem(self) -> str:
        """Say why nothing has changed, or nothing."""
        if not uses_cuda():
            return "the script trains on CPU, and it is of torch's allocator for GPUs"
        # The one setting that there is; the allocator tells it of each segment.
        if any(segment["is_expandable"] for segment in torch.cuda.memory_snapshot()):
            return ""
        names = " or ".join(self.choice.variables)
        return f"no memory is in expandable segments; does the script set {names}, or an allocator of its own?"
