"""Changes of a script that may lower its peak memory, and what each does to the peak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WorkerChange = Literal["", "selective checkpointing", "chunked loss", "offloading", "early gradients", "accumulation"]
"""A change that the run that follows a script makes in it; empty for none."""

LOSS_CHUNKS = 8

ChangeName = Literal[
    "checkpoint all blocks",
    "checkpoint half of the blocks",
    "checkpoint all but products",
    "chunk the loss",
    "offload activations",
    "bfloat16 autocast",
    "fused optimizer",
    "8-bit optimizer state",
    "accumulate half batches",
    "free gradients early",
    "expandable segments",
    "leave empty_cache out",
]


@dataclass(frozen=True)
class MemoryChange:
    """A change of a script: what to write for it, and a price that does not follow from counts."""

    by_hand: str
    price: str = ""


CHANGES: dict[ChangeName, MemoryChange] = {
    "checkpoint all blocks": MemoryChange(
        "call each block by `torch.utils.checkpoint.checkpoint(block, ..., use_reentrant=False)`"
    ),
    "checkpoint half of the blocks": MemoryChange(
        "call the first half of the blocks by `torch.utils.checkpoint.checkpoint(block, ..., use_reentrant=False)`"
    ),
    "checkpoint all but products": MemoryChange(
        "call each block by `checkpoint(block, ..., use_reentrant=False, context_fn=...)`, as the guide shows",
        "all other operators once more",
    ),
    "chunk the loss": MemoryChange(
        f"split the last layer's input and the targets into {LOSS_CHUNKS} chunks, `checkpoint` layer and loss of each "
        "with `reduction='sum'`, and divide the sum of the losses by the number of targets"
    ),
    "offload activations": MemoryChange(
        "call model and loss under `torch.autograd.graph.save_on_cpu(pin_memory=True)`"
    ),
    "bfloat16 autocast": MemoryChange(
        "call `output = model(...)` under `torch.autocast('cuda', dtype=torch.bfloat16)`, and then write "
        "`output = output.float()`",
        "bfloat16 arithmetic",
    ),
    "fused optimizer": MemoryChange("give the optimizer `fused=True`"),
    "8-bit optimizer state": MemoryChange(
        "take the optimizer of the same name from bitsandbytes, such as `bnb.optim.AdamW8bit`", "rounding to 8 bits"
    ),
    "accumulate half batches": MemoryChange(
        "halve the batch size and the loss, and step after every second backward", "two smaller batches in each step"
    ),
    "free gradients early": MemoryChange("call `optimizer.zero_grad(set_to_none=True)` right after `optimizer.step()`"),
    "expandable segments": MemoryChange("set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` in the environment"),
    "leave empty_cache out": MemoryChange("remove `torch.cuda.empty_cache()` from the steps"),
}
"""The changes that are tried."""


@dataclass(frozen=True)
class ChangeEffect:
    """Hold the bytes at a script's peaks with a change, as in ``Explanation``, and the price of the change.

    ``more_flops`` are the floating-point operations of a step that the change adds, as a share of those without it.
    ``moved_bytes`` go between GPU and CPU in a step, beyond those that do so without it.
    """

    change: ChangeName
    peak_bytes: int
    process_bytes: int
    more_flops: float = 0.0
    moved_bytes: int = 0


@dataclass(frozen=True)
class UntriedChange:
    """A change that a script does not take, and the reason."""

    change: ChangeName
    reason: str
