"""Functions of libraries that decide otherwise while Dynamo traces them: they run outside of the graphs, as in eager.

Transformers gives attention no mask where the mask would say nothing: no token is padding, and the kernel knows what
causal means. Under Dynamo transformers may not look at values, and hands over a whole mask. Attention then keeps more
for the backward, and loses the kernels that skip what lies behind the diagonal.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

# By module. Transformers 5 has the first module; models of transformers 4 use the second one, or both.
_FUNCTIONS = {
    "transformers.masking_utils": (
        "create_causal_mask",
        "create_bidirectional_mask",
        "create_sliding_window_causal_mask",
        "create_bidirectional_sliding_window_mask",
        "create_chunked_causal_mask",
        "create_recurrent_attention_mask",
        "create_masks_for_generate",
    ),
    "transformers.modeling_attn_mask_utils": (
        "AttentionMaskConverter._ignore_causal_mask_sdpa",
        "_prepare_4d_causal_attention_mask_for_sdpa",
        "_prepare_4d_attention_mask_for_sdpa",
    ),
}

_ORIGINAL = "_autotune_original"


class _Running:
    """Remember that a root of an engine is called: what the script compiles itself is traced as it always was."""

    root = False


def in_root(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the call of a root in which the functions run outside of graphs."""
    from torch._dynamo.eval_frame import skip_code

    def root(*arguments: Any, **keywords: Any) -> Any:
        before, _Running.root = _Running.root, True
        try:
            return call(*arguments, **keywords)
        finally:
            _Running.root = before

    # Behind a break in another graph Dynamo would trace this frame, and find no root in it.
    skip_code(root.__code__)
    return root


def keep_untraced(made: Callable[[list[torch.Tensor]], None]) -> None:
    """Have the functions of libraries imported so far run outside of the graphs of roots: Dynamo breaks them there.

    Functions that this version of a library lacks are left out. ``made`` is called with the tensors that a call gives.
    """
    for name, functions in _FUNCTIONS.items():
        module = sys.modules.get(name)
        for path in functions if module is not None else ():
            *owner, last = path.split(".")
            holder = functools.reduce(lambda held, part: getattr(held, part, None), owner, module)
            function = getattr(holder, last, None)
            # Wrapped before for another engine, its own function is wrapped anew.
            own = getattr(function, _ORIGINAL, function)
            if callable(own) and not hasattr(own, "_torchdynamo_disable"):
                _replace(holder, last, function, _untraced(own, made))


def _untraced(function: Callable[..., Any], made: Callable[[list[torch.Tensor]], None]) -> Callable[..., Any]:
    def run(*arguments: Any, **keywords: Any) -> Any:
        result = function(*arguments, **keywords)
        made([leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)])
        return result

    outside = torch._dynamo.disable(run, reason="autotune: it decides otherwise while it is traced")

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        return outside(*arguments, **keywords) if _Running.root else function(*arguments, **keywords)

    setattr(call, _ORIGINAL, function)
    return call


def _replace(holder: Any, name: str, held: Any, replacement: Callable[..., Any]) -> None:
    if isinstance(holder, type):
        setattr(holder, name, staticmethod(replacement))
        return
    # Models have the name from the module that defines it.
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(name) is held:
            setattr(module, name, replacement)
