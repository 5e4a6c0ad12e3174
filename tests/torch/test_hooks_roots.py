"""Which module calls are the script's own training calls, and what runs in their place."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from autotune.records.configuration import Configuration
from autotune.records.plan import parse_plans
from autotune.worker.engines.plan_engine import AotEngine
from autotune.worker.hooks.compilation import watch_compile
from autotune.worker.hooks.roots import RootHooks
from tests.fakes.hooked import restored_torch
from tests.fakes.planned import clean_torch

AUTOGRAD_CACHE = torch._functorch.config.enable_autograd_cache

# A warning made an error stops Dynamo's tracing.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")


@pytest.fixture(autouse=True)
def _clean_torch() -> Iterator[None]:
    with clean_torch(), restored_torch():
        yield


class Block(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.inner, self.outer, self.dropout = nn.Linear(width, width), nn.Linear(width, width), nn.Dropout(0.2)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return x + self.dropout(self.outer(nn.functional.gelu(torch.tanh(self.inner(x))))) * scale


class Watched:
    """Installs the shim and writes down what it tells."""

    def __init__(self, *plans: str, with_engine: bool = True) -> None:
        self.engine = AotEngine() if with_engine else None
        if self.engine is not None:
            self.engine.use(Configuration("aot", parse_plans(plans)))
        self.training: list[tuple[nn.Module, tuple[Any, ...], dict[str, Any]]] = []
        self.evaluations = 0
        self.notes: list[str] = []
        self.optimized: list[nn.Module] = []
        self.hooks = RootHooks(
            engine=self.engine,
            training_call=self._training_call,
            evaluation_call=self._evaluation_call,
            call_done=lambda: None,
            inner_call=lambda *_: None,
            around=lambda root, call: call,
            is_optimized=lambda module: module in self.optimized,
            note=self.notes.append,
        )
        self.hooks.install()

    def _training_call(self, root: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if self.engine is not None:
            self.engine.begin_call()
        self.training.append((root, arguments, keywords))

    def _evaluation_call(self) -> None:
        self.evaluations += 1

    def roots(self) -> list[tuple[str, str]]:
        return [(root.name, root.applied_by) for root in self.hooks.roots.values()]


def rows(count: int = 64) -> torch.Tensor:
    return torch.randn(count, 64)


def test_only_the_outermost_call_is_the_scripts_own() -> None:
    watched = Watched(with_engine=False)
    model, x = nn.Sequential(Block(), Block()), rows()
    model(x)
    assert [(root, arguments) for root, arguments, _ in watched.training] == [(model, (x,))]
    assert watched.roots() == [("Sequential", "")]


def test_keywords_are_handed_on() -> None:
    watched = Watched()
    model = Block().train()
    x = rows()
    torch.manual_seed(1)
    scaled = model(x=x, scale=0.0)
    assert torch.equal(scaled, x)
    assert watched.training[0][1:] == ((), {"x": x, "scale": 0.0})


@pytest.mark.parametrize("kind", ["eval mode", "no grad", "inference mode", "frozen", "a loss"])
def test_what_is_no_training_call(kind: str) -> None:
    watched = Watched()
    model: nn.Module = nn.CrossEntropyLoss() if kind == "a loss" else nn.Linear(64, 64)
    arguments = [rows()] if kind != "a loss" else [torch.randn(4, 3, requires_grad=True), torch.tensor([0, 1, 2, 0])]
    if kind == "eval mode":
        model.eval()
        model(*arguments)
    elif kind == "no grad":
        with torch.no_grad():
            model(*arguments)
    elif kind == "inference mode":
        with torch.inference_mode():
            model(*arguments)
    else:
        model.requires_grad_(requires_grad=False)
        model(*arguments)
    assert watched.training == []
    assert watched.evaluations == (0 if kind == "a loss" else 1)
    assert watched.engine is not None
    assert watched.engine.graphs == []


def test_a_model_that_an_optimizer_holds_trains_in_evaluation_mode_under_plans() -> None:
    """Guards models that from_pretrained() leaves in evaluation mode, where a script calls no train()."""
    watched = Watched("gelu+:1:-1")
    model, x = nn.Sequential(Block(), nn.Linear(64, 1)).eval(), rows()
    watched.optimized.append(model)
    watched.hooks.trains_in_evaluation_mode = True
    model(x).mean().backward()
    assert watched.engine is not None
    assert watched.engine.problem() is None
    assert watched.engine.graphs[0].current.recomputed
    with torch.no_grad():
        model(x)
    assert (len(watched.training), watched.evaluations, watched.notes) == (1, 1, [])


def test_the_first_step_shows_whether_a_script_trains_in_evaluation_mode() -> None:
    watched = Watched(with_engine=False)
    model, frozen, x = nn.Linear(64, 64).eval(), nn.Linear(64, 64).eval(), rows()
    watched.optimized.append(model)
    for modules in ((frozen,), (model, frozen)):
        for module in modules:
            module(x)
        watched.hooks.first_step_done()
    assert watched.training == []
    frozen(x)
    model(x)
    assert [root for root, *_ in watched.training] == [model]


def test_evaluation_before_the_first_training_call_is_none() -> None:
    """Guards evaluations that keep gradients: their loaders would be taken for those of training."""
    watched = Watched(with_engine=False)
    model, x = nn.Linear(64, 64), rows()
    watched.optimized.append(model)
    model.eval()(x)
    model.train()(x)
    watched.hooks.first_step_done()
    model.eval()(x)
    assert (len(watched.training), watched.evaluations) == (1, 2)


def test_the_first_training_call_runs_under_the_plans_already() -> None:
    watched = Watched("gelu+:1:-1")
    model, x = nn.Sequential(Block(), nn.Linear(64, 1)), rows()
    torch.manual_seed(5)
    loss = model(x).mean()
    assert watched.engine is not None
    assert watched.engine.problem() is None
    assert watched.engine.graphs[0].current.recomputed
    loss.backward()
    applied = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    watched.engine.use(Configuration("eager"))
    torch.manual_seed(5)
    model(x).mean().backward()
    assert all(torch.equal(a, p.grad) for a, p in zip(applied, model.parameters(), strict=True))
    assert watched.roots() == [("Sequential", "aot")]
    assert len(watched.training) == 2


class DeepSpeedEngine(nn.Module):
    """In the place of DeepSpeed's."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.module(x)


