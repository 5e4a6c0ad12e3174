"""The memory in the timeline of a simulated step: its parts add up, and its highest moment is the predicted peak."""

from __future__ import annotations

import dataclasses

import pytest

from autotune.errors import PredictionError
from autotune.predict.memory_timeline import Blocks, MemoryTimeline
from autotune.predict.prediction import Predictor
from autotune.records.configuration import Configuration
from autotune.records.graph import LayerNodes, SharedStorage, StepTrace, Stretch
from tests.fakes.predictable import BLOCK, CALIBRATION, DROPOUT, GRAPH, HIDDEN, MASK, OUT, PAIR, PREDICTABLE, TRACE

PLAIN = Configuration("aot", (), 0, 8)


@pytest.mark.parametrize("plans", [(), (BLOCK,), (DROPOUT,)])
@pytest.mark.parametrize("batch_size", [8, 32])
def test_the_highest_moment_is_the_predicted_peak(plans, batch_size):
    configuration = Configuration("aot", plans, 0, batch_size)
    predictor = Predictor(PREDICTABLE)
    moments = predictor.timeline(configuration).moments
    assert max(moment.level for moment in moments) == predictor.predict(configuration).step_bytes


@pytest.mark.parametrize("plans", [(), (BLOCK,), (DROPOUT,)])
def test_what_is_named_is_never_more_than_there_is(plans):
    for moment in Predictor(PREDICTABLE).timeline(Configuration("aot", plans, 0, 8)).moments:
        assert moment.level >= sum(moment.blocks) + moment.outside + moment.gradients
        assert min(*moment.blocks, moment.outside) >= 0


def test_a_block_keeps_what_it_hands_to_the_backward_until_that_has_used_it():
    timeline = Predictor(PREDICTABLE).timeline(PLAIN)
    assert timeline.names == ["Block+"]
    forward = [moment.blocks[0] for moment in timeline.moments if moment.is_forward]
    backward = [moment.blocks[0] for moment in timeline.moments if not moment.is_forward]
    assert forward[0] <= forward[-1] == backward[0] > backward[-1]
    saved = Predictor(PREDICTABLE).predict(PLAIN).saved_bytes
    assert forward[-1] + timeline.moments[len(forward) - 1].outside <= saved


def test_what_a_plan_recomputes_is_not_kept():
    plain = Predictor(PREDICTABLE).timeline(PLAIN)
    planned = Predictor(PREDICTABLE).timeline(dataclasses.replace(PLAIN, plans=(BLOCK,)))
    assert max(moment.blocks[0] for moment in planned.moments) < max(moment.blocks[0] for moment in plain.moments)


def test_gradients_come_with_the_backward():
    moments = Predictor(PREDICTABLE).timeline(PLAIN).moments
    assert moments[0].gradients == 0
    assert max(moment.gradients for moment in moments if not moment.is_forward) > 0


def test_of_blocks_within_blocks_the_outermost_is_told():
    inner = LayerNodes("Inner+", 2, (PAIR,), (MASK,))
    graph = dataclasses.replace(GRAPH, layers=(LayerNodes("Block+", 4, (HIDDEN, PAIR, MASK), (OUT,)), inner))
    assert MemoryTimeline([graph]).names == ["Block+"]
    assert MemoryTimeline([graph, GRAPH]).names == ["Block+", "Block+"]


def test_an_engine_that_fuses_operators_has_no_moments():
    fused = dataclasses.replace(CALIBRATION, engine="inductor", generated_share=0.9)
    predictor = Predictor(dataclasses.replace(PREDICTABLE, calibration=fused))
    with pytest.raises(PredictionError, match="the moments of a step are not known"):
        predictor.timeline(dataclasses.replace(PLAIN, engine="inductor"))


def timeline_of(*traces):
    facts = dataclasses.replace(PREDICTABLE, traces=traces)
    return Predictor(facts).timeline(PLAIN).moments, Predictor(facts).predict(PLAIN)


def test_calls_whose_backward_is_to_come_are_held_beside_the_one_that_runs():
    storage = TRACE.shared[0].uses[0][1]
    shared = tuple(SharedStorage(((call, storage),), call, 3) for call in (0, 1))
    twice = StepTrace(calls=(0, 0), events=(0, 1, -2, -1), stretches=(Stretch(0, 0, 0),) * 4, shared=shared)
    once, _ = timeline_of(TRACE)
    moments, predicted = timeline_of(twice)
    assert max(one.blocks[0] for one in moments) == 2 * max(one.blocks[0] for one in once)
    assert max(one.level for one in moments) == predicted.step_bytes


def test_what_the_script_itself_holds_between_two_halves_is_a_moment_too():
    rising = dataclasses.replace(TRACE, stretches=(Stretch(0, 50_000, 0), Stretch(0, 0, 0)))
    moments, predicted = timeline_of(rising)
    assert max(one.level for one in moments) == predicted.step_bytes > 50_000


def test_gradients_that_the_script_empties_between_two_halves_are_gone_then():
    emptied = dataclasses.replace(
        TRACE, stretches=(Stretch(0, 0, 0, gradients_end=-300), Stretch(0, 0, 0, gradients_begin=-300))
    )
    moments, _ = timeline_of(emptied)
    after = [one.gradients for one in moments if one.is_forward][-1]
    first_of_backward = next(one.gradients for one in moments if not one.is_forward)
    assert (after, first_of_backward) == (-300, -300)


def test_of_several_steps_that_were_seen_it_is_the_one_with_the_peak():
    rising = dataclasses.replace(TRACE, stretches=(Stretch(0, 50_000, 0), Stretch(0, 0, 0)))
    for traces in ((TRACE, rising), (rising, TRACE)):
        moments, predicted = timeline_of(*traces)
        assert max(one.level for one in moments) == predicted.step_bytes


def test_a_storage_belongs_to_the_block_that_makes_it_not_to_one_that_looks_at_it():
    # The block unpacks what was drawn outside of it.
    looks = LayerNodes("Block+", 3, (OUT,), (MASK,))
    blocks = Blocks(dataclasses.replace(GRAPH, layers=(looks,)))
    makers = {blocks.makers[storage] for node in (OUT, MASK) for storage in GRAPH.storages[node]}
    assert makers == {PAIR}
    assert PAIR not in blocks.of_nodes
    moments = Predictor(dataclasses.replace(PREDICTABLE, graphs=(dataclasses.replace(GRAPH, layers=(looks,)),)))
    assert {one.blocks for one in moments.timeline(PLAIN).moments} == {(0,)}


def test_of_two_blocks_with_the_same_nodes_the_first_is_the_outer_one():
    nodes = ((HIDDEN, PAIR, MASK), (OUT,))
    layers = (LayerNodes("Outer+", 4, *nodes), LayerNodes("Inner+", 4, *nodes))
    graph = dataclasses.replace(GRAPH, layers=layers)
    assert Blocks(graph).within == [None, 0]
    assert MemoryTimeline([graph]).names == ["Outer+"]
