"""The cost model: what it expects of untried configurations, and what it learns from every trial."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from autotune.predict.prediction import Predictor
from autotune.records.configuration import Configuration
from autotune.records.facts import ClusterFacts
from autotune.records.graph import Calibration, SharedStorage, StepTrace, Stretch
from autotune.records.matrix import PhaseMemory
from autotune.records.study import Objective, StudySpec
from autotune.records.units import format_bytes, format_rate
from autotune.search.acquisition import Acquisition
from autotune.search.candidates import Candidates, Observation
from autotune.search.cost.context import SearchContext
from autotune.search.cost.features import Featuring
from autotune.search.cost.priors import PeakPrior, Resident
from autotune.search.knowledge import Knowledge
from autotune.search.proposal import propose
from autotune.search.space import build_space
from autotune.verdict.aim import Aim
from autotune.verdict.search_end import EVEN_CHANCE
from tests.fakes.expected import expect
from tests.fakes.landscape import MIB, Cluster, Landscape
from tests.fakes.predictable import BLOCK, DROPOUT, GRAPH, LOSS, PREDICTABLE

LANDSCAPE = Landscape(ceiling_bytes=2400 * MIB, noise_cv=0.0)
SPACE = build_space(LANDSCAPE.facts, StudySpec(script="train.py"))


def at(batch_size, **counts):
    point = dict.fromkeys(SPACE.counts, 0) | {f"{name}+": count for name, count in counts.items()}
    return SPACE.configuration(point | {"batch_size": batch_size})


def seen(number, configuration, landscape=LANDSCAPE, *, speed=1.0):
    limit = landscape.limit_bytes
    if not landscape.fits(configuration):
        return Observation(number, configuration, "sampler", "scored", 0.0, 1.1 * limit, out_of_memory=True)
    rate, peak = landscape.samples_per_s(configuration) * speed, landscape.peak_bytes(configuration)
    return Observation(number, configuration, "sampler", "scored", rate, peak, feasible=True)


def knowing(*configurations, landscape=LANDSCAPE, tried=()):
    context = SearchContext(SPACE, landscape.facts, Aim(Objective(), landscape.limit_bytes))
    observed = [seen(i, one, landscape) for i, one in enumerate((SPACE.baseline, *configurations))]
    return Knowledge(context, observed, tried)


def fits(knowledge, configuration):
    return knowledge.model.fits()[knowledge.context.candidates.index(configuration)]


def test_the_baseline_and_the_plan_table_are_enough_to_expect_other_peaks():
    configurations = [at(32), at(64), at(32, gelu=12), at(64, Block=6, gelu=12), at(32, Block=12)]
    expected = expect(knowing().model, configurations)
    for one, configuration in zip(expected, configurations, strict=True):
        assert one.peak_bytes == pytest.approx(LANDSCAPE.peak_bytes(configuration), rel=0.1)


def test_three_trials_are_enough_for_peaks_and_speeds_within_six_percent():
    model = knowing(at(32), at(48, Block=12), at(32, gelu=12, _softmax=12)).model
    fitting = [one for one in SPACE.configurations() if LANDSCAPE.fits(one)]
    expected = expect(model, fitting)
    peaks = [one.peak_bytes / LANDSCAPE.peak_bytes(c) - 1 for one, c in zip(expected, fitting, strict=True)]
    speeds = [one.samples_per_s / LANDSCAPE.samples_per_s(c) - 1 for one, c in zip(expected, fitting, strict=True)]
    assert statistics.median(map(abs, peaks)) < 0.06
    assert statistics.median(map(abs, speeds)) < 0.06


def test_what_an_engine_fuses_should_cost_less_than_its_operators_and_one_trial_tells_how_much():
    def slowdown(engine, *speeds):
        space = build_space(landscape.facts, StudySpec(script="train.py", engine=engine))
        point = dict.fromkeys(space.counts, 0)
        plain, planned, other = (
            space.configuration(point | {"batch_size": 16, "Block+": count}) for count in (0, 12, 6)
        )
        trials = [Observation(0, plain, "sampler", "scored", rate, 1000 * MIB, feasible=True)]
        trials += [Observation(1, other, "sampler", "scored", one * rate, 900 * MIB, feasible=True) for one in speeds]
        knowledge = Knowledge(SearchContext(space, landscape.facts, Aim(Objective(), landscape.limit_bytes)), trials)
        one, with_plans = expect(knowledge.model, [plain, planned])
        return one.samples_per_s / with_plans.samples_per_s - 1

    landscape = Landscape((Cluster("Block+", 12, 0.8, 0.3, is_layer=True),))
    rate = landscape.samples_per_s(landscape.baseline)
    assert 0 < slowdown("inductor") < 0.6 * slowdown("aot")
    assert slowdown("inductor", 0.99) < 0.5 * slowdown("inductor")
    assert slowdown("inductor", 0.85) > 1.5 * slowdown("inductor")


def test_peaks_of_the_usual_heap_do_not_tell_what_plans_free_in_another():
    landscape = replace(LANDSCAPE, device_kind="cpu", idle_share=0.3, ceiling_bytes=None)
    space = build_space(landscape.facts, StudySpec(script="train.py"), unasked=("tcmalloc",))
    context = SearchContext(space, landscape.facts, Aim(Objective("memory"), 8000 * MIB))
    usual = [Configuration("aot", at(16, **plans).plans, 0, 16) for plans in ({"Block": 12}, {"gelu": 12, "Block": 6})]
    assert {landscape.peak_bytes(one) for one in usual} != {landscape.peak_bytes(space.baseline)}
    other = [replace(one, choices=("tcmalloc=1",)) for one in usual]

    def expected(*tried):
        observed = [seen(number, one, landscape) for number, one in enumerate((space.baseline, *tried))]
        return [one.peak_bytes for one in expect(Knowledge(context, observed).model, other)]

    assert expected(*usual) == expected()
    trials = [seen(number, one, landscape) for number, one in enumerate((space.baseline, *usual))]
    _, peaks = Knowledge(context, trials).model.figures_of(trials[1:])
    assert peaks.tolist() == [one.peak_bytes for one in trials[1:]], "they are as they were measured"


def test_what_is_simulated_to_see_whether_that_works_has_the_heap_of_the_trials():
    with_heap = build_space(LANDSCAPE.facts, StudySpec(script="train.py"), unasked=("tcmalloc",))
    assert len(Candidates(with_heap).spread) == len(Candidates(SPACE).spread)


def test_nothing_is_expected_before_anything_was_measured():
    context = SearchContext(SPACE, LANDSCAPE.facts, Aim(Objective(), LANDSCAPE.limit_bytes))
    assert Knowledge(context, []).model.expected_bytes(at(32)) is None


def test_a_run_goes_from_least_to_most_memory():
    run = [at(32, gelu=12), at(32, Block=12, gelu=12), at(32, Block=3), at(32, Block=12)]
    peaks = [LANDSCAPE.peak_bytes(configuration) for configuration in knowing().model.in_order(run)]
    assert peaks == sorted(peaks)


def test_out_of_memory_is_a_bound_below_which_no_peak_is_expected():
    before, after = knowing(), knowing(at(64, _softmax=12))
    assert not LANDSCAPE.fits(at(64, _softmax=12))
    for configuration in (at(48, _softmax=12), at(64, _softmax=12, gelu=12), at(96, Block=9)):
        assert fits(after, configuration) <= fits(before, configuration)
    (expected,) = expect(after.model, [at(64, _softmax=12)])
    assert expected.peak_bytes >= 0.99 * LANDSCAPE.limit_bytes


def test_noise_of_one_trial_does_not_make_it_the_best():
    """All plans are worth nothing here: the fastest by chance is taken for as fast as the others are."""
    flat = replace(LANDSCAPE, clusters=(Cluster("gelu+", 12, 0.16, 0.0), Cluster("mul+add+", 24, 0.08, 0.0)))
    space = build_space(flat.facts, StudySpec(script="train.py"))
    points = [{"gelu+": gelu, "mul+add+": add} for gelu in (0, 6, 12) for add in (0, 12, 24)]
    tried = [space.configuration(point | {"batch_size": 16}) for point in points]
    chance = random.Random(3)
    observed = [seen(i, one, flat, speed=math.exp(chance.gauss(0.0, 0.03))) for i, one in enumerate(tried)]
    (acquisition,) = Knowledge(
        SearchContext(space, flat.facts, Aim(Objective(), flat.limit_bytes)), observed
    ).acquisitions
    fastest = max(one.samples_per_s for one in observed)
    true = flat.samples_per_s(tried[0])
    assert abs(math.exp(acquisition.best_merit) / true - 1) < 0.6 * (fastest / true - 1)


def test_in_the_end_a_trial_that_was_faster_than_it_fits_in_with_is_believed_less():
    lucky = at(32, gelu=12)
    trials = [seen(number, one) for number, one in enumerate((SPACE.baseline, at(24), at(32), at(48, Block=12)))]
    trials.append(seen(len(trials), lucky, speed=1.05))
    model = Knowledge(SearchContext(SPACE, LANDSCAPE.facts, Aim(Objective(), LANDSCAPE.limit_bytes)), trials).model
    truth, during = LANDSCAPE.samples_per_s(lucky), math.exp(model.figures_of(trials)[0][-1])
    believed = math.exp(model.figures_of(trials, of_any_process=True)[0][-1])
    assert truth * 0.98 < believed < during < trials[-1].samples_per_s
    assert believed / truth - 1 < 0.8 * (during / truth - 1)


def test_where_an_allocator_counts_segments_leave_some_mib_unknown_however_small_a_peak_is():
    features = Featuring(SPACE, LANDSCAPE.facts, 1.0).of([SPACE.baseline])
    of_allocator = PeakPrior(20 * MIB, 10 * MIB)
    of_process = replace(of_allocator, resident=Resident())
    assert max(part.sd[0] for part in of_allocator.parts(features)) > 5 * MIB
    assert max(part.sd[0] for part in of_process.parts(features)) < MIB


def test_a_trial_under_way_is_not_repeated_and_what_is_like_it_is_worth_less():
    alone = knowing()
    first = propose(alone, most=1, start=4.0, seed=0).configurations[0]
    running = Observation(1, first, "sampler", "running")
    both = Knowledge(alone.context, [seen(0, SPACE.baseline), running])
    second = propose(both, most=1, start=4.0, seed=0).configurations[0]
    assert second != first
    index = alone.context.candidates.index(first)
    assert both.acquisitions[0].gains()[1][index] < alone.acquisitions[0].gains()[1][index]


def test_what_cannot_be_faster_by_more_than_noise_ends_the_search_with_the_figures():
    tried = [one for one in SPACE.configurations() if len(one.plans) <= 1 and one != SPACE.baseline]
    compute_bound = replace(LANDSCAPE, overhead_s=0.0, ceiling_bytes=None)
    proposal = propose(knowing(*tried, landscape=compute_bound), most=6, start=4.0, seed=0)
    assert proposal.configurations == ()
    assert "expects no more than" in proposal.reason


def test_where_memory_is_sought_the_search_ends_with_the_least_that_it_expects():
    context = SearchContext(SPACE, LANDSCAPE.facts, Aim(Objective("memory"), LANDSCAPE.limit_bytes))
    knowledge = Knowledge(context, [seen(0, SPACE.baseline)])
    best = knowledge.observations[0]
    acquisition = Acquisition(context.aim, knowledge.model, [best], best)
    peak, rate = format_bytes(best.peak_bytes), format_rate(0.97 * best.samples_per_s)
    less = format_bytes(best.peak_bytes / 2)
    reason = acquisition.stop_reason(math.log(2))
    assert reason.startswith(f"The model of this search expects no less than {less} of anything untried at ")
    assert reason.endswith(f" samples/s or more; the best was measured at {peak}.")
    assert f"no less than {peak} of" in acquisition.stop_reason(-1.0), "what is untried is no better than the best"
    assert rate[:2] in acquisition.exhausted_reason()


def test_before_anything_fits_the_reasons_name_no_best():
    knowledge = knowing()
    acquisition = Acquisition(Aim(Objective(), LANDSCAPE.limit_bytes), knowledge.model, [], None)
    assert acquisition.stop_reason(0.1).endswith(" samples/s of anything untried that fits.")
    assert acquisition.exhausted_reason().startswith("Nothing tried fits 2.34 GiB, and nothing else is likely to")


def test_expected_gains_are_those_of_draws_times_the_chance_to_be_allowed():
    knowledge = knowing(at(32))
    (acquisition,) = knowledge.acquisitions
    expected, (gain, sd) = acquisition.expected_gains(), acquisition.gains()
    drawn = np.random.default_rng(0).standard_normal(200_000)
    for index in np.argsort(-expected)[:5]:
        costs = math.exp(-gain[index]) * np.maximum(1 + sd[index] * drawn, 0.25)
        mean = float(np.maximum(1 / costs - 1, 0.0).mean())
        assert expected[index] == pytest.approx(mean * acquisition.allowed()[index], rel=0.03)
    best = knowledge.model.place_of(acquisition.best)
    assert expected[best] < 0.1 * expected.max()
    assert (expected >= 0).all()


def test_whether_a_search_ends_hangs_on_no_seed():
    for knowledge in (knowing(), knowing(at(32)), knowing(at(32), at(48), at(64))):
        ends = {bool(propose(knowledge, most=6, start=4.0, seed=seed).configurations) for seed in range(10)}
        assert len(ends) == 1


def test_the_longer_a_start_takes_the_more_trials_share_it():
    knowledge = knowing(at(32))
    quick, slow = (propose(knowledge, most=6, start=start, seed=0).configurations for start in (0.1, 40.0))
    assert len(quick) < len(slow)


def test_sizes_between_the_usual_ones_come_once_the_others_tell_nothing_more():
    knowledge = knowing(at(32))
    assert propose(knowledge, most=1, start=4.0, seed=0).configurations[0].batch_size not in SPACE.between
    usual = ~knowledge.context.candidates.between
    tried = [one for one in SPACE.configurations() if one.batch_size not in SPACE.between]
    # Memory ends between two of the usual sizes, and a step takes hardly longer with more.
    waves = replace(LANDSCAPE, overhead_s=0.5)
    plain = [at(size) for size in SPACE.batch_sizes if size not in SPACE.between]
    everything = knowing(*plain, landscape=waves, tried=tried)
    assert not (everything.open & usual).any()
    proposal = propose(everything, most=1, start=4.0, seed=0)
    assert proposal.configurations
    assert all(one.batch_size in SPACE.between for one in proposal.configurations)


def test_what_was_asked_for_where_memory_ended_raises_what_is_expected_of_others():
    limit = LANDSCAPE.limit_bytes
    context = SearchContext(SPACE, LANDSCAPE.facts, Aim(Objective(), limit))
    failed = Observation(1, at(64), "sampler", "scored", 0.0, 1.1 * limit, out_of_memory=True)
    observed = [[seen(0, SPACE.baseline), replace(failed, needed_bytes=needed)] for needed in (None, 2.0 * limit)]
    unknown, known = (Knowledge(context, one).model.peaks.of([at(96)])[0].item() for one in observed)
    assert known > unknown


def test_the_same_knowledge_makes_the_same_proposal():
    one, other = (propose(knowing(at(32)), most=6, start=4.0, seed=7) for _ in range(2))
    assert one == other


# -- with simulation

KIB = 1024
# A thousand times the graph that is counted by hand, twice: the second runs on top of what the first has saved.
LARGE = replace(GRAPH, formulas=("10", "100000*batch", "10000*batch", "4"), workspace=())
FACTS = replace(
    PREDICTABLE,
    baseline=Configuration(batch_size=PREDICTABLE.batch_size),
    graphs=(LARGE, LARGE),
    traces=(
        StepTrace(
            calls=(0, 1),
            events=(0, 1, -2, -1),
            stretches=(Stretch(0, 0, 0),) * 4,
            shared=tuple(SharedStorage(((call, LARGE.storages[LOSS][0]),), call, 3) for call in (0, 1)),
        ),
    ),
    clusters=(
        ClusterFacts("Block+", 1, 2, 1_600_000, "200000*batch", 2e-5, is_layer=True),
        ClusterFacts("dropout+[mask]", 1, 2, 160_000, "20000*batch", 6e-6),
    ),
)
ON_CPU, ON_GPU = (replace(FACTS, environment=replace(FACTS.environment, device_kind=kind)) for kind in ("cpu", "cuda"))
SIMULATED = build_space(FACTS, StudySpec(script="train.py"))
PREDICTOR = Predictor(FACTS)
# What a process holds besides.
OFFSET = 5_000_000


def simulated(*plans, batch=8):
    return PREDICTOR.predict(Configuration("aot", plans, batch_size=batch)).peak_bytes


def measured(*observed, facts=FACTS, limit=1 << 40, offset=OFFSET):
    peaks = [(SIMULATED.baseline, simulated() + offset), *observed]
    context = SearchContext(SIMULATED, facts, Aim(Objective(), limit))
    return Knowledge(
        context,
        [Observation(n, one, "sampler", "scored", 10.0, peak, peak <= limit) for n, (one, peak) in enumerate(peaks)],
    )


def test_one_measured_peak_tells_what_a_process_holds_besides():
    model = measured(facts=ON_GPU).model
    for batch in (4, 8, 64):
        for plans in ((), (DROPOUT,), (BLOCK,)):
            planned = Configuration("aot", plans, batch_size=batch)
            (expected,) = expect(model, [planned if plans else SIMULATED.plain(batch)])
            assert expected.peak_bytes == pytest.approx(simulated(*plans, batch=batch) + OFFSET, rel=0.01)


def test_measured_peaks_far_apart_tell_how_they_grow():
    scaled = [(SIMULATED.plain(batch), OFFSET + 1.2 * simulated(batch=batch)) for batch in (16, 32)]
    (expected,) = expect(measured(*scaled, facts=ON_GPU).model, [Configuration("aot", (DROPOUT,), batch_size=64)])
    assert expected.peak_bytes == pytest.approx(OFFSET + 1.2 * simulated(DROPOUT, batch=64), rel=0.04)


PLANNED = Configuration("aot", (DROPOUT,), batch_size=32)


def test_what_the_resident_set_has_in_a_step_beyond_simulation_grows_with_the_batch():
    still, beyond = 2_000_000, OFFSET - 2_000_000
    matrix = tuple(PhaseMemory("pre_forward", step, still + step, OFFSET, None, 0, 0, 0) for step in (0, 1))
    on_cpu, on_gpu = (replace(facts, memory_matrix=matrix) for facts in (ON_CPU, ON_GPU))
    for batch in (4, 16):
        for facts, besides in ((on_cpu, still + beyond * batch / 8), (on_gpu, OFFSET), (ON_CPU, OFFSET)):
            (expected,) = expect(measured(facts=facts).model, [SIMULATED.plain(batch)])
            assert expected.peak_bytes == pytest.approx(besides + simulated(batch=batch), rel=0.01)


def test_what_the_script_itself_holds_in_a_step_says_nothing_of_it_compiled():
    still, calibration = 2_000_000, replace(FACTS.calibration, engine="inductor", generated_share=1.0)
    matrix = (PhaseMemory("pre_forward", 0, still, OFFSET, None, 0, 0, 0),)
    facts = replace(ON_CPU, calibration=calibration, memory_matrix=matrix)
    space = build_space(facts, StudySpec(script="train.py", engine="inductor"))
    context = SearchContext(space, facts, Aim(Objective(), 1 << 40))
    by_compiled, grown = [], []
    for peak in (OFFSET, 100 * OFFSET):
        model = Knowledge(context, [Observation(0, space.baseline, "sampler", "scored", 10.0, peak, True)]).model
        one, larger = expect(model, [space.plain(8), space.plain(16)])
        by_compiled.append(one.peak_bytes)
        grown.append(larger.peak_bytes - one.peak_bytes)
    assert by_compiled[0] == by_compiled[1] > still
    assert grown[0] == grown[1] == pytest.approx(simulated(batch=16) - simulated(batch=8))


def test_what_scatters_is_less_likely_to_fit_than_what_is_expected_of_it():
    offset = 500 * MIB
    knowledge = measured(facts=ON_CPU, limit=int(1.15 * (offset + simulated(DROPOUT, batch=32))), offset=offset)
    index = knowledge.context.candidates.index(PLANNED)
    mean, sd = (each[index] for each in knowledge.model.peaks.of_all())
    certainty = NormalDist(mean, sd).cdf(knowledge.context.aim.limit_bytes)
    assert 0.5 < knowledge.model.fits()[index] < certainty - 0.005


def just_fitting(facts):
    """Two trials: one a hundredth below the limit, and a slower one far below it."""
    seen = [(SIMULATED.baseline, 10.0), (PLANNED, 30.0), (SIMULATED.plain(4), 20.0)]
    peaks = [OFFSET + simulated(*one.plans, batch=one.batch_size) for one, _ in seen]
    context = SearchContext(SIMULATED, facts, Aim(Objective(), int(1.01 * peaks[1])))
    observed = zip(seen, peaks, strict=True)
    return Knowledge(
        context,
        [
            Observation(number, one, "sampler", "scored", rate, peak, feasible=True)
            for number, ((one, rate), peak) in enumerate(observed)
        ],
    )


def test_what_only_just_fitted_is_no_best_where_each_process_has_another_peak():
    on_gpu, on_cpu = just_fitting(ON_GPU), just_fitting(ON_CPU)
    assert on_gpu.acquisitions[0].best.configuration == PLANNED
    assert on_cpu.acquisitions[0].best.configuration == SIMULATED.plain(4)
    assert (on_gpu.model.fits_again(on_gpu.feasible) >= EVEN_CHANCE).tolist() == [True, True, True]
    assert (on_cpu.model.fits_again(on_cpu.feasible) >= EVEN_CHANCE).tolist() == [True, False, True]


def test_the_script_itself_needs_no_leave_to_be_what_others_are_held_against():
    near = [(SIMULATED.baseline, 10.0), (SIMULATED.plain(4), 6.0)]
    peaks = [OFFSET + simulated(batch=one.batch_size) for one, _ in near]
    context = SearchContext(SIMULATED, ON_CPU, Aim(Objective(), int(1.01 * peaks[0])))
    observed = [
        Observation(number, one, "sampler", "scored", rate, peak, feasible=True)
        for number, ((one, rate), peak) in enumerate(zip(near, peaks, strict=True))
    ]
    assert Knowledge(context, observed).acquisitions[0].best.configuration == SIMULATED.baseline


def test_an_answer_has_to_fit_in_each_process_where_those_differ():
    on_gpu, on_cpu = just_fitting(ON_GPU).model, just_fitting(ON_CPU).model
    assert (on_gpu.always_fits() == on_gpu.fits()).all()
    likely = (on_cpu.fits() > 0.01) & (on_cpu.fits() < 0.99)
    assert likely.any()
    assert (on_cpu.always_fits() < on_cpu.fits())[likely].all()


def test_what_was_not_simulated_yet_is_told_from_what_was():
    knowledge = measured()
    candidates, model = knowledge.context.candidates, knowledge.model
    others = [index for index in range(len(candidates)) if index not in knowledge.context.predictions.indices]
    assert others
    mean, _ = model.peaks.of_all()
    expected = expect(model, [candidates.configuration(index) for index in others])
    assert mean[others] == pytest.approx([one.peak_bytes for one in expected], rel=0.25)


def test_where_nothing_can_be_simulated_the_plan_table_tells():
    elsewhere = Calibration("2.13.0", "another CPU", "float32/bfloat16", 2, {"batch": 8}, error=0.01)
    rough = measured(facts=replace(FACTS, calibration=elsewhere))
    assert not rough.context.predictions.works
    assert measured().context.predictions.works
    planned = Configuration("aot", (DROPOUT,), batch_size=16)
    assert expect(rough.model, [planned]) != expect(measured().model, [planned])


def test_what_a_choice_does_to_activations_is_learnt_at_one_batch_size_and_expected_at_others():
    space = build_space(LANDSCAPE.facts, StudySpec(script="train.py", choices=("bf16",)))

    def cast(batch_size, value=1):
        return space.configuration(space.plain_point | {"batch_size": batch_size, "bf16": value})

    def halved(configuration):
        """The landscape, with half of each sample's activations where the choice is made."""
        plain = replace(configuration, choices=())
        peak, fixed = LANDSCAPE.peak_bytes(plain), 2 * LANDSCAPE.peak_bytes(at(16)) - LANDSCAPE.peak_bytes(at(32))
        return fixed + (peak - fixed) / 2 if configuration.choices else peak

    tried = [space.baseline, cast(32, 0), cast(16), cast(32)]
    observations = [
        Observation(number, one, "sampler", "scored", 100.0, halved(one), feasible=True)
        for number, one in enumerate(tried)
    ]
    context = SearchContext(space, LANDSCAPE.facts, Aim(Objective(), LANDSCAPE.limit_bytes))
    (expected,) = expect(Knowledge(context, observations).model, [cast(64)])
    assert expected.peak_bytes == pytest.approx(halved(cast(64)), rel=0.05)
    assert expected.peak_bytes < 0.75 * halved(cast(64, 0))


