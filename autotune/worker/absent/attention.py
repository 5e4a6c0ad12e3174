"""The kernel that attention takes on a CUDA device, chosen as torch's dispatcher does (native/transformers/cuda).

Without the device the dispatcher takes plain products, which keep the whole matrix of scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

_HALVES = (torch.float16, torch.bfloat16)
_LARGEST_HEAD, _LARGEST_CUDNN_HEAD = 256, 128
# cuDNN goes first on cards of these capabilities, with cuDNN 9.15.1, which CUDA wheels of torch bring from 2.10 on.
_PREFERS_CUDNN = (9, 10)


def choose_attention(capability: tuple[int, int]) -> None:
    """Have ``scaled_dot_product_attention`` take the kernel for tensors on CUDA that such a card takes."""
    functional: Any = nn.functional
    plain = functional.scaled_dot_product_attention
    # Dynamo would break a graph at these questions.
    allowed = torch.compiler.assume_constant_result(_allowed)

    def scaled_dot_product_attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        def products() -> Any:
            return plain(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)

        if query.device.type != "cuda" or query.is_nested:
            return products()
        if torch.is_autocast_enabled("cuda"):
            half = torch.get_autocast_dtype("cuda")
            query, key, value = (each.to(half) if each.is_floating_point() else each for each in (query, key, value))
            if attn_mask is not None and attn_mask.is_floating_point():
                attn_mask = attn_mask.to(half)
        with torch.amp.autocast("cuda", enabled=False):
            kernel = _kernel(capability, allowed(), query, key, value, attn_mask, dropout_p, is_causal)
            if kernel == "math":
                return products()
            return _run(kernel, query, key, value, _as_bias(attn_mask, query, key), dropout_p, is_causal, scale)

    functional.scaled_dot_product_attention = scaled_dot_product_attention


def _allowed() -> dict[str, bool]:
    """Return which kernels the script allows."""
    allowed = torch.backends.cuda
    return {
        "cudnn": allowed.cudnn_sdp_enabled() and not torch.are_deterministic_algorithms_enabled(),
        "flash": allowed.flash_sdp_enabled(),
        "efficient": allowed.mem_efficient_sdp_enabled(),
    }


def _kernel(
    capability: tuple[int, int],
    allowed: Mapping[str, bool],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    is_causal: bool,
) -> str:
    head, is_same = query.shape[-1], query.shape[-1] == value.shape[-1]
    is_half = query.dtype in _HALVES and (capability[0] >= 8 or query.dtype == torch.float16)
    if query.dim() != 4 or not all(each.stride(-1) == 1 for each in (query, key, value)):
        return "math"
    cudnn_takes = (
        is_half
        and capability[0] >= 8
        and allowed["cudnn"]
        and max(head, value.shape[-1]) <= _LARGEST_CUDNN_HEAD
        and head % 8 == value.shape[-1] % 8 == 0
        and float(dropout * 16).is_integer()
        and key.shape[-2] > 1
    )
    if cudnn_takes and capability[0] in _PREFERS_CUDNN:
        return "cudnn"
    is_square = not is_causal or query.shape[-2] == key.shape[-2]
    flash_takes = is_half and capability[0] >= 8 and mask is None and is_same and head <= _LARGEST_HEAD and is_square
    if flash_takes and allowed["flash"]:
        return "flash"
    alignment = 16 // query.element_size() if capability[0] >= 8 or query.dtype in _HALVES else 1
    has_type = query.dtype == torch.float32 or is_half
    is_aligned = head == key.shape[-1] and head % alignment == value.shape[-1] % alignment == 0
    if has_type and is_aligned and allowed["efficient"]:
        return "efficient"
    return "math"


def _as_bias(mask: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor | None:
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), float("-inf"))
    return mask.to(query.dtype).expand(*query.shape[:-1], key.shape[-2])


def _run(
    kernel: str,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
) -> Any:
    aten = torch.ops.aten
    trains = torch.is_grad_enabled() and any(each.requires_grad for each in (query, key, value))
    if kernel == "cudnn":
        outputs = aten._scaled_dot_product_cudnn_attention(
            query, key, value, bias, trains, dropout, is_causal, False, scale=scale
        )
    elif kernel == "flash":
        outputs = aten._scaled_dot_product_flash_attention(query, key, value, dropout, is_causal, False, scale=scale)
    else:
        groups = query.shape[-3] // key.shape[-3]
        if groups > 1:
            key, value = (each.repeat_interleave(groups, -3) for each in (key, value))
        outputs = aten._scaled_dot_product_efficient_attention(
            query, key, value, bias, trains, dropout, is_causal, scale=scale
        )
    return outputs[0]
