"""What only a CUDA device shows: its random generators and attention kernels, NVML's figures, the allocator's limit."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._triton import has_triton

from autotune import memory_matrix
from autotune.launch.port import RunResult
from autotune.machine.meters.nvidia_meter import NvmlMeter
from autotune.machine.meters.vendors import read_gpus
from autotune.records.configuration import Configuration
from autotune.records.matrix import highest
from autotune.records.measurement import CONTENDED_SHARE
from autotune.records.outcome import Fallback, OutOfMemory
from autotune.records.plan import parse_plans
from autotune.records.proof import difference_of
from autotune.records.run import Measuring, Verifying
from autotune.tuning.proving import prove
from autotune.worker.engines.inductor import InductorEngine, make_partitioner
from autotune.worker.engines.timed_nodes import NodeClock
from autotune.worker.measuring.clocks import DeviceClock
from tests.fakes.planned import Planned, clean_torch
from tests.gpu.running import SCRIPT, logs, measured, needs_speeds, run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    # Inductor's own modules, as they are imported (torch 2.11).
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"),
]

GIB = 2**30
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
    # Backwards of attention and embeddings add up in any order unless they are told not to; torch has no cuDNN then.
    torch.use_deterministic_algorithms(mode=request.param != "cudnn")
    try:
        with clean_torch():
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


# -- runs


def test_the_memory_matrix_tells_what_the_allocator_holds_at_each_phase() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1)).cuda()
    inputs = torch.randn(4096, 64, device="cuda")
    with memory_matrix(model, lambda line: None) as matrix:
        for _ in range(2):
            model.zero_grad()
            outputs = model(inputs)
            outputs.sum().backward()
            del outputs
    before, after, loss, end = matrix.rows[4:]
    kept = 4096 * 4096 * 4
    assert 2 * kept <= after.allocated - before.allocated < 3 * kept
    assert loss.allocated >= after.allocated
    # The allocator rounds each tensor up to blocks of 512 bytes.
    assert end.allocated - before.allocated == pytest.approx(end.gradients, abs=2**16)
    assert end.gradients == end.parameters
    for row in matrix.rows:
        assert row.peak is not None
        assert row.cached is not None
        assert row.allocated <= row.peak <= row.max_allocated <= (row.max_cached or 0)
        assert row.allocated <= row.cached
    found = highest(matrix.rows)
    assert found is not None
    assert found.phase == "post_backward", "there the gradients of the activations come on top"


@pytest.mark.alone
def test_discovery_reports_the_device_and_its_peaks(tmp_path: Path) -> None:
    result = run(tmp_path, "discover", 512, 4096)
    peaks = measured(result.outcomes[0], result).measurement.peaks
    assert peaks.device is not None
    assert peaks.reserved is not None
    assert peaks.allocated is not None
    assert peaks.non_torch is not None
    # Four blocks, four times the width, four bytes each: what gelu reads and gives.
    assert peaks.reserved >= peaks.allocated > 4 * 2 * 4096 * 4 * 512 * 4
    assert peaks.device >= peaks.reserved
    assert peaks.fit_bytes == peaks.reserved + peaks.non_torch
    assert 0 < peaks.non_torch < 4 * GIB
    assert result.environment is not None
    assert result.environment.device_kind == "cuda"
    assert result.facts is not None, logs(result)
    assert {"Block+", "gelu+"} <= {row.cluster_id for row in result.facts.clusters}
    assert result.facts.batch_size == 4096


def test_discovery_says_of_the_device_what_torch_says_whether_code_can_be_generated_for_it(tmp_path: Path) -> None:
    result = run(tmp_path, "discover", 64, 64)
    assert result.facts is not None, logs(result)
    assert (result.facts.compile_refusal == "") == has_triton(), result.facts.compile_refusal


@pytest.mark.alone
def test_plans_of_one_run_are_measured_one_after_the_other_with_lower_peaks(tmp_path: Path) -> None:
    plans = ("Block+:1:-1", "gelu+:1:-1")
    configurations = [Configuration("aot", parse_plans(chosen)) for chosen in ((plans[0],), (plans[1],), ())]
    result = run(tmp_path, "measure", 512, 4096, *configurations)
    found = [measured(outcome, result).measurement for outcome in result.outcomes]
    allocated = [measurement.peaks.allocated or 0 for measurement in found]
    assert allocated[0] < allocated[1] < allocated[2]
    assert [m.saved_bytes for m in found] == sorted(m.saved_bytes or 0 for m in found)
    assert all(not measurement.allocator_retries for measurement in found)


def test_plans_are_proven_with_dropout_on_the_device(tmp_path: Path) -> None:
    def start(name: str, configuration: Configuration, verifying: Verifying) -> RunResult:
        del name
        return run(tmp_path, "verify", 512, 256, configuration, verifying=verifying)

    proof = prove(
        Configuration("aot", parse_plans(("Block+:1:-1", "gelu+:1:-1"))), start, script_batch_size=0, max_error=0.05
    )
    assert proof is not None
    assert (proof.answer, proof.equal_to_script, proof.random_equal) == ("exact", True, True), proof.statement
    # The CPU's generator, the device's, Python's, and NumPy's where there is one.
    assert difference_of(proof.to_script, "random").compared >= 3 * 3


def test_plans_on_generated_code_are_proven_in_bfloat16_on_the_device(tmp_path: Path) -> None:
    """With casts kept they may differ by the order of sums only; as exported they round as they are fused."""
    forward = "loss = model(x.cuda()).pow(2).mean()"
    assert forward in SCRIPT
    under_autocast = f"with torch.autocast('cuda', torch.bfloat16):\n            {forward}"

    def start(name: str, configuration: Configuration, verifying: Verifying) -> RunResult:
        source = SCRIPT.replace(forward, under_autocast)
        return run(tmp_path, "verify", 512, 256, configuration, verifying=verifying, source=source)

    proof = prove(Configuration("inductor", parse_plans(("Block+:1:-1",))), start, script_batch_size=0, max_error=0.05)
    assert proof is not None
    assert (proof.is_compiled, proof.holds) == (True, True), proof.statement
    assert difference_of(proof.to_engine, "gradients").compared
    assert difference_of(proof.exported, "gradients").compared, "what is exported was looked at too"


_ATTENTION = """
    import sys, torch
    import torch.nn.functional as F
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    width, batch, length, heads = int(sys.argv[1]), int(sys.argv[2]), 256, 4
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down, self.drop = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Dropout(0.1)
        def forward(self, x):
            q, k, v = self.qkv(self.norm(x)).view(-1, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=True)
            x = x + self.drop(self.out(y.transpose(1, 2).reshape(-1, length, width)))
            return x + self.drop(self.down(F.gelu(self.up(x))))
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(4)), nn.Linear(width, 1)).to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())
    data = TensorDataset(torch.randn(batch * 8, length, width, dtype=torch.bfloat16))
    for epoch in range(100):
        for (x,) in DataLoader(data, batch_size=batch):
            loss = model(x.cuda()).float().pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
