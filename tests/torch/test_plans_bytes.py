"""What a plan saves is what the plan table says, and what autograd no longer keeps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch._functorch.partitioners import default_partition

from autotune.records.plan import ALL, Plan, Quota
from autotune.worker.engines.plan_engine import AotEngine
from autotune.worker.plans.joint import copy_joint
from autotune.worker.plans.partition import JointGraph
from tests.fakes.models import CASES, Gpt
from tests.fakes.planned import Planned, clean_torch

# Dynamo meets these where it looks at tensors and functions of a model; a warning made an error stops its tracing.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]

# At a graph break a graph's inputs are the activations of another; neither counts them.
_WHOLE = sorted(set(CASES) - {"graph break", "changes an activation"})


@pytest.fixture(scope="module", params=_WHOLE)
def planned(request: pytest.FixtureRequest) -> Iterator[Planned]:
    with clean_torch():
        yield Planned(CASES[request.param].make, CASES[request.param].inputs)


@pytest.fixture(scope="module")
def gpt() -> Iterator[Planned]:
    with clean_torch():
        yield Planned(Gpt, CASES["gpt"].inputs)


def test_saved_bytes_are_what_autograd_keeps(planned: Planned) -> None:
    assert planned.measured_bytes() == planned.saved_bytes()
    for plan in planned.plans():
        assert planned.measured_bytes(plan) == planned.saved_bytes(), plan
    assert planned.measured_bytes(*planned.plans()) == planned.saved_bytes()


def test_each_row_of_the_table_saves_what_it_says(planned: Planned) -> None:
    without = planned.measured_bytes()
    for plan, savings in planned.rows().items():
        assert planned.measured_bytes(plan) == without - sum(savings), plan


def test_a_count_recomputes_the_first_occurrences_in_execution_order(gpt: Planned) -> None:
    without = gpt.measured_bytes()
    (savings,) = [savings for plan, savings in gpt.rows().items() if plan.cluster_id == "native_layer_norm+"]
    (graph,) = gpt.engine.slots()
    order = [each.stash for each in graph.joint.occurrences if each.cluster_id == "native_layer_norm+"]
    assert len(order) == 7
    for count in range(8):
        assert gpt.measured_bytes(f"native_layer_norm+:1:{count}") == without - sum(savings[:count])
        kept = {node.name for node in graph.current.forward.graph.find_nodes(op="output")[0].args[0]}
        assert [stash in kept for stash in order] == [False] * count + [True] * (7 - count)
    assert gpt.measured_bytes("native_layer_norm+:1:99") == gpt.measured_bytes(f"native_layer_norm+:1:{ALL}")


def test_a_plan_that_stashes_something_smaller_counts_it(gpt: Planned) -> None:
    class Casts(nn.Module):
        """The cosine's argument is stashed in double precision; recomputing it needs the product, half as large."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(32, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cos(self.inner(x).double()).float()

    with clean_torch():
        casts = Planned(Casts, lambda: (torch.randn(64, 32),))
        expected = casts.step()
        without = casts.saved_bytes()
        assert casts.step("_to_copy+:2:-1") == expected
        assert casts.engine.problem() is None
        assert without == 64 * 32 * 8
        assert casts.saved_bytes() == casts.measured_bytes("_to_copy+:2:-1") == 64 * 32 * 4


