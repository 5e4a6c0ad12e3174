"""What the cost model explains memory and step time by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotune.records.configuration import Configuration
from autotune.records.look_ahead import LookAhead, SeenBatch
from autotune.records.study import StudySpec
from autotune.search.cost.features import Featuring
from autotune.search.cost.prior_values import PlanTable
from autotune.search.cost.priors import StepTimePrior
from autotune.search.space import build_space
from tests.fakes.landscape import MIB, Cluster, Landscape


def features(clusters, *points, levels=(0,)):
    landscape = Landscape(clusters)
    space = replace(build_space(landscape.facts, StudySpec(script="train.py")), levels=levels)
    nothing = dict.fromkeys(space.parameters, 0) | {"batch_size": 16}
    values = np.array([list((nothing | point).values()) for point in points], dtype=np.int64)
    return Featuring(space, landscape.facts, 0.1).of_values(values)


LAYER, GELU = Cluster("Block+", 4, 0.8, 0.3, is_layer=True), Cluster("gelu+", 8, 0.2, 0.01)
STASHED = 16 * 40 * MIB


def test_savings_may_overlap_and_grow_with_the_batch():
    found = features(
        (GELU, Cluster("_softmax+", 4, 0.3, 0.02)),
        {"gelu+": 4, "_softmax+": 2},
        {"gelu+": 4, "_softmax+": 2, "batch_size": 32},
    )
    one, twice = found.freed_bytes
    assert (1 - 0.9 * 0.85) * STASHED < one < (0.1 + 0.15) * STASHED
    assert found.overlap_bytes[0] == pytest.approx(0.1 * 0.15 * STASHED, rel=1e-6)
    assert twice == pytest.approx(2 * one)


def test_under_an_engine_that_a_choice_brings_recomputing_costs_what_it_costs_fused():
    landscape = Landscape((LAYER, GELU))
    space = build_space(landscape.facts, StudySpec(script="train.py", choices=("compile",)))
    plan = space.plain_point | {"batch_size": 16, "Block+": 4}
    pairs = [space.configuration(plan | {"compile": value}) for value in (0, 1)]
    found = Featuring(space, landscape.facts, 0.1).of(pairs)
    own, fused = found.recompute_s.sum(axis=1)
    assert fused == pytest.approx(PlanTable.FUSED * own)
    assert found.compiled.tolist() == [0.0, 1.0]
    assert found.planned.tolist() == [1.0, 1.0]
    prior = StepTimePrior(0.1, unit_sd=0.1, table_sd=0.3)
    doubts = (prior.directions(found) ** 2).sum(axis=1) - (prior.directions(found)[:, 1] ** 2)
    assert doubts[1] > doubts[0]


def test_what_is_compiled_without_plans_is_run_by_an_engine_whichever_way_it_is_told():
    landscape = Landscape((LAYER, GELU))
    space = build_space(landscape.facts, StudySpec(script="train.py", choices=("compile",)))
    configurations = list(space.configurations())
    featuring, names = Featuring(space, landscape.facts, 0.1), list(space.parameters)
    values = np.array([[space.point(one)[name] for name in names] for one in configurations], dtype=np.int64)
    by_values, by_configurations = featuring.of_values(values), featuring.of(configurations)
    assert by_values.planned.tolist() == by_configurations.planned.tolist()
    assert by_values.compiled.sum() > 0


def test_all_occurrences_free_little_more_than_all_but_one():
    found = features((LAYER, GELU), {"Block+": 3}, {"Block+": 4}, {"Block+": 4, "gelu+": 8})
    most, everything, covered = found.freed_bytes
    assert most == pytest.approx(0.6 * STASHED, rel=1e-6)
    assert most < everything < 0.7 * STASHED
    assert covered == everything
    assert found.room_bytes.tolist() == pytest.approx([0.0, 0.16 * STASHED, 0.16 * STASHED], rel=1e-6)


def test_what_lies_in_recomputed_layers_frees_and_costs_nothing_more():
    alone, covered, half = range(3)
    found = features((LAYER, GELU), {"Block+": 4}, {"Block+": 4, "gelu+": 8}, {"Block+": 2, "gelu+": 8})
    assert found.freed_bytes[covered] == found.freed_bytes[alone]
    assert found.recompute_s[covered].tolist() == found.recompute_s[alone].tolist()
    assert found.saved_bytes[covered, 1] == 0.0
    assert found.saved_bytes[half, 1] == pytest.approx(0.1 * STASHED, rel=1e-6)


def test_layers_side_by_side_cover_their_own_part_each():
    layers = (Cluster("Encoder+", 4, 0.5, 0.2, is_layer=True), Cluster("Decoder+", 4, 0.3, 0.1, is_layer=True))
    both = {"Encoder+": 4, "Decoder+": 4, "gelu+": 8}
    found = features((*layers, GELU), {"gelu+": 8}, {"Encoder+": 4, "gelu+": 8}, both)
    alone, beside_one, beside_both = found.saved_bytes[:, 2]
    assert beside_one == pytest.approx(alone * 3 / 8)
    assert beside_both == pytest.approx(0.0, abs=1e-6 * alone)


def test_plans_that_were_not_timed_are_taken_to_cost_in_proportion_to_what_they_save():
    clusters = Cluster("Gelu+", 4, 0.1, 0.0), Cluster("Dropout+", 4, 0.3, 0.0)
    some, more = features(clusters, {"Gelu+": 4}, {"Dropout+": 4})
    assert 0 < some.recompute_s.sum() * 3 == pytest.approx(more.recompute_s.sum())
    assert more.recompute_s.sum() < 0.1 * 0.3


def test_layers_within_each_other_cover_the_same():
    layers = (Cluster("Stage+", 2, 0.8, 0.3, is_layer=True), Cluster("Block+", 4, 0.7, 0.3, is_layer=True))
    found = features((*layers, GELU), {"Stage+": 1, "gelu+": 8}, {"Stage+": 1, "Block+": 2, "gelu+": 8})
    one, both = found.saved_bytes[:, 2]
    assert one == both > 0


def test_a_level_stands_for_the_layers_that_the_table_has():
    level, plan = features((LAYER, GELU), {"level": 1}, {"Block+": 4}, levels=(0, 1, 2)).freed_bytes
    assert level == plan


def test_a_level_frees_something_where_the_table_has_no_layers():
    level, deeper = features((GELU,), {"level": 1}, {"level": 2}, levels=(0, 1, 2)).freed_bytes
    assert 0 < level < deeper


def test_a_level_that_compromises_more_costs_more_where_nothing_was_timed():
    facts = Landscape((Cluster("Cast+", 4, 0.1, 0.0),)).facts
    facts = replace(facts, clusters=tuple(replace(row, strategy=2) for row in facts.clusters))
    space = build_space(facts, StudySpec(script="train.py", engine="ortmodule"))
    level_1, level_2 = (
        Featuring(space, facts, 0.1)
        .of([Configuration("ortmodule", level=level, batch_size=16) for level in (1, 2)])
        .recompute_s
    )
    assert level_2.sum() > level_1.sum() > 0


def test_without_a_split_what_the_table_frees_is_what_is_stashed():
    facts = replace(Landscape((LAYER, GELU)).facts, split=None)
    space = build_space(facts, StudySpec(script="train.py"))
    assert Featuring(space, facts, 0.1).stashed_bytes == pytest.approx(0.8 * STASHED, rel=1e-6)


@pytest.mark.parametrize("engine", ["aot", "inductor"])
def test_batches_of_an_epoch_recompute_what_the_largest_does_in_proportion_and_less_where_plans_switch(engine):
    """The plan table is of the largest batch: of sizes 8, 4 and 1, and of these 8 alone where the others need not."""
    smallest, *_, largest = batches = [SeenBatch(number, 1, {}) for number in range(3)]
    ahead = LookAhead((4, 8, 1), smallest, largest, tuple(batches), True, True, "")
    landscape = Landscape((LAYER, GELU))
    space = replace(build_space(landscape.facts, StudySpec(script="train.py")), engine=engine)
    point = dict.fromkeys(space.parameters, 0) | {"batch_size": 16}
    values = np.array([list((point | plans).values()) for plans in ({"Block+": 4}, {"gelu+": 8})], dtype=np.int64)
    alike = Featuring(space, landscape.facts, 0.1).of_values(values)
    found = Featuring(space, replace(landscape.facts, ahead=ahead), 0.1).of_values(values)
    shares = found.recompute_s.sum(axis=1) / alike.recompute_s.sum(axis=1)
    whole, of_largest = (8 + 4 + 1) / (3 * 8), 8 / (3 * 8)
    kept = 1 - alike.freed_bytes / STASHED
    assert 1 / 8 < kept[0] < 0.5 < kept[1]
    expected = [(8 + 4) / (3 * 8), of_largest] if engine == "aot" else [whole, whole]
    assert shares.tolist() == pytest.approx(expected)
