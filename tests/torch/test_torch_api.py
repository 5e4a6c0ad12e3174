"""What the worker relies on in torch beyond its documented interface; each assertion says what breaks without it.

Read against torch 2.11, 2.13 and 2.15. A new version of torch that fails here needs a look at the named module first.
"""

from __future__ import annotations

import copy
import inspect
import mmap
import pickle
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo.config
import torch._dynamo.trace_rules
import torch._dynamo.utils
import torch._dynamo.variables.nn_module
import torch._functorch.config
import torch.fx.experimental._config
import torch.utils.data
from torch import fx, nn
from torch._C._dynamo import eval_frame as c_eval_frame
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._dynamo.eval_frame import skip_code
from torch._functorch import partitioners
from torch._functorch.aot_autograd import aot_module_simplified
from torch._guards import CompileContext, TracingContext
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim import optimizer
from torch.utils import checkpoint
from torch.utils.checkpoint import CheckpointPolicy
from torch.utils.data import dataloader

from tests.fakes.planned import clean_torch

# A warning made an error stops Dynamo's tracing, and Inductor's import.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning"),
]

aten = torch.ops.aten


def test_a_call_of_one_s_own_is_an_attribute_that_no_copy_and_no_pickle_has() -> None:
    model = nn.Linear(2, 2)
    model._compiled_call_impl = lambda x: ("ours", x)
    assert model(1) == ("ours", 1)
    assert pickle.loads(pickle.dumps(model))._compiled_call_impl is None
    assert copy.deepcopy(model)._compiled_call_impl is None
    del model.__dict__["_compiled_call_impl"]
    assert model._compiled_call_impl is None


def test_a_callback_of_a_backward_may_raise_out_of_it() -> None:
    def refuse() -> None:
        raise LookupError("refused")

    x = torch.ones(2, requires_grad=True)
    y = 2 * x
    y.register_hook(lambda _: torch.autograd.Variable._execution_engine.queue_callback(refuse))
    with pytest.raises(LookupError, match="refused"):
        y.sum().backward()
    assert x.grad is not None


def test_a_storage_s_address_is_not_used_again_as_long_as_it_is_weakly_held() -> None:
    addresses, held = set(), []
    for _ in range(100):
        storage = torch.empty(7).untyped_storage()
        held.append(StorageWeakRef(storage))
        addresses.add(storage._cdata)
    assert len(addresses) == 100
    assert all(one.expired() for one in held[:-1])


def test_dynamo_forgets_that_it_gave_up_on_a_function() -> None:
    compiled, calls = [], []

    def backend(graph: fx.GraphModule, _: Any) -> Any:
        compiled.append(graph)
        return graph

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        calls.append(1) if not torch.compiler.is_compiling() else None
        return x @ y

    with clean_torch(), torch._dynamo.config.patch(suppress_errors=True):
        ours = torch.compile(function, backend=backend)
        for _ in range(2):
            with pytest.raises(RuntimeError):
                ours(torch.ones(2, 3), torch.ones(2, 3))
        c_eval_frame.reset_code(function.__code__)
        ours(torch.ones(2, 2), torch.ones(2, 2))
    assert len(compiled) == 1
    assert len(calls) == 2


