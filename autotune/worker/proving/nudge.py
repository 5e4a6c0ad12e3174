"""The last bit of a script's parameters, changed: what rounding alone does to what a script computes."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


def nudge(modules: Iterable[nn.Module]) -> None:
    """Multiply parameters by the number next to one.

    That changes a few activations by one bit of what they are rounded to, as sums in another order do. Parameters that
    are no finer than activations are changed in the first of each row only.
    """
    with torch.no_grad():
        for module in modules:
            for parameter in module.parameters():
                if not parameter.is_floating_point():
                    continue
                step = torch.finfo(parameter.dtype).eps
                is_coarse = parameter.element_size() < 4 and parameter.dim() > 0
                (parameter[..., :1] if is_coarse else parameter).mul_(1 + step)
