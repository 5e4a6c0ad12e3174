"""The node of a graph that makes each storage, and the repeated block that each node lies in."""

from __future__ import annotations

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
        """The block that it lies in and that lies in no other one; a block that lies in none is its own."""
        around = self.within[block]
        return block if around is None else self.outermost(around)