_ATTENTION_PLANS = ("Block+:1:-1", "scaled_dot_product_attention+:1:-1")


def test_attention_is_simulated_and_recomputed_in_whichever_kernel_torch_takes(tmp_path: Path) -> None:
    result = run(tmp_path / "discover", "discover", 256, 32, source=_ATTENTION)
    measured(result.outcomes[0], result)
    assert result.facts is not None, logs(result)
    assert {"Block+", "scaled_dot_product_attention+"} <= {row.cluster_id for row in result.facts.clusters}
    calibration = result.facts.calibration
    assert calibration is not None
    assert calibration.reason == ""
    assert calibration.error is not None
    assert calibration.error < 0.05
    configurations = [
        Configuration("aot", parse_plans(chosen)) for chosen in ((_ATTENTION_PLANS[0],), (_ATTENTION_PLANS[1],), ())
    ]
    result = run(tmp_path / "measure", "measure", 256, 32, *configurations, source=_ATTENTION)
    found = [measured(outcome, result).measurement for outcome in result.outcomes]
    allocated = [measurement.peaks.allocated or 0 for measurement in found]
    assert allocated[0] < allocated[1] < allocated[2]


def test_attention_with_dropout_is_proven(tmp_path: Path) -> None:
    # Torch would take cuDNN's where it is faster, which computes other bits each time.
    def start(name: str, configuration: Configuration, verifying: Verifying) -> RunResult:
        del name
        return run(tmp_path, "verify", 256, 8, configuration, verifying=verifying, source=_ATTENTION)

    proof = prove(Configuration("aot", parse_plans(_ATTENTION_PLANS)), start, script_batch_size=0, max_error=0.05)
    assert proof is not None
    assert (proof.answer, proof.equal_to_script, proof.random_equal) == ("exact", True, True), proof.statement


