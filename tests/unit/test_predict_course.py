"""The memory in the course of a simulated step: its parts add up, and its highest moment is the predicted peak."""

from __future__ import annotations

import dataclasses

import pytest

from autotune.errors import PredictionError
from autotune.predict import Predictor
from autotune.predict.course import Course
from autotune.records import Configuration, LayerNodes
from tests.fakes.predictable import BLOCK, CALIBRATION, DROPOUT, GRAPH, HIDDEN, MASK, OUT, PAIR, PREDICTABLE

PLAIN = Configuration("aot", (), 0, 8)


@pytest.mark.parametrize("plans", [(), (BLOCK,), (DROPOUT,)])
@pytest.mark.parametrize("batch_size", [8, 32])
def test_the_highest_moment_is_the_predicted_peak(plans, batch_size):
    configuration = Configuration("aot", plans, 0, batch_size)
    predictor = Predictor(PREDICTABLE)
    moments = predictor.course(configuration).moments
    assert max(moment.level for moment in moments) == predictor.predict(configuration).step_bytes


@pytest.mark.parametrize("plans", [(), (BLOCK,), (DROPOUT,)])
def test_what_is_named_is_never_more_than_there_is(plans):
    for moment in Predictor(PREDICTABLE).course(Configuration("aot", plans, 0, 8)).moments:
        assert moment.level >= sum(moment.blocks) + moment.outside + moment.gradients
        assert min(*moment.blocks, moment.outside) >= 0


def test_a_block_keeps_what_it_hands_to_the_backward_until_that_has_used_it():
    course = Predictor(PREDICTABLE).course(PLAIN)
    assert course.names == ["Block+"]
    forward = [moment.blocks[0] for moment in course.moments if moment.is_forward]
    backward = [moment.blocks[0] for moment in course.moments if not moment.is_forward]
    # The hidden activations, 80 values at batch 8 of 10 bytes, and the mask of 4.
    assert forward[0] <= forward[-1] == backward[0] > backward[-1]
    saved = Predictor(PREDICTABLE).predict(PLAIN).saved_bytes
    assert forward[-1] + course.moments[len(forward) - 1].outside <= saved


def test_what_a_plan_recomputes_is_not_kept():
    plain = Predictor(PREDICTABLE).course(PLAIN)
    planned = Predictor(PREDICTABLE).course(dataclasses.replace(PLAIN, plans=(BLOCK,)))
    assert max(moment.blocks[0] for moment in planned.moments) < max(moment.blocks[0] for moment in plain.moments)


def test_gradients_come_with_the_backward():
    moments = Predictor(PREDICTABLE).course(PLAIN).moments
    assert moments[0].gradients == 0
    assert max(moment.gradients for moment in moments if not moment.is_forward) > 0


def test_of_blocks_within_blocks_the_outermost_is_told():
    inner = LayerNodes("Inner+", 2, (PAIR,), (MASK,))
    graph = dataclasses.replace(GRAPH, layers=(LayerNodes("Block+", 4, (HIDDEN, PAIR, MASK), (OUT,)), inner))
    assert Course([graph]).names == ["Block+"]
    assert Course([graph, GRAPH]).names == ["Block+", "Block+"]


def test_an_engine_that_fuses_operators_has_no_moments():
    fused = dataclasses.replace(CALIBRATION, engine="inductor", generated_share=0.9)
    predictor = Predictor(dataclasses.replace(PREDICTABLE, calibration=fused))
    with pytest.raises(PredictionError, match="the moments of a step are not known"):
        predictor.course(dataclasses.replace(PLAIN, engine="inductor"))