class Net(nn.Module):
    """Blocks in a list, dropout, a normalization with running statistics, an activation changed in place."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)) for _ in range(2))
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = torch.tanh(block(x))
        hidden.mul_(2)
        return self.norm(x).sum() + hidden.sum()


class Seen:
    """What AOTAutograd hands to a backend while it compiles ``Net``."""

    def __init__(self) -> None:
        self.partitioned: list[tuple[fx.GraphModule, Any, dict[str, Any]]] = []
        self.compile_ids: list[str] = []
        self.fake_modes: list[Any] = []
        self.metadata: list[Any] = []
        self.forward_meta: list[dict[str, Any]] = []
        self.backward_meta: list[dict[str, Any]] = []

    def partition(self, joint: fx.GraphModule, inputs: Any, **keywords: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        self.partitioned.append((joint, inputs, keywords))
        self.compile_ids.append(str(CompileContext.current_compile_id()))
        context = TracingContext.try_get()
        assert context is not None
        self.fake_modes.append(context.fake_mode)
        forward, backward = partitioners.default_partition(joint, inputs, **keywords)
        forward.meta["mine"] = backward.meta["mine"] = 7
        return forward, backward

    def compile_forward(self, module: fx.GraphModule, _: Any) -> Any:
        context = TracingContext.try_get()
        self.metadata.append(getattr(context, "fw_metadata", None))
        self.forward_meta.append(dict(module.meta))
        return boxed_nop(module, [])

    def compile_backward(self, module: fx.GraphModule, _: Any) -> Any:
        self.backward_meta.append(dict(module.meta))
        return boxed_nop(module, [])


@pytest.fixture(scope="module")
def seen() -> Iterator[Seen]:
    with clean_torch():
        found = Seen()
        backend = aot_autograd(
            fw_compiler=found.compile_forward,
            bw_compiler=found.compile_backward,
            inference_compiler=boxed_nop,
            partition_fn=found.partition,
            keep_inference_input_mutations=True,
        )
        torch._functorch.config.enable_autograd_cache = False
        model = Net()
        compiled = torch.compile(model._call_impl, backend=backend)
        compiled(torch.randn(4, 8), torch.randn(4, 8, requires_grad=True) * 1).backward()
        yield found


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


# -- AOTAutograd and its partitioners


def test_the_partitioner_is_called_as_we_take_it(seen: Seen) -> None:
    ((_, inputs, keywords),) = seen.partitioned
    assert set(keywords) <= {"num_fwd_outputs", "static_lifetime_input_indices"}, "AotEngine.partition drops the rest"
    assert isinstance(keywords["num_fwd_outputs"], int), "JointGraph could not tell outputs from what is saved"
    assert inputs, "an empty list of inputs marks a region compiled apart, which AotEngine.partition leaves alone"


def test_the_stock_partitioners_take_what_we_hand_on() -> None:
    taken = parameters(partitioners.default_partition)
    assert {"num_fwd_outputs", "static_lifetime_input_indices"} <= set(taken[2:]), "JointGraph._split calls it so"
    assert "num_fwd_outputs" in parameters(partitioners.min_cut_rematerialization_partition), (
        "partition_for_inductor falls back to it"
    )
    backend = parameters(aot_module_simplified)
    for name in ("fw_compiler", "bw_compiler", "inference_compiler", "partition_fn", "keep_inference_input_mutations"):
        assert name in backend, f"AotEngine.backend hands over {name}"


def test_forward_and_backward_keep_the_metadata_of_their_modules(seen: Seen) -> None:
    assert [meta["mine"] for meta in (*seen.forward_meta, *seen.backward_meta)] == [7, 7], (
        "AotEngine._owner finds the graph of a compiled callable by it; without it no plan would ever run"
    )
    module = fx.GraphModule({}, fx.Graph())
    module.meta["mine"] = 7
    assert copy.deepcopy(module).meta["mine"] == 7, "AOTAutograd copies the backward before it compiles it"


def test_a_frame_and_its_compilation_have_numbers(seen: Seen) -> None:
    (identity,) = seen.compile_ids
    frame, _, number = identity.partition("/")
    assert frame.isdigit(), "slots tell recompilations of a frame from other graphs by it"
    assert number.isdigit(), "slots tell recompilations of a frame from other graphs by it"


def test_the_runtimes_metadata_can_be_reached(seen: Seen) -> None:
    (metadata,) = seen.metadata
    assert metadata is not None, "a switched pair could not tell the runtime which saved tensors are inputs"
    flags = getattr(metadata, "saved_tensor_is_graph_input", None)
    assert flags is None or isinstance(flags, list), "torch 2.15 reads this list at each call; Graph.switch rewrites it"


def test_the_states_of_generators_can_be_traced_with_a_fixed_size(seen: Seen) -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    assert hasattr(seen.fake_modes[0], "static_shapes"), "_static_shapes sets it while a graph is partitioned"
    assert not isinstance(mode.from_tensor(torch.zeros(7)).shape[0], int), "else _static_shapes is not needed any more"
    mode.static_shapes = True
    assert isinstance(mode.from_tensor(torch.zeros(7)).shape[0], int), (
        "the runtime keeps the places of saved tensors with symbols, and fails on a pair that saves fewer"
    )


def test_nodes_carry_the_metadata_that_we_read(seen: Seen) -> None:
    joint = seen.partitioned[0][0]
    linear = next(node for node in joint.graph.nodes if node.target is aten.addmm.default)
    stack = list(linear.meta["nn_module_stack"].values())
    assert any(str(path).endswith(("blocks.0", "blocks[0]", "blocks['0']")) for path, _ in stack), (
        f"layers are found by the index at the end of a module's path: {stack}"
    )
    assert any(getattr(kind, "__name__", str(kind)).endswith("Sequential") for _, kind in stack), (
        "layers are named by their class"
    )
    assert isinstance(linear.meta["seq_nr"], int), "a decomposed operator counts once in a cluster's id"
    assert linear.meta["original_aten"]._overloadpacket.__name__ == "addmm", (
        "cluster ids use the operator that the script called"
    )
    assert isinstance(linear.meta["val"], torch.Tensor), "sizes and storages come from the fake value"


def test_a_view_shares_its_fake_storage(seen: Seen) -> None:
    joint = seen.partitioned[0][0]
    transposed = next(node for node in joint.graph.nodes if node.target is aten.t.default)
    source = transposed.args[0]
    keys = [node.meta["val"].untyped_storage()._cdata for node in (transposed, source)]
    assert keys[0] == keys[1], "stashes are grouped by storage: recomputing one of two views would free nothing"
    assert source.meta["val"].untyped_storage().nbytes() == 8 * 8 * 4, "a stash keeps its whole storage"


def test_what_a_graph_changes_is_marked(seen: Seen) -> None:
    joint = seen.partitioned[0][0]
    inside = [node for node in joint.graph.nodes if node.target is aten.copy_.default]
    assert len(inside) >= 2, "running statistics change in the graph; what reads them must not be run again"
    assert {node.args[0].op for node in inside} == {"placeholder"}
    outputs = joint.graph.find_nodes(op="output")[0].meta.get("desc") or ()
    changed = [each.mutated_input for each in outputs if hasattr(each, "mutated_input")]
    inputs = [node.meta.get("desc") for node in joint.graph.find_nodes(op="placeholder")]
    assert len(changed) == 1, "an activation that autograd watches changes outside of the graph, marked at its output"
    assert changed[0] in inputs, "Repeatable finds the input by its description"


def test_a_normalization_gives_its_running_statistics_last(seen: Seen) -> None:
    joint = seen.partitioned[0][0]
    (norm,) = [node for node in joint.graph.nodes if node.target is aten._native_batch_norm_legit_functional.default]
    assert norm.args[5] is True, "Repeatable looks whether it is in training there"
    copied = {node.args[1] for node in joint.graph.nodes if node.target is aten.copy_.default}
    assert {user.args[1] for user in norm.users if user in copied} == {3, 4}, "from these on results depend on buffers"


def test_operators_that_we_name_exist() -> None:
    for name in (
        "_batch_norm_with_update_functional",
        "_efficient_attention_forward",
        "_flash_attention_forward",
        "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_mm",
        "_unsafe_view",
    ):
        assert hasattr(aten, name), f"plans/repeatable.py and plans/joint.py cannot be imported without aten.{name}"
    tags = aten.native_dropout.default.tags
    assert torch.Tag.nondeterministic_seeded in tags, "random operators are told by it, here and in the partitioner"
    assert torch.Tag.nondeterministic_seeded in aten.rand.default.tags, "random operators are told by it"
    arguments = [argument.name for argument in aten._scaled_dot_product_flash_attention.default._schema.arguments]
    assert "dropout_p" in arguments, "attention that drops nothing would be taken for random"


def test_the_partitioner_reads_the_tags_that_we_set() -> None:
    assert CheckpointPolicy.MUST_RECOMPUTE is not CheckpointPolicy.MUST_SAVE
    tags = inspect.getsource(partitioners.cleanup_recompute_tags)
    assert 'meta["recompute"]' in tags, "plans are these tags"
    assert '"ac_graph_id"' in tags, "layers are kept apart by their numbers"
    assert "is_default_partition" in tags, "what enters a recomputed cluster is saved only by the default partitioner"
    modules = inspect.getsource(partitioners._extract_fwd_bwd_modules)
    assert '"saved_tensor_with_no_vc_check"' in modules, "Pair.signature counts them as the runtime does"
    assert "functionalize_rng_ops(" in inspect.getsource(partitioners.default_partition), (
        "plans/redrawing.py would not be asked for what restores generators"
    )
    random = inspect.getsource(partitioners.functionalize_rng_ops)
    assert "graphsafe_rng_functionalization" in random, (
        "in CUDA graphs generators have to be inputs, and elsewhere must not: they draw other numbers"
    )
    given = list(inspect.signature(partitioners.functionalize_rng_ops).parameters)
    assert given == ["joint_module", "fw_module", "bw_module", "num_sym_nodes"], "plans/redrawing.py takes its place"
    assert partitioners.get_default_op_list().is_view is not None, "views do not count in a cluster's id"


@pytest.mark.parametrize(
    ("configuration", "name", "consequence"),
    [
        (torch._functorch.config, "enable_autograd_cache", "a cache hit would skip the partitioner"),
        (torch._functorch.config, "donated_buffer", "buffers are lent by the first pair's saved tensors"),
        (torch._functorch.config, "graphsafe_rng_functionalization", "plans would draw other numbers"),
        (torch._dynamo.config, "suppress_errors", "what Dynamo cannot trace would end the script"),
        (torch._dynamo.config, "allow_unspec_int_on_nn_module", "a model that counts its calls would be given up"),
        (
            torch._dynamo.config,
            "skip_tensor_guards_with_matching_dict_tags",
            "torch 2.11 misses that layers are thawed",
        ),
        (torch.fx.experimental._config, "use_duck_shape", "a formula would say batch**2 for batch*seq_len"),
        (torch._inductor.config, "custom_partitioner_fn", "scripts that compile with Inductor would get no plans"),
    ],
)
def test_the_settings_that_we_change_exist(configuration: Any, name: str, consequence: str) -> None:
    assert hasattr(configuration, name), consequence


def test_inductor_takes_a_partitioner_and_calls_it_with_keywords() -> None:
    from torch._inductor import compile_fx
    from torch._inductor.custom_graph_pass import CustomPartitionerFn

    assert {"__call__", "uuid"} <= CustomPartitionerFn.__abstractmethods__, "hooks/compilation.py implements these"
    source = inspect.getsource(compile_fx.partition_fn)
    assert "config.custom_partitioner_fn(" in source, "Inductor would ignore our partitioner"
    assert "static_lifetime_input_indices=" in source, "partition_for_inductor takes it from the keywords"


# -- Dynamo


def test_dynamo_can_be_told_to_leave_functions_alone() -> None:
    def function() -> None: ...

    skip_code(function.__code__)
    action = c_eval_frame._FrameAction
    strategy = c_eval_frame._FrameExecStrategy(action.SKIP, action.SKIP)
    c_eval_frame.set_code_exec_strategy(function.__code__, strategy)
    assert "_torchdynamo_disable" in inspect.getsource(torch._dynamo.symbolic_convert), (
        "hooks inside a compiled step would be traced into the script's graph"
    )


def test_dynamo_knows_the_modules_call_by_two_names() -> None:
    for module in (torch._dynamo.utils, torch._dynamo.variables.nn_module):
        assert module.unpatched_nn_module_call is nn.Module.__call__, (
            "RootHooks replaces both, or Dynamo would not look into submodules once the call is patched"
        )


def test_dynamo_says_which_code_it_skips() -> None:
    def own(x: torch.Tensor) -> torch.Tensor:
        return x

    assert torch._dynamo.trace_rules.check(nn.Sequential().forward), (
        "if torch.nn's own forwards are traced now, AotEngine.compile_root needs no function around them"
    )
    assert not torch._dynamo.trace_rules.check(own)


def test_a_module_has_a_call_of_its_own_that_can_be_compiled() -> None:
    module = nn.Linear(2, 2)
    assert callable(module._call_impl), "roots are compiled by their _call_impl, hooks of the module included"
    module._compiled_call_impl = lambda _: "compiled"
    assert module(torch.zeros(2)) == "compiled", "a module inside DistributedDataParallel is replaced by it"
    assert pickle.loads(pickle.dumps(nn.Linear(2, 2)))._compiled_call_impl is None
    module._compiled_call_impl = module._call_impl
    assert copy.deepcopy(module)._compiled_call_impl is None, "a copied or saved module must not carry ours"


# -- autograd, functorch, loaders, optimizers


def test_a_call_knows_whether_it_is_inside_of_a_backward_or_a_transform() -> None:
    inside: list[Any] = []
    x = torch.ones(2, requires_grad=True)
    x.register_hook(lambda gradient: inside.append(torch._C._current_graph_task_id()) or gradient)
    assert torch._C._current_graph_task_id() == -1, "every call would look like one inside of backward"
    x.sum().backward()
    assert inside[0] != -1, "a checkpoint's second forward would count as a training call"
    peek = torch._C._functorch.peek_interpreter_stack
    assert peek() is None, "every call would look like one under functorch"
    inside.clear()
    torch.func.grad(lambda value: inside.append(peek()) or value.sum())(torch.ones(2))
    assert inside[0] is not None, "calls under functorch would be compiled, which they do not survive"
    assert torch._C._is_tracing() is False, "every call would look like one under TorchScript"


def test_saved_values_come_back_in_a_known_order() -> None:
    source = inspect.getsource(torch._functorch._aot_autograd.runtime_wrappers)
    assert "ctx_symints" in source or "*ctx.symints" in source, (
        "Pair.mark_of_backward counts saved symbols first; the forward's results hold them last"
    )


def test_the_runtime_holds_the_gradients_that_a_backward_is_given_where_simulated_so() -> None:
    """Up to torch 2.12; predicted peaks of a backward were too low by them."""
    from autotune.worker.plans.activation_graph import holds_tangents

    alive: list[bool] = []

    def compile_backward(module: fx.GraphModule, _: Any) -> Any:
        def run(arguments: list[Any]) -> Any:
            tangent = weakref.ref(arguments[-1])
            results = fx.Interpreter(module).boxed_run(arguments)
            alive.append(tangent() is not None)
            return results

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    with clean_torch():
        torch._functorch.config.enable_autograd_cache = False
        backend = aot_autograd(fw_compiler=boxed_nop, bw_compiler=compile_backward)
        compiled = torch.compile(lambda x: torch.tanh(x).sin(), backend=backend)
        (compiled(torch.ones(4, requires_grad=True)) * 2.0).sum().backward()
    assert alive == [holds_tangents()]


def test_loaders_draw_their_indices_where_we_look() -> None:
    assert parameters(torch.utils.data.DataLoader.__init__)[1:6] == [
        "dataset",
        "batch_size",
        "shuffle",
        "sampler",
        "batch_sampler",
    ], "LoaderHooks takes these by position"
    iterator = dataloader._BaseDataLoaderIter
    assert {"__init__", "__next__", "_next_index", "_reset"} <= set(vars(iterator)), "LoaderHooks patches these"
    for kind in (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter):
        assert "_next_index" not in vars(kind), f"{kind.__name__} would draw past the hook"
        assert "__next__" not in vars(kind), f"{kind.__name__} would hand out past the hook"
    multiple = inspect.getsource(dataloader._MultiProcessingDataLoaderIter._reset)
    assert "super()._reset(" in multiple, "sizes that were drawn ahead would stay after an epoch left early"
    assert dataloader._DatasetKind.Iterable != dataloader._DatasetKind.Map


def test_optimizers_have_global_hooks_around_their_step() -> None:
    calls: list[str] = []
    handles = [
        optimizer.register_optimizer_step_pre_hook(lambda *_: calls.append("before")),
        optimizer.register_optimizer_step_post_hook(lambda *_: calls.append("after")),
    ]
    try:
        torch.optim.SGD([nn.Parameter(torch.ones(1))]).step()
    finally:
        for handle in handles:
            handle.remove()
    assert calls == ["before", "after"], "steps are counted by these hooks"


def test_a_loss_goes_through_the_function_that_we_replace(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = torch.autograd.backward
    monkeypatch.setattr(torch.autograd, "backward", lambda *a, **k: calls.append(a) or real(*a, **k))
    torch.ones(1, requires_grad=True).sum().backward()
    assert len(calls) == 1, "backwards are counted by replacing torch.autograd.backward"


def test_a_hook_can_ask_to_be_called_when_the_backward_is_done() -> None:
    """Undocumented, though what torch's own wrappers do; the memory matrix has no row after the backward without it."""
    order: list[str] = []
    weight = torch.ones(2, requires_grad=True)
    outputs = weight * 2

    def begun(_: torch.Tensor) -> None:
        order.append("begun")
        torch.autograd.Variable._execution_engine.queue_callback(lambda: order.append("done"))

    torch.autograd.graph.register_multi_grad_hook([outputs], begun, mode="any")
    weight.register_post_accumulate_grad_hook(lambda _: order.append("gradient"))
    outputs.sum().backward()
    assert order == ["begun", "gradient", "done"]


