"""What Inductor makes of a graph's nodes, written down as letters and loops; and that it does make that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch._inductor.config
from torch import nn
from torch._guards import detect_fake_mode
from torch._inductor.virtualized import V
from torch.fx.experimental.proxy_tensor import make_fx

from autotune.predict import Simulation
from autotune.records import (
    ALL,
    ALWAYS,
    IF_KEPT,
    IF_OTHERWISE,
    ActivationGraph,
    Configuration,
    Plan,
    Quota,
    dumps,
    loads,
)
from autotune.worker.calibration import Calibrator
from autotune.worker.describe import dimension_symbols
from autotune.worker.engines.inductor import InductorEngine
from autotune.worker.plans.export import export_graph
from autotune.worker.plans.layouts import layouts
from autotune.worker.plans.lowering import fixing, lowered, shapes
from tests.fakes.planned import Planned, clean_torch
from tests.unit.test_predict_partition import operators, simulated_operators

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
        (node.target.__name__.split(".")[0], letter, tuple(sizes[each] for each in loop))
        for node, letter, loop in zip(nodes, letters, loops, strict=True)
        if node.op == "call_function"
    ]


MATRIX, COLUMN = torch.zeros(6, 4), torch.zeros(6, 1)


def test_loops_and_reductions_tell_what_they_run_over() -> None:
    square = torch.zeros(5, 5)
    assert [row[1] for row in rows(lambda x: (x.sum(0), x.sum(1), x.sum(), x.amax((0, 1))), square)] == list("crrr")
    assert rows(torch.maximum, MATRIX, COLUMN)[0][1] == rows(torch.max, MATRIX, COLUMN)[0][1] == "l"
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


@pytest.mark.parametrize(
    ("function", "put", "splits"),
    [
        (lambda x, y: torch.select_scatter(x, y, 1, 0), (6, 5), (20, 5)),
        (lambda x, y: torch.select_scatter(x, y, -1, 0), (6, 4), (5,)),
        (lambda x, y: torch.slice_scatter(x, y, 0, 0, 2), (2, 4, 5), (20,)),
        (torch.slice_scatter, (6, 4, 5), ()),
    ],
)
def test_putting_a_tensor_to_a_place_along_a_dimension_sets_that_dimension_apart(
    function: Callable[..., torch.Tensor], put: tuple[int, ...], splits: tuple[int, ...]
) -> None:
    _, letter, loops = rows(function, torch.zeros(6, 4, 5), torch.zeros(put))[0]
    assert (letter, loops) == ("l", (120, 120, *splits))


def test_what_only_looks_runs_by_itself_or_always_exists() -> None:
    def forward(x: torch.Tensor, image: torch.Tensor, weight: torch.Tensor) -> object:
        return x.t() @ x, torch.cat((x, x)), torch.convolution(image, weight, None, (1,), (0,), (1,), False, (0,), 1)

    found = rows(forward, MATRIX, torch.zeros(1, 2, 8), torch.zeros(3, 2, 3))
    assert [row[:2] for row in found] == [("t", "v"), ("mm", "x"), ("cat", "k"), ("convolution", "f")]


def test_views_of_parts_are_told_from_views_of_all() -> None:
    def forward(x: torch.Tensor) -> object:
        half, _ = x.split(3)
        return half.sin(), x[0].sin(), x.view(-1).sin(), x.expand(2, 6, 4).sin(), torch.var_mean(x, 0)[0]

    found = [row[:2] for row in rows(forward, MATRIX)]
    assert [row for row in found if row[1] in "vp"] == [
        ("split", "v"),
        ("getitem", "p"),
        ("getitem", "p"),
        ("select", "p"),
        ("view", "v"),
        ("expand", "v"),
        ("getitem", "v"),
        ("getitem", "v"),
    ]


def test_variances_tell_whether_they_come_after_the_means() -> None:
    found = rows(lambda x: (torch.var_mean(x, 1), torch.var_mean(x, 0), torch.var(x, 1)), MATRIX)
    assert [letter for name, letter, _ in found if name in ("var_mean", "var")] == list("wcr")
    assert next(loops for name, _, loops in found if name == "var_mean") == (24, 6)
    assert rows(lambda x: torch.var_mean(x, 1)[0], torch.zeros(2, 1025))[0][1] == "r"


def test_what_is_written_to_places_runs_over_what_is_written() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.index_put((torch.zeros(5, dtype=torch.long),), y, accumulate=True)

    found = rows(forward, MATRIX, torch.zeros(5, 4))
    assert ("index_put", "s", (20, 24)) in found


def test_views_of_parts_tell_their_bytes() -> None:
    assert rows(lambda x: x[0].sin(), MATRIX)[0] == ("select", "p", (4 * 4,))


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gradient: torch.Tensor) -> object:
    q, k = q.sin(), k.sin()
    result, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.1)
    flat = result.transpose(1, 2).reshape(2, 5, 12)
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    return flat, backward(gradient, q, k, v, result, sums, 0.1, False)


def test_attention_asks_for_layouts_and_not_where_it_runs_again() -> None:
    turned = torch.zeros(2, 5, 3, 4).transpose(1, 2)
    graph = make_fx(attention, tracing_mode="fake")(turned, turned, turned, turned).graph
    nodes = [node for node in graph.nodes if node.op != "output"]
    letters, _ = lowered(nodes, lambda size: 0)
    names = [node.name for node in nodes]
    sizes: list[int] = []
    copies, loose = layouts(
        nodes, letters, lambda size: int(str(size)), lambda tensor: sizes.append(tensor.numel()) or 0
    )
    forward, backward = (f"_scaled_dot_product_flash_attention_for_cpu{end}" for end in ("", "_backward"))
    assert [tuple(names[node] for node in row) for row in loose] == [
        (forward, "sin", "getitem"),
        (forward, "sin_1"),
    ]
    assert {(names[row[0]], names[row[1]], row[3]) for row in copies if row[0] != names.index(forward)} == {
        ("view", "transpose", IF_OTHERWISE),
        (backward, "sin", IF_OTHERWISE),
        (backward, "sin_1", IF_OTHERWISE),
        (backward, "getitem", IF_OTHERWISE),
        (backward, "getitem_1", ALWAYS),
    }
    assert set(sizes) == {120, 30}
    # A plain tensor needs none, nor do views of what another operator has made.
    plain = torch.zeros(2, 3, 5, 4)
    nodes = [node for node in make_fx(attention, tracing_mode="fake")(*[plain] * 4).graph.nodes if node.op != "output"]
    copies, loose = layouts(nodes, lowered(nodes, lambda size: 0)[0], lambda size: 0, lambda tensor: 0)
    assert loose == ()
    assert [row[3] for row in copies] == [ALWAYS]


def test_views_of_what_a_loop_makes_in_another_order_are_copied_for_who_gets_them() -> None:
    def forward(x: torch.Tensor) -> object:
        made, plain = x.t().sin(), x.sin()
        return made.unsqueeze(0), made.t().unsqueeze(1), plain.t()

    nodes = [node for node in make_fx(forward, tracing_mode="fake")(MATRIX).graph.nodes if node.op != "output"]
    copies, _ = layouts(nodes, lowered(nodes, lambda size: 0)[0], lambda size: int(str(size)), lambda tensor: 7)
    names = [node.name for node in nodes]
    assert [(names[row[0]], names[row[1]], row[2:]) for row in copies] == [
        ("unsqueeze", "sin", (7, IF_KEPT, 24, 6)),
        ("t_1", "sin", (7, IF_KEPT, 24, 6)),
        ("unsqueeze_1", "t_1", (7, IF_KEPT, 24)),
    ]


def test_inputs_that_lead_to_a_convolution_are_copied_for_the_backward() -> None:
    def forward(image: torch.Tensor, weight: torch.Tensor, other: torch.Tensor, pixels: torch.Tensor) -> object:
        result = torch.convolution(image.half(), weight, None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1)
        pixel = torch.convolution(pixels, pixels, None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1)
        return result, pixel, other.sin()

    image, weight = torch.zeros(1, 2, 8, 8), torch.zeros(4, 2, 3, 3)
    # Their channels come last as they are.
    pixels = torch.zeros(4, 4, 1, 1)
    traced = make_fx(forward, tracing_mode="fake")(image, weight.half(), image.clone(), pixels)
    nodes = [node for node in traced.graph.nodes if node.op != "output"]

    def copied() -> list[tuple[int, ...]]:
        letters, _ = lowered(nodes, lambda size: 0)
        return list(layouts(nodes, letters, lambda size: int(str(size)), lambda tensor: 7)[0])

    assert copied() == [(0, 0, 7, IF_KEPT, 128), (1, 1, 7, IF_KEPT, 72)]
    with torch._inductor.config.patch({"layout_optimization": False}):
        assert copied() == []


def test_loops_of_what_a_convolution_gives_run_over_pixels_and_then_channels() -> None:
    def forward(image: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> object:
        result = torch.convolution(image, weight, None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1)
        made = result.sin() * scale
        return made * made.amax((2, 3), keepdim=True), image.sin() * scale

    given = torch.zeros(2, 3, 6, 6), torch.zeros(3, 3, 3, 3), torch.zeros(3, 1, 1)

    def found() -> list[tuple[str, tuple[int, ...]]]:
        return [(name, loop) for name, letter, loop in rows(forward, *given) if letter in "lr"]

    count, pixels, channels = 2 * 3 * 16, 16, 3
    assert found() == [
        ("sin", (count, count)),
        ("mul", (count, count, channels)),
        ("amax", (count, 2 * channels)),
        ("mul", (count, count, channels, pixels * channels)),
        ("sin", (216, 216)),
        ("mul", (216, 216, 108, 36)),
    ]
    with torch._inductor.config.patch({"layout_optimization": False}):
        assert found()[1] == ("mul", (count, count, pixels, count // 2))


def test_seeds_are_made_by_an_operator_and_read_one_by_one() -> None:
    from torch._inductor import inductor_prims

    def forward(x: torch.Tensor) -> torch.Tensor:
        seeds = inductor_prims.seeds(2, x.device)
        return inductor_prims.random([6, 4], inductor_prims.lookup_seed(seeds, 1), "rand") * x

    assert [letter for _, letter, _ in rows(forward, MATRIX)] == ["x", "d", "m", "l"]


def twice_read(x: torch.Tensor) -> torch.Tensor:
    product = x @ x
    return (product + x) * product


@pytest.mark.parametrize(
    ("function", "letters"),
    [
        (lambda x: x @ x + x, "jx"),
        (lambda x: x + x @ x, "jx"),
        (lambda x: (x @ x) + x[0], "jpx"),
        (lambda x: (x @ x) + x.cos() @ x, "xljx"),
        (lambda x: (x @ x) + x.unsqueeze(0), "xvl"),
        (lambda x: (x @ x) + x.double(), "xfl"),
        (lambda x: (x @ x) + 1, "xl"),
        (lambda x: torch.add(x @ x, x) * (x @ x).sin(), "jxxll"),
        (twice_read, "xll"),
    ],
)
def test_a_product_is_computed_with_the_addition_that_alone_reads_it_where_inductor_does_that(
    function: Callable[[torch.Tensor], torch.Tensor], letters: str
) -> None:
    # Importing it warns.
    from torch._inductor.fx_passes.post_grad import post_grad_passes

    given = torch.zeros(4, 4)
    assert "".join(letter for _, letter, _ in rows(function, given)) == letters
    traced = make_fx(function, tracing_mode="fake")(given)
    with V.set_fake_mode(detect_fake_mode([node.meta["val"] for node in traced.graph.find_nodes(op="placeholder")])):
        post_grad_passes(traced, is_inference=False)
    joined = traced.graph.find_nodes(op="call_function", target=torch.ops.aten.addmm.default)
    assert len(joined) == letters.count("j")


def test_products_fix_how_what_they_read_lies_unless_they_are_computed_with_an_addition() -> None:
    graph = make_fx(lambda x: (x @ x + x, (x @ x).sin(), x.view(1, 4, 4) @ x), tracing_mode="fake")(
        torch.zeros(4, 4)
    ).graph
    nodes = [node for node in graph.nodes if node.op != "output"]
    letters, _ = lowered(nodes, lambda size: 0)
    assert letters.count("j") == 1
    found = fixing(nodes, letters)
    assert [next(iter(node.users)).name for node in found] == ["sin", "_unsafe_view"]


def test_results_of_one_shape_have_the_same_number() -> None:
    def forward(x: torch.Tensor) -> object:
        return x.sin().view(3, 8), x.cos(), torch.var_mean(x.view(3, 8), 1, keepdim=True)

    graph = make_fx(forward, tracing_mode="fake")(MATRIX).graph
    nodes = [node for node in graph.nodes if node.op != "output"]
    found = {node.name: number for node, number in zip(nodes, shapes(nodes), strict=True)}
    assert found["sin"] == found["cos"] == found["x_1"] != found["view"]
    assert found["view"] == found["view_1"]
    assert found["var_mean"] == found["getitem"] not in (found["sin"], found["view"])


class Block(nn.Module):
    """A normalization, a gelu, a softmax and a dropout on a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(x @ x.mT, -1)
        return x + self.dropout(self.down(nn.functional.gelu(self.up(weights @ self.norm(x)))))


