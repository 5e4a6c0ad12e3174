"""The order in which Inductor runs its kernels: that of their nodes, or the one that it takes to need less memory.

Source: ``torch/_inductor/memory.py: reorder_for_peak_memory`` and ``topological_sort_lpmf``. Of its other two orders
none was much better where it was chosen.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .groups import Kernel

__all__ = ["estimated", "scheduled"]

Groups = Sequence[list[Kernel]]


def scheduled(
    groups: Groups, given: Collection[int], kept: Collection[int], sizes: Sequence[int]
) -> tuple[Groups, list[int]]:
    """Groups of kernels in the order in which they run, and what Inductor takes to be alive while each does.

    Args:
        groups: in an order in which they can run.
        given: the storages that are the half's inputs, and freed in it.
        kept: the storages that outlive it.
        sizes: bytes of each storage.
    """
    estimate = estimated(groups, given, kept, sizes)
    highest = max(estimate, default=0)
    other = _least_peak_first(groups, given, kept, sizes, below=highest)
    if other:
        others = estimated(other, given, kept, sizes)
        if max(others) < highest:
            return other, others
    return groups, estimate


def estimated(groups: Groups, given: Collection[int], kept: Collection[int], sizes: Sequence[int]) -> list[int]:
    """What Inductor takes to be alive while each group runs: what is made within a group and never exists included."""
    last = {storage: place for place, group in enumerate(groups) for each in group for storage in each.reads}
    made = [(storage, 0) for storage in given if storage in last]
    made += [(storage, place) for place, group in enumerate(groups) for each in group for storage in each.writes]
    changes = [0] * (len(groups) + 1)
    for storage, place in made:
        changes[place] += sizes[storage]
        if storage not in kept:
            changes[last.get(storage, place) + 1] -= sizes[storage]
    alive, estimate = 0, []
    for change in changes[:-1]:
        alive += change
        estimate.append(alive)
    return estimate


def _least_peak_first(
    groups: Groups, given: Collection[int], kept: Collection[int], sizes: Sequence[int], *, below: int
) -> list[list[Kernel]]:
    """Of the groups that can run, always the one that leaves least behind, of those that do not raise the peak.

    Empty if so much is alive at once as must stay ``below``.
    """
    writes = [{storage for kernel in group for storage in kernel.writes} for group in groups]
    reads = [
        {storage for kernel in group for storage in kernel.reads} - own
        for group, own in zip(groups, writes, strict=True)
    ]
    readers: dict[int, list[int]] = {}
    for place, read in enumerate(reads):
        for storage in read:
            readers.setdefault(storage, []).append(place)
    makers = {storage: place for place, own in enumerate(writes) for storage in own}
    # What writes to places in a storage is the last to make it.
    makers |= {storage: place for place, group in enumerate(groups) for each in group for storage in each.changes}
    fills = {storage: place for place, own in enumerate(writes) for storage in own}
    waits = [
        {makers[each] if makers[each] != place else fills[each] for each in read if each in makers}
        for place, read in enumerate(reads)
    ]
    followers: list[set[int]] = [set() for _ in groups]
    for place, before in enumerate(waits):
        for each in before:
            followers[each].add(place)
    left = {storage: len(places) + (storage in kept) for storage, places in readers.items()}
    allocates = [sum(sizes[storage] for storage in own) for own in writes]
    frees = [
        sum(sizes[storage] for storage in read if left[storage] == 1)
        + sum(sizes[storage] for storage in own if storage not in readers and storage not in kept)
        for read, own in zip(reads, writes, strict=True)
    ]
    alive = sum(sizes[storage] for storage in given if storage in readers)
    highest = max(alive, sum(sizes[storage] for storage in kept))
    missing = [len(before) for before in waits]
    ready = {place for place, number in enumerate(missing) if not number}
    order = []
    while ready:
        spare = highest - alive
        cost = {
            place: (allocates[place] if allocates[place] > spare else 0, allocates[place] - frees[place], place)
            for place in ready
        }
        chosen = min(ready, key=cost.__getitem__)
        ready.discard(chosen)
        order.append(list(groups[chosen]))
        alive += allocates[chosen]
        if alive >= below:
            return []
        highest = max(highest, alive)
        alive -= frees[chosen]
        for place in followers[chosen]:
            missing[place] -= 1
            if not missing[place]:
                ready.add(place)
        for storage in reads[chosen]:
            left[storage] -= 1
            if left[storage] == 1:
                for place in readers[storage]:
                    frees[place] += sizes[storage]
    return order