def test_the_allocators_statistics_have_the_names_that_the_memory_matrix_reads() -> None:
    documented = torch.cuda.memory_stats.__doc__ or ""
    for name in ("allocated_bytes", "reserved_bytes", "inactive_split_bytes"):
        assert f'``"{name}.' in documented, name
    assert all(f"``{kind}``" in documented for kind in ("current", "peak"))


def test_optimizers_that_are_fused_have_their_kernels_name_their_step_in_torch_and_its_keyword_in_the_defaults() -> (
    None
):
    """worker/choices/optimizers.py gives the keyword right before a step, and asks the dispatcher for the kernel."""
    for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad):
        kernel = f"_fused_{kind.__name__.lower()}_"
        assert hasattr(torch, kernel)
        assert torch._C._dispatch_has_kernel_for_dispatch_key(
            f"aten::{kernel}", torch._C._dispatch_key_for_device("cpu")
        )
        made = kind([nn.Parameter(torch.zeros(2))], lr=0.1)
        assert made.defaults["fused"] is None is made.param_groups[0]["fused"]
        assert type(made).step.__module__.startswith("torch.optim.")
    parameters: list[torch.Tensor] = [nn.Parameter(torch.zeros(2))]
    choose = optimizer._default_to_fused_or_foreach
    assert choose(parameters, differentiable=False, use_fused=True) == (True, False)
    assert choose(parameters, differentiable=False, use_fused=False) == (False, False)


