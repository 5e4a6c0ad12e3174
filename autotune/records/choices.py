"""Choices: what can be done in two ways while a model trains, and those of them that torch has under any engine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["TORCH_CHOICES", "Choice", "merged_settings"]

# Allocator settings are joined by commas, and a list in brackets holds commas of its own.
_BETWEEN_SETTINGS = re.compile(r",(?![^\[]*\])")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Something that can be done in two ways, to be searched where the user allows it.

    One of ``variables``, ``optimizer`` and ``autocast`` says how it is made.

    Attributes:
        does: what it is, in a line.
        default: what happens without it, 0 or 1.
        variables: environment variables that say it; of several names for the same those that are set already, or the
            first.
        setting: where such a variable holds a list of settings, the name of this one; else the variable is 0 or 1.
        optimizer: the keyword of torch's optimizers that is then True.
        autocast: the type that the training forward is computed in.
        changes: what it changes in what is computed, beyond how that is rounded; empty for nothing.
        by_hand: how to do it without autotune; empty where reading the bundle's variables does.
        excludes: choices that cannot be made together with it.
        refusal: why it cannot be had; empty where it can.
    """

    does: str
    default: int = 0
    variables: tuple[str, ...] = ()
    setting: str = ""
    optimizer: str = ""
    autocast: str = ""
    changes: str = ""
    by_hand: str = ""
    excludes: tuple[str, ...] = ()
    refusal: str = ""

    def variables_for(self, value: str, before: Mapping[str, str]) -> dict[str, str]:
        """The environment variables that make the choice.

        Args:
            value: how it is made, 0 or 1.
            before: the variables that are set; what else they hold stays.
        """
        names = [name for name in self.variables if name in before] or list(self.variables[:1])
        if not self.setting:
            return dict.fromkeys(names, value)
        own = f"{self.setting}:{bool(int(value))}"
        return {name: merged_settings(before.get(name, ""), own) for name in names}


def merged_settings(before: str, own: str) -> str:
    """A list of allocator settings, ``name:value,name:value``, with one of them replaced or added."""
    name = own.partition(":")[0]
    parts = [part.strip() for part in _BETWEEN_SETTINGS.split(before)]
    return ",".join([*(part for part in parts if part and part.partition(":")[0].strip() != name), own])


TORCH_CHOICES: dict[str, Choice] = {
    "fused-optimizer": Choice(
        does="the optimizer's step in one fused kernel (rounds otherwise)",
        optimizer="fused",
        by_hand="Give the optimizer `fused=True`.",
        excludes=("foreach-optimizer",),
    ),
    "foreach-optimizer": Choice(
        does="the optimizer's step over lists of tensors, as torch takes it by itself on a GPU (rounds otherwise)",
        optimizer="foreach",
        by_hand="Give the optimizer `foreach=True`.",
        excludes=("fused-optimizer",),
    ),
    "bf16": Choice(
        does="the training forward under autocast to bfloat16 (changes what is computed)",
        autocast="bfloat16",
        changes=(
            "matrix products and convolutions of the training forward are computed in bfloat16, with 8 significant "
            "bits in place of 24. Parameters, their gradients, the optimizer, and a loss outside the model stay in "
            "float32; a loss that the model computes itself goes by autocast's rules. Evaluation stays as it is."
        ),
        by_hand=(
            "Call the model in training under `torch.autocast(device, dtype=torch.bfloat16)`, with the name of the "
            "device's type, and give its outputs to the loss as float32: `output.float()`."
        ),
    ),
    "fp16": Choice(
        does="the training forward under autocast to float16",
        refusal="small gradients become zero in float16 without a GradScaler around loss and optimizer's step, and "
        "those are the script's; bf16 needs none",
    ),
    "expandable-segments": Choice(
        does="memory from segments that grow, so that less of it lies idle between tensors; on a GPU",
        # The first is the older name; torch 2.13 looks at the other only where that is not set.
        variables=("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
        setting="expandable_segments",
    ),
}
"""Of engines that leave optimizer, precision and allocator to torch."""
