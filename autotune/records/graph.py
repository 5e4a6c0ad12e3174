"""A script's activation graph as plain data: what a simulation of its memory needs to know, without torch."""

from __future__ import annotations

from dataclasses import dataclass

from .engines import Engine


@dataclass(frozen=True)
class LayerNodes:
    """One call of a repeated block, ``num_nodes`` forward nodes: the nodes that a plan for it recomputes, and keeps."""

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
class SharedStorage:
    """A storage that goes from one call of a graph to another, or to the script.

    ``uses`` are the (call, storage of its graph) that it is. The script itself holds it from stretch ``born`` to
    stretch ``held_until``, which is before ``born`` where it does not.
    """

    uses: tuple[tuple[int, int], ...]
    born: int
    held_until: int


@dataclass(frozen=True)
class Stretch:
    """The memory that the script itself holds from the end of one half to the beginning of the next, in bytes.

    ``begin`` and ``end`` are minus what the graphs account for, ``rise`` is the highest point above the beginning. All
    three grow with what the forwards return. ``gradients_begin`` and ``gradients_end`` are the growth of the gradients
    of parameters since the trace began. ``late_rise`` is set where the script empties these gradients in between: it is
    the highest point from there on, above what is left of the beginning.
    """

    begin: int
    rise: int
    end: int
    gradients_begin: int = 0
    gradients_end: int = 0
    late_rise: int | None = None


@dataclass(frozen=True)
class StepTrace:
    """The graphs that a step ran, from the first forward to the backward after which no forward is under way.

    ``calls`` are the numbers of the graphs that were called, in order. ``events`` are the halves that ran, in order: a
    call's number for its forward, and -1 minus that for its backward. ``stretches`` come after one event each, and are
    numbered like events. ``unfinished`` are the calls without a backward, each with the last stretch in which its saved
    activations are there. ``gradients`` are the bytes of gradients as the trace begins, ``results`` those that the
    forwards returned.
    """

    calls: tuple[int, ...]
    events: tuple[int, ...]
    stretches: tuple[Stretch, ...]
    shared: tuple[SharedStorage, ...]
    unfinished: tuple[tuple[int, int], ...] = ()
    gradients: int = 0
    results: int = 0


@dataclass(frozen=True)
class ActivationGraph:
    """One joint graph of forward and backward.

    Nodes are numbered in the graph's order; every other field speaks of them by number. ``inputs`` are the nodes that
    each reads, ``storages`` the storages that each one's value lies in (several for a tuple). The size of storage ``s``
    in bytes is ``formulas[sizes[s]]``, an expression of ``batch`` and the other dimensions.

    For the partitioner: ``primals`` and ``tangents`` are the inputs of forward and backward, ``constants`` tensors of
    the graph's own, ``symbols`` sizes and other numbers. ``getitems`` unpack a tuple, ``random`` draw from a generator,
    ``updates`` change an input and so run in the forward alone. The forward ends with node ``last_forward``.
    ``checkpoints`` are tags of the script's own: (node, 1 to recompute or 2 to save, region or -1). A compiler's own
    partitioner recomputes ``always`` under every plan. ``fixed`` keep their place among each other in a backward that
    recomputes.

    ``elsewhere`` are storages on another device than the one whose memory is predicted. A recomputed random node keeps
    ``rng_state_bytes`` of its generator (``rng_state_elsewhere``: in the host's memory). ``times_ns`` is the least time
    of each node. ``workspace`` is what an operator allocates on top of its results while it runs, as rows of (node,
    bytes at each of ``batch_sizes``). ``growing`` are the dimensions that were cut together with the batch there, such
    as a graph's nodes, with how much of each there was for a sample. ``calls`` is how often a training call runs the
    graph. ``holds_tangents``: torch's runtime keeps the tangents until the backward has ended.
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
    holds_tangents: bool = False
    rng_state_elsewhere: bool = False
    fixed: tuple[int, ...] = ()
    elsewhere: tuple[int, ...] = ()
    calls: float = 1.0
    times_ns: tuple[int, ...] = ()
    batch_sizes: tuple[int, ...] = ()
    workspace: tuple[tuple[int, ...], ...] = ()
    growing: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Calibration:
    """The conditions in which the graphs' workspaces were measured: predictions hold only where these agree.

    ``dtype`` is the parameters' and, behind a slash, autocast's. ``error`` is the largest difference between the
    measured and the simulated peak of the self-check, as a fraction of the measured one. ``dimensions`` are the sizes
    that it was made at. ``generated_share``, None unless ``engine`` generates code, is the peak of generated code
    without plans as a share of the simulated one. ``reason`` says why there is no calibration; nothing is predicted
    then.
    """

    torch: str
    device_name: str
    dtype: str
    num_threads: int
    dimensions: dict[str, int]
    error: float | None = None
    reason: str = ""
    engine: Engine = "aot"
    generated_share: float | None = None