def test_inductor_compiles_plans_that_lower_the_peak(tmp_path: Path) -> None:
    allocated = []
    for number, plans in enumerate((_ATTENTION_PLANS[:1], ())):
        configuration = Configuration("inductor", parse_plans(plans))
        result = run(tmp_path / str(number), "measure", 256, 32, configuration, source=_ATTENTION)
        allocated.append(measured(result.outcomes[0], result).measurement.peaks.allocated or 0)
    assert allocated[0] < allocated[1]


def test_plans_under_inductor_draw_the_masks_that_it_draws_without(tmp_path: Path) -> None:
    def start(name: str, configuration: Configuration, verifying: Verifying) -> RunResult:
        del name
        return run(tmp_path, "verify", 256, 8, configuration, verifying=verifying, source=_ATTENTION)

    proof = prove(
        Configuration("inductor", parse_plans(_ATTENTION_PLANS[:1])), start, script_batch_size=0, max_error=0.05
    )
    assert proof is not None
    assert proof.answer in ("exact", "close"), proof.statement


@pytest.mark.parametrize("ahead", [(), ("torch._dynamo",)], ids=["torch", "its compiler too"])
def test_a_run_is_forked_from_a_server_that_has_opened_no_device(tmp_path: Path, ahead: tuple[str, ...]) -> None:
    result = run(tmp_path, "measure", 512, 256, may_fork=True, preload=ahead)
    measurement = measured(result.outcomes[0], result).measurement
    assert result.is_forked
    assert not any("fresh process" in note or "ahead" in note for note in measurement.notes), measurement.notes
    assert (tmp_path / "runs" / "fork-server").is_dir()
    assert (measurement.peaks.reserved or 0) > 0


def test_choices_of_torchs_own_are_made_and_seen_to_act(tmp_path: Path) -> None:
    def trial(*choices: str) -> RunResult:
        return run(tmp_path / "-".join(choices or ("none",)), "measure", 512, 4096, Configuration(choices=choices))

    plain = measured((result := trial()).outcomes[0], result).measurement
    cast = measured((result := trial("bf16=1")).outcomes[0], result).measurement
    assert (cast.peaks.allocated or 0) < (plain.peaks.allocated or 0)
    for choice in ("fused-optimizer=1", "expandable-segments=1"):
        measured((result := trial(choice)).outcomes[0], result)
    (outcome,) = trial("foreach-optimizer=1").outcomes
    assert isinstance(outcome, Fallback)
    assert "AdamW takes it by itself here" in outcome.cause


@pytest.mark.alone
def test_a_limit_below_the_cards_size_is_enforced_and_the_phase_is_told(tmp_path: Path) -> None:
    needed = measured((result := run(tmp_path / "free", "measure", 1024, 16384)).outcomes[0], result).measurement.peaks
    assert needed.reserved is not None
    limit = needed.fit_bytes - needed.reserved // 2
    result = run(tmp_path / "limited", "measure", 1024, 16384, limit_bytes=limit)
    (outcome,) = result.outcomes
    assert isinstance(outcome, OutOfMemory), f"{outcome}\n{logs(result)}"
    assert outcome.phase in ("forward", "backward")
    assert outcome.limit_bytes == limit
    assert outcome.phase in outcome.cause
    # The same limit holds what needs less.
    result = run(tmp_path / "small", "measure", 1024, 256, limit_bytes=limit)
    assert measured(result.outcomes[0], result).measurement.peaks.fit_bytes <= limit


