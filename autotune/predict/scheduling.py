"""The order in which Inductor runs its kernels: that of their nodes, or one of three that it tries to need less memory.

Source: ``torch/_inductor/memory.py: reorder_for_peak_memory, topological_sort_lpmf, topological_sort_bfs,
topological_sort_dfs, estimate_peak_memory``.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Collection, Iterable, Iterator, Sequence

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
    best, estimate = orders.estimated(range(orders.count))
    for method in (orders.least_peak_first, orders.breadth_first, orders.depth_first):
        found, alive = orders.estimated(method(), below=max(estimate, default=0))
        if alive:
            best, estimate = found, alive
    of = orders.groups
    own = [(of[place], alive) for place, alive in zip(best, estimate, strict=True) if place in of]
    return [groups[group] for group, _ in own], [alive for _, alive in own]


class _Orders:
    """Orders of groups of kernels, and of what hands on each result of an operator with several.

    Either goes by its place in the order that is given. To Inductor the operator allocates all of its results that
    somebody reads, and the others free them.

    Attributes:
        count: how many there are.
        groups: the places of groups, and the groups' numbers.
    """

    def __init__(self, groups: Groups, given: Collection[int], kept: Collection[int], sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self.groups: dict[int, int] = {}
        # Of each group what it reads of what is freed at some time, and which groups make that.
        self._reads: list[list[int]] = []
        self._waits: list[set[int]] = []
        self._followers: list[list[int]] = []
        self._allocates: list[int] = []
        self._readers: dict[int, list[int]] = {}
        unread: dict[int, int] = {}
        maker: dict[int, int] = {}
        wanted: set[int] = set()
        for number, group in enumerate(groups):
            place = len(self._reads)
            self.groups[place] = number
            own: Collection[int] = group[0].writes
            read: Collection[int] = group[0].reads
            if len(group) > 1:
                own = {storage for kernel in group for storage in kernel.writes}
                read = {storage for kernel in group for storage in kernel.reads}.difference(own)
            waits, reads = set(), []
            for storage in read:
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
            if group[0].ranges is None and len(own) > 1:
                wanted = wanted or {*kept, *[each for every in groups for kernel in every for each in kernel.reads]}
                parts = [storage for storage in group[0].writes if storage in wanted]
                self._add(reads, waits, sum([sizes[storage] for storage in parts]))
                for storage in parts:
                    maker[storage] = len(self._reads)
                    self._add([], {place}, 0)
                continue
            self._add(reads, waits, sum([sizes[storage] for storage in own]))
            for storage in own:
                maker[storage] = unread[storage] = place
            # What writes to places in a storage is the last to make it.
            for kernel in group:
                for storage in kernel.changes:
                    maker[storage] = place
        self.count = len(self._reads)
        self._start = sum(sizes[storage] for storage in given if storage in self._readers)
        self._kept = sum(sizes[storage] for storage in kept)
        self._left = {storage: len(places) + (storage in kept) for storage, places in self._readers.items()}
        # What a group makes and nobody reads is freed with it.
        self._unread = [0] * self.count
        for storage, place in unread.items():
            if storage not in self._readers and storage not in kept:
                self._unread[place] += sizes[storage]

    def _add(self, reads: list[int], waits: set[int], allocates: int) -> None:
        for source in waits:
            self._followers[source].append(len(self._reads))
        self._reads.append(reads)
        self._waits.append(waits)
        self._followers.append([])
        self._allocates.append(allocates)

    def estimated(self, order: Iterable[int], below: float = float("inf")) -> tuple[list[int], list[int]]:
        """An order and what is alive in each of its steps; nothing if that is not always ``below`` a number."""
        reads, sizes, allocates, unread = self._reads, self._sizes, self._allocates, self._unread
        left, alive, taken, estimate = dict(self._left), self._start, [], []
        for place in order:
            alive += allocates[place]
            if alive >= below:
                return [], []
            taken.append(place)
            estimate.append(alive)
            alive -= unread[place]
            for storage in reads[place]:
                left[storage] -= 1
                if not left[storage]:
                    alive -= sizes[storage]
        return taken, estimate

    def least_peak_first(self) -> Iterator[int]:
        """Of the groups that can run, always the one that leaves least behind, of those that do not raise the peak."""
        reads, readers, sizes, allocates = self._reads, self._readers, self._sizes, self._allocates
        left = dict(self._left)
        frees = list(self._unread)
        for storage, number in left.items():
            if number == 1:
                frees[readers[storage][0]] += sizes[storage]
        alive, highest = self._start, max(self._start, self._kept)
        missing = [len(waits) for waits in self._waits]
        # What each that can run leaves behind, and the same in that order.
        leaves = {place: allocates[place] - frees[place] for place, number in enumerate(missing) if not number}
        ready = sorted([(left_behind, place) for place, left_behind in leaves.items()])
        while ready:
            spare = highest - alive
            for best in ready:
                if allocates[best[1]] <= spare:
                    break
            else:
                best = min(ready, key=lambda each: (allocates[each[1]], each))
            ready.remove(best)
            _, chosen = best
            del leaves[chosen]
            yield chosen
            alive += allocates[chosen]
            highest = max(highest, alive)
            alive -= frees[chosen]
            for place in self._followers[chosen]:
                missing[place] -= 1
                if not missing[place]:
                    leaves[place] = allocates[place] - frees[place]
                    insort(ready, (leaves[place], place))
            for storage in reads[chosen]:
                left[storage] -= 1
                if left[storage] == 1:
                    for place in readers[storage]:
                        frees[place] += sizes[storage]
                        if place in leaves:
                            ready.remove((leaves[place], place))
                            leaves[place] -= sizes[storage]
                            insort(ready, (leaves[place], place))

    def breadth_first(self) -> Iterator[int]:
        """Of the groups that can run, always the one of which what it waits for ran earliest."""
        missing = [len(waits) for waits in self._waits]
        steps = [0] * len(missing)
        ready: list[tuple[list[int], int]] = [([], place) for place, number in enumerate(missing) if not number]
        for step in range(len(missing)):
            _, chosen = heapq.heappop(ready)
            steps[chosen] = step
            yield chosen
            for place in self._followers[chosen]:
                missing[place] -= 1
                if not missing[place]:
                    heapq.heappush(ready, (sorted([steps[each] for each in self._waits[place]]), place))

    def depth_first(self) -> Iterator[int]:
        """The groups by the bytes that they read and make, each behind what it waits for."""
        sizes, waits = self._sizes, self._waits
        bytes_ = [
            allocated + sum([sizes[storage] for storage in read])
            for allocated, read in zip(self._allocates, self._reads, strict=True)
        ]
        order = sorted(range(self.count), key=bytes_.__getitem__)
        rank = {group: number for number, group in enumerate(order)}
        done: set[int] = set()
        for group in order:
            pending = [group]
            while pending:
                place = pending[-1]
                if place in done:
                    pending.pop()
                    continue
                missing = [each for each in waits[place] if each not in done]
                if missing:
                    missing.sort(key=rank.__getitem__, reverse=True)
                    pending += missing
                else:
                    done.add(pending.pop())
                    yield place
