"""Comparison of the attention that the script calls in eager with the one that its graphs call."""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ..plans.joint import arguments_of

_OPERATOR = "_scaled_dot_product_"
_BACKWARD = "ScaledDotProduct"


@dataclass(frozen=True, order=True)
class Attention:
    """A call of ``scaled_dot_product_attention`` as torch has run it, by a kernel such as ``flash_attention``.

    ``is_causal``: the kernel itself leaves out what lies behind the diagonal. ``has_mask`` is None where torch does not
    tell. Calls without a kernel of their own are not seen.
    """

    kernel: str
    is_causal: bool
    has_mask: bool | None

    def __str__(self) -> str:
        mask = " with a mask" if self.has_mask else ""
        return f"{self.kernel}{' (causal)' if self.is_causal else ''}{mask}"


def eager_attention(loss: Any) -> set[Attention]:
    """Find the calls that autograd has recorded on the way to a loss, or to several; nothing is unpacked."""
    losses = loss if isinstance(loss, (list, tuple)) else [loss]
    todo: list[Any] = [one.grad_fn for one in losses if isinstance(one, torch.Tensor) and one.grad_fn is not None]
    seen, found = set(todo), set()
    while todo:
        node = todo.pop()
        if node.name().startswith(_BACKWARD) and hasattr(node, "_saved_is_causal"):
            # In torch's names of operators FlashAttentionForCpu is flash_attention_for_cpu.
            kernel = node.name().removeprefix(_BACKWARD).partition("Backward")[0]
            kernel = re.sub(r"(?<!^)(?=[A-Z])", "_", kernel).lower()
            found.add(Attention(kernel, bool(node._saved_is_causal), _was_given_mask(node)))
        following = {each for each, _ in node.next_functions if each is not None} - seen
        seen |= following
        todo += following
    return found


def graph_attention(nodes: Iterable[fx.Node]) -> set[Attention]:
    """Find the calls among the nodes of joint graphs."""
    found = set()
    for node in nodes:
        name = node.target.__name__.partition(".")[0] if isinstance(node.target, torch._ops.OpOverload) else ""
        if name.startswith(_OPERATOR) and not name.endswith("_backward"):
            given = arguments_of(node)
            has_mask = any(given.get(one) is not None for one in ("attn_mask", "attn_bias"))
            found.add(Attention(name.removeprefix(_OPERATOR), bool(given.get("is_causal")), has_mask))
    return found


def difference(eager: AbstractSet[Attention], graphs: AbstractSet[Attention]) -> str:
    """Say how the graphs' attention differs from the script's own; empty where all that the script calls is there."""
    unknown = any(one.has_mask is None for one in eager)
    if unknown:
        graphs = {Attention(one.kernel, one.is_causal, None) for one in graphs}
    lost, instead = sorted(eager - graphs, key=str), sorted(graphs - eager, key=str)
    if not lost or not instead:
        return ""
    before, after = (" and ".join(map(str, each)) for each in (lost, instead))
    return (
        f"torch traces another attention than the script calls: {after} in the graphs, {before} in eager; graphs may "
        "be slower and keep more for it. A library that asks whether it is traced does this."
    )


def _was_given_mask(node: Any) -> bool | None:
    # The tensor itself is not asked for: a checkpoint would run its forward again for it.
    for name in ("_raw_saved_attn_mask", "_raw_saved_attn_bias"):
        saved = getattr(node, name, None)
        if saved is not None:
            return None if not hasattr(saved, "data") else saved.data is not None or saved.unpack_hook is not None
    return False
