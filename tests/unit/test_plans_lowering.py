"""What Inductor makes of a graph's nodes, written down as letters and loops; and that it does make that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch._inductor.config
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from autotune.predict import Simulation
from autotune.records import ActivationGraph, Configuration, dumps, loads
from autotune.worker.calibration import Calibrator
from autotune.worker.describe import dimension_symbols
from autotune.worker.engines.inductor import InductorEngine
from autotune.worker.plans.lowering import lowered
from tests.fakes.planned import Planned, clean_torch

# Inductor's own imports warn; a warning made an error stops Dynamo's tracing.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
]


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with clean_torch(), torch._inductor.config.patch({"compile_threads": 1}):
        yield


def rows(function: object, *inputs: torch.Tensor) -> list[tuple[str, str, tuple[int, ...]]]:
    """Each node's operator, its letter, and its loops in numbers."""
    graph = make_fx(function, tracing_mode="fake")(*inputs).graph
    nodes = [node for node in graph.nodes if node.op != "output"]
    sizes: list[int] = []

    def formula(size: object) -> int:
        sizes.append(int(str(size)))
        return len(sizes) - 1

    letters, loops = lowered(nodes, formula)
    return [
        (str(node.target).split(".")[1], letter, tuple(sizes[each] for each in loop))
        for node, letter, loop in zip(nodes, letters, loops, strict=True)
        if node.op == "call_function"
    ]


MATRIX, COLUMN = torch.zeros(6, 4), torch.zeros(6, 1)


def test_loops_and_reductions_tell_what_they_run_over() -> None:
    found = rows(lambda x: (x.sin(), x.exp(), x.sum(1), x.sum(0), x.sum(1, keepdim=True)), MATRIX)
    assert found == [
        ("sin", "l", (24, 24)),
        ("exp", "h", (24, 24)),
        ("sum", "r", (24, 6)),
        ("sum", "c", (24, 4)),
        ("sum", "r", (24, 6)),
    ]


def test_an_inputs_layout_splits_the_ranges() -> None:
    assert rows(lambda x, y: x + y, MATRIX, COLUMN) == [("add", "l", (24, 24, 4))]
    assert rows(lambda x, y: x + y, MATRIX, torch.zeros(4)) == [("add", "l", (24, 24, 4))]
    assert rows(lambda x: x.t().sin(), MATRIX)[-1] == ("sin", "l", (24, 24, 6))
    assert rows(lambda x: x[:, :2].sin(), MATRIX)[-1] == ("sin", "l", (12, 12, 2))
    assert rows(lambda x: x.view(2, 3, 4).sin(), MATRIX)[-1] == ("sin", "l", (24, 24))


def test_what_only_looks_runs_by_itself_or_always_exists() -> None:
    def forward(x: torch.Tensor, image: torch.Tensor, weight: torch.Tensor) -> object:
        return x.t() @ x, torch.cat((x, x)), torch.convolution(image, weight, None, (1,), (0,), (1,), False, (0,), 1)

    found = rows(forward, MATRIX, torch.zeros(1, 2, 8), torch.zeros(3, 2, 3))
    assert [row[:2] for row in found] == [("t", "v"), ("mm", "x"), ("cat", "k"), ("convolution", "f")]


def test_a_product_is_computed_together_with_the_addition_that_alone_reads_it() -> None:
    def letters(function: object) -> str:
        return "".join(letter for _, letter, _ in rows(function, torch.zeros(4, 4)))

    def twice_read(x: torch.Tensor) -> torch.Tensor:
        product = x @ x
        return (product + x) * product

    assert letters(lambda x: x @ x + x) == "jx"
    assert letters(lambda x: (x @ x) + x[0]) == "xvl"
    assert letters(lambda x: (x @ x) + (x @ x)) == "xxl"
    assert letters(twice_read) == "xll"


class Block(nn.Module):
    """A normalization, a gelu, a softmax and a dropout on a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(x @ x.mT, -1)
        return x + self.dropout(self.down(nn.functional.gelu(self.up(weights @ self.norm(x)))))


def test_generated_code_allocates_what_is_simulated() -> None:
    model = Planned(lambda: nn.Sequential(Block(), Block()), lambda: (torch.randn(8, 16, 32),), InductorEngine)
    model.engine.use(Configuration("inductor"))
    model.engine.describe()
    model.step()
    names, _ = dimension_symbols(model.engine.graphs, {(8, 0): "batch"})
    model.engine.observer = calibrator = Calibrator(names)
    model.step()
    calibrator.step_ended()
    assert not calibrator.reason
    assert calibrator.error is not None
    assert calibrator.error < 0.05
    (graph,) = (loads(ActivationGraph, dumps(each)) for each in calibrator.graphs.values())
    assert graph.always
    simulated = Simulation([graph]).run(dimensions=calibrator.dimensions)
    assert simulated.saved_bytes == model.saved_bytes()