@pytest.mark.alone
def test_a_limit_reckons_with_what_the_first_step_has_loaded(tmp_path: Path) -> None:
    if not hasattr(torch.cuda, "get_per_process_memory_fraction"):
        pytest.skip("this torch does not say what its allocator may take")
    told = "print(torch.cuda.get_per_process_memory_fraction(0), flush=True)"
    source = SCRIPT.replace("        optimizer.zero_grad()", f"        {told}\n        optimizer.zero_grad()")
    limit = 8 * GIB
    result = run(tmp_path, "measure", 512, 256, source=source, limit_bytes=limit)
    peaks = measured(result.outcomes[0], result).measurement.peaks
    assert peaks.non_torch is not None
    fractions = [float(line) for line in (result.directory / "stdout.log").read_text().split()]
    _, total = torch.cuda.mem_get_info(0)
    assert fractions[-1] <= fractions[0], "libraries are loaded in the first step"
    assert fractions[-1] * total <= limit
    assert limit - fractions[-1] * total == pytest.approx(peaks.non_torch, abs=GIB // 8)


@pytest.mark.alone
def test_what_the_allocator_frees_in_warm_up_bars_no_trial(tmp_path: Path) -> None:
    limit = 8 * GIB
    # In the third step it does not fit beside that of the second, which the allocator has kept: it flushes, and tries
    # again. What was kept before the first training call a trial gives back by itself.
    source = SCRIPT.replace("for epoch in range(200):", "steps = 0\nfor epoch in range(200):").replace(
        "        loss = model",
        "        steps += 1\n"
        "        if steps < 4:\n"
        f"            held = torch.empty({limit // 2} + steps * {limit // 10}, dtype=torch.uint8, device='cuda')\n"
        "            del held\n"
        "        loss = model",
    )
    result = run(tmp_path, "measure", 512, 256, source=source, limit_bytes=limit)
    measurement = measured(result.outcomes[0], result).measurement
    assert measurement.allocator_retries == 0
    assert any("in warm-up, which is not counted" in note for note in measurement.notes), measurement.notes


@pytest.mark.alone
def test_a_trial_is_measured_when_the_gpu_is_warm_with_its_clock_and_power_beside_it(tmp_path: Path) -> None:
    source = SCRIPT.replace("range(200)", "range(10**6)")
    result = run(tmp_path, "measure", 1024, 4096, source=source, measuring=Measuring())
    measurement = measured(result.outcomes[0], result).measurement
    assert measurement.warmup_s >= 1.0
    assert sum(measurement.step_times_s) > 2.5
    assert len(measurement.step_times_s) >= 20
    conditions = measurement.conditions
    assert conditions is not None, measurement.notes
    assert conditions.readings >= 5
    if conditions.sm_clock_mhz is None:
        pytest.skip("NVML does not tell this device's clock")
    assert 100 < conditions.sm_clock_mhz < 5000
    assert (conditions.lowest_sm_clock_mhz or 0) <= conditions.sm_clock_mhz <= (conditions.highest_sm_clock_mhz or 0)
    assert conditions.power_w is None or 10 < conditions.power_w < 2000
    throttled = any("the GPU slowed itself down" in note for note in measurement.notes)
    assert throttled == (conditions.throttled_share > 0)


@pytest.mark.alone
@needs_speeds
def test_reading_step_times_does_not_wait_for_the_device() -> None:
    clock = DeviceClock(0)
    torch.cuda.synchronize(0)
    clock.mark()
    torch.cuda._sleep(10**9)  # some half of a second
    clock.mark()
    assert clock.step_times_s() == []
    torch.cuda.synchronize(0)
    (seconds,) = clock.step_times_s()
    assert 0.1 < seconds < 10


def test_memory_is_not_predicted_by_an_allocator_that_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync")
    result = run(tmp_path, "discover", 512, 1024)
    measured(result.outcomes[0], result)
    assert result.facts is not None, logs(result)
    calibration = result.facts.calibration
    assert calibration is not None
    assert calibration.error is None
    assert "cudaMallocAsync, which does not count the bytes" in calibration.reason


@pytest.mark.alone
def test_a_model_that_moves_itself_to_the_device_in_its_first_forward_has_the_devices_figures(tmp_path: Path) -> None:
    source = """
        import torch
        from torch import nn
        class Moves(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 1))
            def forward(self, x):
                self.layers.cuda()
                return self.layers(x.cuda())
        model = Moves()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(2000):
            model(torch.randn(64, 512)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    """

    result = run(tmp_path, "measure", 0, 0, source=source, device=None)

    measurement = measured(result.outcomes[0], result).measurement
    assert measurement.peaks.reserved
    assert measurement.peaks.device is not None


@pytest.mark.alone
def test_what_is_held_before_the_first_step_and_let_go_of_is_in_no_peak(tmp_path: Path) -> None:
    held = f"held = torch.ones({4 * GIB}, dtype=torch.uint8, device='cuda')\ndel held\n"
    # Behind what stays: the allocator would put that into the memory which is held no more.
    result = run(tmp_path, "measure", 512, 256, source=SCRIPT.replace("data = ", held + "data = "))
    peaks = measured(result.outcomes[0], result).measurement.peaks
    assert peaks.device is not None
    assert peaks.reserved is not None
    assert max(peaks.device, peaks.reserved, peaks.fit_bytes) < 4 * GIB


@contextlib.contextmanager
def held_by_another_process(size: int) -> Iterator[None]:
    """As long as this lasts, a process that is no part of any run holds ``size`` bytes of the first device."""
    source = f"""
        import sys, torch
        held = torch.ones({size}, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        print("held", flush=True)
        sys.stdin.readline()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": read_gpus().devices[0].uuid},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield
        finally:
            process.kill()


@pytest.mark.alone
def test_what_another_process_holds_is_in_no_figure_and_takes_nothing_off_a_limit(tmp_path: Path) -> None:
    alone = measured((result := run(tmp_path / "alone", "measure", 1024, 4096)).outcomes[0], result).measurement.peaks
    assert alone.device is not None
    with held_by_another_process(3 * GIB):
        result = run(tmp_path / "beside", "measure", 1024, 4096)
        beside = measured(result.outcomes[0], result).measurement
        limited = run(tmp_path / "limited", "measure", 1024, 4096, limit_bytes=alone.fit_bytes + GIB // 2)
    assert beside.peaks.device == pytest.approx(alone.device, abs=GIB // 4)
    assert beside.peaks.fit_bytes == pytest.approx(alone.fit_bytes, abs=GIB // 4)
    # Threads may have waited for a processor on a busy machine; no memory has moved.
    assert beside.contended == (beside.waited_share > CONTENDED_SHARE)
    measured(limited.outcomes[0], limited)


_SPAWNS = """
    import sys, torch
    import torch.multiprocessing as mp
    from torch import nn
    def train(rank, width, batch):
        model = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, 1)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(1000):
            model(torch.randn(batch, width, device="cuda")).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    if __name__ == "__main__":
        mp.spawn(train, args=(int(sys.argv[1]), int(sys.argv[2])), nprocs=1)
