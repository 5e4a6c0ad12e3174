"""A study of a model as deep as one likes: blocks of a matrix product and a gelu, and a norm behind them."""

from __future__ import annotations

import dataclasses

from autotune.records.configuration import Configuration
from autotune.records.facts import RootFacts
from autotune.records.graph import ActivationGraph, LayerNodes
from autotune.records.plan import ALL, Plan
from autotune.records.study import StudyRecord
from tests.fakes.predictable import GRAPH, PREDICTABLE, TRACE
from tests.fakes.study_record import measured, study_record

__all__ = ["BLOCK", "OWN", "deep_graph", "deep_study"]

OWN = Configuration("eager", (), 0, 8)
BLOCK = Plan("Block+", 1, ALL)


def deep_graph(number: int, *, grows: bool = False, calls: float = 1.0) -> ActivationGraph:
    """A graph of so many blocks, each of which keeps 10 + 20 bytes a sample, and a norm, which keeps 5.

    With ``grows`` each block keeps one byte a sample more than the one before it.
    """
    names, inputs, formulas, layers = ["x"], [()], ["100*batch"], []
    for block in range(number):
        start = len(names)
        suffix = f"_{block}" if block else ""
        names += [f"mm{suffix}", f"gelu{suffix}", f"view{suffix}"]
        inputs += [(start - 1,), (start,), (start + 1,)]
        extra = block if grows else 0
        formulas += [f"{10 + extra}*batch", "20*batch"]
        layers.append(LayerNodes("Block+", 3, (start, start + 1), (start + 2,)))
    storages = [(0,), *(own for block in range(number) for own in [(2 * block + 1,), *[(2 * block + 2,)] * 2])]
    names.append("norm")
    inputs.append((len(names) - 2,))
    storages.append((2 * number + 1,))
    formulas.append("5*batch")
    last = len(names) - 1
    # The backward reads the norm, and of each block, from the last one on, what the product and the block give.
    names += ["tangent", "norm_backward"]
    inputs += [(), (last + 1, last)]
    storages += [(2 * number + 2,), (2 * number + 3,)]
    formulas += ["5*batch", "5*batch"]
    for block in reversed(range(number)):
        names.append(f"block_backward_{block}")
        inputs.append((len(names) - 2, 3 * block + 1, 3 * block + 3))
        storages.append((len(formulas),))
        formulas.append("10*batch")
    return dataclasses.replace(
        GRAPH,
        names=tuple(names),
        inputs=tuple(inputs),
        storages=tuple(storages),
        sizes=tuple(range(len(formulas))),
        formulas=tuple(formulas),
        forward_outputs=(last,),
        backward_outputs=(len(names) - 1,),
        last_forward=last,
        primals=(0,),
        tangents=(last + 1,),
        getitems=(),
        random=(),
        layers=tuple(layers),
        occurrences=(),
        times_ns=(1000,) * len(names),
        workspace=(),
        calls=calls,
    )


def deep_study(*graphs: ActivationGraph, winner: Configuration | None = None) -> StudyRecord:
    """A study of a script that has these graphs, at batch size 8; with an answer if there is one."""
    trace = dataclasses.replace(
        TRACE,
        calls=tuple(range(len(graphs))),
        events=(*range(len(graphs)), *(-1 - call for call in reversed(range(len(graphs))))),
        stretches=TRACE.stretches[:1] * (2 * len(graphs)),
        shared=(),
    )
    facts = dataclasses.replace(
        PREDICTABLE, baseline=OWN, graphs=graphs, traces=(trace,), roots=(RootFacts("GPT", 10, 10, len(graphs)),)
    )
    record = study_record()
    own = dataclasses.replace(record.trials[0], configuration=OWN, outcome=measured(100, 8, 1))
    verdict = None
    if winner is not None:
        verdict = dataclasses.replace(record.verdict, winner=winner, proofs=(), comparisons=())
        other = dataclasses.replace(own, number=1, configuration=winner, outcome=measured(110, winner.batch_size, 1))
        return dataclasses.replace(record, facts=facts, trials=(own, other), repeats=(), verdict=verdict)
    return dataclasses.replace(record, facts=facts, trials=(own,), repeats=(), verdict=None)