def test_a_model_inside_of_wrappers_is_the_root_and_the_wrappers_are_told() -> None:
    watched = Watched(with_engine=True)
    model = Block()
    DeepSpeedEngine(nn.DataParallel(model))(rows()).mean().backward()
    (root,) = watched.hooks.roots.values()
    assert root.module() is model
    assert root.wrapped_by == ("DeepSpeedEngine", "DataParallel")
    assert root.applied_by == "aot"
    assert watched.engine.num_compiled == 1


def test_evaluation_of_a_compiled_root_runs_the_plain_module() -> None:
    watched = Watched()
    model, x = nn.Sequential(Block(), nn.Linear(64, 1)), rows()
    model(x).mean().backward()
    assert watched.engine is not None
    graphs = len(watched.engine.graphs)
    model.eval()
    with torch.no_grad():
        assert model(x).shape == (64, 1)
    assert len(watched.engine.graphs) == graphs
    assert watched.evaluations == 1


def test_roots_that_the_script_checkpoints_itself_run_alike_in_forward_and_backward() -> None:
    blocks, x = nn.ModuleList(Block() for _ in range(3)), rows()

    def gradients() -> list[torch.Tensor]:
        blocks.zero_grad()
        torch.manual_seed(3)
        hidden = x
        for block in blocks:
            hidden = checkpoint(block, hidden, use_reentrant=False)
        hidden.pow(2).mean().backward()
        return [parameter.grad.clone() for parameter in blocks.parameters()]

    expected = gradients()
    watched = Watched("gelu+:1:-1")
    for _ in range(2):
        assert all(torch.equal(a, b) for a, b in zip(gradients(), expected, strict=True))
    assert len(watched.training) == 6
    assert watched.notes == []
    assert watched.engine is not None
    assert watched.engine.problem() is None
    assert all(graph.forward_calls == graph.training_calls for graph in watched.engine.graphs)


