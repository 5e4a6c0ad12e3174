"""A script's activation graph as plain data: what a simulation of its memory needs to know, without torch."""

from __future__ import annotations

from dataclasses import dataclass

from .engines import Engine


@dataclass(frozen=True)
class LayerNodes:
    """One call of a repeated block, ``num_nodes`` forward nodes: the nodes that a plan for it recomputes, and keeps.

    A block may lie in several graphs, of which all but the first ``continues`` the one before.
    """

    cluster_id: str
    num_nodes: int
    recompute: tuple[int, ...]
    keep: tuple[int, ...]
    continues: bool = False


@dataclass(frozen=True)
class OccurrenceNodes:
    """One occurrence of an operator cluster, with the strategy that applies to it: the nodes to recompute."""

    cluster_id: str
    strategy: int
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class SharedStorage:
    """A storage that goes from one call of a graph to another, or to the script."""

    uses: tuple[tuple[int, int], ...]  # each a (call, storage of its graph)
    born: int  # the first stretch in which the script itself holds it
    held_until: int  # the last such stretch, before `born` for none


@dataclass(frozen=True)
class Stretch:
    """The memory that the script itself holds from the end of one half to the beginning of the next, in bytes.

    ``begin``, ``rise`` and ``end`` grow with what the forwards return. Gradients of parameters do not grow, nor do
    parameters that are gathered from other processes: ``gradients_begin`` and ``gradients_end`` contain both.
    """

    begin: int  # at the beginning, without what the graphs account for
    rise: int  # the highest point above the beginning
    end: int  # at the end, without what the graphs account for
    gradients_begin: int = 0  # the growth of the gradients of parameters since the trace began
    gradients_end: int = 0
    late_rise: int | None = None  # where the script empties gradients: the highest point from there on, above the rest
    fixed_rise: int | None = None  # of `rise`, where processes exchange parameters: what does not grow


@dataclass(frozen=True)
class StepTrace:
    """The graphs that a step ran, from the first forward to the backward after which no forward is under way."""

    calls: tuple[int, ...]  # the numbers of the graphs that were called, in order
    events: tuple[int, ...]  # the halves that ran: a call's number for its forward, and -1 minus that for its backward
    stretches: tuple[Stretch, ...]  # one after each event, numbered like events
    shared: tuple[SharedStorage, ...]
    unfinished: tuple[tuple[int, int], ...] = ()  # calls without a backward, and the last stretch of their activations
    gradients: int = 0  # their bytes as the trace begins
    results: int = 0  # the bytes that the forwards returned
    start: int = 0  # bytes made from the model's call to the first forward, which grow with what the forwards return
    start_fixed: int = 0  # bytes made in that time that do not grow: gathered parameters


@dataclass(frozen=True)
class ActivationGraph:
    """One joint graph of forward and backward. Nodes have numbers in its order, by which every field names them.

    The size of storage ``s`` in bytes is ``formulas[sizes[s]]``, an expression of ``batch`` and the other dimensions. A
    recomputed random node keeps the state of its generator.
    """

    names: tuple[str, ...]
    inputs: tuple[tuple[int, ...], ...]  # the nodes that each node reads
    storages: tuple[tuple[int, ...], ...]  # those of each node's value, several for a tuple
    sizes: tuple[int, ...]
    formulas: tuple[str, ...]
    forward_outputs: tuple[int, ...]
    backward_outputs: tuple[int, ...]
    last_forward: int  # the node that the forward ends with
    primals: tuple[int, ...]  # inputs of the forward
    tangents: tuple[int, ...]  # inputs of the backward
    constants: tuple[int, ...]  # tensors of the graph's own
    symbols: tuple[int, ...]  # sizes and other numbers
    getitems: tuple[int, ...]  # they unpack a tuple
    random: tuple[int, ...]  # they draw from a generator
    updates: tuple[int, ...]  # they change an input, or check a value, and so run in the forward alone
    checkpoints: tuple[tuple[int, int, int], ...]  # the script's tags: node, 1 to recompute or 2 to save, region or -1
    layers: tuple[LayerNodes, ...]
    occurrences: tuple[OccurrenceNodes, ...]
    rng_state_bytes: int
    always: tuple[int, ...] = ()  # a compiler's own partitioner recomputes them under every plan
    holds_tangents: bool = False  # torch's runtime keeps the tangents until the backward has ended
    rng_state_elsewhere: bool = False  # in the host's memory
    fixed: tuple[int, ...] = ()  # they keep their place among each other in a backward that recomputes
    elsewhere: tuple[int, ...] = ()  # storages on another device than the one whose memory is predicted
    calls: float = 1.0  # how often a training call runs the graph; 0 where the script's checkpoints run it again
    times_ns: tuple[int, ...] = ()  # the least time of each node
    batch_sizes: tuple[int, ...] = ()  # those of `workspace`
    workspace: tuple[tuple[int, ...], ...] = ()  # rows (node, bytes at each batch size) of a running operator
    growing: tuple[tuple[str, float], ...] = ()  # dimensions that grow with the batch there, per sample


@dataclass(frozen=True)
class Calibration:
    """The conditions in which the graphs' workspaces were measured: predictions hold only where these agree."""

    torch: str
    device_name: str
    dtype: str  # the parameters' and, behind a slash, autocast's
    num_threads: int
    dimensions: dict[str, int]  # the sizes that it was made at
    error: float | None = None  # the largest of a simulated peak in the self-check, as a share of the measured peak
    reason: str = ""  # why there is no calibration; nothing is predicted then
    engine: Engine = "aot"
    generated_share: float | None = None  # of generated code: its peak without plans over the simulated one
