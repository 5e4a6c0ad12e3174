"""Random operators that the backward runs again: what lets them draw what they drew in the forward.

Torch's partitioner wraps such an operator into another one in each half: the forward's returns the generator's state
too, the backward's draws from that state and puts back what was there before. Inductor compiles these wrappers. Node by
node they would take many times as long, each through a dispatcher written in Python: there generators are called.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx
from torch._guards import TracingContext

from .joint import device_of, is_checkpointed, is_random

# One thread at a time changes what torch's partitioners call.
_LOCK = threading.RLock()


@contextlib.contextmanager
def redrawing(*, is_compiled: bool) -> Iterator[None]:
    """Have torch's partitioners make halves, which Inductor compiles or not, whose random operators draw the same."""
    import torch._functorch.partitioners

    partitioners: Any = torch._functorch.partitioners

    def restore(joint: Any, forward: Any, backward: Any, num_symbols: int) -> tuple[Any, Any]:
        if is_compiled:
            with _plain_where_nothing_is_drawn(joint):
                return wrap(joint, forward, backward, num_symbols)
        redraw(forward, backward, num_symbols)
        return forward, backward

    # The lock comes first: another thread may have changed the setting that is read.
    with _LOCK, torch._functorch.config.patch(graphsafe_rng_functionalization=is_compiled and _in_cuda_graphs()):
        wrap = partitioners.functionalize_rng_ops
        partitioners.functionalize_rng_ops = restore
        try:
            yield
        finally:
            partitioners.functionalize_rng_ops = wrap


def redraw(forward: fx.GraphModule, backward: fx.GraphModule, num_symbols: int) -> None:
    """Have the random operators that both halves run draw the same numbers, by calls to their generators.

    The states are saved behind the tensors and before the symbols, where torch's partitioner puts them too. It needs a
    current ``TracingContext``.
    """
    in_backward = {node.name: node for node in backward.graph.nodes if node.op == "call_function"}
    twice = [node for node in forward.graph.nodes if node.name in in_backward and is_random(node)]
    if not twice:
        return
    first_gradient = next(node for node in backward.graph.find_nodes(op="placeholder") if "tangent" in node.name)
    fake_mode = TracingContext.get().fake_mode
    assert fake_mode is not None
    states = []
    for number, node in enumerate(twice):
        save, draw_again = _calls(device_of(node) or torch.device("cpu"))
        with forward.graph.inserting_before(node):
            state = forward.graph.call_function(save)
        with backward.graph.inserting_before(first_gradient):
            given = backward.graph.placeholder(f"rng_state_output_{number}")
        state.meta["val"] = given.meta["val"] = fake_mode.from_tensor(save())
        states.append(state)
        again = in_backward[node.name]
        again.args = (given, again.target, *again.args)
        again.target = draw_again
    (output,) = forward.graph.find_nodes(op="output")
    values = output.args[0]
    end = len(values) - num_symbols
    output.args = ((*values[:end], *states, *values[end:]),)
    # It describes the outputs one by one.
    output.meta.pop("desc", None)
    forward.recompile()
    backward.recompile()


def draws_again(node: fx.Node) -> bool:
    """Tell whether a node of a backward draws what the forward drew.

    Such a node holds two states of the generator meanwhile.
    """
    return getattr(node.target, "__name__", "") == "run_from_rng_state"


@functools.cache
def _calls(device: torch.device) -> tuple[Callable[[], torch.Tensor], Callable[..., Any]]:
    """Return what gives the state of a device's generator, and what runs an operator from such a state."""
    generator = _generator_of(device)

    def rng_state() -> torch.Tensor:
        return generator.get_state()

    def run_from_rng_state(state: torch.Tensor, operator: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        before = generator.get_state()
        # States are in the host's memory, unless the script's hooks on saved tensors bring back each to the device.
        generator.set_state(state.cpu())
        try:
            return operator(*args, **kwargs)
        finally:
            generator.set_state(before)

    return rng_state, run_from_rng_state


def _generator_of(device: torch.device) -> Any:
    if device.type == "cpu":
        return torch.default_generator
    module: Any = torch.get_device_module(device)
    return module.default_generators[module.current_device() if device.index is None else device.index]


@contextlib.contextmanager
def _plain_where_nothing_is_drawn(joint: fx.GraphModule) -> Iterator[None]:
    """Hide from torch's partitioner that operators run twice which draw nothing, so that it does not wrap them.

    Up to torch 2.14 it takes any attention for random, and a wrapper would keep CUDA graphs away.
    """
    hidden = [
        (node, node.meta.pop("recompute"))
        for node in joint.graph.nodes
        if is_checkpointed(node) and not is_random(node)
    ]
    try:
        yield
    finally:
        for node, policy in hidden:
            node.meta["recompute"] = policy


def _in_cuda_graphs() -> bool:
    # There generators have to be inputs of the halves. But these are others than the script's and draw other numbers,
    # and their number is fixed with the first pair of a graph.
    from torch._inductor import config

    return bool(config.triton.cudagraphs and torch._functorch.config.graphsafe_rng_functionalization)
