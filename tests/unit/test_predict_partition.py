"""Simulated splits of activation graphs against those of torch's own partitioner."""

from __future__ import annotations

import operator
import random
from collections.abc import Iterator

import pytest
import torch
from torch import fx

from autotune.predict import Simulation
from autotune.records import ALL, ActivationGraph, Plan, Quota, dumps, loads
from autotune.worker.plans.export import export_graph, obstacle
from autotune.worker.plans.partition import JointGraph, Pair
from tests.fakes.models import CASES
from tests.fakes.planned import Planned, clean_torch

pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]


@pytest.fixture(scope="module", params=sorted(CASES))
def joints(request: pytest.FixtureRequest) -> Iterator[list[JointGraph]]:
    with clean_torch():
        planned = Planned(CASES[request.param].make, CASES[request.param].inputs)
        planned.step()
        yield [graph.joint for graph in planned.engine.slots()]


def exported(joint: JointGraph) -> ActivationGraph:
    """As it arrives in the controller."""
    return loads(ActivationGraph, dumps(export_graph(joint, {}, node_times_s={}, calls=1.0)))


def plan_sets(joint: JointGraph) -> list[list[Plan]]:
    """None, each plan alone, all together, and random ones with random counts."""
    plans = [Plan(cluster_id, strategy, ALL) for cluster_id, strategy in sorted(joint.clusters())]
    draw = random.Random(0)
    mixed = [
        [
            Plan(plan.cluster_id, plan.strategy, draw.choice((ALL, 1, 2)))
            for plan in draw.sample(plans, draw.randint(1, len(plans)))
        ]
        for _ in range(12 if plans else 0)
    ]
    return [[], *([plan] for plan in plans), plans, *mixed]


def operators(half: fx.GraphModule) -> list[str]:
    """What a half runs, in order, by node name; what redraws goes by its operator. Sizes and tuples are left out."""
    found = []
    for node in half.graph.nodes:
        if "rng_state" in str(node.target) and node.op == "call_function":
            found.append(next(str(argument) for argument in node.args if isinstance(argument, torch._ops.OpOverload)))
        elif node.op == "call_function" and node.target is not operator.getitem and has_tensors(node):
            found.append(node.name)
    return found


def has_tensors(node: fx.Node) -> bool:
    return any(isinstance(value, torch.Tensor) for value in torch.utils._pytree.tree_leaves(node.meta.get("val")))


def simulated_operators(
    joint: JointGraph, graph: ActivationGraph, order: list[int], redrawn: frozenset[int]
) -> list[str]:
    skipped = {*graph.getitems, *graph.symbols, *graph.constants}
    nodes = joint.nodes
    return [
        str(nodes[graph.names[node]].target) if node in redrawn else graph.names[node]
        for node in order
        if node not in skipped and (graph.storages[node] or node in graph.updates)
    ]


def test_saved_bytes_and_order_are_those_of_the_partitioner_for_any_plans(joints: list[JointGraph]) -> None:
    checked = 0
    for joint in joints:
        assert obstacle(joint) is None
        graph = exported(joint)
        simulation = Simulation([graph])
        for plans in plan_sets(joint):
            pair: Pair = joint.partition(Quota(plans))
            simulated = simulation.run(plans, dimensions={})
            assert simulated.saved_bytes == pair.saved.value, plans
            (split,) = simulation.splits(plans)
            assert simulated_operators(joint, graph, split.forward, split.redrawn) == operators(pair.forward), plans
            assert simulated_operators(joint, graph, split.backward, split.redrawn) == operators(pair.backward), plans
            checked += 1
    assert checked > 3