def described(make: Callable[[], nn.Module], *shape: int) -> tuple[Planned, Calibrator]:
    """A model described as discovery does it, its batch the first dimension of its input."""
    model = Planned(make, lambda: (torch.randn(*shape),), InductorEngine)
    model.engine.use(Configuration("inductor"))
    model.engine.describe()
    model.step()
    names, _ = dimension_symbols(model.engine.graphs, {(shape[0], 0): "batch"})
    model.engine.observer = calibrator = Calibrator(names)
    model.step()
    calibrator.step_ended()
    return model, calibrator


class Residual(nn.Module):
    """A product that is added to its input: Inductor makes one operator of both."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + self.linear(x)).sin()


def test_what_is_run_node_by_node_is_not_what_inductor_rewrites() -> None:
    model, calibrator = described(Residual, 8, 32)
    assert not calibrator.reason
    (graph,) = model.engine.graphs
    assert len(graph.generated) == 2
    names = operators(graph.joint.unplanned.forward)
    assert "mm" in names
    assert set(names) <= graph.joint.nodes.keys()


def test_code_that_is_not_generated_is_a_reason_that_tells_why() -> None:
    model, _ = described(Residual, 8, 32)
    (graph,) = model.engine.graphs
    graph.generated.clear()
    graph.not_generated = "CppCompileError: no compiler on this machine"
    model.engine.observer = calibrator = Calibrator({})
    model.step()
    assert "no compiler on this machine" in calibrator.reason


def test_generated_code_allocates_what_is_simulated() -> None:
    model, calibrator = described(lambda: nn.Sequential(Block(), Block()), 8, 16, 32)
    assert not calibrator.reason
    assert calibrator.error is not None
    assert calibrator.error < 0.05
    (graph,) = (loads(ActivationGraph, dumps(each)) for each in calibrator.graphs.values())
    assert graph.always
    simulated = Simulation([graph]).run(dimensions=calibrator.dimensions)
    assert simulated.saved_bytes == model.saved_bytes()


def test_what_the_script_holds_is_told_from_copies_that_only_generated_code_makes() -> None:
    images = torch.randn(8, 3, 16, 16)
    model = Planned(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)), lambda: (images,), InductorEngine)
    model.engine.use(Configuration("inductor"))
    model.engine.describe()
    call = model._planned((), 0)

    def step() -> None:
        loss = call(images).square().mean()
        if isinstance(model.engine.observer, Calibrator):
            model.engine.observer.script_backward_begins()
        loss.backward()

    step()
    model.engine.observer = calibrator = Calibrator({})
    step()
    calibrator.step_ended()
    (graph,) = calibrator.graphs.values()
    # Two weights, and the images.
    assert len([row for row in graph.copies if row[0] == row[1]]) == 3
    assert graph.boundary is not None
    # The result's squares; when the backward begins they are gone, and so is the result.
    result_bytes = 8 * 4 * 12 * 12 * 4
    assert graph.boundary.loss == pytest.approx(result_bytes, rel=0.01)
    assert graph.boundary.at_backward == pytest.approx(-result_bytes, rel=0.01)


def test_halves_are_in_the_order_in_which_inductor_gets_them() -> None:
    model, _ = described(lambda: nn.Sequential(Block(), Block()), 8, 16, 32)
    (joint,) = (graph.joint for graph in model.engine.graphs)
    graph = export_graph(joint, {}, node_times_s={}, calls=1.0)
    simulation = Simulation([graph])
    for plans in ((), (Plan("Block+", 1, 1),), (Plan("Block+", 1, ALL),)):
        (split,) = simulation.splits(plans)
        pair = joint.partition(Quota(plans))
        assert simulated_operators(joint, graph, split.forward, split.redrawn) == operators(pair.forward)
        assert simulated_operators(joint, graph, split.backward, split.redrawn) == operators(pair.backward)
