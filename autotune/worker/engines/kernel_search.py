"""Inductor's search for kernels, ``max-autotune``: it compiles and times some dozens for each operator, in minutes.

Discovery and trials, which are compared with each other, leave it out, and proofs; rounds and what is launched have it.
"""

from __future__ import annotations

from typing import Any

# Of torch._inductor.config; not every version of torch needs each of them.
_SWITCHES = ("max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "coordinate_descent_tuning")


def switched_off() -> dict[str, bool]:
    """Return what of Inductor's configuration is to be off so that nothing is searched; empty where nothing is on."""
    from torch._inductor import config

    return {name: False for name in _SWITCHES if getattr(config, name, False)}


def without_kernel_search(keywords: dict[str, Any]) -> dict[str, Any]:
    """The keywords of a call of ``torch.compile`` with the search switched off; the same ones where they ask for none.

    The rest of what a mode stands for is kept: CUDA graphs.
    """
    import torch._inductor

    mode, options = keywords.get("mode"), keywords.get("options")
    try:
        meant = torch._inductor.list_mode_options(mode) if mode else {}
    except RuntimeError:
        return keywords  # no such mode: torch itself says so
    if mode and options:
        return keywords  # and that these do not go together
    meant = {name.replace("-", "_"): value for name, value in {**meant, **(options or {})}.items()}
    off = switched_off() | {name: False for name in _SWITCHES if meant.get(name)}
    return {**keywords, "mode": None, "options": meant | off} if off else keywords