def test_autocast_says_what_it_is_entered_with() -> None:
    """worker/choices/precision.py tells the script's own autocast from one that is switched off."""
    for enabled in (True, False):
        entered = torch.autocast("cpu", torch.bfloat16, enabled=enabled)
        assert (entered._enabled, entered.fast_dtype) == (enabled, torch.bfloat16)


def test_inductor_asks_one_function_for_the_folder_that_no_variable_names() -> None:
    """worker/run.py redirects it, and what has its value already: else runs write into the user's own cache."""
    from torch._inductor import codecache
    from torch._inductor.runtime import cache_dir_utils, runtime_utils

    assert cache_dir_utils.default_cache_dir is runtime_utils.default_cache_dir is codecache.default_cache_dir
    assert codecache._HEADER_DIR.startswith(cache_dir_utils.default_cache_dir())
    assert "TORCHINDUCTOR_CACHE_DIR" in inspect.getsource(cache_dir_utils.cache_dir)


def test_inductor_reads_from_a_variable_whether_casts_are_kept() -> None:
    """worker/proving/seeds.py sets it before the script imports torch: else proofs hold rounding against plans."""
    import torch._inductor.config

    assert isinstance(torch._inductor.config.emulate_precision_casts, bool)
    assert '"TORCHINDUCTOR_EMULATE_PRECISION_CASTS", "0"' in inspect.getsource(torch._inductor.config)


