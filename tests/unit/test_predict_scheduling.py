"""The orders of kernels: those that torch's Inductor finds itself for the same buffers."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from torch._inductor import memory
from torch.utils._ordered_set import OrderedSet

from autotune.predict.groups import Kernel
from autotune.predict.scheduling import scheduled

METHODS = ("topological_sort_lpmf", "topological_sort_bfs", "topological_sort_dfs")


class Scheduled:
    """A node of Inductor's scheduler, or an input, that makes buffers; a name stands for each."""

    def __init__(self, name: str, made: list[int], sizes: list[int]) -> None:
        self.buffers = [Buffer(storage, sizes[storage]) for storage in made]
        self.name = name
        self.unmet_dependencies: list[SimpleNamespace] = []
        self.mpi_node = SimpleNamespace(
            index=0,
            size=sum(sizes[storage] for storage in made),
            pred_buffers=OrderedSet([]),
            pred_nodes=OrderedSet([]),
            succ_nodes=OrderedSet([]),
        )

    def get_outputs(self) -> list[Buffer]:
        return self.buffers

    def get_buffer_names(self) -> list[str]:
        return [buffer.get_name() for buffer in self.buffers]

    def get_name(self) -> str:
        return self.name


class Buffer:
    """A buffer of Inductor's."""

    def __init__(self, storage: int, size: int) -> None:
        self.storage = storage
        self.mpi_buffer: Any = SimpleNamespace(size_alloc=size, size_free=size, succ_nodes=OrderedSet([]))

    def get_name(self) -> str:
        return f"buf{self.storage}"


def inductors(
    groups: list[list[Kernel]], given: set[int], kept: set[int], sizes: list[int]
) -> tuple[list[int], list[int], str]:
    """The order that Inductor finds, what it takes to be alive in each step, and by which method."""
    inputs = [Buffer(storage, sizes[storage]) for storage in sorted(given)]
    nodes = [
        Scheduled(f"op{place}", [storage for kernel in group for storage in kernel.writes], sizes)
        for place, group in enumerate(groups)
    ]
    makers = {buffer.storage: node for node in nodes for buffer in node.buffers}
    every = {buffer.storage: buffer for node in nodes for buffer in node.buffers} | {
        each.storage: each for each in inputs
    }
    for place, (node, group) in enumerate(zip(nodes, groups, strict=True)):
        node.mpi_node.index = place
        own = {buffer.storage for buffer in node.buffers}
        for storage in dict.fromkeys(storage for kernel in group for storage in kernel.reads):
            if storage not in every or storage in own:
                continue
            every[storage].mpi_buffer.succ_nodes.add(node)
            node.mpi_node.pred_buffers.add(every[storage])
            if storage in makers:
                node.mpi_node.pred_nodes.add(makers[storage])
                makers[storage].mpi_node.succ_nodes.add(node)
                node.unmet_dependencies.append(SimpleNamespace(name=f"buf{storage}"))
    named = {each.get_name(): each for each in every.values() if each not in inputs}
    freed = {each.get_name(): each for each in inputs if each.mpi_buffer.succ_nodes}
    outputs: Any = OrderedSet([f"buf{storage}" for storage in kept])
    estimate: Any = memory.estimate_peak_memory
    best, highest, by = nodes, estimate(nodes, freed, outputs)[0], "baseline"
    for name in METHODS:
        method: Any = getattr(memory, name)
        order = method(nodes, freed, named, outputs) if name == METHODS[0] else method(nodes)
        peak = estimate(order, freed, outputs)[0]
        if peak < highest:
            best, highest, by = order, peak, name
    return [node.mpi_node.index for node in best], estimate(best, freed, outputs)[1][:-1], by


def drawn(draw: random.Random) -> tuple[list[list[Kernel]], set[int], set[int], list[int]]:
    """Groups at random: some of two kernels, of which the second reads what the first has made."""
    given = set(range(draw.randint(1, 5)))
    # And one that is not freed.
    made = [*given, len(given)]
    sizes = [draw.choice((4, 8, 1000, 2000, 4000)) for _ in made]
    sizes[-1] = 0
    groups = []
    for place in range(draw.randint(3, 25)):
        group = []
        for _ in range(draw.choice((1, 1, 2))):
            reads = draw.sample(made, draw.randint(1, min(3, len(made))))
            reads += [storage for kernel in group for storage in kernel.writes]
            writes = tuple(range(len(sizes), len(sizes) + draw.choice((1, 1, 2))))
            sizes += [draw.choice((4, 8, 1000, 2000, 4000)) for _ in writes]
            group.append(Kernel(place, tuple(dict.fromkeys(reads)), writes))
        made += [storage for kernel in group for storage in kernel.writes]
        groups.append(group)
    return groups, given, set(draw.sample(made[len(given) + 1 :], 3)), sizes


@pytest.mark.parametrize("seed", range(4))
def test_the_order_is_inductors(seed: int) -> None:
    draw, methods = random.Random(seed), set()
    for _ in range(60):
        groups, given, kept, sizes = drawn(draw)
        order, alive, method = inductors(groups, given, kept, sizes)
        found, estimate = scheduled(groups, given, kept, sizes)
        assert [groups.index(group) for group in found] == order, method
        assert estimate == alive
        methods.add(method)
    assert methods == {"baseline", *METHODS}
