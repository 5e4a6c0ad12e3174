"""The order in which Inductor runs its kernels: that of their nodes, or one of three that it tries to need less memory.

Source: ``torch/_inductor/memory.py: reorder_for_peak_memory, topological_sort_lpmf, topological_sort_bfs,
topological_sort_dfs, estimate_peak_memory``.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence

from .groups import Kernel

__all__ = ["scheduled"]

Groups = Sequence[list[Kernel]]


def scheduled(
    groups: Groups, given: Collection[int], kept: Collection[int], sizes: Sequence[int]
) -> tuple[Groups, list[int]]:
    """Groups of kernels in the order in which they run, and what Inductor takes to be alive while each does.

    What is made within a group and never exists is alive to Inductor. It takes the first of the orders with the least
    peak.

    Args:
        groups: in an order in which they can run.
        given: the storages that are the half's inputs, and freed in it.
        kept: the storages that outlive it.
        sizes: bytes of each storage.
    """
    orders = _Orders(groups, given, kept, sizes)
    best = list(range(len(groups)))
    estimate = orders.estimate(best)
    for method in (orders.least_peak_first, orders.breadth_first, orders.depth_first):
        found = method(below=max(estimate, default=0))
        if found is not None:
            best, estimate = found
    return [groups[place] for place in best], estimate


class _Orders:
    """Orders of groups of kernels; a group goes by its place in the order that is given.

    A method gives its order and what is alive in each of its steps, or None if that is not always ``below`` a number.
    """

    def __init__(self, groups: Groups, given: Collection[int], kept: Collection[int], sizes: Sequence[int]) -> None:
        self._sizes = sizes
        # Of each group what it reads of what is freed at some time, and which groups make that.
        self._reads: list[list[int]] = []
        self._waits: list[set[int]] = []
        self._followers: list[list[int]] = [[] for _ in groups]
        self._allocates: list[int] = []
        self._readers: dict[int, list[int]] = {}
        unread: dict[int, int] = {}
        maker: dict[int, int] = {}
        for place, group in enumerate(groups):
            own = {storage for kernel in group for storage in kernel.writes}
            read = {storage for kernel in group for storage in kernel.reads}
            waits, reads = set(), []
            for storage in read - own if own else read:
                source = maker.get(storage)
                if source is not None:
                    waits.add(source)
                elif storage not in given:
                    continue
                reads.append(storage)
                if storage in self._readers:
                    self._readers[storage].append(place)
                else:
                    self._readers[storage] = [place]
            self._reads.append(reads)
            self._waits.append(waits)
            for source in waits:
                self._followers[source].append(place)
            allocates = 0
            for storage in own:
                maker[storage] = unread[storage] = place
                allocates += sizes[storage]
            self._allocates.append(allocates)
            # What writes to places in a storage is the last to make it.
            for kernel in group:
                for storage in kernel.changes:
                    maker[storage] = place
        self._start = sum(sizes[storage] for storage in given if storage in self._readers)
        self._kept = sum(sizes[storage] for storage in kept)
        self._left = {storage: len(places) + (storage in kept) for storage, places in self._readers.items()}
        # What a group makes and nobody reads is freed with it.
        self._unread = [0] * len(groups)
        for storage, place in unread.items():
            if storage not in self._readers and storage not in kept:
                self._unread[place] += sizes[storage]

    def estimate(self, order: Sequence[int], below: float = float("inf")) -> list[int]:
        """What is alive in each step of an order; empty if that is not always ``below`` a number."""
        reads, sizes, allocates, unread = self._reads, self._sizes, self._allocates, self._unread
        left, alive, estimate = dict(self._left), self._start, []
        for place in order:
            alive += allocates[place]
            if alive >= below:
                return []
            estimate.append(alive)
            alive -= unread[place]
            for storage in reads[place]:
                left[storage] -= 1
                if not left[storage]:
                    alive -= sizes[storage]
        return estimate

    def least_peak_first(self, *, below: int) -> tuple[list[int], list[int]] | None:
        """Of the groups that can run, always the one that leaves least behind, of those that do not raise the peak."""
        reads, readers, sizes, allocates = self._reads, self._readers, self._sizes, self._allocates
        left = dict(self._left)
        frees = list(self._unread)
        for place, read in enumerate(reads):
            for storage in read:
                if left[storage] == 1:
                    frees[place] += sizes[storage]
        alive, order, estimate = self._start, [], []
        highest = max(alive, self._kept)
        missing = [len(waits) for waits in self._waits]
        # With what each leaves behind first, for those that do not raise the peak.
        ready = {place: allocates[place] - frees[place] for place, number in enumerate(missing) if not number}
        while ready:
            spare = highest - alive
            chosen, least = -1, (0, 0, 0)
            for place, leaves in ready.items():
                allocated = allocates[place]
                cost = (allocated if allocated > spare else 0, leaves, place)
                if chosen < 0 or cost < least:
                    chosen, least = place, cost
            del ready[chosen]
            order.append(chosen)
            alive += allocates[chosen]
            if alive >= below:
                return None
            estimate.append(alive)
            highest = max(highest, alive)
            alive -= frees[chosen]
            for place in self._followers[chosen]:
                missing[place] -= 1
                if not missing[place]:
                    ready[place] = allocates[place] - frees[place]
            for storage in reads[chosen]:
                left[storage] -= 1
                if left[storage] == 1:
                    for place in readers[storage]:
                        frees[place] += sizes[storage]
                        if place in ready:
                            ready[place] -= sizes[storage]
        return order, estimate

    def breadth_first(self, *, below: int) -> tuple[list[int], list[int]] | None:
        """Of the groups that can run, always the one of which what it waits for ran earliest."""
        missing = [len(waits) for waits in self._waits]
        step = [0] * len(missing)
        ready: list[tuple[list[int], int]] = [([], place) for place, number in enumerate(missing) if not number]
        order: list[int] = []
        while ready:
            _, chosen = heapq.heappop(ready)
            step[chosen] = len(order)
            order.append(chosen)
            for place in self._followers[chosen]:
                missing[place] -= 1
                if not missing[place]:
                    heapq.heappush(ready, (sorted([step[each] for each in self._waits[place]]), place))
        return self._if_below(order, below)

    def depth_first(self, *, below: int) -> tuple[list[int], list[int]] | None:
        """The groups by the bytes that they read and make, each behind what it waits for."""
        sizes = self._sizes
        touched = [
            allocated + sum([sizes[storage] for storage in read])
            for allocated, read in zip(self._allocates, self._reads, strict=True)
        ]
        rank = list(zip(touched, range(len(touched)), strict=True))
        done: set[int] = set()
        order: list[int] = []
        for _, group in sorted(rank):
            pending = [(group, False)]
            while pending:
                place, is_ready = pending.pop()
                if is_ready:
                    order.append(place)
                elif place not in done:
                    done.add(place)
                    pending.append((place, True))
                    waits = [each for each in self._waits[place] if each not in done]
                    waits.sort(key=rank.__getitem__, reverse=True)
                    pending += [(each, False) for each in waits]
        return self._if_below(order, below)

    def _if_below(self, order: list[int], below: int) -> tuple[list[int], list[int]] | None:
        estimate = self.estimate(order, below)
        return (order, estimate) if estimate else None