def test_the_smallest_tensor_between_is_what_a_compromise_stashes() -> None:
    class Residual(nn.Module):
        """What is added is half as large as the sum, and comes from something twice as large."""

        def __init__(self) -> None:
            super().__init__()
            self.inner, self.norm, self.dropout = nn.Linear(32, 32).double(), nn.LayerNorm(32), nn.Dropout(0.1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(x + self.dropout(self.inner(x.double()).bfloat16()))

    with clean_torch():
        residual = Planned(Residual, lambda: (torch.randn(4096, 32),))
        expected = residual.step()
        without = residual.measured_bytes()
        assert residual.rows()[Plan("add+", 2, ALL)] == [4096 * 32 * (4 - 2)]
        assert residual.step("add+:2:-1") == expected
        assert residual.measured_bytes("add+:2:-1") == without - 4096 * 32 * 2


def test_heavy_operators_are_clusters_of_their_own_beside_the_light_ones(gpt: Planned) -> None:
    gpt.step()
    rows = {str(plan): savings for plan, savings in gpt.rows().items()}
    assert rows["gelu+:1:-1"] == rows["addmm+:1:-1"] == [8 * 24 * 4 * 32 * 4] * 3
    assert rows["bmm+div+masked_fill+_softmax+:1:-1"] == [8 * 2 * 24 * 24 * 4] * 3
    with clean_torch():
        bert = Planned(CASES["bert"].make, CASES["bert"].inputs)
        bert.step()
        attention = "scaled_dot_product_attention+"
        whole, state = 8 * 24 * 32 * 4, torch.get_rng_state().nbytes
        savings, before = bert.rows()[Plan(attention, 1, ALL)], bert.measured_bytes()
        # Torch 2.15 knows that attention without dropout draws nothing, and keeps no state of a generator.
        assert savings in ([whole] * 3, [whole - state] * 3)
        assert before - bert.measured_bytes(f"{attention}:1:-1") == sum(savings)
        (graph,) = bert.engine.slots()
        bert.step(f"{attention}:1:2")
        assert sum(name.startswith("_scaled_dot_product") for name in graph.current.recomputed) == 2


def test_a_stash_that_looks_at_part_of_a_tensor_keeps_all_of_it() -> None:
    class Slices(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(32, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(torch.exp(self.inner(x))[:, :2])

    with clean_torch():
        slices = Planned(Slices, lambda: (torch.randn(64, 32),))
        assert slices.measured_bytes() == slices.saved_bytes() == 64 * 32 * 4


def test_a_normalization_in_training_can_be_run_again_but_not_its_running_statistics() -> None:
    with clean_torch():
        planned = Planned(CASES["conv net"].make, CASES["conv net"].inputs)
        planned.step()
        rows = {plan.cluster_id: len(savings) for plan, savings in planned.rows().items()}
    name = "_native_batch_norm_legit_functional+"
    assert rows[f"{name}relu+"] == 2
    assert rows[f"{name}add+relu+"] == 2
    assert rows[f"{name}[1]"] == rows[f"{name}[2]"] == 4
    assert f"{name}[3]" not in rows


def test_an_operator_behind_a_checkpoint_of_the_script_reads_what_that_recomputes() -> None:
    with clean_torch():
        planned = Planned(CASES["own checkpoints"].make, CASES["own checkpoints"].inputs)
        planned.step()
        rows = {plan.cluster_id: savings for plan, savings in planned.rows().items()}
    assert rows["gelu+"] == [64 * 32 * 4]


def test_without_plans_the_graphs_are_split_as_the_stock_partitioner_splits_them() -> None:
    joints: list[tuple[torch.fx.GraphModule, int, list[int]]] = []

    class Watching(AotEngine):
        def partition(self, joint, joint_inputs, *, num_fwd_outputs, static_lifetime_input_indices=None, **rest):
            joints.append((copy_joint(joint), num_fwd_outputs, static_lifetime_input_indices))
            stock = default_partition(
                copy_joint(joint),
                joint_inputs,
                num_fwd_outputs=num_fwd_outputs,
                static_lifetime_input_indices=static_lifetime_input_indices,
            )
            ours = super().partition(
                joint,
                joint_inputs,
                num_fwd_outputs=num_fwd_outputs,
                static_lifetime_input_indices=static_lifetime_input_indices,
                **rest,
            )
            for left, right in zip(stock, ours, strict=True):
                assert left.print_readable(print_output=False) == right.print_readable(print_output=False)
            return ours

    with clean_torch():
        model = Gpt()
        engine = Watching()
        engine.compile_root(model)(*CASES["gpt"].inputs()).backward()
        assert len(joints) == 1
        assert not engine.failures


def test_what_is_split_from_a_graph_leaves_the_graph_as_it_was(gpt: Planned) -> None:
    gpt.step()
    (graph,) = gpt.engine.slots()
    joint: JointGraph = graph.joint
    assert joint.partition(Quota([])) is joint.unplanned
    before = str(joint._joint.graph)
    planned = joint.partition(Quota([Plan("GptBlock+", 1, 2)]))
    assert planned.saved.value < joint.unplanned.saved.value
    assert str(joint._joint.graph) == before
    assert not any("recompute" in node.meta for node in joint._joint.graph.nodes)
    assert joint.partition(Quota([])) is joint.unplanned
