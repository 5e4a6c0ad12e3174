"""Engine ``aot``: AOTAutograd's forward and backward graphs, run as they are (eager's kernels, no code generation)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from .plan_engine import PlanEngine


class AotEngine(PlanEngine):
    """Runs the graphs node by node; other plans take effect at the next step, without compiling again."""

    name = "aot"

    def compile_root(self, root: nn.Module, *, block: str = "") -> Callable[..., Any]:
        """Give the compiled form of a root module's call."""
        import torch._functorch.config as functorch

        # For the whole process, as it is read while the script runs; so not before the baseline was measured.
        # Lent buffers are found once, for the first pair of graphs; a switched pair saves other tensors.
        functorch.donated_buffer = False
        return super().compile_root(root, block=block)

    def backend(self, block: str = "") -> Any:
        """A Dynamo backend that partitions by the current plans."""
        return self.aot_backend(block)
