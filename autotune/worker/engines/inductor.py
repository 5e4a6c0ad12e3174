"""Engine ``inductor``: the graphs compiled by Inductor, the plans on top of what its own partitioner recomputes.

Inductor decomposes operators and fuses what it can, so its min-cut partitioner recomputes a good deal for nothing. That
decision is the engine's baseline. Each set of plans is compiled anew, so nothing is switched.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import fx

from ...records.outcome import Fallback
from ..device import uses_cuda
from ..plans.joint import ancestors
from ..plans.layers import Block
from .plan_engine import PlanEngine

_NOTE = (
    "plans under engine inductor: savings are on top of what Inductor recomputes by itself; times are those of single "
    "operators, which Inductor fuses: upper bounds; a cluster can have another id than under engine aot, as Inductor "
    "takes operators apart (a dropout's mask is native_dropout+[mask])"
)

# Of torch._inductor.config, what has Inductor search for kernels: it compiles and times some dozens for each operator,
# in minutes. Discovery, trials and proofs leave it out; repetitions and what is launched have it. Not every version of
# torch needs each of them.
_SEARCHES = ("max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "coordinate_descent_tuning")

Run = Literal["compiled", "compiled unseen", "interpreted"]


class InductorEngine(PlanEngine):
    """Compiles roots as ``torch.compile`` does by itself, with the current plans.

    While the script is being described, Inductor's graphs are run as they are: generated code does not tell what each
    operator costs.
    """

    name = "inductor"

    def __init__(self) -> None:
        super().__init__()
        self._describing = False

    def describe(self) -> tuple[str, ...]:
        """Prepare for a description of the script: what is compiled from now on runs node by node."""
        self._describing = True
        return (_NOTE,)

    def backend(self, block: Block | None = None) -> Any:
        """Return a Dynamo backend that partitions by the current plans."""

        def backend(module: fx.GraphModule, inputs: Sequence[Any], **keywords: Any) -> Any:
            from torch._dynamo.exc import RestartAnalysis
            from torch._inductor.compile_fx import compile_fx

            if self._describing:
                keywords["inner_compile"] = self._interpret
            partitioner = make_partitioner(self, "interpreted" if self._describing else "compiled", block)
            own = len(self.graphs)
            # A hit in this cache would skip the partitioner, and with it the plans. Inductor's own cache comes after
            # it, and keys on what was partitioned.
            with torch._functorch.config.patch(enable_autograd_cache=False):
                try:
                    patches = {"custom_partitioner_fn": partitioner, **self._without_search()}
                    compiled: Any = compile_fx(module, inputs, config_patches=patches, **keywords)
                except Exception as error:
                    del self.graphs[own:]
                    # After a restart Dynamo traces again; it has not given up.
                    if not isinstance(error, RestartAnalysis):
                        cause = f"Inductor could not compile a graph: {type(error).__name__}: {error}"
                        self.failures.append(Fallback(cause, advice="--engine aot applies plans without a compiler."))
                    raise
            graphs = () if self._describing else tuple(self.graphs[own:])

            def run(*arguments: Any) -> Any:
                for graph in graphs:
                    self.count(graph)
                return compiled(*arguments)

            return run

        return backend

    def _interpret(self, module: fx.GraphModule, inputs: Sequence[Any], **keywords: Any) -> Callable[..., Any]:
        """Run a graph node by node; keep the code that Inductor generates, to compare simulated memory with it."""
        from torch._inductor.compile_fx import compile_fx_inner
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        is_backward = bool(keywords.get("is_backward"))
        run = (self.interpret_backward if is_backward else self.interpret_forward)(module, inputs)
        owner = self._owner(module)
        # On a GPU nothing is simulated.
        if owner is not None and not uses_cuda():
            try:
                # Inductor rewrites what it compiles, and a forward is the very one that runs here node by node. A
                # tensor that it holds cannot be copied as a fake one.
                with unset_fake_temporarily():
                    own = copy.deepcopy(module)
                owner.generated[is_backward] = compile_fx_inner(own, inputs, **keywords)
            except Exception as error:
                # The script is described all the same; there are no predictions then.
                owner.not_generated = f"{type(error).__name__}: {error}"
        return run

    def _without_search(self) -> dict[str, bool]:
        if self.leave_out_search is None:
            return {}
        off = _switched_off()
        if off:
            self.leave_out_search()
        return off


def _switched_off() -> dict[str, bool]:
    """Return what of Inductor's configuration is to be off so that nothing is searched; empty where nothing is on."""
    from torch._inductor import config

    return {name: False for name in _SEARCHES if getattr(config, name, False)}