"""


@pytest.mark.alone
def test_a_process_made_by_spawn_that_runs_out_of_memory_is_out_of_memory_in_its_phase(tmp_path: Path) -> None:
    # What the first layer gives takes 4 GiB, what gelu makes of it as much.
    result = run(tmp_path, "measure", 1024, 2**18, source=_SPAWNS, limit_bytes=6 * GIB)
    (outcome,) = result.outcomes
    assert isinstance(outcome, OutOfMemory), f"{outcome}\n{logs(result)}"
    assert (outcome.phase, outcome.limit_bytes) == ("forward", 6 * GIB)
    result = run(tmp_path / "small", "measure", 1024, 256, source=_SPAWNS, limit_bytes=6 * GIB)
    assert measured(result.outcomes[0], result).measurement.peaks.device is not None


_SPARSE = """
    import sys, torch
    from torch import nn
    width, batch = int(sys.argv[1]), int(sys.argv[2])
    model = nn.Embedding(2 * batch, width, sparse=True).cuda()
    optimizer = torch.optim.SparseAdam(model.parameters())
    for step in range(1000):
        model(torch.arange(batch, device="cuda")).pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_an_embedding_with_sparse_gradients_is_measured(tmp_path: Path) -> None:
    result = run(tmp_path, "measure", 64, 1024, source=_SPARSE)
    measurement = measured(result.outcomes[0], result).measurement
    assert measurement.split is not None
    # Indices of eight bytes, and a row of four bytes a value for each.
    assert measurement.split.gradients == 1024 * (8 + 4 * 64)
    assert set(measurement.samples_per_step) == {1024}


