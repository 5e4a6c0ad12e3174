"""What may be tried, and how points and configurations stand for each other."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.records.configuration import Configuration
from autotune.records.facts import AccumulationControl, BatchControl, ClusterFacts, StepsFacts
from autotune.records.inference import Converted, Idle, InferenceFacts
from autotune.records.plan import Plan
from autotune.records.study import StudySpec
from autotune.search.candidates import Candidates
from autotune.search.space import build_space
from tests.fakes.landscape import CLUSTERS, Landscape

SPEC = StudySpec(script="train.py")
FACTS = Landscape().facts
SPACE = build_space(FACTS, SPEC)
PLAIN_ORT = build_space(FACTS, dataclasses.replace(SPEC, engine="ortmodule"))
CHOOSING = build_space(FACTS, dataclasses.replace(SPEC, engine="ortmodule", choices=("compute-optimizer",)))


def row(name, saving, time, *, frequency=12, strategy=1, is_layer=False):
    return ClusterFacts(name, strategy, frequency, saving, "", time, is_layer=is_layer)


def clusters_of(*rows):
    return build_space(dataclasses.replace(FACTS, clusters=rows), SPEC).counts


def batch_sizes(own, limits=None):
    space = space_of(own, limits)
    return tuple(size for size in space.batch_sizes if size not in space.between)


def space_of(own, limits=None):
    facts = Landscape(own_batch_size=own).facts
    return build_space(facts, dataclasses.replace(SPEC, batch_sizes=limits))


def test_batch_sizes_go_from_half_to_sixteen_times_the_scripts_own():
    assert batch_sizes(16) == (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


def test_between_neighbours_lies_one_size_that_suits_the_hardware_if_there_is_one():
    assert space_of(16).between == (10, 14, 40, 56, 80, 112, 160, 224)
    assert space_of(1).between == (5, 7, 10, 14)
    assert space_of(16, (64, 64)).between == ()
    assert set(space_of(16).between) < set(space_of(16).batch_sizes)
    assert list(space_of(16).batch_sizes) == sorted(set(space_of(16).batch_sizes))


def test_the_scripts_own_batch_size_stays_even_where_it_suits_no_hardware():
    assert batch_sizes(25) == (12, 16, 25, 40, 48, 72, 104, 152, 200, 304, 400)
    assert batch_sizes(1) == (1, 2, 3, 4, 6, 8, 12, 16)


def test_a_range_limits_the_batch_sizes_and_its_ends_are_tried():
    assert batch_sizes(16, (20, 100)) == (20, 24, 32, 48, 64, 96, 100)
    assert batch_sizes(16, (1, 16)) == (1, 2, 3, 4, 6, 8, 12, 16)
    assert batch_sizes(16, (64, 64)) == (64,)


def keeping(own, accumulation, limits=None):
    control = AccumulationControl("arguments", accumulation)
    facts = dataclasses.replace(Landscape(own_batch_size=own).facts, accumulation_control=control)
    return build_space(facts, dataclasses.replace(SPEC, batch_sizes=limits, keep_global_batch=True))


def test_only_batch_sizes_that_divide_the_global_batch_keep_it():
    assert keeping(16, 1).batch_sizes == (8, 16)
    assert keeping(16, 4).batch_sizes == (8, 16, 32, 64)
    assert keeping(6, 4, (1, 12)).batch_sizes == (1, 2, 3, 4, 6, 8, 12)


@given(st.integers(1, 96), st.integers(1, 12), st.sampled_from([None, (1, 2000)]))
def test_micro_batch_times_accumulation_stays_what_the_script_has(own, accumulation, limits):
    space = keeping(own, accumulation, limits)
    assert own in space.batch_sizes
    for size in space.batch_sizes:
        configuration = space.plain(size)
        assert configuration.accumulation == (0 if size == own else own * accumulation / size)
        assert space.point(configuration) == space.plain_point | {"batch_size": size}
    assert space.plain(own) == space.baseline


def test_without_being_asked_for_the_accumulation_is_left_alone():
    facts = dataclasses.replace(FACTS, accumulation_control=AccumulationControl("arguments", 4))
    assert {one.accumulation for one in build_space(facts, SPEC).configurations()} == {0}


@given(st.integers(min_value=1, max_value=5000))
def test_batch_sizes_ascend_and_hold_the_scripts_own(own):
    sizes = batch_sizes(own)
    assert own in sizes
    assert list(sizes) == sorted(set(sizes))
    assert own // 2 <= min(sizes)
    assert max(sizes) == pytest.approx(16 * own, rel=0.26)
    assert all(size % 8 == 0 for size in sizes if size > 16 and size != own)


def test_a_batch_size_that_cant_be_set_is_left_alone():
    facts = dataclasses.replace(FACTS, batch_control=BatchControl("none", reason="the script makes its own batches"))
    space = build_space(facts, SPEC)
    assert space.batch_sizes == ()
    assert {configuration.batch_size for configuration in space.configurations()} == {16}


def test_an_unknown_batch_size_is_left_alone():
    space = build_space(dataclasses.replace(FACTS, baseline=Configuration(), batch_size=None), SPEC)
    assert space.batch_sizes == ()
    assert {configuration.batch_size for configuration in space.configurations()} == {None}


def test_layers_are_tried_in_quarters_and_other_clusters_in_halves():
    assert SPACE.counts["Block+"] == (0, 3, 6, 9, 12)
    assert SPACE.counts["gelu+"] == (0, 6, 12)
    assert SPACE.counts["native_dropout+"] == (0, 3)
    assert clusters_of(row("Block+", 100, 1.0, frequency=2, is_layer=True)) == {"Block+": (0, 1, 2)}


def test_of_many_clusters_those_stay_that_save_much_or_save_cheaply():
    cheap = [row(f"cheap{i}+", 50, 0.001) for i in range(3)]
    large = [row(f"large{i}+", 1000, 0.02) for i in range(3)]
    dear = [row(f"dear{i}+", 20, 1.0) for i in range(4)]
    assert clusters_of(*dear, *cheap, *large).keys() == {r.cluster_id for r in (*cheap, *large)}


def test_clusters_that_save_next_to_nothing_are_left_out():
    counts = clusters_of(row("gelu+", 10_000, 0.01), row("add+", 10, 0.001), row("view+", 0, 0.0))
    assert counts.keys() == {"gelu+"}


def test_a_cluster_with_several_strategies_is_recomputed_plainly():
    space = build_space(
        dataclasses.replace(FACTS, clusters=(row("gelu+", 50, 0.1, strategy=2), row("gelu+", 100, 0.1))), SPEC
    )
    assert [cluster.strategy for cluster in space.clusters] == [1]


def test_the_eager_engine_has_no_plans():
    space = build_space(FACTS, dataclasses.replace(SPEC, engine="eager"))
    assert space.counts == {}
    assert {configuration.engine for configuration in space.configurations()} == {"eager"}


INDUCTOR = build_space(FACTS, dataclasses.replace(SPEC, engine="inductor"))


def test_a_cluster_that_is_recomputed_as_a_whole_or_not_at_all_is_tried_so():
    whole = dataclasses.replace(row("Gelu+", 1000, 0.0), is_indivisible=True)
    assert clusters_of(whole) == {"Gelu+": (0, 12)}


def test_of_clusters_that_exclude_each_other_the_one_that_saves_more_is_tried():
    softmax, cast, other = row("softmax+", 90, 0.1), row("cast+", 60, 0.1), row("gelu+", 30, 0.1)
    softmax = dataclasses.replace(softmax, excludes=("cast+",))
    cast = dataclasses.replace(cast, excludes=("softmax+",))
    assert clusters_of(cast, softmax, other).keys() == {"softmax+", "gelu+"}


def test_choices_that_are_allowed_are_made_both_ways():
    assert len(set(CHOOSING.configurations())) == CHOOSING.num_configurations == 2 * PLAIN_ORT.num_configurations
    otherwise = CHOOSING.point(CHOOSING.plain(16)) | {"compute-optimizer": 0}
    assert CHOOSING.configuration(otherwise).choices == ("compute-optimizer=0",)
    assert PLAIN_ORT.point(CHOOSING.configuration(otherwise)) is None
    assert CHOOSING.plain(16) == PLAIN_ORT.plain(16), "what the engine does by itself is not spelt out"


def test_a_level_of_onnx_runtime_goes_without_plans():
    assert PLAIN_ORT.levels == (0, 1, 2)
    configurations = set(PLAIN_ORT.configurations())
    assert len(configurations) == PLAIN_ORT.num_configurations
    alone = Configuration("ortmodule", (), 2, 16)
    assert alone in configurations
    assert not any(one.plans and one.level for one in configurations)
    at_level_0 = PLAIN_ORT.num_configurations - 2 * len(PLAIN_ORT.batch_sizes)
    assert at_level_0 == INDUCTOR.num_configurations


def test_without_a_cluster_there_is_no_level_either():
    bare = build_space(dataclasses.replace(FACTS, clusters=()), dataclasses.replace(SPEC, engine="ortmodule"))
    assert bare.levels == (0,)


def test_under_inductor_the_script_is_compiled_without_plans_too():
    assert INDUCTOR.plain(16) == Configuration("inductor", (), 0, 16)
    keys = {configuration.key for configuration in INDUCTOR.configurations()}
    assert FACTS.baseline.key not in keys
    assert len(keys) == INDUCTOR.num_configurations == SPACE.num_configurations


def test_under_inductor_the_baseline_shares_a_point_with_the_script_compiled():
    assert INDUCTOR.point(FACTS.baseline) == INDUCTOR.point(INDUCTOR.plain(16))
    assert INDUCTOR.plain(16) != FACTS.baseline
    assert INDUCTOR.point(Configuration("eager", (), 0, 32)) is None


def test_without_plans_the_script_is_untouched_and_with_plans_the_engine_runs_it():
    assert SPACE.plain(32) == Configuration("eager", (), 0, 32)
    point = dict.fromkeys(SPACE.counts, 0) | {"batch_size": 32, "gelu+": 12, "Block+": 3}
    assert SPACE.configuration(point) == Configuration("aot", (Plan("Block+", 1, 3), Plan("gelu+", 1, -1)), 0, 32)


def test_the_point_without_plans_at_the_scripts_own_batch_size_is_the_baseline():
    assert SPACE.plain(16) is FACTS.baseline
    assert SPACE.point(FACTS.baseline) == SPACE.point(Configuration("eager", (), 0, 16))


COMPILING = build_space(FACTS, dataclasses.replace(SPEC, choices=("compile", "bf16")))


def test_a_choice_of_another_engine_gives_configurations_of_that_engine_and_no_choice_in_them():
    point = COMPILING.plain_point | {"batch_size": 32, "compile": 1}
    assert COMPILING.configuration(point) == Configuration("inductor", (), 0, 32)
    planned = COMPILING.configuration(point | {"Block+": 6, "bf16": 1})
    assert planned == Configuration("inductor", (Plan("Block+", 1, 6),), 0, 32, ("bf16=1",))
    own_size = COMPILING.configuration(point | {"batch_size": 16})
    assert own_size == Configuration("inductor", (), 0, 16)
    assert own_size.key != COMPILING.baseline.key


def test_configurations_of_both_engines_have_points_of_their_own():
    points = [COMPILING.point(configuration) for configuration in COMPILING.configurations()]
    assert None not in points
    assert len({tuple(point.items()) for point in points}) == COMPILING.num_configurations
    compiled = [one for one in COMPILING.configurations() if one.engine == "inductor"]
    assert len(compiled) > 50
    assert {COMPILING.point(one)["compile"] for one in compiled} == {1}
    assert COMPILING.point(COMPILING.baseline)["compile"] == 0


def test_without_leave_what_is_compiled_has_no_point():
    assert SPACE.point(Configuration("inductor", (), 0, 32)) is None
    assert "compile" not in SPACE.parameters


def test_of_what_is_compiled_only_blocks_are_recomputed_as_operators_have_other_names_there():
    found = {plan.cluster_id for one in COMPILING.configurations() if one.engine == "inductor" for plan in one.plans}
    assert found == {"Block+"}


def test_one_run_switches_plans_but_not_of_what_is_compiled():
    assert COMPILING.shares_runs("aot")
    assert not COMPILING.shares_runs("inductor")
    candidates = Candidates(COMPILING)
    engines = [candidates.configuration(index).engine for index in range(len(candidates))]
    assert candidates.compiled.tolist() == [engine == "inductor" for engine in engines]


def test_the_eager_engine_can_be_compiled_without_plans():
    space = build_space(FACTS, dataclasses.replace(SPEC, engine="eager", choices=("compile",)))
    point = space.plain_point | {"batch_size": 16, "compile": 1}
    assert space.configuration(point) == Configuration("inductor", (), 0, 16)
    assert {one.engine for one in space.configurations()} == {"eager", "inductor"}


def test_every_configuration_of_the_space_is_there_once():
    space = build_space(Landscape(CLUSTERS[:3]).facts, SPEC)
    configurations = list(space.configurations())
    assert len({one.key for one in configurations}) == len(configurations) == space.num_configurations == 19 * 5 * 3 * 3


TORCHS = build_space(
    FACTS, dataclasses.replace(SPEC, choices=("fused-optimizer", "foreach-optimizer", "bf16", "expandable-segments"))
)


def test_the_script_with_a_choice_made_is_no_baseline_and_has_a_point_of_its_own():
    plain = TORCHS.point(TORCHS.baseline)
    assert plain == TORCHS.plain_point | {"batch_size": 16}
    fused = TORCHS.configuration(plain | {"fused-optimizer": 1})
    assert fused == Configuration("eager", (), 0, 16, ("fused-optimizer=1",))
    assert TORCHS.point(fused) == plain | {"fused-optimizer": 1}
    assert SPACE.point(fused) is None


def test_every_configuration_with_choices_has_a_point_and_no_two_the_same():
    made = list(TORCHS.configurations())
    assert len({one.key for one in made}) == len(made) == TORCHS.num_configurations
    assert all(TORCHS.configuration(TORCHS.point(one)).key == one.key for one in made[::7])


def test_choices_that_exclude_each_other_are_not_made_together():
    sets = {one.choices for one in TORCHS.configurations()}
    assert ("bf16=1", "expandable-segments=1", "fused-optimizer=1") in sets
    assert not any({"fused-optimizer=1", "foreach-optimizer=1"} <= set(choices) for choices in sets)


def test_a_choice_that_is_tried_unasked_is_made_beside_as_many_others_as_may_be_made_at_once():
    spec = dataclasses.replace(SPEC, choices=("fused-optimizer", "bf16", "compile"))
    space = build_space(FACTS, spec, unasked=("expandable-segments",))
    made = space.plain_point | {"batch_size": 16, "fused-optimizer": 1, "bf16": 1, "compile": 1}
    members = {one.key for one in space.configurations()}
    assert space.configuration(made).key in members
    assert space.configuration(made | {"expandable-segments": 1}).key in members


def test_another_heap_is_made_by_all_settings_but_the_scripts_own():
    space = build_space(FACTS, SPEC, unasked=("tcmalloc",))
    without = [one for one in space.configurations() if not one.makes("tcmalloc")]
    assert without == [space.baseline]
    assert space.num_configurations == len(list(SPACE.configurations())) + 1
    same = Configuration("eager", (), 0, 16, ("tcmalloc=1",))
    assert same.key in {one.key for one in space.configurations()}
    assert space.tells_memory(same)
    assert space.tells_memory(space.baseline)
    assert not space.tells_memory(Configuration("eager", (), 0, 32))


def test_another_heap_that_is_allowed_is_tried_both_ways():
    space = build_space(FACTS, dataclasses.replace(SPEC, choices=("tcmalloc",)))
    assert space.num_configurations == 2 * SPACE.num_configurations
    assert space.tells_memory(Configuration("eager", (), 0, 32))


def test_under_autocast_only_layers_are_recomputed():
    cast = [one for one in TORCHS.configurations() if "bf16=1" in one.choices]
    assert {plan.cluster_id for one in cast for plan in one.plans} == {
        row.cluster_id for row in TORCHS.clusters if row.is_layer
    }
    assert len({plan.cluster_id for one in TORCHS.configurations() for plan in one.plans}) > 1


points = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in SPACE.parameters.items()})
CANDIDATES = Candidates(SPACE)
EVERYWHERE = np.ones(len(CANDIDATES), dtype=bool)
anywhere = st.fixed_dictionaries(
    {name: st.integers(values[0], values[-1]) for name, values in SPACE.parameters.items()}
)


@given(points)
def test_points_and_configurations_correspond(point):
    assert SPACE.point(SPACE.configuration(point)) == point
    assert INDUCTOR.point(INDUCTOR.configuration(point)) == point
    for value in (0, 1):
        chosen = point | {"compute-optimizer": value, "level": 0}
        assert CHOOSING.point(CHOOSING.configuration(chosen)) == chosen


@given(anywhere)
def test_any_proposal_is_moved_into_the_space(point):
    place = CANDIDATES.nearest(point, EVERYWHERE)
    for name, value in CANDIDATES.point(place).items():
        values = SPACE.parameters[name]
        assert not any(value < other <= point[name] or point[name] <= other < value for other in values)
    assert CANDIDATES.nearest(CANDIDATES.point(place), EVERYWHERE) == place


@given(points, st.sets(st.sampled_from(SPACE.batch_sizes), min_size=1))
def test_the_nearest_allowed_point_differs_only_where_it_must(point, sizes):
    nearest = CANDIDATES.point(CANDIDATES.nearest(point, np.isin(CANDIDATES.batch_sizes, list(sizes))))
    assert nearest["batch_size"] in sizes
    assert nearest == point | {"batch_size": nearest["batch_size"]}


def test_what_is_tried_in_one_way_only_need_not_be_drawn():
    fixed = Candidates(build_space(Landscape(how="none").facts, SPEC))
    one_size = Candidates(build_space(Landscape().facts, dataclasses.replace(SPEC, batch_sizes=(16, 16))))
    assert fixed.point(fixed.nearest({"gelu+": 12}, np.ones(len(fixed), dtype=bool)))["gelu+"] == 12
    assert one_size.point(one_size.nearest({"gelu+": 12}, np.ones(len(one_size), dtype=bool)))["batch_size"] == 16


@pytest.mark.parametrize(
    "configuration",
    [
        Configuration("aot", (Plan("unknown+", 1, -1),), 0, 16),
        Configuration("aot", (Plan("gelu+", 2, -1),), 0, 16),
        Configuration("aot", (Plan("gelu+", 1, -1),), 1, 16),
        Configuration("aot", (), 0, 16),
    ],
)
def test_what_the_space_does_not_vary_has_no_point(configuration):
    assert SPACE.point(configuration) is None


def test_where_the_batch_size_stays_another_one_has_no_point():
    fixed = build_space(Landscape(how="none").facts, SPEC)
    own = fixed.baseline.batch_size
    planned = Configuration("aot", (Plan("gelu+", 1, -1),), 0, own)
    assert fixed.point(planned) is not None
    assert fixed.point(dataclasses.replace(planned, batch_size=own + 1)) is None


def sizes_with(steps, *, limits=None):
    facts = dataclasses.replace(FACTS, steps=steps)
    return build_space(facts, dataclasses.replace(SPEC, batch_sizes=limits)).batch_sizes


def test_sizes_that_the_data_has_too_few_steps_for_are_left_out():
    least = SPEC.measuring.least_steps
    one_pass = StepsFacts(in_pass=36.0)
    assert sizes_with(one_pass) == SPACE.batch_sizes, "it may go on for ever"
    largest = max(sizes_with(dataclasses.replace(one_pass, in_all=36)))
    assert largest * least <= 16 * 36 < 2 * largest * least


def test_trials_in_cycles_of_batches_take_more_steps():
    facts = dataclasses.replace(FACTS, steps=StepsFacts(in_pass=36.0, in_all=36))
    ahead = dataclasses.replace(SPEC, look_ahead=1000)
    largest = max(build_space(facts, ahead).batch_sizes)
    assert largest * ahead.least_steps <= 16 * 36 < 2 * largest * ahead.least_steps
    assert ahead.least_steps == 32 > SPEC.least_steps


def test_reading_an_epoch_comes_on_top_of_a_trial_s_time():
    assert dataclasses.replace(SPEC, look_ahead=1000).trial_deadline_s == SPEC.trial_timeout_s + 60.0
    assert SPEC.trial_deadline_s == SPEC.trial_timeout_s


def test_sizes_that_were_asked_for_are_tried_as_far_as_the_data_has_one_such_batch():
    assert max(sizes_with(StepsFacts(in_pass=8.0), limits=(8, 512))) == 128


def test_the_scripts_own_size_is_always_there():
    assert 16 in sizes_with(StepsFacts(in_pass=2.0, in_all=6))


def test_where_the_script_does_not_fit_sizes_go_down_to_1():
    assert min(build_space(FACTS, SPEC, baseline_fits=False).batch_sizes) == 1
    assert max(build_space(FACTS, SPEC, baseline_fits=False).batch_sizes) == max(SPACE.batch_sizes)
    assert min(build_space(FACTS, dataclasses.replace(SPEC, batch_sizes=(4, 64)), baseline_fits=False).batch_sizes) == 4


def model_space(*idle, allowed=(), conversions=(), threads=4):
    baseline = dataclasses.replace(FACTS.baseline, engine="onnxruntime")
    environment = dataclasses.replace(FACTS.environment, device_kind="cpu", num_threads=threads)
    inference = InferenceFacts(0, (), conversions=conversions, idle=idle)
    model = dataclasses.replace(
        FACTS, clusters=(), baseline=baseline, environment=environment, inference=inference, batch_control=FIXED
    )
    return build_space(model, dataclasses.replace(SPEC, engine="onnxruntime", choices=allowed))


FIXED = BatchControl("none", reason="the model has a fixed one")


def test_a_choice_is_made_with_what_it_needs_only():
    sets = {one.choices for one in model_space().configurations()}
    assert {("shrink-arena=1",), ("cpu-arena=0",), ("cpu-arena=0", "mem-pattern=0")} <= sets
    for needing in ("shrink-arena=1", "arena-as-requested=1", "weights-outside-arena=1"):
        assert not any({"cpu-arena=0", needing} <= set(choices) for choices in sets)
    assert max(map(len, sets)) == 3


def test_what_changes_nothing_in_a_model_is_not_searched_nor_what_needs_it():
    space = model_space(Idle("parallel", (1,), "a chain"), Idle("optimization", (1, 2), "as with 3"))
    assert not {"parallel", "inter-op-threads"} & set(space.choices)
    assert space.choices["optimization"] == (0, 3)
    assert {"parallel", "inter-op-threads"} <= set(model_space().choices)


def test_a_conversion_is_tried_where_it_was_allowed_and_is_near_enough():
    assert not {"int8", "fp16", "int8-static"} & set(model_space().choices)
    found = (Converted("fp16", 10, 0.001), Converted("int8", 5, 0.2, "its outputs are up to 20 % off"))
    space = model_space(allowed=("int8", "fp16"), conversions=found)
    assert ("fp16" in space.choices, "int8" in space.choices) == (True, False)
    both = model_space(allowed=("int8", "fp16"), conversions=found[:1])
    assert not any({"int8=1", "fp16=1"} <= set(one.choices) for one in both.configurations())
