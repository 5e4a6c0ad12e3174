"""Splitting an activation graph into forward and backward, as torch's ``default_partition`` does under tags.

Source: ``torch/_functorch/partitioners.py`` of torch 2.11 to 2.15: ``cleanup_recompute_tags``, ``default_partition``,
``_extract_fwd_bwd_modules``, ``functionalize_rng_ops``, ``reordering_to_mimic_autograd_engine``, ``raise_getitems``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..records.graph import ActivationGraph
from ..records.plan import RECOMPUTE, Quota


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

    ``inputs`` and ``storages`` are what each node reads and where its value lies. The values of ``outputs`` outlive the
    backward, it does not free ``lasting`` storages, and the ``fixed`` nodes stay among each other as they are.
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


MUST_RECOMPUTE, MUST_SAVE = 1, 2
# Of layers; those of the script's own checkpoints count from zero.
_FIRST_REGION = 1_000_000

# A node's number or its name.
Node = TypeVar("Node", int, str)


@dataclass(frozen=True)
class Tags(Generic[Node]):
    """The nodes to recompute or save, and the regions that some of them lie in."""

    policies: Mapping[Node, int]
    regions: Mapping[Node, int]


def plan_tags(
    quota: Quota,
    layers: Iterable[tuple[str, int, Iterable[Node], Iterable[Node], bool]],
    occurrences: Iterable[tuple[str, int, Iterable[Node]]],
) -> Tags[Node]:
    """Return the tags that plans set in a graph, and take its occurrences from their quota.

    Of each layer there is the cluster, its number of nodes, those to recompute, those to save, and whether it continues
    one of the graph before. Of each occurrence of operators there is the cluster, its strategy and the nodes to
    recompute. Both are in execution order.
    """
    chosen = [
        (number, layer)
        for number, layer in enumerate(layers, 1)
        if quota.take(layer[0], RECOMPUTE, continues=layer[-1])
    ]
    policies: dict[Node, int] = {}
    regions: dict[Node, int] = {}
    # What a layer inside a layer would keep is recomputed with the outer one, so larger layers come first.
    for number, (_, _, recompute, keep, _) in sorted(chosen, key=lambda numbered: -numbered[1][1]):
        for node in recompute:
            if policies.setdefault(node, MUST_RECOMPUTE) == MUST_RECOMPUTE:
                regions.setdefault(node, _FIRST_REGION + number)
        for node in keep:
            policies.setdefault(node, MUST_SAVE)
    for cluster_id, strategy, nodes in occurrences:
        if quota.take(cluster_id, strategy):
            for node in nodes:
                policies.setdefault(node, MUST_RECOMPUTE)
    return Tags(policies, regions)


@dataclass(frozen=True)
class Split:
    """A graph in two: what each half runs, in order, and the tensors handed from one to the other.

    ``redrawn`` are the random nodes that the backward runs again from a saved state of the generator.
    """

    forward: list[int]
    backward: list[int]
    saved: list[int]
    redrawn: frozenset[int]


class GraphSplitter:
    """Splits one graph under any tags."""

    def __init__(self, graph: ActivationGraph) -> None:
        self.graph = graph
        self._users: list[list[int]] = [[] for _ in graph.inputs]
        for node, sources in enumerate(graph.inputs):
            for source in sources:
                self._users[source].append(node)
        self._getitems, self._random = frozenset(graph.getitems), frozenset(graph.random)
        self._primals, self._tangents = frozenset(graph.primals), frozenset(graph.tangents)
        self._lasting = {storage for node in (*graph.primals, *graph.constants) for storage in graph.storages[node]}
        self._fixed = frozenset(graph.fixed)
        self._own = Tags(
            {node: policy for node, policy, _ in graph.checkpoints},
            {node: region for node, _, region in graph.checkpoints if region >= 0},
        )
        symbols, outputs = frozenset(graph.symbols), {*graph.forward_outputs, *graph.backward_outputs}
        self._forward_symbols: list[int] = []
        # Tensors of the forward, whether the backward reads them itself, and else the sizes of theirs that it reads.
        self._tensors: list[tuple[int, bool, list[int]]] = []
        for node in range(graph.last_forward + 1):
            users = self._users[node]
            if node in self._tangents:
                continue
            if node in symbols:
                self._forward_symbols.append(node)
            elif graph.storages[node] and (not users or node in outputs or not self._getitems.issuperset(users)):
                # No tuple, which is unpacked and nothing else.
                in_backward = [user for user in users if user > graph.last_forward]
                read = node in outputs or any(user not in symbols for user in in_backward)
                self._tensors.append((node, read, in_backward))
        # What runs in either half of any split, and where that ends: what follows depends on what is saved.
        ends = {*range(graph.last_forward + 1), *self._tangents}
        ends.update(size for _, read, sizes in self._tensors if not read for size in sizes)
        self._reached = self._ancestors(graph.backward_outputs, ends)
        self._ends = sorted(self._reached & ends)
        self._reached -= ends
        self._needed = self._ancestors((*graph.forward_outputs, *graph.updates), self._primals)

    def tags(self, quota: Quota) -> Tags[int]:
        """Return the tags of a set of plans, and take the graph's occurrences from their quota."""
        graph, own = self.graph, self._own
        layers = ((each.cluster_id, each.num_nodes, each.recompute, each.keep, each.continues) for each in graph.layers)
        planned = plan_tags(quota, layers, ((each.cluster_id, each.strategy, each.nodes) for each in graph.occurrences))
        policies = {**dict.fromkeys(graph.always, MUST_RECOMPUTE), **planned.policies}
        # What the script checkpoints itself stays as it is.
        checkpointed = {node for node, policy in own.policies.items() if policy == MUST_RECOMPUTE}
        policies = {node: policy for node, policy in policies.items() if node not in checkpointed}
        regions = {node: region for node, region in planned.regions.items() if node not in checkpointed}
        return Tags({**own.policies, **policies}, {**own.regions, **regions})

    def split(self, tags: Tags[int]) -> Split:
        """Split the graph under tags."""
        graph = self.graph
        recomputes = MUST_RECOMPUTE in tags.policies.values()
        policies = self._cleaned(tags) if recomputes else tags.policies
        symbols, saved = list(self._forward_symbols), []
        for node, read, sizes in self._tensors:
            policy = policies.get(node)
            if policy == MUST_SAVE:
                saved.append(node)
            elif not read:
                symbols += sizes
            elif policy != MUST_RECOMPUTE:
                saved.append(node)
        given = {*symbols, *saved, *self._tangents}
        reached = self._ancestors(self._ends, given, self._reached)
        saved = [node for node in saved if node in reached]
        symbols = [node for node in symbols if node in reached]
        backward = sorted(reached - given)
        needed = self._ancestors((*saved, *symbols), self._primals, self._needed)
        forward = sorted(needed - self._primals)
        redrawn: frozenset[int] = frozenset()
        if recomputes:
            again = self._random & needed & reached
            redrawn = frozenset(node for node in again - given if policies.get(node) == MUST_RECOMPUTE)
            backward = self._on_demand(backward, given)
        backward = self._unpacked(backward)
        if recomputes:
            backward = postponed(
                backward,
                inputs=graph.inputs,
                storages=graph.storages,
                outputs=graph.backward_outputs,
                lasting=self._lasting,
                fixed=self._fixed,
            )
        return Split(self._unpacked(forward), backward, saved, redrawn)

    def _cleaned(self, tags: Tags[int]) -> dict[int, int]:
        """Save what enters a tagged part, and what one region hands to a later one."""
        tagged, regions, inputs, getitems = tags.policies, tags.regions, self.graph.inputs, self._getitems
        policies = dict(tagged)
        for user, policy in tagged.items():
            if policy != MUST_RECOMPUTE:
                continue
            region = regions.get(user)
            for node in inputs[user]:
                own = regions.get(node)
                if tagged.get(node) == MUST_RECOMPUTE:
                    if own is not None and region is not None and region > own:
                        policies[node] = MUST_SAVE
                elif own is None and not (node in getitems and inputs[node][0] in regions):
                    policies[node] = MUST_SAVE
        return policies

    def _ancestors(self, wanted: Iterable[int], given: Collection[int], known: Iterable[int] = ()) -> set[int]:
        """Return the known nodes, the wanted ones and their ancestors; do not search beyond given or known ones."""
        inputs = self.graph.inputs
        found = set(known)
        pending = list(wanted)
        while pending:
            node = pending.pop()
            if node not in found:
                found.add(node)
                if node not in given:
                    pending += inputs[node]
        return found

    def _on_demand(self, backward: list[int], given: set[int]) -> list[int]:
        """Move what is recomputed to where the backward proper first reads it."""
        inputs, members = self.graph.inputs, set(backward)
        first = min((user for node in self._tangents for user in self._users[node] if user in members), default=None)
        if first is None:
            return backward
        done, order = set(given), []
        for node in backward:
            if node < first or node in done:
                continue
            if done.issuperset(inputs[node]):
                order.append(node)
                done.add(node)
                continue
            missing: set[int] = set()
            pending = [node]
            while pending:
                each = pending.pop()
                if each not in missing and each not in done:
                    missing.add(each)
                    pending += inputs[each]
            order += sorted(missing)
            done |= missing
        return order

    def _unpacked(self, order: list[int]) -> list[int]:
        """Move what unpacks a tuple right behind it."""
        members, getitems, inputs = set(order), self._getitems, self.graph.inputs
        unpacking: dict[int, list[int]] = {}
        rest = []
        for node in order:
            if node in getitems and inputs[node][0] in members:
                unpacking.setdefault(inputs[node][0], []).append(node)
            else:
                rest.append(node)
        moved: list[int] = []
        for node in rest:
            moved.append(node)
            pending = [*reversed(unpacking[node])] if node in unpacking else []
            while pending:
                each = pending.pop()
                moved.append(each)
                pending += reversed(unpacking.get(each, ()))
        return moved