def test_a_setting_of_the_allocator_may_change_a_quarter_of_what_another_choice_may():
    def doubts(name):
        space = build_space(LANDSCAPE.facts, StudySpec(script="train.py", engine="eager", choices=(name,)))
        context = SearchContext(space, LANDSCAPE.facts, Aim(Objective(), LANDSCAPE.limit_bytes))
        model = Knowledge(
            context, [Observation(0, space.baseline, "baseline", "scored", 100.0, 2e9, feasible=True)]
        ).model
        made = space.configuration(space.plain_point | {"batch_size": 16, name: 1})
        (expected,) = expect(model, [made])
        return expected

    bf16, segments = doubts("bf16"), doubts("expandable-segments")
    assert segments.peak_sd < 0.5 * bf16.peak_sd


def test_a_search_that_expects_nothing_better_does_not_say_that_all_was_tried():
    space = build_space(LANDSCAPE.facts, StudySpec(script="train.py", engine="eager"))
    largest = max(size for size in space.parameters["batch_size"] if LANDSCAPE.fits(Configuration(batch_size=size)))
    observed = [seen(0, space.baseline), seen(1, Configuration(batch_size=largest), speed=1000.0)]
    context = SearchContext(space, LANDSCAPE.facts, Aim(Objective(), LANDSCAPE.limit_bytes))
    proposal = propose(Knowledge(context, observed), most=1, start=4.0, seed=0)
    assert not proposal.configurations
    assert proposal.reason.startswith("The model of this search expects no more than")


def test_a_choice_that_only_ran_out_of_memory_so_far_is_tried_with_less_before_the_search_ends():
    space = build_space(LANDSCAPE.facts, StudySpec(script="train.py", engine="eager", choices=("bf16",)))
    sizes = [size for size in space.parameters["batch_size"] if LANDSCAPE.fits(Configuration(batch_size=size))]

    def of(batch_size, value):
        return space.configuration(space.plain_point | {"batch_size": batch_size, "bf16": value})

    tried = [space.baseline, *(of(size, 0) for size in sizes if size != LANDSCAPE.own_batch_size)]
    observed = [seen(number, one) for number, one in enumerate(tried)]
    for size in reversed(sizes[-3:]):
        limit = LANDSCAPE.limit_bytes
        one = Observation(len(observed), of(size, 1), "sampler", "scored", 0.0, 1.1 * limit, out_of_memory=True)
        observed.append(one)
    context = SearchContext(space, LANDSCAPE.facts, Aim(Objective(), LANDSCAPE.limit_bytes))
    proposal = propose(Knowledge(context, observed), most=1, start=4.0, seed=0)
    assert [one.makes("bf16") for one in proposal.configurations] == [True], proposal.reason
