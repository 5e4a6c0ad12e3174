"""Layer clusters: ``Block+`` keeps what a hand-written checkpoint around the block keeps, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from autotune.worker.plans.layers import Layer
from tests.fakes.models import CASES, Gpt, Shared
from tests.fakes.planned import Planned, clean_torch, kept_bytes

# One tensor between two blocks: batch, length, width, four bytes each.
ACTIVATION = 8 * 24 * 32 * 4


@pytest.fixture(scope="module")
def gpt() -> Iterator[Planned]:
    with clean_torch():
        yield Planned(Gpt, CASES["gpt"].inputs)


def layers_of(planned: Planned) -> list[Layer]:
    planned.step()
    return [layer for graph in planned.engine.slots() for layer in graph.joint.layers]


def test_blocks_of_a_list_are_layers_in_execution_order(gpt: Planned) -> None:
    layers = layers_of(gpt)
    assert [layer.cluster_id for layer in layers] == ["GptBlock+"] * 3
    assert [layer.path.rpartition("#")[2] for layer in layers] == ["0", "1", "2"]
    (graph,) = gpt.engine.slots()
    order = {name: position for position, name in enumerate(graph.joint.nodes)}
    ends = [(order[layer.nodes[0]], order[layer.nodes[-1]]) for layer in layers]
    assert ends == sorted(ends)
    assert all(end < begin for (_, end), (begin, _) in pairwise(ends))


def test_recomputing_all_blocks_is_the_hand_written_checkpoint(gpt: Planned) -> None:
    layered = gpt.step("GptBlock+:1:-1")
    kept = gpt.measured_bytes("GptBlock+:1:-1")
    with clean_torch():
        by_hand = Planned(lambda: Gpt(checkpointed=True), CASES["gpt"].inputs)
        assert by_hand.plain() == layered
        # Compiled, the script's checkpoints recompute the last block's output too, which the norm behind it reads.
        assert by_hand.step() == layered
        assert by_hand.measured_bytes() == kept - ACTIVATION
    outside = kept_bytes(lambda: by_hand.model(*by_hand.inputs), [*by_hand.model.parameters(), *by_hand.inputs])
    # Plain torch keeps one generator state a block, not one an operator, where these hooks do not see it; and the
    # mask of the dropout before the blocks as floats.
    states, masks = 9 * torch.get_rng_state().nbytes, ACTIVATION - ACTIVATION // 4
    assert kept - states == pytest.approx(outside - masks, rel=0.02)
    assert kept < 0.3 * gpt.measured_bytes()


def test_a_level_holds_for_graphs_compiled_under_it_and_after_switching(gpt: Planned) -> None:
    expected, layered = gpt.step(), gpt.measured_bytes("GptBlock+:1:-1")
    assert gpt.step(level=1) == expected
    assert gpt.measured_bytes(level=1) == layered
    with clean_torch():
        compiled_so = Planned(Gpt, CASES["gpt"].inputs)
        assert compiled_so.step(level=1) == expected
        assert compiled_so.measured_bytes(level=1) == layered


def test_level_2_also_stashes_what_is_smaller_outside_of_layers() -> None:
    class Wide(nn.Module):
        """Blocks, and behind them a stash in double precision of something half as large."""

        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(32, 32), nn.GELU()) for _ in range(3))
            self.head = nn.Linear(32, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = block(x)
            return torch.cos(self.head(x).double()).float()

    with clean_torch():
        wide = Planned(Wide, lambda: (torch.randn(64, 32),))
        expected = wide.step()
        kept = [wide.measured_bytes(level=level) for level in (0, 1, 2)]
        assert kept[0] > kept[1] == kept[2] + 64 * 32 * (8 - 4)
        assert wide.step(level=2) == expected


def test_every_kth_block_can_be_named(gpt: Planned) -> None:
    expected = gpt.step()
    layers = layers_of(gpt)
    (graph,) = gpt.engine.slots()
    assert gpt.step("GptBlock+/2:1:-1") == expected
    assert set(graph.current.recomputed) <= set(layers[1].nodes)
    second = gpt.saved_bytes()
    gpt.step("GptBlock+:1:1", "GptBlock+/2:1:-1")
    first_two = gpt.saved_bytes()
    gpt.step("GptBlock+:1:2")
    assert first_two == gpt.saved_bytes() < second
    gpt.step("GptBlock+/4:1:-1")
    problem = gpt.engine.problem()
    assert problem is not None
    assert problem.kind == "invalid_plan"


def test_no_gradient_waits_unused_while_something_is_recomputed() -> None:
    class Mlp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(32, 128), nn.Linear(128, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.down(torch.nn.functional.gelu(self.up(x)))

    with clean_torch():
        planned = Planned(lambda: nn.Sequential(Mlp(), Mlp()), lambda: (torch.randn(64, 32),))
        expected = planned.step()
        assert planned.step("Mlp+:1:-1") == expected
        (graph,) = planned.engine.slots()
        order = {node.name: place for place, node in enumerate(graph.current.backward.graph.nodes)}
        waiting = graph.current.backward.graph.find_nodes(
            op="call_function", target=torch.ops.aten.gelu_backward.default
        )
        assert len(waiting) == 2
        for node, recomputed in zip(waiting, ("gelu_1", "gelu"), strict=True):
            assert order[recomputed] < order[node.args[0].name]


def test_what_is_recomputed_includes_random_operators(gpt: Planned) -> None:
    gpt.step("GptBlock+:1:1")
    (graph,) = gpt.engine.slots()
    assert sum(name.startswith("native_dropout") for name in graph.current.recomputed) == 3


def test_a_count_recomputes_the_first_blocks_and_keeps_the_others_whole(gpt: Planned) -> None:
    kept = [gpt.measured_bytes(f"GptBlock+:1:{count}") for count in range(4)]
    saved = [before - after for before, after in pairwise(kept)]
    # Blocks are alike, but for their outputs: the next one keeps it anyway, or does not.
    assert max(saved) - min(saved) <= ACTIVATION
    assert kept[3] == gpt.measured_bytes("GptBlock+:1:-1")
    gpt.step("GptBlock+:1:1")
    (graph,) = gpt.engine.slots()
    first, second, _ = graph.joint.layers
    recomputed = set(graph.current.recomputed)
    assert recomputed & set(first.nodes)
    assert not recomputed & set(second.nodes)


def test_level_one_is_every_layer_cluster_at_once(gpt: Planned) -> None:
    expected = gpt.plain()
    assert gpt.step(level=1) == expected
    assert gpt.engine.problem() is None
    assert gpt.measured_bytes(level=1) == gpt.measured_bytes("GptBlock+:1:-1")
    # An operator's plan outside of the blocks adds to it, one inside has nothing left to do.
    assert gpt.measured_bytes("native_layer_norm+:1:-1", level=1) < gpt.measured_bytes(level=1)
    assert gpt.measured_bytes("gelu+:1:-1", level=1) == gpt.measured_bytes(level=1)


def test_a_model_without_repeated_blocks_has_no_level_one() -> None:
    with clean_torch():
        single = Planned(lambda: nn.Sequential(nn.Linear(8, 8), nn.GELU()), lambda: (torch.randn(4, 8),))
        single.step(level=1)
        problem = single.engine.problem()
    assert problem is not None
    assert problem.kind == "fallback"
    assert "no repeated blocks" in problem.cause


@pytest.fixture(scope="module")
def nested() -> Iterator[Planned]:
    with clean_torch():
        yield Planned(CASES["encoder-decoder"].make, CASES["encoder-decoder"].inputs)


def test_each_class_of_repeated_blocks_is_a_cluster_of_its_own(nested: Planned) -> None:
    ids = [layer.cluster_id for layer in layers_of(nested)]
    assert sorted(ids) == ["Decoder+"] * 3 + ["Encoder+"] * 2 + ["Expert+"] * 4


def test_a_block_in_a_recomputed_block_keeps_nothing_of_its_own(nested: Planned) -> None:
    outer = nested.measured_bytes("Encoder+:1:-1")
    inner = nested.measured_bytes("Expert+:1:-1")
    assert outer < inner < nested.measured_bytes()
    assert nested.measured_bytes("Encoder+:1:-1", "Expert+:1:-1") == outer
    assert nested.step("Encoder+:1:-1", "Expert+:1:-1", "Decoder+:1:2") == nested.plain()


def test_blocks_that_are_called_twice_are_recomputed_in_both_places() -> None:
    with clean_torch():
        shared = Planned(Shared, CASES["shared blocks"].inputs)
        expected = shared.plain()
        assert [layer.cluster_id for layer in layers_of(shared)] == ["Expert+"] * 2
        without = shared.measured_bytes()
        assert shared.step("Expert+:1:-1") == expected
        both = shared.measured_bytes("Expert+:1:-1")
        assert shared.step("Expert+:1:1") == expected
        assert both < shared.measured_bytes("Expert+:1:1") < without


@pytest.mark.parametrize("container", ["list", "sequential", "dict of names", "attributes"])
def test_only_members_with_an_index_are_layers(container: str) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.inner(x))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            if container == "list":
                self.parts = nn.ModuleList([Block(), Block()])
            elif container == "sequential":
                self.parts = nn.Sequential(Block(), Block())
            elif container == "dict of names":
                self.parts = nn.ModuleDict({"left": Block(), "right": Block()})
            else:
                self.left, self.right = Block(), Block()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.children() if container == "attributes" else [*self.parts.children()]:
                x = block(x)
            return x

    with clean_torch():
        planned = Planned(Net, lambda: (torch.randn(4, 8),))
        ids = [layer.cluster_id for layer in layers_of(planned)]
    assert ids == (["Block+"] * 2 if container in ("list", "sequential") else [])


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.down(torch.tanh(self.up(x))))


class Blocks(nn.Module):
    """Blocks, of which the script checkpoints the first few itself."""

    def __init__(self, checkpointed: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=False) if index < self.checkpointed else block(x)
        return x.sin()


def test_what_the_script_checkpoints_itself_stays_as_it_is() -> None:
    def kept(checkpointed: int, *plans: str) -> int:
        with clean_torch():
            planned = Planned(lambda: Blocks(checkpointed), lambda: (torch.randn(64, 32),))
            expected = planned.step()
            assert planned.step(*plans) == expected
            return planned.measured_bytes(*plans)

    activation = 64 * 32 * 4
    # All by the script: the inputs of the second and the third block. By layers: what leaves the last one, too.
    assert kept(3) == kept(3, "Block+:1:-1") == 2 * activation
    assert kept(0, "Block+:1:-1") == 3 * activation
    # Both kinds beside each other, whichever of them is numbered first.
    assert kept(1, "Block+:1:-1") == kept(2, "Block+:1:-1") == 3 * activation
