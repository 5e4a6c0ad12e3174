"""Plans on a GPU, within this process: gradients, generators, switching, tables, CUDA graphs and times of nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from autotune.records.configuration import Configuration
from autotune.records.plan import parse_plans
from autotune.worker.engines.inductor import InductorEngine, make_partitioner
from autotune.worker.engines.timed_nodes import NodeClock
from autotune.worker.proving.deterministic import replace_cudnn_attention_backward
from tests.fakes.planned import Planned, clean_torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    # Inductor's own modules, as they are imported (torch 2.11).
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"),
]


WIDTH, HEADS, LENGTH, BATCH = 256, 4, 128, 8


ATTENTION_DROPOUT = 1 / 16  # cuDNN has multiples of it only (torch 2.14)


class Block(nn.Module):
    """Attention by a fused kernel that drops out scores itself."""

    def __init__(self, kernel: SDPBackend) -> None:
        super().__init__()
        self.kernel = kernel
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm_1(x)).split(width, dim=2)
        q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2) for part in parts)
        with sdpa_kernel(self.kernel):
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=ATTENTION_DROPOUT, is_causal=True)
        x = x + self.dropout(self.out(y.transpose(1, 2).reshape(batch, length, width)))
        return x + self.down(self.dropout(F.gelu(self.up(self.norm_2(x)))))


class Gpt(nn.Module):
    def __init__(self, kernel: SDPBackend) -> None:
        super().__init__()
        self.tokens = nn.Embedding(100, WIDTH)
        self.blocks = nn.ModuleList(Block(kernel) for _ in range(3))
        self.head = nn.Linear(WIDTH, 100)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x).flatten(0, 1).float(), ids.flatten())


# Each kernel with a type that it has, and the oldest devices that have it.
KERNELS = {
    "flash": (SDPBackend.FLASH_ATTENTION, torch.bfloat16, (8, 0)),
    "efficient": (SDPBackend.EFFICIENT_ATTENTION, torch.float32, (5, 0)),
    "cudnn": (SDPBackend.CUDNN_ATTENTION, torch.bfloat16, (8, 0)),
}


@pytest.fixture(params=sorted(KERNELS))
def planned(request: pytest.FixtureRequest) -> Iterator[Planned]:
    kernel, precision, capability = KERNELS[request.param]
    if torch.cuda.get_device_capability() < capability:
        pytest.skip(f"{request.param} attention needs compute capability {'.'.join(map(str, capability))}")
    # Backwards of attention and embeddings add up in any order unless they are told not to; torch refuses cuDNN then.
    torch.use_deterministic_algorithms(True, warn_only=request.param == "cudnn")
    try:
        with clean_torch(), torch.library._scoped_library("aten", "IMPL") as library:
            if request.param == "cudnn":
                replace_cudnn_attention_backward(library)
            found = Planned(
                lambda: Gpt(kernel).to("cuda", precision),
                lambda: (torch.randint(0, 100, (BATCH, LENGTH), device="cuda"),),
            )
            if found.plain() != found.plain():
                pytest.skip("the kernels of this device give other gradients each time")
            yield found
    finally:
        torch.use_deterministic_algorithms(mode=False)


def test_every_plan_keeps_gradients_and_both_generators(planned: Planned) -> None:
    expected = planned.step()
    assert planned.engine.problem() is None
    assert planned.engine.graphs
    plans = planned.plans()
    assert {"Block+", "gelu+native_dropout+"} <= {plan.cluster_id for plan in plans}
    for plan in plans:
        assert planned.step(plan) == expected, plan
        assert planned.refusal is None, planned.refusal
    assert planned.step(*plans) == expected
    assert planned.step() == expected


class Draws(TorchDispatchMode):
    """Writes down where the device's generator stands as each dropout begins, and how large that is."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[tuple[int, int]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten.native_dropout.default:
            self.begun.append((args[0].numel(), torch.cuda.default_generators[0].get_offset()))
        return function(*args, **(kwargs or {}))

    def around(self, run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
        """Watch a half where it runs: Dynamo would not run it within this mode."""

        def watched(arguments: list[Any]) -> Any:
            with self:
                return run(arguments)

        return watched


def test_each_dropout_is_drawn_again_from_where_it_was_drawn_first(monkeypatch: pytest.MonkeyPatch) -> None:
    widths = (64, 48, 32)
    layers = [(nn.Linear(before, w), nn.GELU(), nn.Dropout(0.1)) for before, w in pairwise((WIDTH, *widths))]
    with clean_torch():
        model = Planned(
            lambda: nn.Sequential(*chain.from_iterable(layers)).cuda(),
            lambda: (torch.randn(BATCH, WIDTH, device="cuda"),),
        )
        model.step()
        model.step(*model.plans())
        (graph,) = model.engine.graphs
        draws = {half: Draws() for half in ("run_forward", "run_backward")}
        for half, watch in draws.items():
            # A cached property of a frozen dataclass.
            monkeypatch.setitem(vars(graph.current), half, watch.around(getattr(graph.current, half)))
        model.step(*model.plans())

    first, again = (watch.begun for watch in draws.values())
    assert [numel for numel, _ in first] == [BATCH * width for width in widths]
    assert len({offset for _, offset in first}) == len(widths)
    assert sorted(again) == sorted(first)


def test_the_engine_computes_what_the_plain_model_computes(planned: Planned) -> None:
    assert planned.step() == planned.plain()
    assert planned.step("Block+:1:-1") == planned.plain()


def test_a_model_compiled_with_recomputed_dropout_can_be_switched(planned: Planned) -> None:
    # As inputs of the graphs, generators would be counted when the first pair is compiled.
    recomputed = planned.step("Block+:1:-1")
    assert planned.step() == recomputed
    assert planned.refusal is None
    assert planned.step("Block+:1:1", "gelu+native_dropout+:1:-1") == recomputed
    assert planned.refusal is None


def test_the_table_is_exact_and_the_allocator_agrees(planned: Planned) -> None:
    without = planned.measured_bytes()
    assert without == planned.saved_bytes()
    for plan, savings in planned.rows().items():
        assert planned.measured_bytes(plan) == without - sum(savings), plan

    def peak(*plans: str) -> int:
        planned.step(*plans)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        planned.step(*plans)
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - held

    saved = without - planned.measured_bytes("Block+:1:-1")
    assert saved > 0
    assert peak() - peak("Block+:1:-1") > 0.5 * saved


@pytest.mark.alone
def test_a_nodes_time_is_what_its_kernels_take_and_not_what_launching_them_takes() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    small, large = torch.ones(64, device=device), torch.ones(4096, 4096, device=device)
    calls = {"small": lambda: small + 1, "large": lambda: large @ large}
    for call in calls.values():
        call()
    clock = NodeClock(device)
    for _ in range(20):
        for name, call in calls.items():
            clock.time(name, call)
    found: dict[str, float] = {}
    for name, elapsed_s in clock.read():
        found[name] = min(elapsed_s, found.get(name, elapsed_s))

    def waited_s(call: Callable[[], torch.Tensor]) -> float:
        torch.cuda.synchronize()
        began_s = time.perf_counter()
        call()
        torch.cuda.synchronize()
        return time.perf_counter() - began_s

    def in_a_row_s(call: Callable[[], torch.Tensor], times: int = 20) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(times):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / times

    # By ratios with wide margins: a kernel of two microseconds is launched and waited for in more than ten.
    assert found["small"] < 0.6 * min(waited_s(calls["small"]) for _ in range(20))
    assert found["large"] == pytest.approx(min(in_a_row_s(calls["large"]) for _ in range(5)), rel=0.25)


def test_nodes_of_a_graph_on_the_device_are_timed_while_profiling(planned: Planned) -> None:
    planned.step()
    planned.engine.profile(on=True)
    expected = planned.step("Block+:1:-1")
    assert planned.step() == expected
    (graph,) = planned.engine.graphs
    products = [name for name in graph.node_times_s if name.startswith(("addmm", "mm"))]
    assert products
    assert all(0 < graph.node_times_s[name] < 0.1 for name in products)


class Fused(nn.Module):
    """A block whose attention drops out by itself, or nothing."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm(x)).split(width, dim=2)
        q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(batch, length, width))


class FusedNet(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Fused(dropout) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x.float().pow(2).mean()


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_plans_leave_a_scripts_cuda_graphs_as_they_are(dropout: float) -> None:
    """Guards `torch.compile(mode="reduce-overhead")`: what reads a generator's state on the host cannot be captured."""

    def parts_without_cuda_graphs(*plans: str) -> int:
        with clean_torch():
            engine = InductorEngine()
            engine.use(Configuration("inductor", parse_plans(plans)))
            # As hooks/compilation.py does for a script that compiles by itself.
            torch._inductor.config.custom_partitioner_fn = make_partitioner(engine, "compiled unseen")
            torch._functorch.config.enable_autograd_cache = False
            model = FusedNet(dropout).to("cuda", torch.bfloat16)
            compiled = torch.compile(model, mode="reduce-overhead")
            x = torch.randn(BATCH, LENGTH, WIDTH, device="cuda", dtype=torch.bfloat16)
            counters.clear()
            for _ in range(4):
                torch.compiler.cudagraph_mark_step_begin()
                compiled(x).backward()
                model.zero_grad()
            torch.cuda.synchronize()
            assert engine.problem() is None
            (graph,) = engine.graphs
            assert any("attention" in name for name in graph.current.recomputed) == bool(plans)
            skipped: int = counters["inductor"]["cudagraph_skips"]
            return skipped

    assert parts_without_cuda_graphs("Fused+:1:-1") == parts_without_cuda_graphs()
