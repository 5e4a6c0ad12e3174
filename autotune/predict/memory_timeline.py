"""Memory in the course of a step, moment by moment: activations by block, gradients, and the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from ..records.graph import ActivationGraph


class Blocks:
    """The repeated blocks of a graph, one within another.

    ``makers`` has for each storage the node that allocates it, the first whose value lies in it. ``within`` has for
    each block the smallest one that it lies in, ``of_nodes`` for each node that lies in blocks the smallest one. Blocks
    are numbered as in ``ActivationGraph.layers``; None stands for no block.
    """

    def __init__(self, graph: ActivationGraph) -> None:
        self.makers: dict[int, int] = {}
        for node, storages in enumerate(graph.storages):
            for storage in storages:
                self.makers.setdefault(storage, node)
        members = [frozenset((*layer.recompute, *layer.keep)) for layer in graph.layers]
        # From the largest to the smallest. Of two with the same nodes the first one is the outer one.
        order = sorted(range(len(members)), key=lambda block: (-len(members[block]), block))
        self.of_nodes: dict[int, int] = {}
        self.within: list[int | None] = [None] * len(members)
        for block in order:
            # The blocks before it are larger, so the one that all of its nodes lie in now is the smallest around it.
            around = {self.of_nodes.get(node) for node in members[block]}
            self.within[block] = around.pop() if len(around) == 1 else None
            for node in members[block]:
                self.of_nodes[node] = block

    def outermost(self, block: int) -> int:
        """Return the block that it lies in and that lies in no other one; a block that lies in none is its own."""
        around = self.within[block]
        return block if around is None else self.outermost(around)


@dataclass(frozen=True)
class Moment:
    """Bytes on top of what is there all the time, gradients that the step finds included.

    ``level`` is all of them. Of it ``blocks`` is what each repeated block has handed to the backward, in the model's
    order, ``outside`` the same of operators outside of blocks, ``gradients`` what gradients take more than at the
    beginning. What is left is for a moment only: results and workspaces of operators that run.
    """

    level: int
    blocks: tuple[int, ...]
    outside: int
    gradients: int
    is_forward: bool


class MemoryTimeline:
    """Notes every moment of a simulated step of graphs, as its halves tell one storage and one node at a time."""

    def __init__(self, graphs: Sequence[ActivationGraph]) -> None:
        self.moments: list[Moment] = []
        self.names: list[str] = []
        self._block_of: list[dict[int, int]] = []
        for graph in graphs:
            blocks = Blocks(graph)
            outermost = [block for block, around in enumerate(blocks.within) if around is None]
            place = {block: number for number, block in enumerate(outermost, start=len(self.names))}
            self._block_of.append(
                {
                    storage: place[blocks.outermost(blocks.of_nodes[node])]
                    for storage, node in blocks.makers.items()
                    if node in blocks.of_nodes
                }
            )
            self.names += [graph.layers[block].cluster_id for block in outermost]
        self._held: list[int] = [0] * (len(self.names) + 1)
        self._graph = 0
        self._saved: Collection[int] = ()
        self._returned: Collection[int] = ()
        self._gradients = 0
        self._is_forward = True

    def enter(
        self,
        graph: int,
        *,
        saved: Collection[int],
        held: Iterable[tuple[int, Collection[int], Sequence[int]]],
        gradients: int,
        returned: Collection[int],
        is_forward: bool,
    ) -> None:
        """Begin a half of the graph of this number.

        ``saved`` are the storages that its forward hands to the backward, ``returned`` those of the gradients that its
        backward gives. ``held`` has graph, saved storages and sizes of each call whose backward is still to come, or
        begins. ``gradients`` are the bytes that gradients take more than when the step began.
        """
        self._graph, self._saved, self._returned = graph, saved, returned
        self._gradients, self._is_forward = gradients, is_forward
        self._held = [0] * (len(self.names) + 1)
        for number, storages, sizes in held:
            for storage in storages:
                self._held[self._block_of[number].get(storage, -1)] += sizes[storage]

    def changed(self, storage: int, size: int) -> None:
        """Note that a storage was allocated (``size`` above zero) or freed (below)."""
        if storage in self._saved:
            self._held[self._block_of[self._graph].get(storage, -1)] += size
        elif storage in self._returned and not self._is_forward:
            self._gradients += size

    def left(self, level: int, *, gradients: int) -> None:
        """Note that the half has ended, and the script itself is at work with so many bytes alive."""
        self._gradients = gradients
        self.ran(level)

    def ran(self, level: int) -> None:
        """Note how many bytes are alive while a node runs."""
        *blocks, outside = self._held
        self.moments.append(Moment(level, tuple(blocks), outside, self._gradients, self._is_forward))