def test_a_script_that_trains_on_the_cpu_is_held_to_its_resident_set(tmp_path: Path) -> None:
    on_cpu = SCRIPT.replace(".cuda()", "")
    result = run(tmp_path / "free", "measure", 64, 64, source=on_cpu, device=None)
    peaks = measured(result.outcomes[0], result).measurement.peaks
    assert (peaks.device, peaks.reserved, peaks.non_torch) == (None, None, None)
    assert peaks.resident is not None
    result = run(tmp_path / "limited", "measure", 64, 64, source=on_cpu, device=None, limit_bytes=peaks.resident // 4)
    (outcome,) = result.outcomes
    assert isinstance(outcome, OutOfMemory), f"{outcome}\n{logs(result)}"
    assert "resident set" in outcome.cause


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one CUDA device")
def test_the_device_that_a_script_chooses_is_the_one_that_is_read(tmp_path: Path) -> None:
    on_second = SCRIPT.replace(".cuda()", ".to('cuda:1')")
    with held_by_another_process(3 * GIB):
        result = run(tmp_path, "measure", 1024, 4096, source=on_second, device=None)
    peaks = measured(result.outcomes[0], result).measurement.peaks
    assert peaks.device is not None
    assert peaks.reserved is not None
    assert peaks.device >= peaks.reserved


def test_torch_and_nvml_call_the_devices_alike() -> None:
    known = {uuid for device in read_gpus().devices for uuid in device.torch_uuids}
    if not known:
        pytest.skip("NVML lists no device")
    named = {str(torch.cuda.get_device_properties(index).uuid) for index in range(torch.cuda.device_count())}
    assert named <= known


@pytest.mark.alone
def test_nvml_and_torch_agree_on_what_a_process_takes() -> None:
    devices = read_gpus().devices
    if not devices:
        pytest.skip("NVML lists no device")
    source = """
        import sys, torch
        torch.zeros(1, device="cuda")
        print(torch.cuda.memory_reserved(), flush=True)
        sys.stdin.readline()
        held = torch.zeros(1 << 30, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        print(torch.cuda.memory_reserved(), flush=True)
        sys.stdin.readline()
    """
    meter = NvmlMeter(devices[0].uuid)
    meter.start()
    command = [sys.executable, "-c", textwrap.dedent(source)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": devices[0].uuid}
    readings = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            for _ in range(2):
                reserved = int(process.stdout.readline())
                readings.append((reserved, meter.sample([process.pid])))
                process.stdin.write("\n")
                process.stdin.flush()
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
            meter.close()
    (before, first), (after, second) = readings
    assert after - before >= GIB
    assert first is not None
    assert second is not None
    if meter.contended:
        pytest.skip("other processes moved on the device meanwhile")
    assert second >= after, "NVML's figure holds what torch reserved, and the context"
    assert second - first == pytest.approx(after - before, rel=0.1)
