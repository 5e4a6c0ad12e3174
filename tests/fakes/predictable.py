"""A graph small enough to count by hand, and facts that hold it."""

from __future__ import annotations

from dataclasses import replace

from autotune.records.facts import Facts, PrecisionFacts
from autotune.records.graph import (
    ActivationGraph,
    Calibration,
    LayerNodes,
    OccurrenceNodes,
    SharedStorage,
    StepTrace,
    Stretch,
)
from autotune.records.measurement import MemorySplit
from autotune.records.plan import ALL, Plan
from tests.fakes.store_samples import FACTS

# forward:  w, x -> hidden = mm(x, w) -> pair = dropout(hidden) -> out, mask = pair -> loss = mean(out)
# backward: g -> g_out = expand(g) -> g_hidden = mul(g_out, mask) -> g_w = mm(x, g_hidden) + tanh_backward(hidden)
NAMES = ("w", "x", "hidden", "pair", "out", "mask", "loss", "g", "g_out", "g_hidden", "scratch", "g_w")
W, X, HIDDEN, PAIR, OUT, MASK, LOSS, G, G_OUT, G_HIDDEN, SCRATCH, G_W = range(len(NAMES))
GRAPH = ActivationGraph(
    names=NAMES,
    inputs=(
        (),
        (),
        (W, X),
        (HIDDEN,),
        (PAIR,),
        (PAIR,),
        (OUT,),
        (),
        (G,),
        (G_OUT, MASK),
        (HIDDEN,),
        (X, G_HIDDEN, SCRATCH),
    ),
    storages=((0,), (1,), (2,), (3, 4), (3,), (4,), (5,), (6,), (7,), (8,), (9,), (10,)),
    sizes=(0, 1, 1, 1, 2, 3, 3, 1, 1, 0, 0),
    formulas=("1000", "100*batch", "10*batch", "4"),
    forward_outputs=(LOSS,),
    backward_outputs=(G_W,),
    last_forward=LOSS,
    primals=(W, X),
    tangents=(G,),
    constants=(),
    symbols=(),
    getitems=(OUT, MASK),
    random=(PAIR,),
    updates=(),
    checkpoints=(),
    layers=(LayerNodes("Block+", 4, (HIDDEN, PAIR, MASK), (OUT,)),),
    occurrences=(OccurrenceNodes("dropout+[mask]", 1, (PAIR, MASK)),),
    rng_state_bytes=50,
    times_ns=(0, 0, 7_000, 3_000, 0, 0, 0, 0, 0, 0, 0, 0),
    batch_sizes=(4, 8),
    workspace=((HIDDEN, 400, 800), (G_W, 60, 60)),
)
DROPOUT = Plan("dropout+[mask]", 1, ALL)
BLOCK = Plan("Block+", 1, ALL)

CALIBRATION = Calibration("2.13.0", "a CPU", "float32/bfloat16", 2, {"batch": 8}, error=0.01)
# What the forward returns is held to the end of the backward.
TRACE = StepTrace(
    calls=(0,),
    events=(0, -1),
    stretches=(Stretch(0, 0, 0),) * 2,
    shared=(SharedStorage(((0, GRAPH.storages[LOSS][0]),), 0, 1),),
)
PREDICTABLE: Facts = replace(
    FACTS,
    batch_size=8,
    split=MemorySplit(parameters=1000, gradients=1000, optimizer_state=2000, buffers=10),
    precision=PrecisionFacts("float32", "bfloat16"),
    environment=replace(FACTS.environment, torch="2.13.0", device_name="a CPU", num_threads=2),
    calls_per_step=1.0,
    graphs=(GRAPH,),
    calibration=CALIBRATION,
    traces=(TRACE,),
)