def without_kernel_search(keywords: dict[str, Any]) -> dict[str, Any]:
    """Return these keywords of ``torch.compile``, or a copy without the search if they ask for it; CUDA graphs stay."""
    import torch._inductor

    mode, options = keywords.get("mode"), keywords.get("options")
    try:
        meant = torch._inductor.list_mode_options(mode) if mode else {}
    except RuntimeError:
        return keywords  # no such mode: torch itself says so
    if mode and options:
        return keywords  # and that these do not go together
    meant = {name.replace("-", "_"): value for name, value in {**meant, **(options or {})}.items()}
    off = _switched_off() | {name: False for name in _SEARCHES if meant.get(name)}
    return {**keywords, "mode": None, "options": meant | off} if off else keywords


def make_partitioner(
    engine: PlanEngine, run: Run, block: Block | None = None, *, is_asked: Callable[[], None] = lambda: None
) -> Any:
    """Return an engine's partitioner in the form that Inductor's configuration takes.

    Graphs run ``compiled unseen`` where the script has them compiled, and nobody is told when they run. The partitioner
    calls ``is_asked`` before it partitions.
    """
    from torch._inductor.custom_graph_pass import CustomPartitionerFn

    class PlannedPartitioner(CustomPartitionerFn):
        """Inductor's own partitioner as long as there is no plan; with plans, its decision and the plans on top."""

        def __call__(self, gm: Any, joint_inputs: Any, **keywords: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
            from torch._functorch.partitioners import min_cut_rematerialization_partition as inductors_own

            is_asked()
            graph = None
            if joint_inputs:
                number, indices = keywords["num_fwd_outputs"], keywords.get("static_lifetime_input_indices")
                _merge_equal_nodes(gm, number)
                is_compiled = run != "interpreted"
                graph = engine.add_graph(gm, number, indices, inductors_own, block, is_compiled=is_compiled)
            if graph is not None:
                graph.is_unseen = run == "compiled unseen"
                graph.reset_counts()
                if not graph.is_fixed or graph.compiled is not graph.joint.unplanned:
                    return graph.compiled.forward, graph.compiled.backward
            return inductors_own(gm, joint_inputs, **keywords)

        def __deepcopy__(self, memo: Any) -> PlannedPartitioner:
            # Inductor copies its configuration; a copied engine would never hear of the graphs.
            return self

        def uuid(self) -> Any:
            # What Inductor's caches key on.
            plans = engine.configuration.plans if engine.active else ()
            return ("autotune", run, [str(plan) for plan in plans], engine.configuration.level)

        def __reduce__(self) -> Any:
            # Inductor's cache pickles its whole configuration for a key (torch 2.13), and never reads it back.
            return str, (str(self.uuid()),)

    return PlannedPartitioner()


def _merge_equal_nodes(joint: fx.GraphModule, num_forward_outputs: int) -> None:
    """Do what Inductor's partitioner begins with, so that what it decides is about the same nodes."""
    from torch._functorch.compile_utils import fx_graph_cse

    joint.graph.eliminate_dead_code()
    if not torch._functorch.config.cse:
        return
    keys: dict[str, Any] = {}
    if "extra_node_key" in inspect.signature(fx_graph_cse).parameters:
        # Torch 2.15 leaves apart what the backward needs and what it does not: merged, it would have to be saved.
        outputs = joint.graph.find_nodes(op="output")[0].args[0]
        keys["extra_node_key"] = ancestors(outputs[num_forward_outputs:]).__contains__
    joint.graph = fx_graph_cse(joint.graph, **keys)
