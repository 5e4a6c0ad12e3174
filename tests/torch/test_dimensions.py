"""What the sizes in traced graphs are called."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

import pytest
import sympy
import torch
from torch import nn

from autotune.worker.describing.calibration import Calibrator
from autotune.worker.describing.dimensions import Dimensions, _following, size_of
from tests.fakes.planned import Planned, clean_torch

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
BATCH, LENGTH = 6, 10
KNOWN = {(BATCH, 0): "batch", (LENGTH, 1): "seq_len"}
batch, seq_len = (sympy.Symbol(name, positive=True, integer=True) for name in ("batch", "seq_len"))


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with clean_torch(), torch.fx.experimental._config.patch(use_duck_shape=False):
        yield


@pytest.mark.parametrize(
    ("value", "may_grow", "expected"),
    [
        (LENGTH - 1, True, seq_len - 1),
        (LENGTH + 1, False, seq_len + 1),
        (BATCH * LENGTH, True, batch * seq_len),
        (BATCH * (LENGTH - 1), True, batch * (seq_len - 1)),
        (BATCH * 64, True, batch * 64),
        (BATCH * LENGTH, False, None),
        (BATCH * LENGTH + 1, True, None),
        (BATCH - 1, True, None),
        (LENGTH + 2, False, None),
    ],
)
def test_a_size_follows_from_others(value: int, may_grow: bool, expected: sympy.Expr | None) -> None:
    assert _following(value, {"batch": BATCH, "seq_len": LENGTH}, may_grow=may_grow) == expected


def test_with_one_sample_nothing_is_told_from_a_multiple() -> None:
    assert _following(64, {"batch": 1, "seq_len": LENGTH}, may_grow=True) is None
    assert _following(64, {}, may_grow=True) is None


class Shifted(nn.Module):
    """Both functions call their argument ``x``, so torch calls sizes of both graphs alike."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.down(torch.tanh(self.up(x)))
        torch._dynamo.graph_break()
        return self.loss(scores[:, :-1].reshape(-1, 8))

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return torch.log_softmax(x.exp(), -1).square().mean()


def fed(make: Callable[[], nn.Module], sizes: Iterable[tuple[int, ...]], *, dynamic: tuple[int, ...]) -> Planned:
    """Make a model that is called with inputs of these sizes in turn, of which some dimensions are symbols."""
    left = iter(sizes)

    def inputs() -> list[torch.Tensor]:
        x = torch.randn(*next(left))
        for dimension in dynamic:
            torch._dynamo.maybe_mark_dynamic(x, dimension)
        return [x]

    model = Planned(make, tuple)
    model._begin = inputs  # type: ignore[method-assign]
    return model


def shifted(sizes: list[tuple[int, int]]) -> Planned:
    model = fed(Shifted, [(*size, 4) for size in sizes], dynamic=(0, 1))
    model.step()
    return model


def test_a_symbol_belongs_to_its_graph() -> None:
    model = shifted([(BATCH, LENGTH)])
    dimensions = Dimensions(model.engine.graphs, KNOWN)
    assert dimensions.values == {"batch": BATCH, "seq_len": LENGTH}
    first, *_, last = (dimensions.of(graph) for graph in model.engine.graphs)
    assert set(first.values()) == {batch, seq_len}
    assert set(last.values()) == {batch * (seq_len - 1)}
    (formula,) = set(last.values())
    assert size_of(formula, {"batch": 3, "seq_len": 5}) == 12


def test_what_follows_is_checked_in_every_step_and_calibrated_at_parts_of_the_batch() -> None:
    model = shifted([(BATCH, LENGTH), (BATCH, 12), (BATCH, 12)])
    model.engine.observer = calibrator = Calibrator(Dimensions(model.engine.graphs, KNOWN))
    model.step()
    calibrator.record(calibrator.graphs)
    model.step()
    calibrator.step_ended()
    assert not calibrator.reason
    assert calibrator.dimensions == {"batch": BATCH, "seq_len": 12}
    assert calibrator.error == pytest.approx(0, abs=0.01)
    assert all(len(graph.batch_sizes) == 5 for graph in calibrator.graphs.values())


def test_what_does_not_follow_any_more_is_told() -> None:
    model = shifted([(BATCH, LENGTH), (BATCH, 20)])
    # Where the length of sequences has no name, the rows of the last graph seem to be so many per sample.
    model.engine.observer = calibrator = Calibrator(Dimensions(model.engine.graphs, {(BATCH, 0): "batch"}))
    model.step()
    assert calibrator.reason.endswith("9*batch is not 114 where batch is 6")


