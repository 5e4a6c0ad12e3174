"""The graphs that an engine compiled: which pair of forward and backward each runs, and how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.multiprocessing.reductions import StorageWeakRef

from ...records.configuration import SizedPlans
from ...records.plan import Quota
from ..call_stack import hook_on_saved_tensors, is_of_script
from ..plans.graph_pair import Pair
from ..plans.joint import has_storage, is_single_symbol, symbols_of, tensors_of, traced_size, value_of
from ..plans.partition import JointGraph

_FEW = 16


class Slot(NamedTuple):
    """A place in the script's training calls.

    It is the Dynamo frame, the ordinal among the graphs that one compilation of the frame made, and the ordinal among
    the runs of that place in a training call. An engine that does not switch has one pair for all of these runs.
    """

    frame: str
    part: int
    call: int = 0

    @property
    def place(self) -> tuple[str, int]:
        """Return the place in the frame, whatever the call."""
        return self.frame, self.part


CHECKPOINTED = -1
"""The call of a slot for all calls that the script's own checkpoints run again."""


class Forwards:
    """The forwards of one compiled graph that are under way, by the mark that each hands to its backward.

    A backward must be of its forward's pair, also when the plans are switched between the two: a GAN's generator has
    run when its discriminator steps.
    """

    def __init__(self) -> None:
        self._under_way: dict[int, tuple[Graph, Pair, StorageWeakRef]] = {}
        # The pair that AOTAutograd's runtime was told of last.
        self.told: Pair | None = None
        self._most = _FEW

    def begin(self, graph: Graph, pair: Pair) -> torch.Tensor:
        """Note a forward, and return its mark, which is there as long as something holds what the forward saves."""
        if len(self._under_way) > self._most:
            self._most = 2 * len(self.under_way()) + _FEW
        mark = _mark(graph.slot.call + 1, is_seen=is_of_script(hook_on_saved_tensors()))
        self._under_way[_number(mark)] = graph, pair, StorageWeakRef(mark.untyped_storage())
        return mark

    def under_way(self) -> list[tuple[Graph, Pair]]:
        """List the forwards that a backward may still come for, and forget the others."""
        self._under_way = {number: one for number, one in self._under_way.items() if not one[2].expired()}
        return [(graph, pair) for graph, pair, _ in self._under_way.values()]

    def of(self, mark: torch.Tensor) -> tuple[Graph, Pair] | None:
        """Return the call and the pair of a forward; kept after that, as a loop may ask for a backward again."""
        known = self._under_way.get(_number(mark))
        return None if known is None else known[:2]