def test_a_module_that_the_script_compiled_keeps_its_own_compilation() -> None:
    watched = Watched()
    watch_compile(watched.engine, watched.hooks.shim, watched.notes.append, watched.hooks.entries())
    model, x = Block(), rows()
    compiled = torch.compile(model, backend="eager")
    assert compiled(x).shape == x.shape
    in_place = Block()
    in_place.compile(backend="eager")
    assert in_place(x).shape == x.shape
    assert watched.roots() == [("Block", "the script's own compilation")] * 2
    assert watched.engine is not None
    assert watched.engine.graphs == []
    assert set(watched.notes) == {"the script compiles with 'eager', which takes no plans"}


def test_a_script_that_compiles_with_aot_eager_gets_the_plans() -> None:
    watched = Watched("gelu+:1:-1")
    watch_compile(watched.engine, watched.hooks.shim, watched.notes.append, watched.hooks.entries())
    model, x = Block(), rows()
    torch.manual_seed(5)
    torch.compile(model, backend="aot_eager")(x).mean().backward()
    applied = [parameter.grad.clone() for parameter in model.parameters()]
    assert watched.engine is not None
    assert watched.engine.problem() is None
    assert watched.engine.graphs[0].current.recomputed
    model.zero_grad()
    watched.engine.use(Configuration("eager"))
    torch.manual_seed(5)
    model(x).mean().backward()
    assert all(torch.equal(a, p.grad) for a, p in zip(applied, model.parameters(), strict=True))


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # Inductor's import
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_before_the_engine_is_active_the_scripts_own_compilation_is_as_without_it(backend: str) -> None:
    """Guards the baseline of a discovery run, where the engine is made first: its settings were the whole process's."""

    def settings() -> list[object]:
        functorch, dynamo = torch._functorch.config, torch._dynamo.config
        names = "donated_buffer", "graphsafe_rng_functionalization"
        return [*(getattr(functorch, name) for name in names), dynamo.suppress_errors]

    before = settings()
    watched = Watched()
    assert watched.engine is not None
    watched.engine.use(Configuration("eager"))
    watch_compile(watched.engine, watched.hooks.shim, watched.notes.append)
    torch.compile(Block(), backend=backend)
    nn.Linear(64, 1)(rows()).mean().backward()
    assert settings() == before
    if backend == "aot_eager":
        assert torch._functorch.config.enable_autograd_cache == AUTOGRAD_CACHE


