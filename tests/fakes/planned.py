"""A model under an engine: one step of it under any plans, and what the step left behind."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo.config
import torch._functorch.config
import torch._inductor.config
import torch.fx.experimental._config
from torch import nn

from autotune.records.configuration import Configuration, SizedPlans
from autotune.records.engines import SWITCHING_ENGINES
from autotune.records.plan import ALL, Plan, parse_plans
from autotune.worker.engines.plan_engine import AotEngine, PlanEngine
from autotune.worker.hooks.samples import shapes_of

__all__ = ["Planned", "Trace", "clean_torch", "kept_bytes"]


@dataclass(frozen=True)
class Trace:
    """What a training step leaves: gradients, buffers, the inputs (a model may change them) and the random state."""

    tensors: tuple[torch.Tensor | None, ...]

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Trace)
        pairs = zip(self.tensors, other.tensors, strict=True)
        return all(a is b if a is None or b is None else torch.equal(a, b) for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]

    def difference(self, other: Trace) -> float:
        """The largest difference between two values, relative to the largest value of all."""
        pairs = [
            (a.double(), b.double())
            for a, b in zip(self.tensors, other.tensors, strict=True)
            if a is not None and a.is_floating_point()
        ]
        largest = max(b.abs().max().item() for _, b in pairs)
        return max((a - b).abs().max().item() for a, b in pairs) / largest


class Planned:
    """Compiles a model, once if the engine switches; each step begins with the same parameters, inputs and seed."""

    def __init__(
        self,
        make: Callable[[], nn.Module],
        inputs: Callable[[], tuple[torch.Tensor, ...]],
        engine: type[PlanEngine] = AotEngine,
    ) -> None:
        torch.manual_seed(0)
        self.model = make().train()
        self.inputs = inputs()
        self._state = copy.deepcopy(self.model.state_dict())
        self.engine = engine()
        self.refusal: str | None = None
        self._compiled: Callable[..., Any] | None = None
        self._dynamic: tuple[int, ...] = ()

    def mark_dynamic(self, *dimensions: int) -> None:
        """Have these dimensions of the inputs traced with symbols as sizes."""
        self._dynamic = dimensions

    def plain(self) -> Trace:
        """A step of the model as it is."""
        return self.traced(self.model)

    def step(self, *plans: str | Plan, level: int = 0, sized: Sequence[SizedPlans] = ()) -> Trace:
        """A step under these plans; the first step compiles."""
        return self.traced(self._planned(plans, level, sized))

    def traced(self, call: Callable[..., Any]) -> Trace:
        """A step of any compiled form of the model."""
        inputs = self._begin()
        call(*inputs).mean().backward()
        gradients = [None if p.grad is None else p.grad.to_dense().clone() for p in self.model.parameters()]
        buffers = [buffer.clone() for buffer in self.model.buffers()]
        states = [torch.get_rng_state()]
        if any(tensor.is_cuda for tensor in inputs):
            states.append(torch.cuda.get_rng_state())
        return Trace((*gradients, *buffers, *inputs, *states))

    def measured_bytes(self, *plans: str | Plan, level: int = 0) -> int:
        """What autograd really keeps in a forward under these plans."""
        call = self._planned(plans, level)
        inputs = self._begin()
        lasting = [*self.model.parameters(), *self.model.buffers(), *inputs]
        return kept_bytes(lambda: call(*inputs), lasting)

    def saved_bytes(self) -> int:
        """What the engine says that the last step kept."""
        saved = self.engine.saved_bytes()
        assert saved is not None
        return saved

    def rows(self) -> dict[Plan, list[int]]:
        """A plan for all occurrences of each operator cluster, with what each occurrence saves."""
        rows: dict[Plan, list[int]] = {}
        for graph in self.engine.slots():
            for occurrence in graph.joint.occurrences:
                plan = Plan(occurrence.cluster_id, occurrence.strategy, ALL)
                rows.setdefault(plan, []).append(occurrence.saving.value)
        return rows

    def plans(self) -> list[Plan]:
        """A plan for all occurrences of each cluster, operators' and layers'; the first strategy of each."""
        found = sorted(cluster for graph in self.engine.graphs for cluster in graph.joint.clusters())
        return [Plan(cluster_id, strategy, ALL) for cluster_id, strategy in dict(found).items()]

    def _planned(self, plans: Iterable[str | Plan], level: int, sized: Sequence[SizedPlans] = ()) -> Callable[..., Any]:
        chosen = parse_plans(str(plan) for plan in plans)
        configuration = Configuration(self.engine.name, chosen, level, sized=tuple(sized))
        if self.engine.name not in SWITCHING_ENGINES and configuration != self.engine.configuration:
            torch._dynamo.reset()
            self.engine, self._compiled = type(self.engine)(), None
        self.refusal = self.engine.use(configuration)
        if self._compiled is None:
            self._compiled = self.engine.compile_root(self.model)
        self.engine.begin_call(shapes_of(self.inputs))
        return self._compiled

    def _begin(self) -> list[torch.Tensor]:
        self.model.load_state_dict(self._state)
        self.model.zero_grad(set_to_none=True)
        torch.manual_seed(7)
        inputs = [tensor.clone() for tensor in self.inputs]
        for tensor, dimension in itertools.product(inputs, self._dynamic):
            torch._dynamo.maybe_mark_dynamic(tensor, dimension)
        return inputs


def kept_bytes(forward: Callable[[], Any], lasting: Iterable[torch.Tensor]) -> int:
    """Run a forward; gives the bytes that autograd keeps for its backward, each storage once.

    Args:
        forward: what to run.
        lasting: tensors that stay anyway (parameters, buffers, inputs) and do not count.
    """
    storages: dict[int, torch.Tensor] = {}

    @torch._dynamo.disable
    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if not getattr(tensor, "is_mark", False):  # a graph's own
            storages[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = forward()
    known = {tensor.untyped_storage()._cdata for tensor in lasting}
    del result
    return sum(each.untyped_storage().nbytes() for key, each in storages.items() if key not in known)


@contextlib.contextmanager
def clean_torch() -> Iterator[None]:
    """Undo what an engine sets in torch's configuration, and drop what was compiled."""
    functorch, inductor = torch._functorch.config, torch._inductor.config
    dynamo, fx_config = torch._dynamo.config, torch.fx.experimental._config
    with (
        functorch.patch(
            enable_autograd_cache=functorch.enable_autograd_cache,
            donated_buffer=functorch.donated_buffer,
            graphsafe_rng_functionalization=functorch.graphsafe_rng_functionalization,
        ),
        inductor.patch(custom_partitioner_fn=inductor.custom_partitioner_fn),
        dynamo.patch(
            suppress_errors=dynamo.suppress_errors,
            allow_unspec_int_on_nn_module=dynamo.allow_unspec_int_on_nn_module,
            skip_tensor_guards_with_matching_dict_tags=dynamo.skip_tensor_guards_with_matching_dict_tags,
        ),
        fx_config.patch(use_duck_shape=fx_config.use_duck_shape),
    ):
        torch._dynamo.reset()
        try:
            yield
        finally:
            torch._dynamo.reset()
