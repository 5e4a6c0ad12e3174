"""Deterministic algorithms, for runs that are compared bit by bit.

Sums in an order that changes from run to run would hide what is looked for. Where an operator has no deterministic
algorithm torch shall warn and go on. It then takes the backwards of its attention kernels for such, although they have
one (``attention_backward.cu``, torch 2.11 to 2.15): these have to be told that nothing else will do.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

# Those for (q, k, v) hand over to the others, which scripts call too.
_ATTENTION = (
    *("aten::_flash_attention_backward", "aten::_efficient_attention_backward"),
    *("aten::_scaled_dot_product_flash_attention_backward", "aten::_scaled_dot_product_efficient_attention_backward"),
)
# Kernels are torch's own again when their library is gone.
_libraries: list[torch.library.Library] = []


def use_deterministic_algorithms() -> None:
    """Have this process compute the same bits each time on CUDA devices, as far as torch can."""
    import torch._functorch.config

    # In CUDA graphs, what is recomputed would draw from generators with seeds of their own: with plans other numbers
    # than without.
    torch._functorch.config.graphsafe_rng_functionalization = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    if torch.backends.cuda.flash_sdp_enabled() or torch.backends.cuda.mem_efficient_sdp_enabled():
        # Its attention has no deterministic backward in torch. Others take its place, under the same plans; where the
        # script allows none of them, it would not run.
        torch.backends.cuda.enable_cudnn_sdp(False)
    if not _libraries:
        _libraries.append(torch.library.Library("aten", "IMPL"))
        for operator in _ATTENTION:
            insist(_libraries[0], operator, "CUDA")


def insist(library: torch.library.Library, operator: str, key: str) -> None:
    """Let an operator's kernel find deterministic algorithms asked for without exception, while it runs.

    Args:
        library: keeps it so; of the operator's namespace.
        operator: its name with namespace and overload.
        key: the dispatch key of the kernel.
    """
    kernel = torch.library.get_kernel(operator, key)

    def insistent(keys: Any, *arguments: Any, **keywords: Any) -> Any:
        before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        torch._C._set_deterministic_algorithms(True, warn_only=False)
        try:
            return kernel.call_boxed(keys, *arguments, **keywords)
        finally:
            torch._C._set_deterministic_algorithms(before[0], warn_only=before[1])

    with warnings.catch_warnings():
        # That a kernel takes another's place; the script may have made errors of warnings.
        warnings.simplefilter("ignore")
        library.impl(operator, insistent, key, with_keyset=True, allow_override=True)
