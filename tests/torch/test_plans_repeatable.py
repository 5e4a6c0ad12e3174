"""Which operators a backward may run again, and for which that pays only as a part of a layer."""

from __future__ import annotations

import pytest
import torch
from torch import fx

from autotune.worker.plans.repeatable import Repeatable

aten = torch.ops.aten

# Operators that came to torch one by one; those that the version at hand has.
_COSTLY = [
    name
    for name in (
        *("mm", "convolution", "_int_mm", "_scaled_mm", "_grouped_mm", "_scaled_grouped_mm", "_cudnn_rnn"),
        *("_cudnn_attention_forward", "_scaled_dot_product_fused_attention_overrideable"),
    )
    if hasattr(aten, name)
]


def repeatable(operator: torch._ops.OpOverload, *, heavy: bool) -> bool:
    """Whether a node of this operator alone can be run again."""
    graph = fx.Graph()
    node = graph.call_function(operator, (graph.placeholder("x"),))
    graph.output((node,))
    return Repeatable(fx.GraphModule({}, graph), 1)(node, heavy=heavy)


@pytest.mark.parametrize("name", _COSTLY)
def test_matrix_products_attention_and_recurrences_are_recomputed_with_layers_only(name: str) -> None:
    """Guards operator plans of mixtures of experts and cuDNN's layers: their costly operators counted as cheap ones."""
    assert not repeatable(getattr(aten, name).default, heavy=False)
    assert repeatable(getattr(aten, name).default, heavy=True)


def test_an_elementwise_operator_is_always_repeatable() -> None:
    assert repeatable(aten.gelu.default, heavy=False)