def test_inductor_knows_what_a_search_for_kernels_is_called() -> None:
    """worker/engines/inductor.py switches it off in trials: else each of them takes minutes to compile."""
    import torch._inductor.config

    modes = torch._inductor.list_mode_options()
    assert {"max_autotune", "coordinate_descent_tuning"} <= set(modes["max-autotune-no-cudagraphs"])
    assert set(modes["max-autotune"]) - set(modes["max-autotune-no-cudagraphs"]) == {"triton.cudagraphs"}
    for name in ("max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "coordinate_descent_tuning"):
        assert isinstance(getattr(torch._inductor.config, name), bool), name


def test_checkpoints_are_written_by_a_class_whose_construction_can_be_wrapped() -> None:
    """worker/native_writers.py hears there of a file that is about to be emptied; no audit event tells of it."""
    writer = torch._C.PyTorchFileWriter
    original = writer.__init__
    writer.__init__ = original
    assert "PyTorchFileWriter(" in inspect.getsource(torch.serialization._open_zipfile_writer_file)
    assert callable(torch._C.ScriptModule.save)


def test_threads_of_a_devices_backward_are_named_as_ever() -> None:
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as code:
        assert code.find(b"pt_autograd_") >= 0, "metering.waiting.WaitingTime counts them by this name"


def test_checkpoints_are_made_of_what_an_audit_watches() -> None:
    """``worker/hooks/saving.py``: under other names an audit would fail, or see no region."""
    from autotune.worker.hooks.saving import GENERATOR

    hooks = torch.autograd.graph.saved_tensors_hooks
    assert issubclass(checkpoint._checkpoint_hook, hooks)
    assert issubclass(checkpoint._recomputation_hook, hooks)
    assert inspect.isgeneratorfunction(getattr(checkpoint, GENERATOR))
    assert f"gen = {GENERATOR}(" in inspect.getsource(checkpoint)
    first = list(inspect.signature(checkpoint.CheckpointFunction.forward).parameters)[:3]
    assert first == ["ctx", "run_function", "preserve_rng_state"]
    assert next(iter(inspect.signature(checkpoint._VersionWrapper).parameters)) == "val"
