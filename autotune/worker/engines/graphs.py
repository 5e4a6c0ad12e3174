"""The graphs that an engine compiled: which pair of forward and backward each runs, and how often."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import fx
from torch.multiprocessing.reductions import StorageWeakRef

from ...records.configuration import SizedPlans
from ..plans.graph_pair import Pair
from ..plans.joint import has_storage, is_single_symbol, symbols_of, tensors_of, traced_size, value_of
from ..plans.partition import JointGraph


@dataclass
class Graph:
    """One compiled graph of the script.

    ``slot`` is its place in a training call: the Dynamo frame, and the ordinal among the graphs that one call compiled
    for that frame, such as one for each instance of a block. Graphs of one slot are variants for other shapes.
    """

    slot: tuple[str, int]
    joint: JointGraph
    compiled: Pair
    current: Pair
    # The pair of the configuration (None), and those of its plans for smaller batches.
    pairs: dict[SizedPlans | None, Pair]
    forward_calls: int = 0
    # Of how many training calls of a root those were part: a graph can run several times in one.
    training_calls: int = 0
    last_training_call: int = 0
    node_times_s: dict[str, float] = field(default_factory=dict)
    # Inductor compiles the pair it is given and never asks again.
    is_fixed: bool = False
    # Where the script has it compiled, nobody is told when it runs: it is taken to run.
    is_unseen: bool = False
    # The pairs of the forwards under way. A backward must be of its forward's pair, also when the plans are switched
    # between the two: a GAN's generator has run when its discriminator steps.
    pending: dict[int, tuple[Pair, StorageWeakRef]] = field(default_factory=dict)
    # Forwards under way that left nothing of their own, so that their backwards cannot be told from others.
    unmarked: int = 0
    # AOTAutograd's runtime (torch 2.15) keeps for each saved tensor whether it is an input, and reads it at each call.
    runtime_saved_inputs: list[bool] | None = None
    # It keeps which dimensions of which saved tensors are symbols, and marks them in each run (torch 2.11 to 2.15).
    runtime_symbolic: dict[int, set[int]] | None = None
    # What Inductor generates for the forward and the backward (True) of the pair without plans, where it was asked to;
    # or why it did not.
    generated: dict[bool, Callable[[list[Any]], Any]] = field(default_factory=dict)
    not_generated: str = ""

    def reset_counts(self) -> None:
        """Count from zero again."""
        self.forward_calls = self.training_calls = int(self.is_unseen)
        self.last_training_call = 0

    def count(self, training_call: int) -> None:
        """Count a run of the forward in the training call of this number."""
        self.forward_calls += 1
        self.training_calls += training_call != self.last_training_call
        self.last_training_call = training_call

    @property
    def saved_bytes(self) -> int:
        """Return what this graph leaves for the backward in one training call that it is part of."""
        return self.pairs[None].saved.value * self.forward_calls // max(1, self.training_calls)

    @cached_property
    def varying_outputs(self) -> list[tuple[int, int]]:
        """Return the outputs of the forward with symbols as sizes: (which output, which dimension)."""
        outputs = self.joint.outputs[: self.joint.num_forward_outputs]
        values = [value_of(node) if isinstance(node, fx.Node) else None for node in outputs]
        return [(place, dimension) for place, value in enumerate(values) for dimension, _ in _symbols(value)]

    @cached_property
    def varying_sizes(self) -> set[tuple[int, int]]:
        """Return the sizes that were traced as symbols in what the forward takes: (the value, which dimension)."""
        inputs = [value_of(node) for node in self.joint.nodes.values() if node.op == "placeholder"]
        return {(traced_size(size), dimension) for value in inputs for dimension, size in _symbols(value)}

    @cached_property
    def storage_symbols(self) -> set[Any]:
        """Return the symbols that sizes of storages depend on."""
        tensors = [tensor for node in self.joint.nodes.values() for tensor in tensors_of(node)]
        sizes: list[Any] = [tensor.untyped_storage().nbytes() for tensor in tensors]
        return {symbol for size in sizes if isinstance(size, torch.SymInt) for symbol in size.node.expr.free_symbols}

    @cached_property
    def symbols_of_storage_alone(self) -> set[Any]:
        """Return the symbols that the storage of an input has, and no size of what the forward takes."""
        inputs = [value_of(node) for node in self.joint.nodes.values() if node.op == "placeholder"]
        numbers = {one.node.expr for one in inputs if is_single_symbol(one)}
        tensors = [one for one in inputs if has_storage(one)]
        of_shapes = {size.node.expr for one in tensors for size in one.shape if is_single_symbol(size)}
        return {size.node.expr for one in tensors for _, size in symbols_of(one)} - of_shapes - numbers

    @cached_property
    def constant_sizes(self) -> dict[tuple[int, int], int]:
        """Return the sizes that were traced as constants: by the place of the input and the dimension."""
        inputs = [value_of(node) for node in self.joint.nodes.values() if node.op == "placeholder"]
        shapes = [value.shape if isinstance(value, torch.Tensor) else () for value in inputs]
        return {
            (place, dimension): size
            for place, shape in enumerate(shapes)
            for dimension, size in enumerate(shape)
            if isinstance(size, int)
        }

    @property
    def is_understood(self) -> bool:
        """Return whether the runtime keeps of saved tensors with symbols as sizes what ``switch`` takes it to keep."""
        return (self.runtime_symbolic or {}) == self.current.symbolic_dimensions

    def why_not(self, pair: Pair) -> str | None:
        """Say why this graph cannot be switched to a pair; None if it can."""
        if pair is not self.compiled and self.is_fixed:
            return "Inductor compiles each set of plans anew"
        if pair is not self.compiled and pair.signature != self.compiled.signature:
            return "a graph of the script hands other symbols to its backward under this plan"
        if pair is not self.current and self.unmarked:
            return "a forward is under way that keeps nothing of its own, so its backward could not be recognized"
        if pair is not self.current and not self.is_understood:
            return "a graph of the script has dynamic shapes, which this torch keeps track of in a way not known"
        return None

    def begin(self, pair: Pair) -> None:
        """Begin with the pair of another configuration."""
        self.pairs = {None: pair}
        self.switch(pair)

    def switch(self, pair: Pair) -> None:
        """Run this pair from the next forward on."""
        self.current = pair
        if self.runtime_saved_inputs is not None:
            self.runtime_saved_inputs[:] = pair.saved_inputs
        if self.runtime_symbolic is not None:
            self.runtime_symbolic.clear()
            self.runtime_symbolic.update(pair.symbolic_dimensions)

    def remember(self, pair: Pair, results: Sequence[Any]) -> None:
        """Note a forward that this pair has run, for its backward."""
        mark = pair.mark_of_forward(results)
        if mark is None:
            self.unmarked += 1
        else:
            self.forget_ended()
            storage = results[pair.num_forward_outputs + (pair.mark or 0)].untyped_storage()
            # The storage's address is not used again while there is a reference to it, a weak one as well.
            self.pending[mark] = pair, StorageWeakRef(storage)

    @property
    def is_under_way(self) -> bool:
        """Return whether a backward may still come for a forward."""
        self.forget_ended()
        return bool(self.pending)

    def forget_ended(self) -> None:
        """Forget the forwards that no backward can come for any more: nothing holds what they have saved."""
        self.pending = {mark: one for mark, one in self.pending.items() if not one[1].expired()}

    def pair_of(self, arguments: Sequence[Any]) -> Pair:
        """Return the pair whose forward saved what a backward is given; the current one where that cannot be told."""
        for pair in dict.fromkeys([self.current, *(one for one, _ in self.pending.values())]):
            mark = pair.mark_of_backward(arguments)
            # Kept, as a loop may ask for a backward again.
            if mark is not None and mark in self.pending and self.pending[mark][0] is pair:
                return pair
        if self.current.mark is None:
            self.unmarked = max(0, self.unmarked - 1)
        return self.current


def _symbols(value: Any) -> Iterator[tuple[int, torch.SymInt]]:
    """Yield the dimensions of a tensor whose sizes are symbols, with these sizes."""
    for dimension, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
        if isinstance(size, torch.SymInt):
            yield dimension, size


class Observer:
    """An observer that is told about the graphs as they run; by itself it does nothing."""

    def forward_begins(self, graph: Graph, arguments: Sequence[Any]) -> None:
        """A forward is called; its arguments are not to be changed."""

    def forward_ended(self, graph: Graph, results: Sequence[Any]) -> None:
        """A forward has returned: its outputs, and what it saves for the backward."""

    def backward_begins(self, graph: Graph, arguments: Sequence[Any]) -> None:
        """A backward is called; its arguments are not to be changed."""

    def backward_ended(self) -> None:
        """A backward has returned."""
