"""A joint graph split in two: what its halves run, what one hands to the other, and how their runs are told apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import fx

from .code import compiled
from .joint import (
    Bytes,
    is_symbol,
    is_tensor,
    lasting_storages,
    parameter_storages,
    saved_nodes,
    storage_key,
    unique_bytes,
)


@dataclass(frozen=True, eq=False)
class Pair:
    """A joint graph split into forward and backward.

    ``saved`` is what is handed from one to the other. ``signature`` counts the saved symbols and the saved tensors
    without version check, which AOTAutograd's runtime fixed when it compiled the first pair of this graph.
    ``saved_inputs`` tells for each saved tensor whether it is an input of the forward. ``mark`` is the place among
    the saved values of a tensor that each run of the forward makes anew; None where there is none.
    """

    forward: fx.GraphModule
    backward: fx.GraphModule
    saved: Bytes
    signature: tuple[int, int]
    saved_inputs: tuple[bool, ...]
    mark: int | None
    num_forward_outputs: int
    recomputed: tuple[str, ...]

    @classmethod
    def of(
        cls,
        forward: fx.GraphModule,
        backward: fx.GraphModule,
        *,
        num_forward_outputs: int,
        recomputed: tuple[str, ...],
    ) -> Pair:
        """The pair that a forward and its backward are; ``recomputed`` names what both run."""
        saved = saved_nodes(forward, num_forward_outputs)
        lasting = lasting_storages(forward.graph)
        marks = (place for place, node in enumerate(saved) if is_tensor(node) and storage_key(node) not in lasting)
        return cls(
            forward=forward,
            backward=backward,
            saved=unique_bytes(saved, parameter_storages(forward.graph)),
            signature=(sum(map(is_symbol, saved)), sum(map(_has_no_version_check, saved))),
            saved_inputs=tuple(node.op == "placeholder" for node in saved if is_tensor(node)),
            mark=next(marks, None),
            num_forward_outputs=num_forward_outputs,
            recomputed=recomputed,
        )

    @cached_property
    def run_forward(self) -> Callable[[list[Any]], Any]:
        """Run the forward on a list of inputs, emptied on the way so that each is freed after its last use."""
        return compiled(self.forward)

    @cached_property
    def run_backward(self) -> Callable[[list[Any]], Any]:
        """Run the backward on a list of saved values and gradients, emptied on the way."""
        return compiled(self.backward)

    def mark_of_forward(self, results: Sequence[Any]) -> int | None:
        """Identify a run of the forward by what it returned; None where that cannot be told."""
        return None if self.mark is None else _storage(results[self.num_forward_outputs + self.mark])

    def mark_of_backward(self, arguments: Sequence[Any]) -> int | None:
        """Identify the run of the forward whose saved values the backward is given, if this pair ran it."""
        # The runtime puts the saved symbols first here, and last in the forward's results.
        position = None if self.mark is None else self.signature[0] + self.mark
        return None if position is None or position >= len(arguments) else _storage(arguments[position])


def _has_no_version_check(node: fx.Node) -> bool:
    value: Any = node.meta.get("saved_tensor_with_no_vc_check", False)
    return bool(value)


def _storage(value: Any) -> int | None:
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None
