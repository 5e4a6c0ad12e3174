"""From kernels to bytes: when Inductor's code allocates each buffer, writes over it, hands it on and frees it.

A model of what torch's Inductor generates for CPU (``torch/_inductor/scheduler.py: decide_inplace_update``,
``codegen/wrapper.py: AllocateLine``). Loops between two operators that run by themselves are one function in C++: all
that they make is allocated before it, and nothing is freed within.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from ..records import ActivationGraph
from .fusion import Fusion
from .groups import Kernel
from .lifetimes import Peak
from .scheduling import scheduled

__all__ = ["Buffers"]


class Buffers:
    """Runs a graph's nodes as Inductor's code does, and adds up the buffers that are alive."""

    def __init__(self, graph: ActivationGraph) -> None:
        self._graph = graph
        self._fusion = Fusion(graph)
        self._kinds = self._fusion.with_twins(graph.kinds)
        self._rng_state_bytes = 0 if graph.rng_state_elsewhere else graph.rng_state_bytes
        # The script's own: Inductor writes over what the forward saved for nobody else, but not over these, nor over
        # concatenations, of which each part is a buffer of its own to it.
        self._tangents = frozenset(storage for node in graph.tangents for storage in graph.storages[node])
        self._copies = frozenset(row[2] for row in graph.copies if row[0] == row[1])
        # Of each node that looks at a part of a storage, the formula of that part's bytes.
        self._parts: dict[int, int] = {}
        for node, letter in enumerate(graph.lowering):
            # Facts of before it was written down have none.
            if letter == "p" and graph.loops[node]:
                self._parts[node] = graph.loops[node][0]
            elif letter == "v" and graph.inputs[node][0] in self._parts:
                self._parts[node] = self._parts[graph.inputs[node][0]]
        # Of each node what its kernel computes: a joined product goes by the addition.
        self._computed = [
            (node, *(source for source in sources if graph.lowering[source] == "j"))
            for node, sources in enumerate(graph.inputs)
        ]

    def run(
        self,
        order: Sequence[int],
        *,
        given: Collection[int],
        outputs: Collection[int],
        sizes: Sequence[int],
        all_sizes: Sequence[int],
        values: Sequence[int],
        workspace: Callable[[int], int],
        redrawn: frozenset[int],
        start_bytes: int,
        is_forward: bool,
    ) -> Peak:
        """Run a half.

        The arguments are those of ``Lifetimes.run``, and the bytes of all storages, whoever allocates them, and the
        values of the graph's formulas.
        """
        graph = self._graph
        fusion, own = self._fusion, sizes
        lying = fusion.given(order, given, own, is_forward=is_forward)
        kernels, kept = fusion.kernels(order, given=lying, outputs=outputs, values=values, redrawn=redrawn)
        sizes, all_sizes = fusion.with_twins(own), fusion.with_twins(all_sizes)
        freed = {storage for held in lying.values() for storage in held if sizes[storage]}
        groups = fusion.fused(kernels, all_sizes)
        # Inductor counts no tangents and no copies of its inputs, though its code frees them, and of what the forward
        # saved what is looked at of it.
        counted = freed - self._tangents - self._copies
        believed = list(sizes)
        for storage in counted:
            believed[storage] = 0
        for node, held in lying.items():
            seen = self._parts.get(node)
            for storage in held:
                if storage in counted:
                    believed[storage] += sizes[storage] if seen is None else values[seen]
        ordered, estimate = scheduled(groups, counted, kept, believed)
        code = _Code(
            ordered,
            given=freed,
            kept=kept,
            unwritable=self._tangents.union(
                *[each.writes for each in kernels if graph.lowering[each.node] == "k" and not each.is_copy]
            ),
            kinds=self._kinds,
            unpooled={storage for each in kernels if graph.lowering[each.node] == "f" for storage in each.writes},
            sizes=sizes,
            estimate=estimate,
        )
        current = start_bytes - code.unread_bytes
        highest, at = current, None
        for block, allocated, gone in code.run():
            current += allocated
            first = block.groups[0][0]
            during = current
            if block.is_alone:
                # While an operator draws again, the generator's own state is kept beside the saved one; that goes then.
                state = self._rng_state_bytes if first.node in redrawn else 0
                during += max(map(workspace, self._computed[first.node])) + state
                current += state if is_forward else -state
            if during > highest:
                highest, at = during, first.node
            current -= gone
        return Peak(highest, at, current)


class _Block(NamedTuple):
    """What runs in one call: one operator by itself, or groups of loops one behind the other.

    ``begin`` and ``end`` are the group with which it begins and the one in whose turn its buffers are freed: those of
    loops in that of the operator behind them.
    """

    groups: list[list[Kernel]]
    is_alone: bool
    begin: int

    @property
    def end(self) -> int:
        return self.begin if self.is_alone else self.begin + len(self.groups)


class _Code:
    """The calls of a half and its buffers; ``unread_bytes`` are those of inputs that nothing reads."""

    def __init__(
        self,
        groups: Sequence[list[Kernel]],
        *,
        given: set[int],
        kept: frozenset[int],
        unwritable: frozenset[int],
        kinds: Sequence[int],
        unpooled: set[int],
        sizes: Sequence[int],
        estimate: list[int],
    ) -> None:
        self._sizes, self._kinds, self._unwritable, self._unpooled = sizes, kinds, unwritable, given | unpooled
        self._never_taken = unpooled
        self._blocks: list[_Block] = []
        # Of each storage the last group that reads it, and the last block that reads or makes it.
        last_group: dict[int, int] = {}
        last: dict[int, int] = dict.fromkeys(given, -1)
        for place, group in enumerate(groups):
            is_alone = group[0].ranges is None
            if is_alone or not self._blocks or self._blocks[-1].is_alone:
                self._blocks.append(_Block([], is_alone, place))
            self._blocks[-1].groups.append(group)
            block = len(self._blocks) - 1
            for kernel in group:
                for storage in kernel.reads:
                    last_group[storage] = place
                    last[storage] = block
                for storage in kernel.writes:
                    last[storage] = block
        self._last_group = last_group
        # What a loop hands only to loops that it is fused with never exists.
        self._fleeting = {
            storage
            for place, group in enumerate(groups)
            if group[0].ranges is not None
            for kernel in group
            for storage in kernel.writes
            if storage not in kept and last_group.get(storage) == place
        }
        self._dying: list[list[int]] = [[] for _ in self._blocks]
        self.unread_bytes = 0
        for storage, number in last.items():
            if storage in kept or storage in self._fleeting or not sizes[storage]:
                continue
            if number < 0:
                self.unread_bytes += sizes[storage]
            else:
                self._dying[number].append(storage)
        self._estimate = estimate

    def run(self) -> Iterator[tuple[_Block, int, int]]:
        """Each call with the bytes that are allocated before it and freed behind it."""
        calls = []
        pool = _Pool(self._estimate)
        sizes, kinds, last_group = self._sizes, self._kinds, self._last_group
        for block, dying in zip(self._blocks, self._dying, strict=True):
            allocated, left = 0, dict.fromkeys(dying)
            # What is handed on within a group, and exists where something that is read later is written over it.
            passing: set[int] = set()
            for place, group in enumerate(block.groups, start=block.begin):
                for number, kernel in enumerate(group):
                    may_take = () if block.is_alone or kernel.is_copy else kernel.reads
                    for storage in kernel.writes if len(kernel.writes) < 2 else sorted(kernel.writes):
                        size, kind = form = sizes[storage], kinds[storage]
                        # A loop writes over what it is the last to read; with the same index, as is mostly so.
                        over = None
                        for each in may_take:
                            if (
                                (each in left or each in passing)
                                and sizes[each] == size
                                and kinds[each] == kind
                                and last_group[each] == place
                                and each not in self._unwritable
                                and _reads_last(group, number, each)
                            ):
                                over = each
                                break
                        was_there = over in left
                        if over is not None:
                            left.pop(over, None)
                            passing.discard(over)
                        if storage in self._fleeting:
                            if was_there:
                                left[storage] = None
                            else:
                                passing.add(storage)
                        elif not was_there and (not size or storage in self._never_taken or not pool.take(form, place)):
                            allocated += size
            for storage in left:
                if storage not in self._unpooled:
                    pool.give(storage, (sizes[storage], kinds[storage]), block.end)
            calls.append((block, allocated, list(left)))
        for block, allocated, freed in calls:
            yield block, allocated, sum([sizes[storage] for storage in freed if storage not in pool.handed_on])


def _reads_last(group: Sequence[Kernel], number: int, storage: int) -> bool:
    """Whether a kernel of a group is the last of it to read a storage, for certain.

    The others that read it have to make what the kernel reads, or what those read that do.
    """
    others = {place for place, each in enumerate(group) if storage in each.reads and place != number}
    if not others:
        return True
    wanted = set(group[number].reads)
    for place in range(number - 1, -1, -1):
        if not wanted.isdisjoint(group[place].writes):
            wanted.update(group[place].reads)
            others.discard(place)
    return not others


class _Pool:
    """Buffers that are kept for later ones of their form, as long as that does not raise the estimated peak.

    A form is the bytes and the kind of the elements.
    """

    def __init__(self, estimate: list[int]) -> None:
        self._estimate = estimate
        self._most = max(estimate, default=0)
        self._free: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.handed_on: set[int] = set()

    def give(self, storage: int, form: tuple[int, int], place: int) -> None:
        """Offer a buffer that is freed in the turn of a group."""
        self._free.setdefault(form, []).append((storage, place))

    def take(self, form: tuple[int, int], place: int) -> bool:
        """Whether the buffer that was freed last serves a group that allocates one of its form."""
        size, _ = form
        if not self._free.get(form):
            return False
        storage, freed = self._free[form][-1]
        between = self._estimate[freed + 1 : place]
        if between and size + max(between) > self._most:
            return False
        self._estimate[freed + 1 : place] = [alive + size for alive in between]
        self._free[form].pop()
        self.handed_on.add(storage)
        return True
