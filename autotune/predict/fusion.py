"""Which kernels Inductor makes of a half of a graph: what is computed inside others, and which loops run as one.

A model of torch's Inductor for CPU. Pointwise nodes are computed where they are read, unless that would read or compute
too much (``torch/_inductor/graph.py: run_node``, ``ir.py: StorageBox``). What is left becomes kernels: loops, which are
fused where they run over the same ranges (``scheduler.py: get_possible_fusions, can_fuse``, ``codegen/cpp.py:
CppScheduling``), and operators that run by themselves.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

from ..records import ALWAYS, IF_KEPT, ActivationGraph
from .groups import Groups, Kernel, Loops, Ranges, Storages

__all__ = ["Fusion"]


class Fusion:
    """Makes kernels of any of a graph's nodes."""

    def __init__(self, graph: ActivationGraph) -> None:
        self._graph = graph
        getitems, inputs, lowering = frozenset(graph.getitems), graph.inputs, graph.lowering
        self._looks = [letter in "vp" or node in getitems for node, letter in enumerate(lowering)]
        # Storages, behind them a number for each node, and behind those the twins. A node's number is that of the part
        # that it looks at of a storage, or of a buffer as large as its last result.
        self._num_storages = count = len(graph.sizes)
        self._first_twin = count + len(graph.storages)
        self._storage_of = list(range(self._first_twin + count))
        self._like = [0] * len(graph.storages)
        for node, held in enumerate(graph.storages):
            if lowering[node] == "w":
                self._like[node] = held[-1]
            elif lowering[node] == "d":
                self._storage_of[count + node] = graph.storages[inputs[node][0]][0]
            elif held:
                self._storage_of[count + node] = held[0]
        # Of what only looks at another node's result, that node; and who reads each, directly or through those.
        self._base = list(range(len(inputs)))
        read_by: list[set[int]] = [set() for _ in inputs]
        for node, sources in enumerate(inputs):
            if self._looks[node]:
                self._base[node] = self._base[sources[0]]
            else:
                for source in sources:
                    read_by[self._base[source]].add(node)
        self._read_by = [frozenset(readers) for readers in read_by]
        self._runs_alone = [letter in "xfj" for letter in lowering]
        self._read_alone_by = [frozenset(each for each in readers if self._runs_alone[each]) for readers in read_by]
        self._is_made = [letter in "xfmskrcw" for letter in lowering]
        self._stored = [tuple(dict.fromkeys(held)) for held in graph.storages]
        self._sources = [tuple(source for source in sources if graph.storages[source]) for sources in inputs]
        self._copies: dict[int, list[Sequence[int]]] = {}
        for row in graph.copies:
            self._copies.setdefault(row[0], []).append(row)
        self._kept_as = {row[0]: row[2] for row in graph.copies if row[0] == row[1]}
        self._asks_for_layouts = {row[0] for row in (*graph.copies, *graph.loose)}
        self._loose: dict[int, list[Sequence[int]]] = {}
        for row in graph.loose:
            self._loose.setdefault(row[0], []).append(row)
        self._getitems = getitems
        self._shapes = graph.shapes or (0,) * len(inputs)
        # Of what is viewed, the views that operators read that fix layouts; and who reads either.
        self._fixing = frozenset(graph.fixing)
        self._fixed_views: dict[int, list[int]] = {}
        for view in sorted({each for node in graph.fixing for each in inputs[node] if self._looks[each]}):
            self._fixed_views.setdefault(self._base[view], []).append(view)
        read = self._fixed_views.keys() | itertools.chain.from_iterable(self._fixed_views.values())
        self._readers: dict[int, set[int]] = {each: set() for each in read}
        for node, sources in enumerate(inputs):
            for each in read.intersection(sources):
                self._readers[each].add(node)
        # How many nodes Inductor counts for the kernels of a node, and for those that only lay it out anew.
        self._num_nodes = [self._counted(node) for node in range(len(inputs))]
        self._num_copied = [1 + len(self._sources[node]) if lowering[node] == "k" else 1 for node in range(len(inputs))]
        # The first node with loops of the same letter and formulas: repeated layers have the same ranges.
        first: dict[tuple[str, Sequence[int]], int] = {}
        self._first_alike = [
            first.setdefault(own, node) for node, own in enumerate(zip(lowering, graph.loops, strict=True))
        ]
        # At the sizes of the last call, as most are of the same ones: each node's own splits, and the ranges of loops.
        self._known_ranges: dict[tuple[int, frozenset[int]], Loops | None] = {}
        self._splits: tuple[Sequence[int], list[frozenset[int]]] = ((), [])

    def with_twins(self, sizes: Sequence[int]) -> list[int]:
        """What there is for each storage, also for buffers that are no node's, and for each storage's twin.

        A half may be given a tensor and compute what that was a part of anew: then the storage is there twice, and what
        was given lies in its twin.
        """
        return [*sizes, *[sizes[each] for each in self._like], *sizes]

    def given(
        self, order: Iterable[int], given: Iterable[int], sizes: Sequence[int], *, is_forward: bool = True
    ) -> dict[int, Storages]:
        """Where the values lie that a half is given, by node; ``sizes`` is 0 for storages that are not its own."""
        stored, offset = self._stored, self._first_twin
        made = {storage for node in order if not self._looks[node] for storage in stored[node] if sizes[storage]}
        lying = {node: tuple([each + offset if each in made else each for each in stored[node]]) for node in given}
        if not is_forward:
            lying |= {node: (copy,) for node, copy in self._kept_as.items() if node in lying}
        return lying

    def kernels(
        self,
        order: Sequence[int],
        *,
        given: Mapping[int, Storages],
        outputs: Collection[int],
        values: Sequence[int],
        redrawn: Collection[int] = (),
    ) -> tuple[list[Kernel], frozenset[int]]:
        """What of a half's nodes becomes kernels, in order, and the storages that outlive it.

        Args:
            order: the half's nodes.
            given: the nodes whose values are its inputs, with the storages that those lie in.
            outputs: the nodes whose values outlive it.
            values: of the graph's formulas.
            redrawn: the random nodes that run with a state of the generator that is saved.
        """
        if self._splits[0] is not values:
            found = {
                node: frozenset([values[each] for each in self._graph.loops[node][2:]])
                for node in set(self._first_alike)
            }
            self._splits = values, [found[node] for node in self._first_alike]
            self._known_ranges.clear()
        lowering, stored, own_splits = self._graph.lowering, self._stored, self._splits[1]
        most_operations, most_reads, most_shared_reads = self._graph.limits
        all_sources, looks, is_made, runs_alone = self._sources, self._looks, self._is_made, self._runs_alone
        asks_for_layouts, no_copies = self._asks_for_layouts, dict[int, Storages]()
        members = frozenset(order)
        kept = {self._base[node] for node in outputs}
        reads = dict(given)
        # Of what is computed where it is read: how many operations that are, whether costly ones, the ranges' splits.
        inlined: dict[int, tuple[int, bool, frozenset[int]]] = {}
        # Loops that read nothing: others compute that too, even where it is made.
        constant: set[int] = set()
        kernels: list[Kernel] = []
        bases = members.difference(outputs)
        plain = {node: self._base[node] for node in outputs if node in self._copies and self._base[node] in bases}
        layouts = _Layouts(self._copies, self._loose, members, redrawn, plain)
        for node, copy in self._kept_as.items():
            if node in reads and node in outputs:
                kernels += [self._copy(row, reads[node], values) for row in self._copies[node]]
                reads[node] = (copy,)
        for node in order:
            made = stored[node]
            if not made:
                continue
            sources, letter, copied = all_sources[node], lowering[node], no_copies
            if node in asks_for_layouts:
                copied = {}
                for row in layouts.copied(node):
                    copied[row[1]] = (row[2],)
                    kernels.append(self._copy(row, reads[row[1]], values))
            if letter == "-":
                # A tensor of the graph's own.
                reads[node] = made
                continue
            if looks[node]:
                source = sources[0]
                own = made if is_made[source] else reads.get(source, ())
                own = copied.get(source, own)
                if source in inlined:
                    inlined[node] = inlined[source]
                elif letter == "p" and len(own) == 1:
                    own = (self._num_storages + node,)
                reads[node] = own
                if source in constant:
                    constant.add(node)
                if not copied and source in layouts.otherwise:
                    layouts.otherwise.add(node)
                continue
            if not constant.isdisjoint(sources) and not runs_alone[node]:
                sources = tuple([each for each in sources if each not in constant])
            if copied:
                seen = _united([copied.get(each, reads[each]) for each in sources if each in reads])
            elif len(sources) == 1:
                seen = reads.get(sources[0], ())
            else:
                seen = _united([reads[each] for each in sources if each in reads])
            own = self._whole(seen)
            if letter == "d":
                seen = (self._num_storages + node,)
            if letter == "j":
                reads[node] = seen
                continue
            operations, is_costly, splits = 1, letter == "h", own_splits[node]
            for source in sources:
                if source in inlined:
                    more, costly, others = inlined[source]
                    operations, is_costly = operations + more, is_costly or costly
                    if not others <= splits:
                        splits = splits | others
            if letter == "s":
                first = self._sources[node][0]
                kernels += self._filled(node, () if first in constant else reads.get(first, ()), own, seen, values)
            elif letter == "w":
                kernels += self._variances(node, splits, own, seen, values)
            elif (
                is_made[node]
                or node in kept
                or operations > most_operations
                or len(own) > most_reads
                or self._is_realized(node, members, shared=is_costly or len(own) > most_shared_reads)
            ):
                makes = made
                if len(made) > 1 or made[0] in own:
                    makes = tuple([storage for storage in made if storage not in own])
                ranges, shape = self._ranges(node, splits, values), self._shapes[node]
                if node in self._fixed_views and not self._is_made[node] and len(seen) <= 1:
                    shape = self._viewed_shape(node, members, outputs, is_costly=is_costly)
                kernels.append(Kernel(node, own, makes, ranges, seen, shape))
                if letter in "lh" and not own and (node not in kept or self._graph.keeps_constants_open):
                    constant.add(node)
            else:
                reads[node], inlined[node] = seen, (operations, is_costly, splits)
                continue
            reads[node] = made
        held = _united([reads[node] for node in outputs if node in reads])
        return kernels, frozenset(self._whole(held))

    def fused(self, kernels: Sequence[Kernel], sizes: Sequence[int]) -> list[list[Kernel]]:
        """Put loops together that run as one, in an order in which they can run.

        Args:
            kernels: in the order of their nodes.
            sizes: bytes of each storage; what two loops share most of is fused first.
        """
        num_nodes = [(self._num_copied if each.is_copy else self._num_nodes)[each.node] for each in kernels]
        groups = Groups(kernels, num_nodes, sizes, self._storage_of)
        groups.fuse()
        return [[kernels[place] for place in group] for group in groups.ordered()]

    def _copy(self, row: Sequence[int], seen: Storages, values: Sequence[int]) -> Kernel:
        """The loop of a row of ``ActivationGraph.copies``."""
        _, source, storage, _, total, *splits = row
        ranges = _split(values[total], {values[each] for each in splits}), ()
        # It goes through a view in an order of its own.
        is_view = self._looks[source] and source not in self._getitems
        own = (self._num_storages + source,) if is_view else seen
        return Kernel(source, self._whole(seen), (storage,), ranges, own, self._shapes[source], is_copy=True)

    def _filled(self, node: int, first: Storages, own: Storages, seen: Storages, values: Sequence[int]) -> list[Kernel]:
        """A result is filled with what the first input holds, and then places in it are written to."""
        held, results = self._stored[node], _split(values[self._graph.loops[node][1]], ())
        ranges = self._ranges(node, frozenset(), values)
        shape, written = self._shapes[node], self._shapes[self._sources[node][-1]]
        return [
            Kernel(node, self._whole(first), held, (results, ()), first, shape),
            Kernel(node, _united([own, held]), (), ranges, seen, written, changes=held),
        ]

    def _variances(
        self, node: int, splits: frozenset[int], own: Storages, seen: Storages, values: Sequence[int]
    ) -> list[Kernel]:
        """First the sums, then the means, then the variances."""
        sums, (variances, means) = (self._num_storages + node,), self._stored[node]
        ranges, shape = self._ranges(node, splits, values), self._shapes[node]
        assert ranges is not None
        return [
            Kernel(node, own, sums, ranges, seen, shape),
            Kernel(node, sums, (means,), (ranges[0], ()), sums, shape),
            Kernel(node, (*own, means), (variances,), ranges, (*seen, means), shape),
        ]

    def _whole(self, seen: Storages) -> Storages:
        """The storages that parts are of."""
        if not seen or max(seen) < self._num_storages:
            return seen
        return tuple(dict.fromkeys([self._storage_of[each] for each in seen]))

    def _is_realized(self, node: int, members: frozenset[int], *, shared: bool) -> bool:
        """Whether a loop's result exists as an operator reads it that runs by itself, or, if ``shared``, two nodes."""
        if not members.isdisjoint(self._read_alone_by[node]):
            return True
        return shared and len(members & self._read_by[node]) > 1

    def _viewed_shape(self, node: int, members: frozenset[int], outputs: Collection[int], *, is_costly: bool) -> int:
        """The shape in which a loop that reads little is made: that of a view, where several read that.

        One of them fixes how it lies, and the loop is not made before for others.
        """
        is_reused = is_costly and len(self._readers[node] & members) > 1
        if node not in outputs and not is_reused:
            for view in self._fixed_views[node]:
                readers = self._readers[view] & members
                if view in members and len(readers) + (view in outputs) > 1 and not readers.isdisjoint(self._fixing):
                    return self._shapes[view]
        return self._shapes[node]

    def _counted(self, node: int) -> int:
        """How many nodes Inductor counts: parts of a concatenation and of a result of several have their own."""
        letter, results = self._graph.lowering[node], len(self._stored[node])
        if letter == "k":
            return 1 + len(self._sources[node])
        if letter == "f" and results > 1:
            return 1 + results
        return 3 if letter in "rc" and results > 1 else 1

    def _ranges(self, node: int, splits: frozenset[int], values: Sequence[int]) -> Loops | None:
        """The ranges of a kernel's loops: neighbouring dimensions are one, but where an input's layout splits them."""
        key = self._first_alike[node], splits
        if key not in self._known_ranges:
            self._known_ranges[key] = self._new_ranges(node, splits, values)
        return self._known_ranges[key]

    def _new_ranges(self, node: int, splits: frozenset[int], values: Sequence[int]) -> Loops | None:
        letter = self._graph.lowering[node]
        if letter in "xf":
            return None
        row = self._graph.loops[node]
        total, results = values[row[0]], values[row[1]]
        if letter not in "rcw":
            return _split(total, splits), ()
        reduced = total // max(1, results)
        if letter == "c":
            return _split(results, ()), (reduced,)
        outer = {each // reduced for each in splits if each > reduced and each % reduced == 0}
        return _split(results, outer), _split(reduced, splits)


class _Layouts:
    """Which of a half's tensors lie otherwise than traced, and so are copied for those that need them as traced.

    Run with a saved state of the generator, an operator takes what a loop makes as that makes it by itself, without
    gaps in the order of its dimensions, and lays out its own results alike. ``otherwise`` are the nodes with values
    that lie otherwise. So do, without gaps, those of ``plain`` that outlive the half and are views of a loop's result
    that does not, unless an operator asks for that.
    """

    def __init__(
        self,
        copies: Mapping[int, Sequence[Sequence[int]]],
        loose: Mapping[int, Sequence[Sequence[int]]],
        members: Collection[int],
        redrawn: Collection[int],
        plain: Mapping[int, int],
    ) -> None:
        self._copies, self._loose, self._members, self._redrawn, self._plain = copies, loose, members, redrawn, plain
        self._fixed: set[int] = set()
        self.otherwise: set[int] = set()

    def copied(self, node: int) -> list[Sequence[int]]:
        """The rows of ``ActivationGraph.copies`` that are made for a node."""
        if node in self._redrawn:
            for _, source, *results in self._loose.get(node, ()):
                if source in self._members and source not in self._fixed:
                    self.otherwise.update((source, *results))
            return []
        rows = self._copies.get(node, ())
        is_plain = node in self._plain and self._plain[node] not in self._fixed
        self._fixed.update([row[1] for row in rows if row[3] != IF_KEPT])
        return [
            row for row in rows if row[3] == ALWAYS or (is_plain if row[3] == IF_KEPT else row[1] in self.otherwise)
        ]


def _united(parts: Sequence[Storages]) -> Storages:
    if len(parts) == 1:
        return parts[0]
    if len(parts) == 2:
        first, second = parts
        return (*first, *[each for each in second if each not in first])
    return tuple(dict.fromkeys(itertools.chain.from_iterable(parts)))


def _split(total: int, splits: Iterable[int]) -> Ranges:
    """The ranges of ``total`` steps, split where so many inner steps make one outer step."""
    ranges, rest = [], total
    for inner in sorted((each for each in splits if 0 < each < total and total % each == 0), reverse=True):
        if rest % inner == 0 and rest > inner:
            ranges.append(rest // inner)
            rest = inner
    return (*ranges, rest) if rest > 1 else tuple(ranges)
