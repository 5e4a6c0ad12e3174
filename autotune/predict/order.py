"""The order of a backward that recomputes: nothing is made before it must be, where waiting keeps nothing else."""

from __future__ import annotations

from collections.abc import Collection, Sequence

__all__ = ["postponed"]


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
    readers: dict[int, list[int]] = {}
    for node in order:
        for source in inputs[node]:
            readers.setdefault(source, []).append(node)
    # By storage; what outlives the backward is read at its end.
    end = -1
    uses: dict[int, set[int]] = {}
    for source, users in [*readers.items(), *((node, [end]) for node in outputs)]:
        for storage in storages[source]:
            uses.setdefault(storage, set()).update(users)
    # A place is a number, with room below it for what is moved there: half of what is left, each time.
    room = dict.fromkeys(order, 1 << len(order))
    place = {node: number << len(order) for number, node in enumerate(order, start=1)}
    place[end], room[end] = (len(order) + 1) << len(order), 1 << len(order)
    returned = set(outputs)
    for node in reversed(order):
        limits = readers.get(node, []) + ([end] if node in returned else [])
        if node in fixed or not limits:
            continue
        freed = {storage for source in inputs[node] for storage in storages[source]}
        for storage in freed.difference(lasting, storages[node]):
            limits.append(max((user for user in uses[storage] if user != node), key=place.__getitem__, default=node))
        limit = min(limits, key=place.__getitem__)
        if place[limit] > place[node]:
            room[node] = room[limit] = room[limit] // 2
            place[node] = place[limit] - room[limit]
    return sorted(order, key=place.__getitem__)
