"""The order of a backward that recomputes, on graphs small enough to read and on random ones."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from autotune.predict.lifetimes import highest_point
from autotune.predict.partition import postponed


@dataclass
class Backward:
    """A backward under construction: its inputs come first, its nodes in order."""

    inputs: list[tuple[int, ...]] = field(default_factory=list)
    storages: list[tuple[int, ...]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    given: list[int] = field(default_factory=list)
    fixed: set[int] = field(default_factory=set)
    outputs: tuple[int, ...] = ()
    lasting: set[int] = field(default_factory=set)

    def add(self, *sources: int, size: int = 1, parts: int = 1, fixed: bool = False) -> int:
        """A node with storages of its own."""
        first = len(self.sizes)
        self.sizes += [size] * parts
        return self._node(sources, tuple(range(first, first + parts)), fixed=fixed)

    def view(self, source: int, part: int | None = None) -> int:
        """A view of a node; or of one of its parts, which keeps its place."""
        held = self.storages[source]
        return self._node((source,), held if part is None else (held[part],), fixed=part is not None)

    def give(self, size: int = 1, *, lasting: bool = False) -> int:
        """An input."""
        node = self.add(size=size)
        self.given.append(node)
        if lasting:
            self.lasting |= {*self.storages[node]}
        return node

    def _node(self, sources: tuple[int, ...], held: tuple[int, ...], *, fixed: bool) -> int:
        self.inputs.append(sources)
        self.storages.append(held)
        if fixed:
            self.fixed.add(len(self.inputs) - 1)
        return len(self.inputs) - 1

    @property
    def order(self) -> list[int]:
        return [node for node in range(len(self.inputs)) if node not in self.given]

    def postponed(self) -> list[int]:
        """Its nodes, moved."""
        return postponed(
            self.order,
            inputs=self.inputs,
            storages=self.storages,
            outputs=self.outputs,
            lasting=self.lasting,
            fixed=self.fixed,
        )

    def peak(self, order: list[int]) -> int:
        """The most that is alive at a time."""
        sizes = [0 if storage in self.lasting else size for storage, size in enumerate(self.sizes)]
        return highest_point(
            order,
            inputs=self.inputs,
            storages=self.storages,
            given=self.given,
            outputs=self.outputs,
            sizes=sizes,
            workspace={},
            redrawn=frozenset(),
            state_bytes=0,
            start_bytes=sum(sizes[storage] for node in self.given for storage in self.storages[node]),
            is_forward=False,
        )


def test_the_gradient_of_an_input_waits_for_what_the_gradient_of_the_weight_recomputes() -> None:
    graph = Backward()
    gradient, weight, saved = graph.give(), graph.give(lasting=True), graph.give()
    transposed = graph.view(weight)
    of_input = graph.add(gradient, transposed, size=4)
    recomputed = graph.add(saved, size=4)
    of_weight = graph.add(gradient, recomputed)
    rest = graph.add(of_input, saved)
    graph.outputs = (of_weight, rest)
    assert graph.postponed() == [recomputed, transposed, of_input, of_weight, rest]
    assert graph.peak(graph.postponed()) == graph.peak(graph.order)


def test_nothing_waits_longer_than_others_need_what_it_reads() -> None:
    graph = Backward()
    gradient, saved = graph.give(), graph.give()
    early = graph.add(gradient)
    recomputed = graph.add(saved)
    graph.outputs = (graph.add(early, recomputed),)
    assert graph.postponed() == graph.order
    # What is read lives as long in any case: as a parameter, or for another reader.
    graph.lasting = {*graph.storages[gradient]}
    assert graph.postponed() == [recomputed, early, *graph.outputs]
    graph.lasting, graph.outputs = set(), (*graph.outputs, gradient)
    assert graph.postponed() == [recomputed, early, graph.outputs[0]]


def test_views_are_read_where_what_they_look_at_is() -> None:
    graph = Backward()
    gradient, saved = graph.give(), graph.give()
    view = graph.view(gradient)
    early = graph.add(gradient)
    recomputed = graph.add(saved)
    last = graph.add(view, recomputed)
    graph.outputs = (graph.add(early, last),)
    assert graph.postponed() == [recomputed, early, view, last, *graph.outputs]


def test_what_is_fixed_stays_and_what_nobody_reads_too() -> None:
    graph = Backward()
    weight, saved = graph.give(lasting=True), graph.give()
    draw = graph.add(weight, fixed=True)
    unread = graph.add(weight)
    recomputed = graph.add(saved)
    graph.outputs = (graph.add(draw, recomputed),)
    assert graph.postponed() == [draw, unread, recomputed, *graph.outputs]


def test_many_nodes_can_wait_for_the_same_one() -> None:
    graph = Backward()
    weight, saved = graph.give(lasting=True), graph.give()
    waiting = [graph.add(weight) for _ in range(100)]
    recomputed = graph.add(saved)
    graph.outputs = (graph.add(*waiting, recomputed),)
    order = graph.postponed()
    assert (order[0], order[-1]) == (recomputed, *graph.outputs)


def random_backward(draw: random.Random) -> Backward:
    graph = Backward()
    for _ in range(draw.randint(1, 5)):
        graph.give(draw.randint(1, 9), lasting=draw.random() < 0.3)
    tuples: dict[int, int] = {}
    while len(graph.inputs) < 40:
        known = [node for node in range(len(graph.inputs)) if node not in tuples]
        match draw.choice(("view", "tuple", "part", "node", "node", "node")):
            case "view":
                graph.view(draw.choice(known))
            case "tuple":
                tuples[graph.add(draw.choice(known), size=draw.randint(1, 9), parts=2, fixed=True)] = 2
            case "part" if tuples:
                graph.view(draw.choice([*tuples]), draw.randrange(2))
            case _:
                sources = draw.sample(known, min(len(known), draw.randint(1, 3)))
                graph.add(*sources, size=draw.randint(0, 9), fixed=draw.random() < 0.1)
    graph.outputs = tuple(draw.sample([node for node in range(40) if node not in tuples], 4))
    return graph


@pytest.mark.parametrize("part", range(10))
def test_the_peak_never_rises_and_each_node_stays_behind_what_it_reads(part: int) -> None:
    lower = 0
    for seed in range(20):
        graph = random_backward(random.Random(20 * part + seed))
        order = graph.postponed()
        assert sorted(order) == graph.order
        place = {node: number for number, node in enumerate(order)}
        for node in order:
            assert all(place[source] < place[node] for source in graph.inputs[node] if source in place)
        kept = [node for node in order if node in graph.fixed]
        assert kept == sorted(kept)
        assert graph.peak(order) <= graph.peak(graph.order)
        lower += graph.peak(order) < graph.peak(graph.order)
    assert lower > 0