@dataclass
class Graph:
    """One call of a compiled graph of the script, in each of its training calls.

    Graphs of one slot are variants for other shapes. All ``calls`` of a compiled graph share what is compiled, and each
    has a pair of its own.
    """

    slot: Slot
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
    # By the ordinal of the call; none before it runs.
    calls: dict[int, Graph] = field(default_factory=dict)
    # It is a part of a block's call, of which another graph has been before.
    continues: bool = False
    # Of the symbols, in the first run of this call: blocks that share a graph may work on images of several sizes.
    sizes: dict[Any, int] = field(default_factory=dict)
    forwards: Forwards = field(default_factory=Forwards)
    # AOTAutograd's runtime (torch 2.15) keeps for each saved tensor whether it is an input, and reads it at each call.
    runtime_saved_inputs: list[bool] | None = None
    # It keeps which dimensions of which saved tensors are symbols, and marks them in each run (torch 2.11 to 2.15).
    runtime_symbolic: dict[int, set[int]] | None = None
    # Whether it keeps of those what is known here.
    is_understood: bool = False
    # What Inductor generates for the forward and the backward (True) of the pair without plans, where it was asked to;
    # or why it did not.
    generated: dict[bool, Callable[[list[Any]], Any]] = field(default_factory=dict)
    not_generated: str = ""

    def tags(self, quota: Quota) -> None:
        """Take the occurrences of this call from what plans leave."""
        self.joint.tags(quota, continues=self.continues)

    def partition(self, quota: Quota) -> Pair:
        """Return the pair under what plans leave, taking the occurrences of this call from that."""
        return self.joint.partition(quota, continues=self.continues)

    def occurrence_counts(self) -> Counter[tuple[str, int]]:
        """Return how often each cluster occurs in this call, by its id and strategy."""
        return self.joint.occurrence_counts(continues=self.continues)

    def new_call(self, number: int, sizes: dict[Any, int]) -> Graph:
        """Add a call of the compiled graph, with the sizes that its symbols have there."""
        call = replace(
            self,
            slot=self.slot._replace(call=number),
            sizes=sizes,
            forward_calls=0,
            training_calls=0,
            last_training_call=0,
            node_times_s={},
        )
        self.calls[number] = call
        return call

    def size(self, traced: torch.SymInt) -> int:
        """Return what a size that was traced as a symbol is in this call."""
        return self.sizes.get(traced.node.expr, traced_size(traced))

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
        return self.pairs[None].saved.at(self.sizes) * self.forward_calls // max(1, self.training_calls)

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

    def follow_runtime(self, metadata: Any) -> None:
        """Find what AOTAutograd's runtime keeps of the saved tensors of this graph, just compiled."""
        self.runtime_saved_inputs = getattr(metadata, "saved_tensor_is_graph_input", None)
        self.runtime_symbolic = getattr(metadata, "dynamic_saved_tensors_idxs", None)
        self.is_understood = (self.runtime_symbolic or {}) == self.compiled.symbolic_dimensions

    def why_not(self, pair: Pair) -> str | None:
        """Say why this graph cannot be switched to a pair; None if it can."""
        if pair is not self.compiled and self.is_fixed:
            return "Inductor compiles each set of plans anew"
        if pair is not self.compiled and pair.signature != self.compiled.signature:
            return "a graph of the script hands other symbols to its backward under this plan"
        if pair is not self.current and not self.is_understood:
            return "a graph of the script has dynamic shapes, which this torch keeps track of in a way not known"
        return None

    def begin(self, pair: Pair) -> None:
        """Begin with the pair of another configuration."""
        self.pairs = {None: pair}
        self.current = pair

    @property
    def is_under_way(self) -> bool:
        """Return whether a backward may still come for a forward of any of the calls."""
        return bool(self.forwards.under_way())

    def marked(self, results: Sequence[Any], pair: Pair) -> list[Any]:
        """Add to what a forward returns, as the first saved tensor, a mark that says which forward it is."""
        if not self.is_understood:
            return list(results)
        self._tell_runtime(pair)
        mark = self.forwards.begin(self, pair)
        outputs = pair.num_forward_outputs
        return [*results[:outputs], mark, *results[outputs:]]

    def of_backward(self, arguments: list[Any]) -> tuple[Graph, Pair, int]:
        """Take the mark out of what a backward is given; return its call, its pair and the number of its forward."""
        if not self.is_understood:
            return self, self.current, 0
        # The runtime puts the saved symbols first here, and last in the forward's results.
        mark = arguments.pop(self.compiled.signature[0])
        known = self.forwards.of(mark)
        if known is None:
            # A script's hooks on saved tensors have copied it: its sizes or its value tell the call.
            call = mark.shape[1] if mark.dim() > 1 else round(float(mark))
            graph = self.calls[call - 1]
            known = graph, graph.current
        return *known, _number(mark)

    def number_of(self, results: Sequence[Any]) -> int:
        """Return the number of the forward that has returned this, with its mark."""
        return _number(results[self.joint.num_forward_outputs]) if self.is_understood else 0

    @property
    def unplanned(self) -> Pair:
        """Return the pair without plans, where the graph can be switched to it."""
        unplanned = self.joint.unplanned
        return unplanned if self.why_not(unplanned) is None else self.compiled

    def _tell_runtime(self, pair: Pair) -> None:
        if self.forwards.told is pair:
            return
        self.forwards.told = pair
        if self.runtime_saved_inputs is not None:
            self.runtime_saved_inputs[:] = False, *pair.saved_inputs
        if self.runtime_symbolic is not None:
            self.runtime_symbolic.clear()
            # Behind the mark, which is the first of the saved tensors.
            self.runtime_symbolic.update({place + 1: found for place, found in pair.symbolic_dimensions.items()})


def _mark(number: int, *, is_seen: bool) -> torch.Tensor:
    # It takes no memory, but for hooks of the script's own, which may ask for the largest value, say. Where a
    # checkpoint runs a forward again, torch compares the sizes of what is saved.
    mark = (
        torch.tensor([float(number)], device="cpu")
        if is_seen
        else torch.empty((0, number), dtype=torch.bool, device="cpu")
    )
    mark.is_mark = True  # type: ignore[attr-defined]
    return mark


def _number(mark: torch.Tensor) -> int:
    # The address of a storage is not used again as long as there is a reference to it, a weak one as well.
    return mark.untyped_storage()._cdata


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

    def backward_begins(self, graph: Graph, number: int) -> None:
        """The backward of the forward with this number is called."""

    def backward_ended(self) -> None:
        """A backward has returned."""