OFF = {"max_autotune": False, "coordinate_descent_tuning": False}


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # Inductor's import
@pytest.mark.parametrize(
    ("asked", "settings", "passed"),
    [
        ({"mode": "max-autotune"}, {}, {"mode": None, "options": {**OFF, "triton.cudagraphs": True}}),
        (
            {"mode": "max-autotune-no-cudagraphs", "dynamic": False},
            {},
            {"mode": None, "options": OFF, "dynamic": False},
        ),
        (
            {"options": {"max-autotune-gemm": True, "shape_padding": True}},
            {},
            {"mode": None, "options": {"max_autotune_gemm": False, "shape_padding": True}},
        ),
        ({}, {"max_autotune": True}, {"mode": None, "options": {"max_autotune": False}}),
        ({"mode": "reduce-overhead"}, {}, None),
        ({"mode": "no such mode"}, {}, None),
        ({"mode": "max-autotune", "options": {"max_autotune": True}}, {}, None),
        ({"backend": "eager", "mode": "max-autotune"}, {}, None),
        ({}, {}, None),
    ],
)
def test_kernels_that_the_script_would_have_searched_are_not_where_a_run_leaves_that_out(
    asked: dict[str, Any], settings: dict[str, bool], passed: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch._inductor.config

    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(torch, "compile", lambda model, **keywords: seen.append(keywords))
    left_out: list[str] = []
    hooks = Watched().hooks
    watch_compile(None, hooks.shim, lambda line: None)
    with torch._inductor.config.patch(settings):
        torch.compile(Block(), **asked)
        watch_compile(None, hooks.shim, lambda line: None, leave_out_search=lambda: left_out.append("left out"))
        torch.compile(Block(), **asked)
    assert seen[0] == asked, "what the script is launched with"
    assert seen[1] == (asked if passed is None else passed)
    assert left_out == ([] if passed is None else ["left out"])


def test_a_decorated_function_is_compiled_once_with_its_options() -> None:
    watched = Watched()
    watch_compile(watched.engine, watched.hooks.shim, watched.notes.append)
    model, x = Block(), rows()

    @torch.compile(backend="eager", dynamic=False)
    def forward(x: torch.Tensor) -> torch.Tensor:
        return model(x) * 2

    assert forward(x).shape == x.shape
    assert watched.training == []
    assert watched.notes == ["the script compiles with 'eager', which takes no plans"]


def test_nothing_is_left_on_a_module_that_would_not_be_copied_or_saved() -> None:
    watched = Watched()
    model = nn.Sequential(Block(), nn.Linear(64, 1))
    model(rows()).mean().backward()
    before = set(vars(nn.Linear(2, 2))) | {"_compiled_call_impl"}
    assert set(vars(model)) <= before
    other = pickle.loads(pickle.dumps(nn.Sequential(nn.Linear(2, 2))))
    assert isinstance(other, nn.Sequential)
    copied = copy.deepcopy(model)
    copied(rows()).mean().backward()
    assert [root for root, *_ in watched.training] == [model, copied]


def test_a_copy_of_a_wrapped_model_has_its_own_weights_even_where_its_class_says_what_is_copied() -> None:
    class WithState(Block):
        def __getstate__(self) -> dict[str, Any]:
            return dict(vars(self))

    watched, x = Watched(), rows()
    model = WithState()
    nn.DataParallel(model)(x).mean().backward()
    assert "_compiled_call_impl" in vars(model)
    copied = copy.deepcopy(model)
    nn.init.zeros_(copied.outer.weight)
    nn.init.zeros_(copied.outer.bias)
    assert torch.equal(copied(x), x)
    assert watched.hooks.roots[id(copied)].applied_by == "aot"


def test_a_hook_that_fails_lets_the_call_go_on() -> None:
    watched = Watched()
    watched.hooks.training_call = lambda *_: 1 / 0
    assert Block()(rows()).shape == (64, 64)
    assert "ZeroDivisionError" in watched.notes[0]


def test_a_module_that_raises_does_not_hide_the_next_call() -> None:
    watched = Watched(with_engine=False)
    model = Block()
    with pytest.raises(RuntimeError):
        model(torch.randn(2, 3))
    model(rows())
    assert len(watched.training) == 2


def test_calls_in_threads_are_told_apart() -> None:
    watched = Watched(with_engine=False)
    models = [Block() for _ in range(4)]
    threads = [threading.Thread(target=model, args=(rows(),)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {id(root) for root, *_ in watched.training} == {id(model) for model in models}


def test_functional_transforms_and_torchscript_are_left_alone() -> None:
    watched = Watched()
    model, x = nn.Linear(64, 1), rows(4)
    parameters = dict(model.named_parameters())
    torch.func.grad(lambda values: torch.func.functional_call(model, values, x).mean())(parameters)
    assert watched.training == []
    assert watched.engine is not None
    assert watched.engine.without_plans == ["the script calls its model in a transform of torch.func"]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.")
def test_a_model_that_is_differentiated_in_forward_mode_runs_as_it_is_and_that_is_told() -> None:
    watched = Watched("gelu+:1:-1")
    model, x = Block().train(), rows(4)
    for _ in range(2):
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
            tangent = torch.autograd.forward_ad.unpack_dual(model(dual)).tangent
            tangent.square().mean().backward()
    assert watched.roots() == [("Block", "")]
    assert watched.engine is not None
    assert watched.engine.without_plans == ["the script differentiates its model in forward mode"]
    assert "forward mode" in watched.engine.problem().cause
    model(x).sum().backward()
    assert watched.roots() == [("Block", "aot")]
    assert watched.engine.problem() is None


@pytest.mark.parametrize("with_engine", [False, True])
@pytest.mark.parametrize("kind", ["own class", "class of torch.nn", "wrapped"])
def test_a_root_that_is_gone_is_forgotten_and_its_number_may_return(with_engine: bool, kind: str) -> None:
    """Guards the memory of scripts that make several models: what was compiled held the module, in a launch too."""
    watched = Watched(with_engine=with_engine)
    model = Block() if kind == "own class" else nn.Sequential(Block(), nn.Linear(64, 1))
    called = nn.DataParallel(model) if kind == "wrapped" else model
    called(rows()).mean().backward()
    assert list(watched.hooks.modules()) == [model]
    reference = weakref.ref(model)
    watched.training.clear()
    del model, called
    gc.collect()
    assert reference() is None
    assert watched.hooks.roots == {}


@pytest.mark.parametrize("plans", [(), ("gelu+:1:-1",)])
def test_who_rests_tells_nobody_of_calls_and_roots_run_under_the_plans_still(plans: tuple[str, ...]) -> None:
    watched = Watched(*plans)
    model, x = Block().train(), rows()
    model(x).sum().backward()
    watched.hooks.rest(passes=False)
    later = Block().train()
    for one in (model, later):
        one(x).sum().backward()
    model.eval()(x)
    assert watched.engine is not None
    assert len(watched.training) == 1
    assert watched.evaluations == 0
    assert watched.roots() == [("Block", "aot"), ("Block", "aot")]
    assert [graph.forward_calls for graph in watched.engine.graphs] == [2, 1]
    assert watched.engine.problem() is None


def test_who_passes_runs_what_is_called() -> None:
    watched = Watched(with_engine=False)
    watched.hooks.rest(passes=True)
    model, x = Block().train(), rows()
    model(x).sum().backward()
    assert (watched.training, watched.roots()) == ([], [])


class Opaque(nn.Module):
    """Dynamo cannot trace it, nor what checkpoints it, but torch's own layer inside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(64, 2, 64, activation="gelu", batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return self.layer(x)


class Checkpointing(nn.Module):
    def __init__(self, plain: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Opaque() for _ in range(3))
        self.plain = plain

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            x = layer(x) if self.plain and not number else checkpoint(layer, x, use_reentrant=False)
        return x


def test_what_the_script_checkpoints_inside_of_its_model_takes_no_plans() -> None:
    model, x = Checkpointing(plain=True), rows().unsqueeze(1)

    def gradients() -> list[torch.Tensor]:
        model.zero_grad()
        torch.manual_seed(3)
        model(x).pow(2).mean().backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    expected = gradients()
    watched = Watched("Opaque+:1:-1")
    for _ in range(2):
        assert all(torch.equal(a, b) for a, b in zip(gradients(), expected, strict=True))
    engine = watched.engine
    assert engine is not None
    assert engine.occurrences()["Opaque+", 1] == 1
    assert all(graph.current is graph.joint.unplanned for graph in engine.checkpointed)
    assert len(engine.checkpointed) == 2
    assert [bool(graph.current.recomputed) for graph in engine.graphs] == [True]
    assert engine.problem() is None
    assert watched.notes == []


def test_where_checkpoints_of_the_script_spare_all_there_is_nothing_to_plan() -> None:
    model, x = Checkpointing(plain=False), rows().unsqueeze(1)
    watched = Watched()
    model(x).mean().backward()
    assert watched.engine is not None
    problem = watched.engine.problem()
    assert problem is not None
    assert problem.cause.startswith("checkpoints of the script's own recompute all")
