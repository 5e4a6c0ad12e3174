"""The simulation on graphs small enough to count by hand: each flag of a graph changes what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.errors import PredictionError
from autotune.predict.partition import GraphSplitter
from autotune.predict.prediction import Predictor
from autotune.predict.simulation import Simulated, Simulation
from autotune.records.codec import dumps, loads
from autotune.records.configuration import Configuration
from autotune.records.facts import AccumulationControl, Facts, PrecisionFacts
from autotune.records.graph import ActivationGraph, OccurrenceNodes, SharedStorage, StepTrace, Stretch
from autotune.records.plan import ALL, Plan, Quota
from tests.fakes.predictable import (
    BLOCK,
    CALIBRATION,
    DROPOUT,
    G_HIDDEN,
    G_OUT,
    G_W,
    GRAPH,
    HIDDEN,
    LOSS,
    MASK,
    OUT,
    PAIR,
    PREDICTABLE,
    SCRATCH,
    TRACE,
    G,
    W,
    X,
)
from tests.fakes.store_samples import FACTS

# With small weights and no workspace the peak lies where activations are.
LIGHT = replace(GRAPH, formulas=("10", "100*batch", "10*batch", "4"), workspace=())


def simulated(graph: ActivationGraph = GRAPH, *plans: Plan, batch: int = 8) -> Simulated:
    return Simulation([graph]).run(plans, dimensions={"batch": batch})


def test_what_the_backward_reads_is_saved_and_an_input_costs_nothing() -> None:
    assert simulated().saved_bytes == 800 + 80
    assert simulated(batch=3).saved_bytes == 300 + 30


def test_a_plan_saves_the_random_state_instead() -> None:
    result = simulated(GRAPH, DROPOUT)
    assert result.saved_bytes == 800 + 50
    assert result.recompute_time_s == pytest.approx(3e-6)


def test_a_layer_recomputes_all_that_it_need_not_keep() -> None:
    result = simulated(GRAPH, BLOCK)
    # Its output is kept for whoever reads it; nobody in the backward does.
    assert result.saved_bytes == 50
    assert result.recompute_time_s == pytest.approx(10e-6)
    assert Simulation([GRAPH]).run(level=1, dimensions={"batch": 8}) == result


def test_what_the_compiler_recomputes_anyway_is_no_part_of_a_plan() -> None:
    result = simulated(replace(GRAPH, always=(HIDDEN, PAIR, OUT, MASK)))
    assert result.saved_bytes == GRAPH.rng_state_bytes
    assert simulated().saved_bytes == 880
    assert result.recompute_time_s == 0.0


def test_strategies_of_one_cluster_are_plans_apart() -> None:
    cluster_id = DROPOUT.cluster_id
    both = replace(GRAPH, occurrences=(*GRAPH.occurrences, OccurrenceNodes(cluster_id, 2, (HIDDEN,))))
    compromise = Plan(cluster_id, 2, ALL)
    assert simulated(both, DROPOUT) == simulated(GRAPH, DROPOUT)
    assert simulated(both, compromise).saved_bytes == 80
    assert simulated(both, DROPOUT, compromise).saved_bytes == 50
    assert simulated(GRAPH, compromise).unmatched == (compromise,)


def test_a_level_is_every_layer_and_the_second_every_compromise_as_well() -> None:
    graph = replace(GRAPH, layers=(), occurrences=(OccurrenceNodes("mm+", 2, (HIDDEN,)), *GRAPH.occurrences))
    simulation, dimensions = Simulation([graph]), {"batch": 8}
    assert simulation.run(level=1, dimensions=dimensions) == simulated(graph)
    assert simulation.run(level=2, dimensions=dimensions) == simulated(graph, Plan("mm+", 2, ALL))
    assert simulation.run([DROPOUT], 2, dimensions=dimensions).saved_bytes == 50


def test_the_peak_is_counted_by_hand() -> None:
    # hidden 800 and mask 80 saved, loss 4, gradient 4; then 800 + 800, the scratch 1000, g_w 1000 and its workspace.
    begin = 800 + 80 + 4 + 4
    at_scratch = begin + 800 + 800 - 4 - 800 - 80 + 1000
    at_the_end = at_scratch - 800 + 1000 + 60
    assert simulated().peak_bytes == max(begin + 1600, at_scratch, at_the_end)
    # The gradient of 4 bytes that the backward is given stays until that has ended.
    assert simulated(replace(GRAPH, holds_tangents=True)).peak_bytes == simulated().peak_bytes + 4


def test_workspace_grows_with_the_batch_as_it_did_between_the_calibrated_ones() -> None:
    light = replace(GRAPH, workspace=())
    heavy = replace(GRAPH, workspace=((G_HIDDEN, 40_000, 80_000),))
    for batch in (2, 4, 6, 8, 32):
        begin = 100 * batch + 10 * batch + 8
        during = begin + 200 * batch - 4 + 10_000 * batch
        assert simulated(heavy, batch=batch).peak_bytes == during
        assert simulated(light, batch=batch).peak_bytes < during


def test_workspace_of_a_graph_whose_nodes_grow_is_that_of_as_many_nodes() -> None:
    heavy = replace(GRAPH, workspace=((G_HIDDEN, 40_000, 80_000),))
    sizes = tuple(text.replace("batch", "nodes") for text in GRAPH.formulas)
    nodes = replace(heavy, formulas=sizes, growing=(("nodes", 1.5),))
    for batch, number in ((8, 12), (8, 9), (4, 12)):
        light, own = (
            Simulation([graph]).run(dimensions={"batch": batch, "nodes": number}).peak_bytes
            for graph in (replace(nodes, workspace=()), nodes)
        )
        assert own == 300 * number + 10 * number + 8 - 4 + 10_000 * number / 1.5 > light


def test_workspace_measured_at_one_batch_size_is_taken_as_it_is() -> None:
    single = replace(GRAPH, batch_sizes=(8,), workspace=((G_HIDDEN, 80_000),))
    assert simulated(single, batch=8).peak_bytes == 888 + 1600 - 4 + 80_000


@pytest.mark.parametrize(
    ("change", "plan"),
    [
        ({"random": ()}, DROPOUT),
        ({"symbols": (MASK,)}, None),
        ({"last_forward": HIDDEN}, None),
        ({"primals": (W,), "constants": (X,)}, BLOCK),
        ({"tangents": (), "primals": (W, X, G)}, BLOCK),
        ({"elsewhere": (2,)}, None),
        ({"rng_state_elsewhere": True}, DROPOUT),
        ({"rng_state_bytes": 16}, DROPOUT),
        ({"checkpoints": ((HIDDEN, 1, 0),)}, None),
        ({"forward_outputs": (LOSS, OUT)}, None),
        ({"calls": 2.0}, None),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else str(value),
)
def test_every_field_of_a_graph_counts(change: dict[str, object], plan: Plan | None) -> None:
    plans = () if plan is None else (plan,)
    before, after = (simulated(graph, *plans) for graph in (LIGHT, replace(LIGHT, **change)))
    assert (before.saved_bytes, before.peak_bytes) != (after.saved_bytes, after.peak_bytes)


def test_gradients_live_to_the_end_of_the_backward() -> None:
    graph = replace(GRAPH, backward_outputs=(G_W, G_OUT))
    assert simulated(graph).peak_bytes == simulated().peak_bytes + 800


def test_a_tuple_is_not_saved_but_made_again() -> None:
    graph = replace(GRAPH, occurrences=(OccurrenceNodes("dropout+[mask]", 1, (MASK,)),))
    assert simulated(graph, DROPOUT).saved_bytes == 800
    assert simulated(replace(graph, getitems=()), DROPOUT).saved_bytes == 800 + 800 + 80


def test_what_one_of_the_scripts_checkpoints_hands_to_the_next_is_saved() -> None:
    one, two = (((HIDDEN, 1, 0), (PAIR, 1, region), (MASK, 1, region)) for region in (0, 1))
    assert simulated(replace(GRAPH, checkpoints=one)).saved_bytes == 50
    assert simulated(replace(GRAPH, checkpoints=two)).saved_bytes == 800 + 50


def test_a_plan_leaves_the_scripts_own_checkpoints_alone() -> None:
    graph = replace(GRAPH, checkpoints=((HIDDEN, 1, 0), (PAIR, 1, 1), (MASK, 1, 1)))
    assert simulated(graph, BLOCK).saved_bytes == simulated(graph).saved_bytes


def test_an_update_of_an_input_runs_in_the_forward_though_nobody_reads_it() -> None:
    splits = [GraphSplitter(one) for one in (replace(GRAPH, updates=(SCRATCH,)), GRAPH)]
    assert [SCRATCH in one.split(one.tags(Quota(()))).forward for one in splits] == [True, False]


def test_an_unknown_plan_is_told() -> None:
    plan = Plan("relu+", 1, ALL)
    assert simulated(GRAPH, plan, DROPOUT).unmatched == (plan,)


def test_two_graphs_save_together_and_the_second_runs_on_top_of_the_first() -> None:
    both = Simulation([GRAPH, GRAPH]).run(dimensions={"batch": 8})
    assert both.saved_bytes == 2 * simulated().saved_bytes
    # The first one's saved tensors and its result; what its backward is given is there when that begins.
    assert both.peak_bytes == simulated().peak_bytes + 884
    counted = Simulation([GRAPH, GRAPH]).run((replace(DROPOUT, count=1),), dimensions={"batch": 8})
    assert counted.saved_bytes == simulated().saved_bytes + simulated(GRAPH, DROPOUT).saved_bytes


def test_every_second_occurrence_is_counted_over_all_graphs() -> None:
    every_second = replace(DROPOUT, cluster_id=f"{DROPOUT.cluster_id}/2")
    saved = [
        Simulation([GRAPH] * number).run([every_second], dimensions={"batch": 8}).saved_bytes for number in (1, 2, 3, 4)
    ]
    plain, planned = simulated().saved_bytes, simulated(GRAPH, DROPOUT).saved_bytes
    assert saved == [plain, plain + planned, 2 * plain + planned, 2 * plain + 2 * planned]
    assert simulated(GRAPH, every_second).unmatched == (every_second,)


def test_a_block_that_lies_in_two_graphs_is_one_occurrence() -> None:
    (layer,) = GRAPH.layers
    later = replace(GRAPH, layers=(replace(layer, continues=True),))
    simulation = Simulation([GRAPH, later, GRAPH, later])
    parts = simulated().saved_bytes, simulated(GRAPH, Plan("Block+", 1, ALL)).saved_bytes
    for count in range(3):
        saved = simulation.run((Plan("Block+", 1, count),), dimensions={"batch": 8}).saved_bytes
        assert saved == 2 * count * parts[1] + 2 * (2 - count) * parts[0]


def test_a_graph_that_runs_twice_in_a_call_runs_on_top_of_itself() -> None:
    twice = simulated(replace(GRAPH, calls=2.0))
    assert twice.saved_bytes == 2 * simulated().saved_bytes
    assert twice.peak_bytes == simulated().peak_bytes + 884


# -- traces

LOSS_STORAGE, X_STORAGE, NOTHING = GRAPH.storages[LOSS][0], GRAPH.storages[X][0], Stretch(0, 0, 0)


def trace(*events: int, **changes: Any) -> StepTrace:
    """What ran of two calls of one graph; nobody holds what they return."""
    own = StepTrace((0,) * len([event for event in events if event >= 0]), events, (NOTHING,) * len(events), ())
    return replace(own, **changes)


def peak_of(*traces: StepTrace, batch: int = 8, graph: ActivationGraph = GRAPH) -> int:
    return Simulation([graph], traces).run(dimensions={"batch": batch}).peak_bytes


def test_calls_under_way_at_once_take_more_than_calls_one_after_the_other() -> None:
    # Each saves 880; what it returns is not held.
    assert peak_of(trace(0, 1, -2, -1)) == peak_of(trace(0, -1)) + 880
    assert peak_of(trace(0, 1, -1, -2)) == peak_of(trace(0, -1)) + 880
    assert peak_of(trace(0, -1, 1, -2)) == peak_of(trace(0, -1))


def test_the_peak_is_that_of_the_highest_trace_its_gradients_included() -> None:
    one, two = trace(0, -1, gradients=5000), trace(0, 1, -2, -1)
    simulated = Simulation([GRAPH], [one, two]).run(dimensions={"batch": 8})
    assert (simulated.peak_bytes, simulated.gradient_bytes) == (peak_of(one), 5000)
    assert Simulation([GRAPH], [replace(one, gradients=10), two]).run(dimensions={"batch": 8}).gradient_bytes == 0


def test_what_one_call_hands_to_the_next_is_there_until_nobody_needs_it() -> None:
    # An input that the script made in between: the second call saves it, so it is there up to its backward.
    made = SharedStorage(((1, X_STORAGE),), 0, 0)
    assert peak_of(trace(0, 1, -2, -1, shared=(made,))) == peak_of(trace(0, 1, -2, -1)) + 800
    # When the first call's backward is the last one, it is gone by then, unless the script holds it.
    late = (*[NOTHING] * 3, Stretch(0, 90_000, 0))
    gone = peak_of(trace(0, 1, -2, -1, shared=(made,), stretches=late))
    assert peak_of(trace(0, 1, -2, -1, shared=(replace(made, held_until=3),), stretches=late)) == gone + 800
    # Two calls that save one storage hold it once.
    both = SharedStorage(((0, X_STORAGE), (1, X_STORAGE)), 0, 0)
    assert peak_of(trace(0, 1, -2, -1, shared=(both,))) == peak_of(trace(0, 1, -2, -1, shared=(made,)))


def test_a_call_without_a_backward_keeps_what_it_saves_as_long_as_was_seen() -> None:
    alone = peak_of(trace(0, -1))
    assert peak_of(trace(0, 1, -2, unfinished=((0, 2),))) == alone + 880
    assert peak_of(trace(0, 1, -2, unfinished=((0, 0),))) == alone


@pytest.mark.parametrize(
    ("stretch", "bytes_", "at_twice_the_batch"),
    [
        (Stretch(0, 90_000, 0), 880 + 90_000, 2 * (880 + 90_000)),
        (Stretch(80_000, 10_000, 0), 880 + 90_000, 2 * (880 + 90_000)),
        (Stretch(0, 90_000, 0, gradients_begin=7), 880 + 90_007, 2 * (880 + 90_000) + 7),
    ],
)
def test_what_the_script_holds_grows_with_the_batch_and_gradients_do_not(
    stretch: Stretch, bytes_: int, at_twice_the_batch: int
) -> None:
    # What is returned grows with the batch, other than a loss.
    graph = replace(GRAPH, sizes=(*GRAPH.sizes[:LOSS_STORAGE], 2, *GRAPH.sizes[LOSS_STORAGE + 1 :]))
    own = trace(0, -1, stretches=(stretch, NOTHING), results=80)
    assert peak_of(own, graph=graph) == bytes_
    assert peak_of(own, graph=graph, batch=16) == at_twice_the_batch


def test_what_processes_exchange_does_not_grow_with_the_batch() -> None:
    graph = replace(GRAPH, sizes=(*GRAPH.sizes[:LOSS_STORAGE], 2, *GRAPH.sizes[LOSS_STORAGE + 1 :]))

    def peak(batch: int, stretch: Stretch = NOTHING, **changes: int) -> int:
        own = trace(0, -1, stretches=(stretch, NOTHING), results=80, **changes)
        return peak_of(own, batch=batch, graph=graph)

    grows, gathers = Stretch(0, 50_000, 0), Stretch(0, 50_000, 0, fixed_rise=40_000)
    assert peak(8, gathers) == peak(8, grows)
    assert peak(16, grows) - peak(16, gathers) == 40_000
    started = [peak(16, start=start, start_fixed=fixed) for start, fixed in ((0, 50_000), (100, 50_000), (0, 51_000))]
    assert [one - started[0] for one in started] == [0, 200, 1_000]


# -- predictions


def test_facts_with_graphs_predict_any_batch_size() -> None:
    predictor = Predictor(loads(Facts, dumps(PREDICTABLE)))
    prediction = predictor.predict(Configuration("aot", (DROPOUT,), batch_size=32))
    assert prediction.simulated == simulated(GRAPH, DROPOUT, batch=32)
    assert prediction.peak_bytes == 3010 + prediction.step_bytes
    assert predictor.predict(Configuration("aot")).simulated == simulated()


def test_facts_of_another_engine_predict_that_one() -> None:
    compiled = replace(CALIBRATION, engine="inductor", generated_share=1.0)
    predictor = Predictor(replace(PREDICTABLE, calibration=compiled))
    assert predictor.predict(Configuration("inductor")).simulated == simulated()
    with pytest.raises(PredictionError, match="'aot' cannot be predicted, of 'inductor' only"):
        predictor.predict(Configuration("aot"))


def test_where_operators_are_fused_predictions_are_brought_to_the_scale_of_generated_code() -> None:
    compiled = replace(CALIBRATION, engine="inductor", error=0.25, generated_share=0.8)
    prediction = Predictor(replace(PREDICTABLE, calibration=compiled)).predict(Configuration("inductor"))
    assert prediction.step_bytes == pytest.approx(0.8 * simulated().peak_bytes, abs=1)
    assert prediction.peak_bytes == 3010 + prediction.step_bytes
    with pytest.raises(PredictionError, match="40% off"):
        Predictor(replace(PREDICTABLE, calibration=replace(compiled, error=0.4)))


@pytest.mark.parametrize(
    ("own", "calls", "asked", "more"),
    [(1, 1.0, 0, 0), (1, 1.0, 2, 1000), (4, 4.0, 0, 1000), (4, 4.0, 2, 1000), (4, 4.0, 1, 0), (1, 3.0, 1, 1000)],
)
def test_gradients_of_earlier_micro_batches_are_there_as_many_as_a_configuration_has(
    own: int, calls: float, asked: int, more: int
) -> None:
    facts = replace(
        PREDICTABLE,
        calls_per_step=calls,
        accumulation_control=AccumulationControl("arguments", own),
        # Calls after the first of a step found the gradients that it left.
        traces=(TRACE, replace(TRACE, gradients=1000)) if calls > 1 else (TRACE,),
    )
    once = Predictor(PREDICTABLE).predict(Configuration("aot", (DROPOUT,)))
    prediction = Predictor(facts).predict(Configuration("aot", (DROPOUT,), accumulation=asked))
    assert prediction.peak_bytes == once.peak_bytes + more
    assert prediction.recompute_time_s == pytest.approx(calls * (asked / own if asked else 1) * once.recompute_time_s)


def test_facts_of_before_steps_were_recorded_predict_nothing() -> None:
    with pytest.raises(PredictionError, match="an older version of autotune did not record"):
        Predictor(replace(PREDICTABLE, traces=()))


def test_graphs_whose_nodes_grow_are_predicted_for_as_many_as_samples_bring() -> None:
    """What the script holds grows with what the forwards return, which is nodes here, and not with the batch."""
    sizes = tuple(text.replace("batch", "nodes") for text in GRAPH.formulas)
    graph = replace(GRAPH, formulas=(*sizes[:3], "4*nodes"), workspace=())
    stretch = Stretch(0, 90_000, 0)
    facts = replace(
        PREDICTABLE,
        graphs=(graph,),
        traces=(replace(TRACE, stretches=(stretch, NOTHING), results=4 * 40),),
        dimensions={"nodes": 50, "batch": 8},
        per_sample={"nodes": 6.0},
        calibration=replace(CALIBRATION, dimensions={"nodes": 40, "batch": 8}),
    )
    own, other = (Predictor(facts).predict(Configuration("aot", batch_size=size)) for size in (8, 16))
    assert (own.saved_bytes, other.saved_bytes) == (50 * 110, 96 * 110)
    assert (own.step_bytes, other.step_bytes) == (50 * (114 + 2250), 96 * (114 + 2250))


def test_facts_without_graphs_have_no_predictions() -> None:
    with pytest.raises(PredictionError, match="no graph was captured"):
        Predictor(FACTS)


def test_a_calibration_that_failed_says_why() -> None:
    failed = replace(CALIBRATION, error=None, reason="its backward changes its inputs")
    with pytest.raises(PredictionError, match="its backward changes its inputs"):
        Predictor(replace(PREDICTABLE, graphs=(), calibration=failed))


@pytest.mark.parametrize(
    ("change", "named"),
    [({"torch": "2.14.0"}, "torch"), ({"device_name": "another CPU"}, "device"), ({"num_threads": 3}, "threads")],
)
def test_another_torch_device_or_number_of_threads_is_refused(change: dict[str, object], named: str) -> None:
    with pytest.raises(PredictionError, match=named):
        Predictor(replace(PREDICTABLE, environment=replace(PREDICTABLE.environment, **change)))


def test_what_the_self_check_shows_to_be_far_off_is_refused() -> None:
    Predictor(replace(PREDICTABLE, calibration=replace(CALIBRATION, error=0.1)))
    with pytest.raises(PredictionError, match="12% off"):
        Predictor(replace(PREDICTABLE, calibration=replace(CALIBRATION, error=0.12)))


def test_another_data_type_is_refused() -> None:
    with pytest.raises(PredictionError, match="data type"):
        Predictor(replace(PREDICTABLE, precision=PrecisionFacts("float32")))


def test_what_cannot_be_known_is_refused() -> None:
    predictor = Predictor(PREDICTABLE)
    with pytest.raises(PredictionError, match="eager"):
        predictor.predict(Configuration())
    with pytest.raises(PredictionError, match="'inductor' cannot be predicted, of 'aot' only"):
        predictor.predict(Configuration("inductor"))
    with pytest.raises(PredictionError, match="relu"):
        predictor.predict(Configuration("aot", (Plan("relu+", 1, ALL),)))
    with pytest.raises(PredictionError, match="no repeated blocks"):
        Predictor(replace(PREDICTABLE, graphs=(replace(GRAPH, layers=()),))).predict(Configuration("aot", level=1))
    fixed = replace(
        PREDICTABLE,
        calibration=replace(CALIBRATION, dimensions={}),
        graphs=(replace(GRAPH, formulas=("1000", "800", "80", "4")),),
    )
    assert Predictor(fixed).predict(Configuration("aot", batch_size=8)).saved_bytes == 880
    with pytest.raises(PredictionError, match="batch size 9"):
        Predictor(fixed).predict(Configuration("aot", batch_size=9))
