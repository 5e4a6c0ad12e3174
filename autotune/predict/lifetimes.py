"""From the two halves of a graph to bytes: when each storage is allocated and freed, and the highest point."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .memory_timeline import MemoryTimeline


def highest_point(
    order: Sequence[int],
    *,
    inputs: Sequence[Sequence[int]],
    storages: Sequence[Sequence[int]],
    given: Iterable[int],
    outputs: Iterable[int],
    sizes: Sequence[int],
    workspace: Mapping[int, int],
    redrawn: frozenset[int],
    state_bytes: int,
    start_bytes: int,
    is_forward: bool,
    timeline: MemoryTimeline | None = None,
) -> int:
    """Run the nodes of a half in order, and return its highest point in bytes.

    Args:
        order: its nodes.
        inputs: of every node what it reads.
        storages: of every node where its value lies, each storage once.
        given: the nodes whose values are its inputs; their storages are part of ``start_bytes``.
        outputs: the nodes whose values outlive it.
        sizes: bytes of each storage; 0 for those that are not the half's to allocate or free.
        workspace: bytes that nodes allocate besides their results while they run.
        redrawn: the random nodes whose generator's state is saved in the forward and used in the backward.
        state_bytes: what such a state takes.
        start_bytes: what is alive when it begins.
        is_forward: whether it is the forward.
        timeline: is told all of it.
    """
    last: dict[int, int] = {}
    for place, node in enumerate(order):
        last[node] = place
        for source in inputs[node]:
            last[source] = place
    for node in outputs:
        last.pop(node, None)
    dying: list[list[int]] = [[] for _ in order]
    for node, place in last.items():
        dying[place].append(node)
    holders: dict[int, int] = {}
    for node in given:
        for storage in storages[node]:
            holders[storage] = holders.get(storage, 0) + 1
    current = highest = start_bytes
    for place, node in enumerate(order):
        for storage in storages[node]:
            held = holders.get(storage, 0)
            holders[storage] = held + 1
            if not held:
                current += sizes[storage]
                if timeline is not None:
                    timeline.changed(storage, sizes[storage])
        state = state_bytes if node in redrawn else 0
        # The backward holds the generator's own state too while it redraws.
        during = current + workspace.get(node, 0) + state
        if is_forward:
            current += state
        highest = max(highest, during)
        if timeline is not None:
            timeline.ran(during)
        for gone in dying[place]:
            for storage in storages[gone]:
                left = holders.get(storage)
                if left is None:
                    continue
                holders[storage] = left - 1
                if left == 1:
                    current -= sizes[storage]
                    if timeline is not None:
                        timeline.changed(storage, -sizes[storage])
        if not is_forward:
            current -= state
    return highest
