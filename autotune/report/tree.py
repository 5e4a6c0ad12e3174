"""The script's model as a tree: what each of its parts keeps for the backward, and what the answer recomputes of it.

All bytes are simulated. A study knows the repeated blocks by their class, the operators by their kind, and no others.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from ..errors import PredictionError
from ..predict.memory_timeline import Blocks
from ..predict.prediction import Predictor
from ..predict.simulation import Kept
from ..records.configuration import Configuration
from ..records.facts import Facts
from ..records.graph import ActivationGraph
from ..records.study import StudyRecord
from .foresight import as_simulated
from .record import ModelPart, ModelTree, PartKind

# So many parts of one are rows of their own, the largest; the others are one row. That bounds the page.
_MOST = 12
# torch numbers the nodes of one kind: `addmm`, `addmm_1`, ...
_NUMBER = re.compile(r"_\d+$")


def model_tree(record: StudyRecord, baseline: Configuration | None, winner: Configuration | None) -> ModelTree | None:
    """Return the tree; None where the script's graphs cannot be simulated.

    The answer is simulated at the script's own batch size, so that a part differs in what is recomputed of it alone.
    """
    facts = record.facts
    if facts is None or baseline is None:
        return None
    try:
        predictor = Predictor(facts)
        kept = predictor.kept(as_simulated(facts, baseline))
    except PredictionError:
        return None
    planned, total_at_own_batch = _planned(facts, predictor, baseline, winner)
    graphs = [
        _graph(graph, own, None if planned is None else planned[number])
        for number, (graph, own) in enumerate(zip(facts.graphs, kept, strict=True))
        # Nothing is kept where the script's own checkpoints run a graph again.
        if graph.calls
    ]
    whole = graphs[0] if len(graphs) == 1 else _whole("graph", "", _alike(graphs))
    whole = dataclasses.replace(whole, kind="model", name=", ".join(root.name for root in facts.roots))
    return ModelTree(whole, baseline.batch_size, total_at_own_batch)


def _planned(
    facts: Facts, predictor: Predictor, baseline: Configuration, winner: Configuration | None
) -> tuple[list[Kept] | None, int | None]:
    """Return what the answer keeps at the script's batch size, and in all at its own; None where nothing tells."""
    if winner is None or winner.key == baseline.key:
        return None, None
    try:
        setting = as_simulated(facts, winner)
        planned = predictor.kept(dataclasses.replace(setting, batch_size=baseline.batch_size))
    except PredictionError:
        return None, None  # its plans may be of another engine than the graphs
    try:
        return planned, predictor.predict(setting).saved_bytes
    except PredictionError:
        return planned, None  # the graphs may have been traced for one batch size only


def _graph(graph: ActivationGraph, kept: Kept, planned: Kept | None) -> ModelPart:
    """Make a part of a graph: its outermost blocks, and the operators outside of them."""
    blocks = Blocks(graph)
    idle = {*graph.primals, *graph.tangents, *graph.constants, *graph.symbols, *graph.getitems}
    forward = {node for node in blocks.makers.values() if node <= graph.last_forward} - idle
    recomputed = (kept if planned is None else planned).recomputed
    operators: dict[int | None, list[ModelPart]] = {}
    for node in sorted(forward.union(kept.bytes, () if planned is None else planned.bytes)):
        operator = ModelPart(
            kind="operator",
            name=_NUMBER.sub("", graph.names[node]),
            kept_bytes=kept.bytes.get(node, 0),
            planned_bytes=None if planned is None else planned.bytes.get(node, 0),
            num_operators=1,
            num_recomputed=int(node in recomputed),
        )
        operators.setdefault(blocks.of_nodes.get(node), []).append(operator)
    inner: dict[int | None, list[int]] = {}
    for block, around in enumerate(blocks.within):
        inner.setdefault(around, []).append(block)

    def part(block: int) -> ModelPart:
        name = graph.layers[block].cluster_id.rstrip("+")
        return _whole("block", name, _alike(map(part, inner.get(block, ()))), _by_kind(operators.get(block, ())))

    outermost, others = _alike(map(part, inner.get(None, ()))), _by_kind(operators.get(None, ()))
    if outermost and others:
        others = [_whole("outside", "", others)]
    return _whole("graph", "graph", outermost, others)


def _whole(kind: PartKind, name: str, *parts: Sequence[ModelPart]) -> ModelPart:
    """Put parts together, which are shown only where one of them is worth a row."""
    rows = [one for some in parts for one in _largest(some)]
    return _sum(kind, name, rows, shows_parts=any(one.kind != "others" for one in rows))


def _sum(kind: PartKind, name: str, parts: Sequence[ModelPart], *, shows_parts: bool = True) -> ModelPart:
    planned = [one.planned_bytes for one in parts if one.planned_bytes is not None]
    return ModelPart(
        kind=kind,
        name=name,
        kept_bytes=sum(one.kept_bytes for one in parts),
        planned_bytes=sum(planned) if planned else None,
        num_operators=sum(one.num_operators for one in parts),
        num_recomputed=sum(one.num_recomputed for one in parts),
        parts=tuple(parts) if shows_parts else (),
    )


def _by_kind(operators: Iterable[ModelPart]) -> list[ModelPart]:
    """Put operators of one kind together, those that keep most first."""
    kinds: dict[str, list[ModelPart]] = {}
    for one in operators:
        kinds.setdefault(one.name, []).append(one)
    rows = [_sum("operator", name, own, shows_parts=False) for name, own in kinds.items()]
    return sorted(rows, key=lambda one: -_weight(one))


def _alike(parts: Iterable[ModelPart]) -> list[ModelPart]:
    """Put parts that do not differ in one row, numbered among those of their name."""
    of_names: Counter[str] = Counter()
    numbers: dict[ModelPart, list[int]] = {}
    for one in parts:
        of_names[one.name] += 1
        numbers.setdefault(one, []).append(of_names[one.name])
    return [
        dataclasses.replace(_times(one, len(own)), first=own[0], last=own[-1], number=len(own), of=of_names[one.name])
        for one, own in numbers.items()
    ]


def _times(part: ModelPart, number: int) -> ModelPart:
    return dataclasses.replace(
        part,
        kept_bytes=number * part.kept_bytes,
        planned_bytes=None if part.planned_bytes is None else number * part.planned_bytes,
        num_operators=number * part.num_operators,
        num_recomputed=number * part.num_recomputed,
        parts=tuple(_times(one, number) for one in part.parts),
    )


def _largest(parts: Sequence[ModelPart]) -> list[ModelPart]:
    """Return the parts that keep most, in their order, and a row for all others."""
    ranked = sorted((one for one in parts if one.kind != "operator" or _weight(one)), key=lambda one: -_weight(one))
    shown = set(map(id, ranked[:_MOST]))
    others = [one for one in parts if id(one) not in shown]
    rows = [one for one in parts if id(one) in shown]
    if not others:
        return rows
    rest = _sum("others", "", others, shows_parts=False)
    return [*rows, dataclasses.replace(rest, number=sum(one.number for one in others))]


def _weight(part: ModelPart) -> int:
    return max(part.kept_bytes, part.planned_bytes or 0)
