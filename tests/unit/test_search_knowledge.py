"""What a search concludes from the outcomes so far."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.records.configuration import Configuration
from autotune.records.outcome import Died, HostOutOfMemory, OutOfMemory, ScriptError
from autotune.records.study import Objective, Repeat, StudySpec
from autotune.search.candidates import Observation
from autotune.search.cost.context import SearchContext
from autotune.search.knowledge import Knowledge, with_repetitions
from autotune.search.score import score
from autotune.search.space import build_space
from autotune.verdict.aim import Aim
from autotune.verdict.feasible import is_feasible
from tests.fakes.landscape import MIB, Landscape, measured

LANDSCAPE = Landscape(ceiling_bytes=2400 * MIB, noise_cv=0.0)
FACTS, LIMIT = LANDSCAPE.facts, LANDSCAPE.limit_bytes
SPACE = build_space(FACTS, StudySpec(script="train.py"))
CONTEXT = SearchContext(SPACE, FACTS, Aim(Objective(), LIMIT))


def at(batch_size, **counts):
    point = dict.fromkeys(SPACE.counts, 0) | {f"{name}+": count for name, count in counts.items()}
    return SPACE.configuration(point | {"batch_size": batch_size})


def seen(number, configuration):
    if not LANDSCAPE.fits(configuration):
        return Observation(number, configuration, "sampler", "scored", 0.0, 1.1 * LIMIT, out_of_memory=True)
    rate, peak = LANDSCAPE.samples_per_s(configuration), LANDSCAPE.peak_bytes(configuration)
    return Observation(number, configuration, "sampler", "scored", rate, peak, feasible=True)


def knowing(*configurations, failed=()):
    observations = [seen(i, one) for i, one in enumerate((SPACE.baseline, *configurations))]
    observations += [Observation(100 + i, one, "sampler", "failed") for i, one in enumerate(failed)]
    return Knowledge(CONTEXT, observations)


def is_worthwhile(knowledge, configuration):
    return knowledge.worthwhile[knowledge.context.candidates.index(configuration)]


def test_sizes_between_the_usual_ones_are_looked_at_beside_the_best_only():
    assert SPACE.between == (10, 14, 40, 56, 80, 112, 160, 224)

    def looked_at(knowledge):
        sizes = set(CONTEXT.candidates.batch_sizes[knowledge.open])
        return sorted(sizes & set(SPACE.between))

    assert looked_at(knowing()) == [14]
    assert looked_at(knowing(at(32))) == [40]
    assert looked_at(knowing(at(32), at(40))) == [40], "the best lies between, and its plans may still be better"
    assert looked_at(Knowledge(CONTEXT, [])) == []


def test_a_size_without_effect_closes_sizes_and_not_the_plans_of_the_own_one():
    tried = [at(8, gelu=6), at(64, gelu=6), at(128, gelu=6)]
    observations = [seen(0, SPACE.baseline)]
    observations += [
        Observation(1 + number, one, "sampler", "failed", no_effect=True) for number, one in enumerate(tried)
    ]
    knowledge = Knowledge(CONTEXT, observations)
    assert not knowledge.engine_fails
    assert not knowledge.is_open(at(96))
    assert knowledge.is_open(at(16, gelu=6))


def test_what_repetitions_show_counts_for_the_trial():
    trial = seen(1, at(24))

    def after(*outcomes):
        repeats = [Repeat(at(24), n, outcome, FACTS.environment, "", 1) for n, outcome in enumerate(outcomes)]
        repeats.append(Repeat(at(12), 0, OutOfMemory("another"), FACTS.environment, "", 1))
        return with_repetitions(trial, repeats, aim, baseline_is_finite=True)

    aim = CONTEXT.aim
    peak = trial.peak_bytes
    assert after() == after(measured(300.0, 24, peak - 1)) == trial
    assert after(measured(300.0, 24, peak + 1)) == replace(trial, peak_bytes=peak + 1)
    assert after(measured(300.0, 24, LIMIT + 1)) == replace(trial, peak_bytes=LIMIT + 1, feasible=False)
    out = replace(trial, samples_per_s=0.0, feasible=False, out_of_memory=True)
    assert after(measured(300.0, 24, peak), OutOfMemory("out of memory")) == out
    assert after(HostOutOfMemory("killed")) == out
    assert after(measured(300.0, 24, peak, allocator_retries=1)) == replace(trial, feasible=False)
    fails = replace(trial, feasible=False, fails=True)
    assert after(Died("segmentation fault")) == after(measured(300.0, 24, peak, nonfinite_loss=True)) == fails


def test_a_repetition_that_failed_by_other_than_memory_rules_out_nothing_that_needs_more():
    trial = seen(1, at(12))

    def after(outcome):
        repeats = [Repeat(at(12), 0, outcome, FACTS.environment, "", 1)]
        observed = with_repetitions(trial, repeats, CONTEXT.aim, baseline_is_finite=True)
        return Knowledge(CONTEXT, [seen(0, SPACE.baseline), observed])

    died = after(Died("segmentation fault"))
    thrashed = after(measured(300.0, 12, trial.peak_bytes, allocator_retries=1))
    assert trial.peak_bytes < 0.7 * LIMIT
    assert died.model.run_limit_bytes == thrashed.model.run_limit_bytes == LIMIT
    assert not died.model.ruled_out.any()
    assert thrashed.model.ruled_out.any()
    assert trial.configuration not in [one.configuration for one in died.feasible]
    assert not died.is_open(trial.configuration)


def test_the_baseline_stays_what_others_are_held_against():
    baseline = replace(seen(0, SPACE.baseline), origin="baseline")
    repeats = [Repeat(SPACE.baseline, 0, OutOfMemory("out of memory"), FACTS.environment, "", 1)]
    assert with_repetitions(baseline, repeats, CONTEXT.aim, baseline_is_finite=True) == baseline


def test_what_was_tried_is_not_open():
    knowledge = Knowledge(CONTEXT, [seen(0, SPACE.baseline)], tried=[at(24)])
    assert not knowledge.is_open(SPACE.baseline)
    assert not knowledge.is_open(at(24))
    assert knowledge.is_open(at(32))


def test_what_the_space_does_not_hold_is_not_open():
    assert not knowing().is_open(at(7))


def test_where_something_ran_out_of_memory_no_less_recompute_and_no_larger_batch_is_tried():
    knowledge = knowing(at(64, gelu=12))
    assert not knowledge.is_open(at(64, gelu=6))
    assert not knowledge.is_open(at(96, gelu=12))
    assert knowledge.is_open(at(64, gelu=12, Block=3))
    assert knowledge.is_open(at(48, gelu=12))


def test_what_is_far_over_the_limit_is_not_worth_a_trial_and_what_is_a_little_over_is():
    knowledge = knowing()
    assert LIMIT < LANDSCAPE.peak_bytes(at(48, gelu=12)) < 1.1 * LIMIT
    assert is_worthwhile(knowledge, at(48, gelu=12))
    assert not is_worthwhile(knowledge, at(256))


def test_what_is_slower_than_the_best_by_far_makes_more_recompute_there_not_worth_a_trial():
    knowledge = knowing(at(32), at(16, Block=12))
    assert not is_worthwhile(knowledge, at(16, Block=12, gelu=12))
    assert not is_worthwhile(knowledge, at(8, Block=12))
    assert is_worthwhile(knowledge, at(48, gelu=12, _softmax=12))


def test_a_batch_size_that_fails_closes_those_beyond_it_and_half_of_the_way_back_to_what_works():
    knowledge = knowing(failed=[at(48)])
    assert not knowledge.is_open(at(64))
    assert not knowledge.is_open(at(48, gelu=12))
    assert not knowledge.is_open(at(32))
    assert knowledge.is_open(at(24))
    assert knowing(at(24), failed=[at(48)]).is_open(at(32))


def test_plans_that_fail_at_a_batch_size_close_only_plans_there():
    knowledge = knowing(failed=[at(32, gelu=12)])
    assert not knowledge.is_open(at(48, _softmax=12))
    assert knowledge.is_open(at(48))
    assert knowing(at(32), failed=[at(32, gelu=12)]).is_open(at(48, _softmax=12))


def test_three_failures_and_nothing_else_close_the_engine():
    knowledge = knowing(failed=[at(16, gelu=12), at(16, _softmax=12), at(16, Block=12)])
    assert knowledge.engine_fails
    assert not knowledge.is_open(at(16, Block=3))
    assert knowledge.is_open(at(24))


def test_feasible_is_under_the_limit_without_thrashing_and_with_a_finite_loss():
    def judged(outcome, *, baseline_is_finite=True):
        return is_feasible(outcome.measurement, 100, baseline_is_finite=baseline_is_finite)

    assert judged(measured(10.0, 8, 100))
    assert not judged(measured(10.0, 8, 101))
    assert not judged(measured(10.0, 8, 50, allocator_retries=1))
    assert not judged(measured(10.0, 8, 50, nonfinite_loss=True))
    assert judged(measured(10.0, 8, 50, nonfinite_loss=True), baseline_is_finite=False)


def scored(outcome, expected_bytes=None):
    return score(outcome, Aim(Objective(), 1000), expected_bytes=expected_bytes, baseline_is_finite=True)


def test_a_sampler_is_told_by_how_much_the_limit_is_missed_or_kept():
    assert scored(measured(10.0, 8, 900)).violation == pytest.approx(-0.1)
    assert scored(measured(10.0, 8, 1300)).violation == pytest.approx(0.3)
    assert scored(measured(10.0, 8, 900, allocator_retries=1)).violation > 0


def test_out_of_memory_is_no_samples_and_the_largest_excess_known():
    failure = OutOfMemory("out of memory", needed_bytes=1500)
    assert scored(failure).samples_per_s == 0.0
    assert scored(failure).violation == pytest.approx(0.5)
    assert scored(failure, expected_bytes=2000.0).violation == pytest.approx(1.0)
    assert scored(HostOutOfMemory("killed")).violation == pytest.approx(0.1)


def test_other_failures_teach_a_sampler_nothing():
    assert scored(ScriptError("ValueError")) is None
    assert scored(measured(10.0, 8, 900, nonfinite_loss=True)) is None


CHOOSING = build_space(FACTS, StudySpec(script="train.py", engine="ortmodule", choices=("compute-optimizer",)))


def with_choice(value, batch_size, **counts):
    point = CHOOSING.plain_point | {f"{name}+": count for name, count in counts.items()}
    return CHOOSING.configuration(point | {"batch_size": batch_size, "compute-optimizer": value})


def test_what_one_choice_shows_says_little_of_the_other():
    too_large = with_choice(1, 48, gelu=6)
    assert not LANDSCAPE.fits(too_large)
    tried = (CHOOSING.baseline, too_large, with_choice(1, 16), with_choice(1, 16, Block=12))
    knowledge = Knowledge(
        SearchContext(CHOOSING, FACTS, Aim(Objective(), LIMIT)), [seen(i, one) for i, one in enumerate(tried)]
    )
    assert not knowledge.is_open(with_choice(1, 48))
    assert knowledge.is_open(with_choice(0, 48))
    assert is_worthwhile(knowledge, with_choice(0, 16))
    index = knowledge.context.candidates.index
    sd = knowledge.acquisitions[0].gains()[1]
    # Of the same batch size and plans, the choice not made yet is the less certain one.
    assert sd[index(with_choice(0, 16))] > 2 * sd[index(with_choice(1, 16, gelu=6))]


def test_a_choice_that_the_script_never_runs_with_is_given_up():
    space = build_space(FACTS, StudySpec(script="train.py", choices=("fused-optimizer",)))

    def fused(batch_size, **counts):
        clusters = {f"{name}+": count for name, count in counts.items()}
        return space.configuration(space.plain_point | clusters | {"batch_size": batch_size, "fused-optimizer": 1})

    def failed(number, configuration):
        return Observation(number, configuration, "sampler", "failed")

    tried = [fused(16), fused(16, gelu=12), fused(16, Block=12)]
    context = SearchContext(space, FACTS, Aim(Objective(), LIMIT))
    seen_so_far = [seen(0, space.baseline)]
    two = Knowledge(context, [*seen_so_far, *(failed(n, one) for n, one in enumerate(tried[:2], 1))])
    assert two.is_open(fused(8))
    three = Knowledge(context, [*seen_so_far, *(failed(n, one) for n, one in enumerate(tried, 1))])
    assert not any(three.is_open(fused(size, Block=count)) for size in (8, 16, 32) for count in (0, 12))
    assert three.is_open(space.plain(8))
    works = Knowledge(context, [*seen_so_far, *(failed(n, one) for n, one in enumerate(tried, 1)), seen(4, fused(24))])
    assert works.is_open(fused(8))


def test_a_batch_size_that_fails_with_a_choice_made_is_closed_for_that_choice_only():
    space = build_space(FACTS, StudySpec(script="train.py", choices=("bf16",)))
    cast = space.configuration(space.plain_point | {"batch_size": 32, "bf16": 1})
    knowledge = Knowledge(
        SearchContext(space, FACTS, Aim(Objective(), LIMIT)),
        [seen(0, space.baseline), Observation(1, cast, "sampler", "failed")],
    )
    assert not knowledge.is_open(space.configuration(space.plain_point | {"batch_size": 48, "bf16": 1}))
    assert knowledge.is_open(space.plain(32))


COMPILING = build_space(FACTS, StudySpec(script="train.py", choices=("compile",)))


def compiled(batch_size, **counts):
    point = COMPILING.plain_point | {f"{name}+": count for name, count in counts.items()}
    return COMPILING.configuration(point | {"batch_size": batch_size, "compile": 1})


def compiling(*ended, **limits):
    context = SearchContext(COMPILING, FACTS, Aim(Objective(), LIMIT))
    failed = [Observation(number, one, "sampler", "failed") for number, one in enumerate(ended, 1)]
    return Knowledge(context, [seen(0, COMPILING.baseline), *failed], **limits)


def test_what_never_compiles_is_given_up_and_the_engine_of_the_study_is_not():
    two = compiling(compiled(16), compiled(16, Block=12))
    assert two.is_open(compiled(8))
    three = compiling(compiled(16), compiled(16, Block=12), compiled(16, Block=6))
    assert not any(three.is_open(compiled(size, Block=count)) for size in (8, 16, 24) for count in (0, 3, 12))
    planned = COMPILING.configuration(COMPILING.plain_point | {"batch_size": 16, "gelu+": 12})
    assert three.is_open(planned)
    assert not three.engine_fails


def test_an_engine_that_fails_is_closed_and_compiling_is_not():
    plans = [COMPILING.configuration(COMPILING.plain_point | {"batch_size": 16, "Block+": n}) for n in (3, 6, 9)]
    knowledge = compiling(*plans)
    assert knowledge.engine_fails
    assert not knowledge.is_open(COMPILING.configuration(COMPILING.plain_point | {"batch_size": 16, "gelu+": 12}))
    assert knowledge.is_open(compiled(16, Block=12))


def test_what_there_is_no_time_to_compile_is_not_open():
    knowledge = compiling(longest_s=60.0, longest_compiled_s=0.0)
    assert not knowledge.is_open(compiled(16))
    assert knowledge.is_open(COMPILING.plain(32))
    assert compiling(longest_s=60.0, longest_compiled_s=60.0).is_open(compiled(16))


def test_what_there_is_no_time_to_trace_is_not_open():
    planned = COMPILING.configuration(COMPILING.plain_point | {"batch_size": 16, "gelu+": 12})
    knowledge = compiling(longest_s=60.0, longest_planned_s=0.0)
    assert not knowledge.is_open(planned)
    assert knowledge.is_open(COMPILING.plain(32))
    assert compiling(longest_s=60.0, longest_planned_s=60.0).is_open(planned)


def test_choices_are_made_one_by_one_before_they_are_made_together():
    space = build_space(FACTS, StudySpec(script="train.py", choices=("bf16", "fused-optimizer")))

    def made(**values):
        choices = {name.replace("_", "-"): value for name, value in values.items()}
        return space.configuration(space.plain_point | {"batch_size": 16} | choices)

    both, context = made(bf16=1, fused_optimizer=1), SearchContext(space, FACTS, Aim(Objective(), LIMIT))
    knowledge = Knowledge(context, [seen(0, space.baseline)])
    assert not knowledge.is_open(both)
    assert knowledge.is_open(made(bf16=1))
    assert knowledge.is_open(made(fused_optimizer=1))
    running = Observation(1, made(bf16=1), "sampler", "running")
    assert not Knowledge(context, [seen(0, space.baseline), running]).is_open(both)
    assert Knowledge(context, [seen(0, space.baseline), seen(1, made(bf16=1))]).is_open(both)


def test_levels_are_given_up_once_one_fails_and_none_has_worked():
    facts, aim = FACTS, Aim(Objective(), LIMIT)
    space = build_space(facts, StudySpec(script="train.py", engine="ortmodule"))
    context = SearchContext(space, facts, aim)
    first, other, larger = (Configuration("ortmodule", (), level, size) for level, size in ((1, 16), (2, 16), (1, 24)))
    baseline = seen(0, space.baseline)
    failed = Observation(1, first, "sampler", "failed")
    assert Knowledge(context, [baseline]).is_open(other)
    assert not any(map(Knowledge(context, [baseline, failed]).is_open, (other, larger)))
    works = Observation(2, other, "sampler", "scored", 100.0, LIMIT / 2, feasible=True)
    assert Knowledge(context, [baseline, failed, works]).is_open(larger)


def ended_after(steps, configuration):
    return Observation(1, configuration, "sampler", "failed", steps_seen=steps)


def test_a_script_that_ended_too_early_has_too_few_steps_for_every_larger_batch_under_any_plans():
    context = SearchContext(SPACE, FACTS, CONTEXT.aim, least_steps=9)
    knowledge = Knowledge(context, [seen(0, SPACE.baseline), ended_after(6, at(64, gelu=12))])
    sizes = {size for size in SPACE.batch_sizes if knowledge.open[context.candidates.batch_sizes == size].any()}
    assert max(sizes) * 9 <= 64 * 6
    assert max(sizes) > 16


def test_what_took_too_long_is_not_tried_with_other_plans_though_its_size_was_measured_without():
    timed_out = Observation(2, at(24, gelu=12), "sampler", "failed", timed_out=True)
    knowledge = Knowledge(CONTEXT, [seen(0, SPACE.baseline), seen(1, at(24)), timed_out])
    assert not knowledge.is_open(at(24, _softmax=12))
    assert not knowledge.is_open(at(32, _softmax=12))
    assert knowledge.is_open(at(32)), "without plans it may be quick enough"
    assert knowledge.is_open(at(16, gelu=12))


def test_what_should_take_longer_than_a_trial_may_is_not_open():
    context = SearchContext(SPACE, FACTS, CONTEXT.aim, least_steps=9)
    seconds = 9 * 64 / LANDSCAPE.samples_per_s(at(64))
    tried = [seen(0, SPACE.baseline), seen(1, at(24))]
    knowledge = Knowledge(context, tried, longest_s=seconds)
    assert not knowledge.is_open(at(128))
    assert knowledge.is_open(at(32))
    assert knowledge.trial_s[context.candidates.index(at(64))] == pytest.approx(seconds, rel=0.15)
    twice = Knowledge(context, tried, longest_s=seconds, batches_per_step=2.0)
    assert not twice.is_open(at(64)), "of two batches a step"


def test_where_the_global_batch_is_kept_a_smaller_batch_gives_no_more_steps():
    context = SearchContext(replace(SPACE, global_batch=64), FACTS, CONTEXT.aim, least_steps=9)
    assert not Knowledge(context, [seen(0, SPACE.baseline), ended_after(6, at(64))]).open.any()
