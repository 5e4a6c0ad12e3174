"""Deterministic algorithms, for runs that are compared bit by bit.

Sums in an order that changes from run to run would hide what is looked for. Where an operator has no deterministic
algorithm torch shall warn and go on. It then takes the backwards of its attention kernels for such, although they have
one (``attention_backward.cu``, torch 2.11 to 2.15): these have to be told that nothing else will do.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch

# Those for (q, k, v) hand over to the others, which scripts call too.
_ATTENTION = (
    *("aten::_flash_attention_backward", "aten::_efficient_attention_backward"),
    *("aten::_scaled_dot_product_flash_attention_backward", "aten::_scaled_dot_product_efficient_attention_backward"),
)
_CUDNN_ATTENTION_BACKWARD = "aten::_scaled_dot_product_cudnn_attention_backward"
# Attention's probabilities are held as one tensor per so many of them: 128 MiB.
_PROBABILITIES = 2**25
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
    if not _libraries:
        _libraries.append(torch.library.Library("aten", "IMPL"))
        for operator in _ATTENTION:
            insist(_libraries[0], operator, "CUDA")
        replace_cudnn_attention_backward(_libraries[0])


def insist(library: torch.library.Library, operator: str, key: str) -> None:
    """Let an operator's kernel find deterministic algorithms asked for without exception, while it runs.

    ``library``, of the operator's namespace, keeps it so. ``operator`` is the name with namespace and overload, ``key``
    the dispatch key of the kernel.
    """
    kernel = torch.library.get_kernel(operator, key)

    def insistent(keys: Any, *arguments: Any, **keywords: Any) -> Any:
        before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        torch._C._set_deterministic_algorithms(True, warn_only=False)
        try:
            return kernel.call_boxed(keys, *arguments, **keywords)
        finally:
            torch._C._set_deterministic_algorithms(before[0], warn_only=before[1])

    _put_in_place(library, operator, insistent, key, with_keyset=True)


def replace_cudnn_attention_backward(library: torch.library.Library, key: str = "CUDA") -> None:
    """Let ``attention_backward`` run where the backward of cuDNN's attention would; arguments as in ``insist``."""

    def replacement(*arguments: Any, scale: float | None = None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        # Two for dropout's generator, then bias; lengths of sequences, and whether dropped how often.
        grad, query, key, value, out, logsumexp, _, _, bias, _, _, _, _, _, is_causal = arguments
        return attention_backward(grad, query, key, value, out, logsumexp, bias, is_causal=is_causal, scale=scale)

    _put_in_place(library, _CUDNN_ATTENTION_BACKWARD, replacement, key)


def attention_backward(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of query, key and value from what attention's forward saved.

    They are summed in one order, in float32, by FlashAttention's formulas (arXiv:2205.14135, appendix B.4). Dropout's
    mask is not known. Where the forward dropped, ``out`` has the mask, so another mask gives other values: two runs can
    be compared. The gradients themselves are wrong then.

    Args:
        grad: gradient of ``out``; [batch, heads, queries, value width].
        query: [batch, heads, queries, width].
        key: [batch, key heads, keys, width]; ``heads`` is a multiple of ``key heads``.
        value: [batch, key heads, keys, value width].
        out: what the forward returned; as ``grad``.
        logsumexp: of the scores of each query; [batch, heads, queries, 1] or without the last dimension.
        bias: added to the scores; may be broadcast to [batch, heads, queries, keys].
        is_causal: the n-th query sees the first n keys.
        scale: of the products of queries and keys; one over the square root of ``width`` by default.
    """
    batch, heads, queries, width = query.shape
    keys, groups = key.shape[2], heads // key.shape[1]
    scale = width**-0.5 if scale is None else scale
    grad_query, grad_key, grad_value = (torch.empty_like(one) for one in (query, key, value))
    if bias is not None:
        bias = bias.expand(batch, heads, queries, keys)
    rows = max(1, _PROBABILITIES // max(1, heads * keys))
    for sample in range(batch):
        k, v = (one[sample].float().repeat_interleave(groups, 0) for one in (key, value))
        sum_k, sum_v = torch.zeros_like(k), torch.zeros_like(v)
        for first in range(0, queries, rows):
            chunk = slice(first, first + rows)
            q, g, o = (one[sample, :, chunk].float() for one in (query, grad, out))
            scores = (q @ k.mT).mul_(scale)
            if bias is not None:
                scores += bias[sample, :, chunk]
            if is_causal:
                numbers = torch.arange(max(queries, keys), device=q.device)
                scores.masked_fill_(numbers[:keys] > numbers[:queries][chunk, None], -math.inf)
            own = logsumexp.reshape(batch, heads, queries, 1)[sample, :, chunk]
            # A query that sees no key has no probabilities.
            probabilities = scores.sub_(own.masked_fill(own == -math.inf, math.inf)).exp_()
            sum_v += probabilities.mT @ g
            grad_scores = (g @ v.mT).sub_((g * o).sum(-1, keepdim=True)).mul_(probabilities).mul_(scale)
            grad_query[sample, :, chunk] = (grad_scores @ k).to(query.dtype)
            sum_k += grad_scores.mT @ q
        for gradient, whole in ((grad_key, sum_k), (grad_value, sum_v)):
            gradient[sample] = whole.unflatten(0, (-1, groups)).sum(1).to(gradient.dtype)
    return grad_query, grad_key, grad_value


def _put_in_place(
    library: torch.library.Library, operator: str, kernel: Callable[..., Any], key: str, **how: bool
) -> None:
    with warnings.catch_warnings():
        # Torch warns that a kernel takes another's place; the script may have made errors of warnings.
        warnings.simplefilter("ignore")
        library.impl(operator, kernel, key, allow_override=True, **how)
