"""The order of a backward that recomputes: nothing is made before it must be, where waiting keeps nothing else."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def postponed(
    order: Sequence[int],
    *,
    inputs: Sequence[Sequence[int]],
    storages: Sequence[Sequence[int]],
    outputs: Collection[int],
    lasting: Collection[int | None],
    fixed: Collection[int],
) -> list[int]:
    """Move nodes of a backward down, each to right before the first that cannot do without.

    The partitioner recomputes what a node needs right before it, and autograd takes the gradient of a matrix product's
    input before that of its weight: the first would wait, unused, for what the second has recomputed. A node waits for
    its first reader, but no longer than others need what it reads itself: then nothing lives longer than before.

    Args:
        order: the backward's nodes, each behind what it reads.
        inputs: of every node what it reads, other nodes of the order or not.
        storages: of every node where its value lies; views share a storage.
        outputs: the nodes whose values outlive the backward.
        lasting: storages that the backward does not free.
        fixed: the nodes that stay among each other as they are.
    """
    # A place is a number, with room below it for what is moved there: half of what is left, each time.
    end, whole = -1, 1 << len(order)
    place = {node: number * whole for number, node in enumerate(order, start=1)} | {end: (len(order) + 1) * whole}
    room = dict.fromkeys(place, whole)
    # Of each node who reads it first, and of each storage who reads it last; what is returned is read at the end.
    first = dict.fromkeys(outputs, end)
    last = {storage: end for node in outputs for storage in storages[node]}
    for node in reversed(order):
        limit = node if node in fixed else first.get(node, node)
        read = [storage for source in inputs[node] for storage in storages[source]]
        for storage in read:
            if storage not in lasting and storage not in storages[node]:
                other = last.get(storage, node)
                limit = other if place[other] < place[limit] else limit
        if place[limit] > place[node]:
            room[node] = room[limit] = room[limit] // 2
            place[node] = place[limit] - room[limit]
        for source in inputs[node]:
            if source not in first or place[node] < place[first[source]]:
                first[source] = node
        for storage in read:
            if storage not in last or place[node] > place[last[storage]]:
                last[storage] = node
    return sorted(order, key=place.__getitem__)
