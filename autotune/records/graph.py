"""A script's activation graph as plain data: what a simulation of its memory needs to know, without torch."""

from __future__ import annotations

from dataclasses import dataclass

from .engines import Engine

__all__ = [
    "ALWAYS",
    "IF_KEPT",
    "IF_OTHERWISE",
    "ActivationGraph",
    "Boundary",
    "Calibration",
    "LayerNodes",
    "OccurrenceNodes",
]

# When a row of ``ActivationGraph.copies`` is made.
IF_OTHERWISE, ALWAYS, IF_KEPT = 0, 1, 2


@dataclass(frozen=True)
class LayerNodes:
    """One call of a repeated block: which nodes a plan for it recomputes, and which it keeps.

    ``num_nodes`` counts its forward nodes, those that cannot be run again included.
    """

    cluster_id: str
    num_nodes: int
    recompute: tuple[int, ...]
    keep: tuple[int, ...]


@dataclass(frozen=True)
class OccurrenceNodes:
    """One occurrence of an operator cluster, with the strategy that applies to it: the nodes to recompute."""

    cluster_id: str
    strategy: int
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Boundary:
    """What the script itself holds around a graph's forward and backward, in bytes, at the batch size of discovery.

    The first four are measured minus what the graph accounts for, and grow with what the forward returns: ``loss`` at
    the highest point between forward and the script's backward, ``loss_backward`` at the highest from there to the
    graph's, ``at_backward`` when that begins, ``at_end`` when it has ended. ``after`` is how far the highest point from
    there to the end of the script's backward is above. ``gradients`` is what gradients of an earlier step take when the
    forward begins, and ``freed_gradients`` what of that is gone when the backward begins. ``batch_size`` is that of
    discovery, None where sizes do not depend on one.
    """

    loss: int
    loss_backward: int
    at_backward: int
    at_end: int
    after: int
    gradients: int = 0
    freed_gradients: int = 0
    batch_size: int | None = None


@dataclass(frozen=True)
class ActivationGraph:
    """One joint graph of forward and backward.

    Nodes are numbered in the graph's order; every other field speaks of them by number. ``inputs`` are the nodes that
    each reads, ``storages`` the storages that each one's value lies in (several for a tuple). The size of storage
    ``s`` in bytes is ``formulas[sizes[s]]``, an expression of ``batch`` and the other dimensions.

    What the partitioner looks at: ``primals`` and ``tangents`` are the inputs of forward and backward, ``constants``
    tensors of the graph's own, ``symbols`` sizes and other numbers, ``getitems`` what unpacks a tuple, ``random`` what
    draws from a generator, ``updates`` what changes an input and so runs in the forward alone. The forward ends with
    node ``last_forward``. ``checkpoints`` are tags of the script's own: (node, 1 to recompute or 2 to save, region or
    -1). ``always`` are the nodes that a compiler's own partitioner recomputes under every plan. ``fixed`` are the nodes
    that keep their place among each other in a backward that recomputes.

    Where a compiler generates code, ``lowering`` has a letter for each node: ``l`` a loop that is computed where it is
    read, ``d`` such a loop that reads one element, of its own, of its input, ``h`` one with costly operations, ``m`` a
    loop whose result always exists, ``s`` one that fills its result and one that then writes to places in it, ``k`` a
    concatenation, ``r`` and ``c`` reductions over the last and over other dimensions, ``w`` variances and means over
    the last, ``x`` an operator that runs by itself, ``f`` one that allocates its results itself, ``j`` a matrix product
    that is computed together with the addition that reads it, ``v`` what only looks at its input and ``p`` at a part of
    it, ``-`` what is neither. ``loops`` has then for each loop numbers of formulas: of the elements that it runs over,
    of those of its result, and of how many steps go into one of each dimension that an input's layout sets apart; for
    ``p`` that of its bytes. ``copies`` are what operators, views and the other half need laid out as traced: rows
    (node, its input, storage of the copy, when that is copied, formulas of the copying loop's elements and of its
    splits), which is ``ALWAYS``, ``IF_OTHERWISE`` where it lies otherwise, or ``IF_KEPT`` where the node outlives its
    half, and what it is a view of does not; a graph's input, with itself for its input, is copied where the backward
    gets it. ``loose`` are random operators that ask for no layout when they run with a
    saved state of the generator: rows (node, its input, results that lie as that does). ``fixing`` are operators that
    fix how what they read lies. A loop's result always exists where it takes more operations than the first of
    ``limits`` or reads more tensors than the second, and where several read it and it reads more than the third. What
    reads nothing is computed anew by each of its readers, and if ``keeps_constants_open`` even where it outlives its
    half. ``kinds`` has a number for each storage: the same for elements of one type, and ``shapes`` one for each node:
    the same for (first) results of one shape.

    ``elsewhere`` are storages on another device than the one whose memory is predicted. A recomputed random node keeps
    ``rng_state_bytes`` of its generator (``rng_state_elsewhere``: in the host's memory). ``times_ns`` is the least time
    of each node. ``workspace`` has for a node that needs any a row (node, bytes at each of ``batch_sizes``): what its
    operator allocates on top of its results while it runs. ``calls`` is how often a training call runs the graph.
    ``holds_tangents`` tells that torch's runtime keeps the tangents until the backward has ended.
    """

    names: tuple[str, ...]
    inputs: tuple[tuple[int, ...], ...]
    storages: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    formulas: tuple[str, ...]
    forward_outputs: tuple[int, ...]
    backward_outputs: tuple[int, ...]
    last_forward: int
    primals: tuple[int, ...]
    tangents: tuple[int, ...]
    constants: tuple[int, ...]
    symbols: tuple[int, ...]
    getitems: tuple[int, ...]
    random: tuple[int, ...]
    updates: tuple[int, ...]
    checkpoints: tuple[tuple[int, int, int], ...]
    layers: tuple[LayerNodes, ...]
    occurrences: tuple[OccurrenceNodes, ...]
    rng_state_bytes: int
    always: tuple[int, ...] = ()
    lowering: str = ""
    loops: tuple[tuple[int, ...], ...] = ()
    kinds: tuple[int, ...] = ()
    copies: tuple[tuple[int, ...], ...] = ()
    loose: tuple[tuple[int, ...], ...] = ()
    fixing: tuple[int, ...] = ()
    shapes: tuple[int, ...] = ()
    # Those of torch 2.13, for facts of before they were written down.
    limits: tuple[int, int, int] = (50, 12, 4)
    keeps_constants_open: bool = True
    holds_tangents: bool = False
    rng_state_elsewhere: bool = False
    fixed: tuple[int, ...] = ()
    elsewhere: tuple[int, ...] = ()
    calls: float = 1.0
    times_ns: tuple[int, ...] = ()
    batch_sizes: tuple[int, ...] = ()
    workspace: tuple[tuple[int, ...], ...] = ()
    boundary: Boundary | None = None


@dataclass(frozen=True)
class Calibration:
    """Where the graphs' workspaces were measured: predictions hold only where these agree.

    ``dtype`` is the parameters' and, behind a slash, autocast's. ``error`` is the largest difference between the
    measured and the simulated peak of the self-check, as a fraction of the measured one; ``dimensions`` are the sizes
    it was made at, ``engine`` the one whose graphs they are. ``reason`` says why there is no calibration; nothing is
    predicted then.
    """

    torch: str
    device_name: str
    dtype: str
    num_threads: int
    dimensions: dict[str, int]
    error: float | None = None
    reason: str = ""
    engine: Engine = "aot"
