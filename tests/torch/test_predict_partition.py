"""Simulated splits of activation graphs against those of torch's own partitioner."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import nn

from autotune.predict.partition import GraphSplitter
from autotune.predict.simulation import Simulation
from autotune.records.codec import dumps, loads
from autotune.records.graph import ActivationGraph
from autotune.records.plan import ALL, COMPROMISED, RECOMPUTE, Plan, Quota
from autotune.worker.plans.activation_graph import activation_graph, obstacle
from autotune.worker.plans.graph_pair import Pair
from autotune.worker.plans.partition import JointGraph
from tests.fakes.models import CASES, Case
from tests.fakes.planned import Planned, clean_torch
from tests.fakes.splits import operators, simulated_operators

pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]


class WideBlock(nn.Module):
    """Stashes double precision, made of what is half as large: a compromise, but of the input for nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.dropout = nn.Linear(16, 16), nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.dropout(torch.cos(self.inner(torch.tanh(x)).double()).float())


class Wide(nn.Module):
    """The cluster of its casts occurs with both strategies."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(WideBlock() for _ in range(4)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(torch.cos(x.double()).float()) * torch.sin(x.double() * 2)


class NoisyBlock(nn.Module):
    """Draws a tensor, not a tuple of them, and reads it and a view of it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        noise = torch.rand_like(y)
        return x + self.outer(torch.tanh(y * noise)) * (noise.t() * torch.cos(y).t()).t()


class HalfPrecision(nn.Module):
    """Of its batch normalization tracing records statistics of another type than it returns."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 8, 3).bfloat16(), nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.norm(self.convolution(x.bfloat16()))).float()


MODELS = CASES | {
    "compromises": Case(Wide, lambda: (torch.randn(32, 16, requires_grad=True),)),
    "noise": Case(lambda: nn.Sequential(*(NoisyBlock() for _ in range(3))), lambda: (torch.randn(8, 16),)),
    "half precision": Case(HalfPrecision, lambda: (torch.randn(4, 3, 6, 6),)),
}


# Those whose graphs take long to split, for every set of plans anew.
SLOW = {"autocast", "bert", "encoder-decoder", "gpt", "graph break", "noise", "own checkpoints", "spectral norm"}


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in sorted(MODELS)],
)
def planned(request: pytest.FixtureRequest) -> Iterator[Planned]:
    with clean_torch():
        model = Planned(MODELS[request.param].make, MODELS[request.param].inputs)
        model.step()
        yield model


@pytest.fixture
def joints(planned: Planned) -> list[JointGraph]:
    return [graph.joint for graph in planned.engine.slots()]


def exported(joint: JointGraph, *, continues: bool = False) -> ActivationGraph:
    """As it arrives in the controller."""
    return loads(ActivationGraph, dumps(activation_graph(joint, {}, node_times_s={}, calls=1.0, continues=continues)))


def plan_sets(joint: JointGraph, *, num_random: int = 16) -> list[list[Plan]]:
    """None, each plan alone, all together, what levels stand for, and random ones: counts, and every k-th."""
    plans = [Plan(cluster_id, strategy, ALL) for cluster_id, strategy in sorted(joint.clusters())]
    draw = random.Random(0)
    mixed = [
        [
            Plan(plan.cluster_id + draw.choice(("", "", "/2", "/3")), plan.strategy, draw.choice((ALL, 1, 2)))
            for plan in draw.sample(plans, draw.randint(1, len(plans)))
        ]
        for _ in range(num_random if plans else 0)
    ]
    levels = [list(joint.level_plans(level)) for level in (1, 2)]
    return [[], *([plan] for plan in plans), plans, *levels, *mixed]


def test_saved_bytes_and_order_are_those_of_the_partitioner_for_any_plans(joints: list[JointGraph]) -> None:
    checked = 0
    for joint in joints:
        assert obstacle(joint) is None
        graph = exported(joint)
        simulation, splitter = Simulation([graph]), GraphSplitter(graph)
        for plans in plan_sets(joint):
            pair: Pair = joint.partition(Quota(plans))
            assert simulation.run(plans, dimensions={}).saved_bytes == pair.saved.value, plans
            (kept,) = simulation.kept(plans, dimensions={})
            assert len(kept.recomputed) == len(pair.recomputed), plans
            split = splitter.split(splitter.tags(Quota(plans)))
            assert simulated_operators(graph, split.forward) == operators(pair.forward), plans
            assert simulated_operators(graph, split.backward) == operators(pair.backward), plans
            checked += 1
    assert checked > 3


def test_levels_and_every_other_occurrence_over_all_graphs_save_what_the_engine_says(planned: Planned) -> None:
    slots = planned.engine.slots()
    simulation = Simulation([exported(graph.joint, continues=graph.continues) for graph in slots])
    assert all(graph.forward_calls == graph.training_calls for graph in slots)
    every_other = [replace(plan, cluster_id=f"{plan.cluster_id}/2") for plan in planned.plans()]
    for plans, level in (((), 1), ((), 2), (every_other, 0), (every_other, 1), (every_other, 2)):
        planned.step(*plans, level=level)
        assert simulation.run(plans, level, dimensions={}).saved_bytes == planned.saved_bytes(), (plans, level)


def test_what_is_tried_has_costly_clusters_and_both_strategies_of_one(planned: Planned) -> None:
    """Else the tests above would show less than they say."""
    occurrences = [each for graph in planned.engine.slots() for each in graph.joint.occurrences]
    if isinstance(planned.model, Wide):
        assert {each.strategy for each in occurrences if each.cluster_id == "_to_copy+"} == {RECOMPUTE, COMPROMISED}
    if planned.model.__class__.__name__ in ("Gpt", "Bert"):
        assert any(each.is_heavy for each in occurrences)


def test_a_value_whose_type_was_corrected_is_the_same_storage_in_and_out_of_its_tuple(joints: list[JointGraph]) -> None:
    for graph in map(exported, joints):
        for node in graph.getitems:
            (source,) = graph.inputs[node]
            assert set(graph.storages[node]) <= set(graph.storages[source]), graph.names[node]