class Queue(nn.Module):
    """Writes where a number of its own points to; no tensor's size depends on that."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.place = nn.Linear(4, 8), BATCH
        self.register_buffer("queue", torch.zeros(20 * BATCH, 8))
        self.queue: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        self.queue[self.place : self.place + len(x)] = y.detach()
        self.place += len(x)
        return y.exp().square()


def test_a_number_that_no_size_depends_on_is_no_multiple_of_the_batch() -> None:
    model = fed(Queue, itertools.repeat((BATCH, 4)), dynamic=(0,))
    with torch._dynamo.config.patch(allow_unspec_int_on_nn_module=True):
        for _ in range(3):
            model.step()
        graph = model.engine.slots()[0]
        dimensions = Dimensions([graph], {(BATCH, 0): "batch"})
        assert len(dimensions.values) > 1, "the place is a symbol"
        assert all(formula.is_Symbol for formula in dimensions.of(graph).values())
        model.engine.observer = calibrator = Calibrator(dimensions)
        model.step()
    assert not calibrator.reason
    assert calibrator.error is not None or calibrator.graphs


class Widened(nn.Module):
    """Gives a graph a view of an input: the storage's size has a symbol that no size of the view has."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(1, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x[:, None]
        torch._dynamo.graph_break()
        return self.convolution(x).relu().square().mean()


def test_the_storage_behind_a_view_is_measured_in_dimensions_too() -> None:
    """Guards the prediction for models of speech, whose first graph takes ``waves[:, None]``."""

    model = fed(Widened, itertools.repeat((BATCH, LENGTH)), dynamic=(0,))
    model.step()
    dimensions = Dimensions(model.engine.graphs, KNOWN)
    assert dimensions.values == {"batch": BATCH}
    model.engine.observer = calibrator = Calibrator(dimensions)
    model.step()
    assert not calibrator.reason
    assert calibrator.error == pytest.approx(0, abs=0.01)
    (graph,) = calibrator.graphs.values()
    assert {one for one in graph.formulas if "s" in one} == set()


class Masked(Widened):
    """Gives a graph a view of a square: both sizes of the square have symbols that no size of the view has."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x[:, None]
        torch._dynamo.graph_break()
        return self.convolution(x.flatten(2)).relu().square().mean()


def test_sizes_of_the_storage_alone_are_those_of_the_view_that_are_equal() -> None:
    """Guards the prediction for models of speech with padding, whose attention takes a view of a mask."""

    model = fed(Masked, itertools.repeat((BATCH, LENGTH, LENGTH + 3)), dynamic=(1, 2))
    model.step()
    graph = model.engine.slots()[-1]
    assert graph.symbols_of_storage_alone, "the test shows nothing"
    dimensions = Dimensions(model.engine.graphs, {(BATCH, 0): "batch"})
    names = dimensions.of(graph)
    assert all(names[symbol].is_Symbol for symbol in graph.symbols_of_storage_alone), "they are sizes of the view"
    assert {dimensions.values[str(name)] for name in names.values()} <= {LENGTH, LENGTH + 3, BATCH}
    model.engine.observer = calibrator = Calibrator(dimensions)
    model.step()
    assert not calibrator.reason
    assert calibrator.error == pytest.approx(0, abs=0.01)


class Overwriting(nn.Module):
    """Overwrites a column, and the end of each row: slices of whole dimensions and of some."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 8)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        earlier = torch.roll(tokens, 1, 1)
        earlier[:, 0] = 28
        earlier[:, 2:] = 3
        return self.embedding(earlier) + self.embedding(tokens)


@pytest.mark.parametrize("traces_sizes", [False, True])
def test_clusters_have_the_same_names_whether_sizes_are_traced_or_not(*, traces_sizes: bool) -> None:
    planned = Planned(Overwriting, lambda: (torch.randint(0, 28, (BATCH, LENGTH)),))
    planned.mark_dynamic(*((0, 1) if traces_sizes else ()))
    gradients = planned.step()
    assert gradients == planned.plain()
    assert bool(planned.engine.graphs[0].current.symbolic_dimensions) == traces_sizes
    (roll,) = [plan for plan in planned.plans() if plan.cluster_id.startswith("roll+")]
    assert roll.cluster_id == "roll+fill+select_scatter+fill+slice_scatter+"
    assert planned.step(roll) == gradients
