"""Whole studies on synthetic landscapes, with a real Optuna study in memory."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from concurrent.futures import ThreadPoolExecutor

import optuna
import pytest
from optuna.trial import TrialState

from autotune.records.configuration import Configuration
from autotune.records.engines import ENGINES
from autotune.records.outcome import Fallback, OutOfMemory, ScriptError
from autotune.records.study import Objective, Repeat, Trial
from autotune.search import optuna_trials
from autotune.search.knowledge import Knowledge
from autotune.search.search import Asked, Search
from autotune.search.space import build_space
from autotune.verdict.aim import Aim
from autotune.verdict.feasible import front
from autotune.verdict.finalists import finalists
from tests.fakes.landscape import ENVIRONMENT, MIB, Cluster, Landscape, measured, random_landscape
from tests.fakes.replay import SPEC, Replay

# What one study finds at least, of the best there is. On another processor rounding leads a search elsewhere, so how
# near they come is asked of many.
NEAR = 0.85


def studies_of(seeds, spec=SPEC):
    for seed in seeds:
        replay = Replay(random_landscape(seed), spec).to_the_end()
        assert len(replay.trials) <= 30
        assert len(set(replay.keys)) == len(replay.keys)
        assert replay.search.end.reason
        yield replay


def test_studies_find_what_is_near_the_best_and_never_repeat_themselves():
    assert statistics.median(replay.found for replay in studies_of(range(3))) >= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["aot", "inductor"])
def test_of_many_studies_nearly_all_find_the_best_and_few_trials_run_out_of_memory(engine):
    replays = list(studies_of(range(40), dataclasses.replace(SPEC, engine=engine)))
    found = [replay.found for replay in replays]
    # Nor does a search go on for less than what a trial has to bring.
    assert statistics.median(found) >= 1 - max(0.01, ENGINES[engine].least_gain)
    assert sum(one >= 0.97 for one in found) >= 30
    assert min(found) >= 0.8
    trials = [trial for replay in replays for trial in replay.trials]
    assert sum(isinstance(trial.outcome, OutOfMemory) for trial in trials) <= 0.15 * len(trials)


def resumed(seed):
    """A study that another process goes on with after each run."""
    replay = Replay(random_landscape(seed))
    while asked := replay.search.ask():
        replay.run(asked)
        replay.search = replay.new_search()
    return replay


def whose_baseline_does_not_fit(seed):
    landscape = random_landscape(seed)
    at_the_baseline = landscape.peak_bytes(landscape.baseline)
    tight = dataclasses.replace(landscape, ceiling_bytes=(landscape.fixed_bytes + 2 * at_the_baseline) // 3)
    assert not tight.fits(tight.baseline)
    return Replay(tight).to_the_end()


def whose_baseline_has_no_finite_loss(seed):
    return Replay(dataclasses.replace(random_landscape(seed), nonfinite_from=1)).to_the_end()


def much_faster_when_compiled(seed):
    landscape = random_landscape(seed)
    own_bytes = landscape.peak_bytes(landscape.baseline) - landscape.fixed_bytes
    tight = dataclasses.replace(
        landscape, ceiling_bytes=landscape.fixed_bytes + int(1.05 * own_bytes), compiled_speedup=3.0
    )
    return Replay(tight, dataclasses.replace(SPEC, engine="inductor")).to_the_end()


@pytest.mark.slow
@pytest.mark.parametrize(
    "study",
    [resumed, whose_baseline_does_not_fit, whose_baseline_has_no_finite_loss, much_faster_when_compiled],
    ids=lambda study: study.__name__,
)
def test_of_many_studies_that_have_it_harder_most_find_nearly_the_best(study):
    replays = [study(seed) for seed in range(20)]
    assert statistics.median(replay.found for replay in replays) >= 0.97
    assert sum(replay.found >= 0.95 for replay in replays) >= 16
    assert all(len(set(replay.keys)) == len(replay.keys) for replay in replays)


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_samplers_of_optuna_find_it_too_in_runs_of_one_batch_size(sampler):
    replay = Replay(random_landscape(14), dataclasses.replace(SPEC, sampler=sampler)).to_the_end()
    assert replay.found >= NEAR
    assert len(set(replay.keys)) == len(replay.keys)
    assert {trial.user_attrs["origin"] for trial in replay.optuna.trials[1:]} == {"sampler"}
    assert max(len(run) for run in replay.runs) > 1
    for run in replay.runs:
        assert len({(one.batch_size, one.engine) for one in run}) == 1


def test_the_same_seed_makes_the_same_study():
    one, other = (Replay(dataclasses.replace(Landscape(), noise_cv=0.0)).to_the_end() for _ in range(2))
    assert one.keys == other.keys


def test_a_run_has_one_batch_size_and_one_engine_and_ends_with_the_most_memory():
    replay = Replay(Landscape(noise_cv=0.0))
    while asked := replay.search.ask():
        run = [one.configuration for one in asked]
        expected = [replay.search._knowledge().model.expected_bytes(one) for one in run]
        assert expected == sorted(expected)
        assert len({(c.batch_size, c.engine) for c in run}) == 1
        replay.run(asked)


def test_a_run_goes_on_for_what_may_still_win_and_for_what_somebody_brought_along():
    spec = dataclasses.replace(SPEC, plans_first=("Block+:1:-1", "gelu+:1:-1"))
    replay = Replay(Landscape(noise_cv=0.0), spec)
    given = replay.search.ask()
    for one in given:
        assert replay.search.goes_on([one])
    replay.run(given)
    asked = replay.search.ask()
    assert replay.search.goes_on(asked)
    # By now twice as fast as anything of this batch size can be.
    best = replay.search.ask()
    for one in best:
        replay.search.tell(one.number, measured(5000.0, 64, 1000 * MIB), ENVIRONMENT)
    slow = replay.space.configuration({**dict.fromkeys(replay.space.counts, 0), "batch_size": 8, "Block+": 12})
    assert not replay.search.goes_on([Asked(99, slow)])


def test_a_best_that_ran_out_of_memory_in_its_repetitions_is_none_any_more():
    replay = Replay(Landscape()).to_the_end()
    measured_ones = [trial for trial in replay.trials if trial.measured and trial.configuration.plans]
    best = max(measured_ones, key=lambda trial: trial.measured.samples_per_s).configuration
    to_beat = replay.search.rate_to_beat()
    replay.search.learn([Repeat(best, 0, OutOfMemory("out of memory"), ENVIRONMENT, "", 1)])
    assert replay.search.rate_to_beat() < to_beat


def test_what_is_measured_over_the_limit_does_not_win():
    roomy = Landscape(ceiling_bytes=None)
    limit = 2000 * MIB
    replay = Replay(roomy)
    spec = dataclasses.replace(SPEC, max_trials=12)
    replay.search = Search(replay.optuna, replay.space, roomy.facts, spec, limit)
    # What somebody brings along is tried, whatever is expected of it.
    replay.optuna.enqueue_trial(replay.space.point(replay.space.plain(64)), user_attrs={"origin": "given"})
    (asked,) = replay.search.ask()
    assert roomy.peak_bytes(asked.configuration) > limit
    replay.run((asked,))
    replay.to_the_end()
    assert replay.optuna.trials[asked.number].constraints["memory"] > 0
    winner, *_ = finalists(replay.trials, roomy.facts, Aim(Objective(), limit))
    assert roomy.peak_bytes(winner) <= limit
    best = max(roomy.samples_per_s(c) for c in replay.space.configurations() if roomy.peak_bytes(c) <= limit)
    assert roomy.samples_per_s(winner) >= NEAR * best


def test_a_search_says_what_it_believes_of_what_it_has_measured():
    noisy = Landscape(noise_cv=0.05, ceiling_bytes=None)
    replay = Replay(noisy).to_the_end()
    believed = replay.search.end.believed.per_s
    measured = {trial.configuration.key: trial.measured.samples_per_s for trial in replay.trials if trial.measured}
    true = {trial.configuration.key: noisy.samples_per_s(trial.configuration) for trial in replay.trials}

    def error(figures):
        return sum(abs(figures[key] / true[key] - 1) for key in believed)

    assert believed.keys() == measured.keys()
    assert error(believed) < error(measured)


def test_where_nothing_helps_there_are_no_finalists_and_it_is_found_out_soon():
    compute_bound = Landscape(overhead_s=0.0, noise_cv=0.001, ceiling_bytes=None)
    replay = Replay(compute_bound).to_the_end()
    assert finalists(replay.trials, compute_bound.facts, Aim(Objective(), compute_bound.limit_bytes)) == ()
    assert len(replay.trials) <= 20


def test_a_baseline_that_does_not_fit_leads_to_what_does():
    tight = Landscape(ceiling_bytes=1150 * MIB)
    replay = Replay(tight, dataclasses.replace(SPEC, seed=2))
    assert not tight.fits(tight.baseline)
    replay.to_the_end()
    assert replay.found >= NEAR
    assert len(replay.runs) <= 10


def test_where_nothing_fits_the_search_ends_soon_and_says_so():
    replay = Replay(Landscape(ceiling_bytes=700 * MIB)).to_the_end()
    assert 1 < len(replay.trials) <= 15
    assert "fit" in replay.search.end.reason


def test_a_batch_size_that_the_script_cannot_train_with_is_the_last_of_its_kind():
    replay = Replay(Landscape(ceiling_bytes=None))
    tried = []
    while asked := replay.search.ask():
        size = asked[0].configuration.batch_size
        tried.append(size)
        if size <= 32:
            replay.run(asked)
            continue
        for one in asked:
            replay.search.tell(one.number, ScriptError("the dataset has 40 samples"), ENVIRONMENT)
    too_large = [size for size in tried if size > 32]
    assert too_large == sorted(too_large, reverse=True)
    assert len(too_large) <= 4, "two sizes, with plans and without"


def test_a_loss_that_is_no_number_is_not_followed():
    unstable = Landscape(nonfinite_from=48, ceiling_bytes=None, noise_cv=0.0)
    replay = Replay(unstable, dataclasses.replace(SPEC, max_trials=20)).to_the_end()
    states = {trial.state for trial in replay.optuna.trials if trial.params["batch_size"] >= 48}
    assert states == {TrialState.FAIL}
    assert all(
        c.batch_size < 48 for c in finalists(replay.trials, unstable.facts, Aim(Objective(), unstable.limit_bytes))
    )


def test_a_baseline_whose_loss_is_no_number_is_no_reason_to_refuse_the_others():
    unstable = Landscape(nonfinite_from=1, noise_cv=0.0)
    replay = Replay(unstable).to_the_end()
    assert replay.found >= NEAR


def test_a_script_whose_batch_size_cant_be_set_is_searched_for_plans_only():
    fixed = Landscape(how="none", noise_cv=0.0)
    replay = Replay(fixed).to_the_end()
    assert {trial.configuration.batch_size for trial in replay.trials} == {fixed.own_batch_size}
    assert len(replay.trials) > 1


def test_a_small_space_is_tried_at_most_to_the_last_configuration():
    small = Landscape((Cluster("gelu+", 4, 0.2, 0.0),), how="none", noise_cv=0.0)
    replay = Replay(small, dataclasses.replace(SPEC, sampler="random")).to_the_end()
    assert sorted(replay.keys) == sorted(configuration.key for configuration in replay.space.configurations())
    assert "has been tried" in replay.search.end.reason


def test_a_search_that_failures_end_does_not_say_that_all_was_tried():
    replay = Replay(Landscape(()), dataclasses.replace(SPEC, engine="eager"))
    while asked := replay.search.ask():
        for one in asked:
            replay.search.tell(one.number, Fallback("a batch brings as much data as before"), ENVIRONMENT)
    assert "would fail as those tried did" in replay.search.end.reason


def test_eager_with_one_batch_size_leaves_nothing_to_try():
    replay = Replay(Landscape(how="none"), dataclasses.replace(SPEC, engine="eager"))
    assert replay.search.ask() == ()
    assert replay.search.end.reason == "There is nothing to try but the unmodified script."


def test_no_more_trials_are_run_than_allowed():
    replay = Replay(Landscape(), dataclasses.replace(SPEC, max_trials=2)).to_the_end()
    assert len(replay.trials) == 1 + 2
    assert replay.search.end.reason == "The study may have no more than 2 trials."


@pytest.mark.parametrize("sampler", ["model", "random"])
def test_the_search_never_takes_more_trials_than_it_said_might_be_left(sampler):
    learnt = []
    for seed in range(4):
        replay = Replay(random_landscape(seed), dataclasses.replace(SPEC, sampler=sampler, max_trials=40))
        assert replay.search.most_left is None
        said = []
        while asked := replay.search.ask():
            said.append((len(replay.trials), replay.search.most_left))
            replay.run(asked)
        assert said[0][1] <= 40
        assert all(len(replay.trials) - before <= most for before, most in said)
        learnt.append(said[-1][1] < 40 + 1 - said[-1][0])
    assert any(learnt), "what cannot win is not counted"


def test_failures_that_say_nothing_are_failed_trials_and_not_tried_again():
    replay = Replay(Landscape())
    asked, *_ = replay.search.ask()
    replay.search.tell(asked.number, ScriptError("ValueError: batch size"), ENVIRONMENT)
    assert replay.optuna.trials[asked.number].state == TrialState.FAIL
    assert asked.configuration not in [one.configuration for one in replay.search.ask()]


def test_plans_that_always_fail_are_given_up():
    replay = Replay(Landscape())
    attempts = 0
    while asked := replay.search.ask():
        for one in asked:
            attempts += bool(one.configuration.plans)
            outcome = ScriptError("the graph breaks") if one.configuration.plans else OutOfMemory("out of memory")
            replay.search.tell(one.number, outcome, ENVIRONMENT)
    assert attempts <= 3 + 5
    assert not [one for one in replay.search.ask() if one.configuration.plans]


INDUCTOR = dataclasses.replace(SPEC, engine="inductor")


@pytest.mark.parametrize("seed", range(4))
def test_under_inductor_each_run_has_one_configuration_and_the_best_is_found_all_the_same(seed):
    replay = Replay(random_landscape(seed), INDUCTOR).to_the_end()
    assert {len(run) for run in replay.runs} == {1}
    assert replay.found >= NEAR
    assert len(set(replay.keys)) == len(replay.keys)


def test_where_each_setting_is_compiled_a_run_has_to_bring_more_and_fewer_are_made(monkeypatch):
    def num_runs():
        return sum(len(Replay(random_landscape(seed), INDUCTOR).to_the_end().runs) for seed in range(3))

    own = num_runs()
    usual = dataclasses.replace(ENGINES["inductor"], runs_take=ENGINES["aot"].runs_take)
    monkeypatch.setattr("autotune.search.proposal.ENGINES", {**ENGINES, "inductor": usual})
    assert own < num_runs()


ALLOWED = dataclasses.replace(SPEC, choices=("compile",))


@pytest.mark.parametrize("seed", range(4))
def test_where_compiling_is_allowed_it_is_found_in_runs_of_its_own(seed):
    replay = Replay(random_landscape(seed), ALLOWED).to_the_end()
    assert replay.found >= NEAR, "the best is compiled, at 1.5 times the speed"
    compiled = [run for run in replay.runs if run[0].engine == "inductor"]
    assert compiled
    assert {len(run) for run in compiled} == {1}
    assert all({one.engine for one in run} != {"aot", "inductor"} for run in replay.runs)


def test_compiling_that_brings_nothing_is_tried_once_or_twice_and_left():
    for seed in range(3):
        replay = Replay(dataclasses.replace(random_landscape(seed), compiled_speedup=0.9), ALLOWED).to_the_end()
        compiled = [run for run in replay.runs if run[0].engine == "inductor"]
        assert 1 <= len(compiled) <= 3
        assert replay.found >= NEAR


def test_a_run_that_compiles_has_to_bring_as_much_more_as_it_takes_longer(monkeypatch):
    def num_compiled():
        replays = (Replay(random_landscape(seed), ALLOWED).to_the_end() for seed in range(3))
        return sum(run[0].engine == "inductor" for replay in replays for run in replay.runs)

    own = num_compiled()
    usual = dataclasses.replace(ENGINES["inductor"], runs_take=ENGINES["aot"].runs_take)
    monkeypatch.setattr("autotune.search.proposal.ENGINES", {**ENGINES, "inductor": usual})
    assert own < num_compiled()


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_other_samplers_compile_in_runs_of_their_own_too(sampler):
    spec = dataclasses.replace(ALLOWED, sampler=sampler, max_trials=12)
    replay = Replay(random_landscape(1), spec).to_the_end()
    assert all(len(run) == 1 for run in replay.runs if run[0].engine == "inductor")
    assert len(set(replay.keys)) == len(replay.keys)


def test_what_was_given_back_of_what_is_compiled_is_taken_up_one_by_one():
    replay = Replay(random_landscape(1), ALLOWED)
    point = replay.space.plain_point | {"batch_size": replay.landscape.own_batch_size, "compile": 1}
    for plans in ({}, {"Block+": replay.space.rows["Block+"].frequency}):
        replay.optuna.enqueue_trial(point | plans)
    first = replay.search.ask()
    assert [one.configuration.engine for one in first] == ["inductor"]
    replay.run(first)
    assert len(replay.search.ask()) == 1


def test_under_inductor_the_baseline_does_not_count_as_the_script_compiled_without_plans():
    replay = Replay(Landscape(), INDUCTOR)
    compiled = Configuration("inductor", (), 0, 16)
    replay.optuna.enqueue_trial(replay.space.point(compiled))
    (asked,) = replay.search.ask()
    assert asked.configuration == compiled
    replay.run((asked,))
    assert replay.keys == [replay.space.baseline.key, compiled.key]


def test_a_script_that_is_slow_as_it_stands_rules_out_no_plans_of_it_compiled():
    tight = Landscape(ceiling_bytes=int(800 * MIB + 16 * 40 * MIB * 1.05), compiled_speedup=3.0)
    replay = Replay(tight, INDUCTOR).to_the_end()
    assert any(trial.configuration.plans and trial.measured for trial in replay.trials)
    assert replay.found >= NEAR


def test_where_inductor_always_fails_the_search_ends_soon():
    replay = Replay(Landscape(), INDUCTOR)
    attempts = 0
    while asked := replay.search.ask():
        for one in asked:
            attempts += 1
            replay.search.tell(one.number, ScriptError("no compiler"), ENVIRONMENT)
    assert attempts == 3
    assert replay.search.end.reason.startswith("Every trial under engine inductor failed")


def test_out_of_memory_is_told_as_a_violated_limit_and_no_samples():
    replay = Replay(Landscape())
    asked, *_ = replay.search.ask()
    replay.search.tell(asked.number, OutOfMemory("out of memory"), ENVIRONMENT)
    told = replay.optuna.trials[asked.number]
    assert told.state == TrialState.COMPLETE
    assert told.values[0] == 0.0
    assert told.constraints["memory"] >= 0.1
    assert told.user_attrs["outcome"] == "out_of_memory"
    assert told.user_attrs["device"] == ENVIRONMENT.device_name


def test_telling_twice_changes_nothing():
    replay = Replay(Landscape())
    asked, *_ = replay.search.ask()
    replay.search.tell(asked.number, measured(400.0, 32, 1000 * MIB), ENVIRONMENT)
    before = replay.optuna.trials[asked.number]
    replay.search.tell(asked.number, OutOfMemory("out of memory"), ENVIRONMENT)
    assert replay.optuna.trials[asked.number] == before


def test_an_outcome_is_told_by_a_search_that_did_not_ask_for_it():
    replay = Replay(Landscape())
    asked, *_ = replay.search.ask()
    replay.new_search().tell(asked.number, measured(400.0, 32, 1000 * MIB), ENVIRONMENT)
    assert replay.optuna.trials[asked.number].values == [400.0, 1000 * MIB]


def test_a_search_that_is_made_anew_knows_how_many_batches_a_step_of_the_script_takes():
    landscape = Landscape()
    outcome = measured(100.0, 8, 10**9)
    two = dataclasses.replace(outcome.measurement, samples_per_step=(16,) * 5)
    history = [Trial(0, landscape.baseline, "finished", dataclasses.replace(outcome, measurement=two))]
    study = optuna.create_study(directions=["maximize", "minimize"])
    space = build_space(landscape.facts, SPEC)
    search = Search(study, space, landscape.facts, SPEC, 10**10, history=history)
    assert search._knowledge()._batches_per_step == 2.0


def test_a_tell_that_was_cut_off_is_finished_by_the_next():
    replay = Replay(Landscape())
    asked, *_ = replay.search.ask()
    # What a controller that died between the constraint and the state leaves behind.
    optuna.trial.Trial(replay.optuna, replay.optuna.trials[asked.number]._trial_id).set_constraint("memory", -0.5)
    replay.new_search().tell(asked.number, measured(400.0, 32, 1000 * MIB), ENVIRONMENT)
    assert replay.optuna.trials[asked.number].state == TrialState.COMPLETE


def test_the_baseline_is_the_first_trial_and_added_once():
    replay = Replay(Landscape())
    assert replay.new_search().add_baseline(replay.outcome) == 0
    (baseline,) = replay.optuna.trials
    assert baseline.state == TrialState.COMPLETE
    assert baseline.params == replay.space.point(replay.landscape.baseline)


def test_the_baseline_has_its_place_even_outside_the_range_to_search():
    replay = Replay(Landscape(), dataclasses.replace(SPEC, batch_sizes=(24, 64))).to_the_end()
    assert replay.optuna.trials[0].params["batch_size"] == 16
    assert {trial.configuration.batch_size for trial in replay.trials[1:]} <= {24, 32, 48, 64}


def test_a_study_goes_on_where_it_stood():
    replay = Replay(Landscape())
    while asked := replay.search.ask():
        replay.run(asked)
        replay.search = replay.new_search()
    assert replay.found >= NEAR
    assert len(set(replay.keys)) == len(replay.keys)


def test_what_was_running_when_its_owner_died_is_run_first_and_in_one_run():
    replay = Replay(Landscape())
    point = replay.space.point(replay.landscape.baseline)
    sets = [{"gelu+": 12}, {"_softmax+": 12}, {"gelu+": 12, "_softmax+": 12}]
    for plans in sets:
        replay.optuna.enqueue_trial(point | plans)
    again = replay.search.ask()
    assert len(again) == len(sets)
    assert {replay.optuna.trials[one.number].user_attrs["origin"] for one in again} == {"recovered"}
    replay.run(again)
    replay.to_the_end()
    assert len(set(replay.keys)) == len(replay.keys)


def test_what_an_enqueued_trial_leaves_open_stays_as_the_script_has_it():
    replay = Replay(Landscape())
    replay.optuna.enqueue_trial({"batch_size": 24})
    (asked,) = replay.search.ask()
    assert asked.configuration == replay.space.plain(24)


def test_what_was_interrupted_and_is_hopeless_by_now_is_not_run_again():
    replay = Replay(Landscape())
    point = replay.space.point(replay.landscape.baseline)
    for size in (24, 32):
        replay.optuna.enqueue_trial(point | {"batch_size": size})
    (first,) = replay.search.ask()
    assert first.configuration.batch_size == 24
    replay.search.tell(first.number, OutOfMemory("out of memory"), ENVIRONMENT)

    asked = replay.search.ask()

    assert all(one.configuration.batch_size < 24 or one.configuration.plans for one in asked)
    assert not [trial for trial in replay.optuna.trials if trial.state == TrialState.WAITING]


def test_what_was_interrupted_at_two_batch_sizes_leaves_nothing_running_that_is_not_run():
    replay = Replay(Landscape())
    point = replay.space.point(replay.landscape.baseline)
    for size in (8, 24):
        replay.optuna.enqueue_trial(point | {"batch_size": size})
    (first,) = replay.search.ask()
    assert [trial.number for trial in replay.optuna.trials if trial.state == TrialState.RUNNING] == [first.number]
    replay.run((first,))
    (second,) = replay.search.ask()
    assert {one.configuration.batch_size for one in (first, second)} == {8, 24}


def test_what_a_run_did_not_reach_may_be_asked_for_again():
    replay = Replay(Landscape())
    asked = replay.search.ask()
    for one in asked:
        optuna_trials.put_back(replay.optuna, one.number)
    again = replay.search.ask()
    assert {one.configuration for one in again} == {one.configuration for one in asked}
    assert {one.number for one in again}.isdisjoint(one.number for one in asked)


@pytest.mark.parametrize(
    ("spec", "turns", "trials"),
    [
        pytest.param(SPEC, 14, 5, id="few turns"),
        pytest.param(SPEC, 40, 5, id="many turns", marks=pytest.mark.slow),
        # One configuration a run and no early end: all turns are needed.
        *(
            pytest.param(dataclasses.replace(INDUCTOR, sampler=name), 40, 12, id=name, marks=pytest.mark.slow)
            for name in ("tpe", "random")
        ),
    ],
)
def test_two_controllers_of_one_study_do_not_repeat_each_other(spec, turns, trials):
    replay = Replay(Landscape(), spec)
    searches, waiting = [replay.search, replay.new_search()], {}
    for search in itertools.islice(itertools.cycle(searches), turns):
        replay.search = search
        if search in waiting:
            replay.run(waiting.pop(search))
        elif asked := search.ask():
            waiting[search] = asked
    assert len(replay.keys) >= trials
    assert len(set(replay.keys)) == len(replay.keys)


def test_several_devices_may_ask_at_once():
    replay = Replay(Landscape())
    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(lambda _: replay.search.ask(), range(4)))
    keys = [one.configuration.key for run in runs for one in run]
    assert len(set(keys)) == len(keys) >= 4


def test_the_study_stays_an_ordinary_one_for_optuna():
    replay = Replay(Landscape(noise_cv=0.0)).to_the_end()
    on_front = {trial.number for trial in front(replay.trials, baseline_is_finite=True)}
    assert {trial.number for trial in replay.optuna.best_trials} <= on_front
    assert all(trial.state.is_finished() for trial in replay.optuna.trials)


def test_what_takes_longer_than_a_trial_may_is_not_said_to_have_been_tried():
    replay = Replay(Landscape(), dataclasses.replace(SPEC, trial_timeout_s=1e-3)).to_the_end()
    assert len(replay.trials) == 1
    assert "longer than a trial may" in replay.search.end.reason
    assert "--trial-timeout" in replay.search.end.cut_short


def test_a_sampler_of_optuna_stops_where_nothing_it_tried_fits():
    nothing_fits = Landscape(ceiling_bytes=100 * MIB)
    replay = Replay(nothing_fits, dataclasses.replace(SPEC, sampler="random"))
    while asked := replay.search.ask():
        # Each says that it needed just a little too much, so that no other is ruled out by it.
        for one in asked:
            replay.search.tell(one.number, measured(100.0, 16, replay.landscape.limit_bytes + 1), ENVIRONMENT)
    assert replay.search.end.reason.startswith("Nothing tried fits ")
    assert "trials brought nothing" in replay.search.end.cut_short


def test_what_takes_longer_than_the_time_that_is_left_ends_the_search_for_time():
    replay = Replay(Landscape())
    assert replay.search.ask(within_s=1e-6) == ()
    assert "longer than the time that is left" in replay.search.end.reason
    assert replay.search.end.is_for_time
    assert replay.search.ask(), "there is something left to try"


def test_what_can_be_confirmed_in_the_time_left_goes_first():
    unhurried = Replay(Landscape()).search.ask()
    least_s = 9 * min(one.configuration.batch_size for one in unhurried) / 340.0
    search = Replay(Landscape()).search
    first = search.ask(confirmable_s=1.5 * least_s)  # a trial takes about twice its least steps
    assert first
    assert max(one.configuration.batch_size for one in first) < min(one.configuration.batch_size for one in unhurried)
    rest = Replay(Landscape()).search.ask(confirmable_s=1e-6)
    assert [one.configuration for one in rest] == [one.configuration for one in unhurried]


def test_given_plans_go_first_though_there_is_no_time_to_confirm_them():
    replay = Replay(Landscape(), dataclasses.replace(SPEC, plans_first=("gelu+:1:-1",)))
    asked = replay.search.ask(confirmable_s=1e-6, only_confirmable=True)
    assert [[str(plan) for plan in one.configuration.plans] for one in asked] == [["gelu+:1:-1"]]


@pytest.mark.parametrize("sampler", ["model", "random"])
def test_a_search_for_which_others_take_too_long_is_not_said_to_be_complete(sampler):
    search = Replay(Landscape(), dataclasses.replace(SPEC, sampler=sampler)).search
    assert search.ask(confirmable_s=1e-6, only_confirmable=True) == ()
    assert search.end.is_for_time


def test_a_sampler_that_knows_no_costs_says_that_what_may_win_takes_too_long(monkeypatch):
    may_win = Knowledge.worthwhile.fget
    hurried = property(lambda one: may_win(one) & (one._longest_s == math.inf))
    monkeypatch.setattr(Knowledge, "worthwhile", hurried)
    search = Replay(Landscape(), dataclasses.replace(SPEC, sampler="random", trial_timeout_s=math.inf)).search
    assert search.ask(within_s=1e6) == ()
    assert search.end.is_for_time


def test_what_cannot_be_confirmed_is_tried_with_the_shortest_first():
    unhurried = Replay(Landscape()).search.ask()
    within_s = 4.0 * 9 * min(one.configuration.batch_size for one in unhurried) / 340.0
    first = Replay(Landscape()).search.ask(within_s=within_s, confirmable_s=1e-6)
    assert first
    assert max(one.configuration.batch_size for one in first) < min(one.configuration.batch_size for one in unhurried)


def test_what_was_enqueued_twice_is_run_once():
    replay = Replay(Landscape())
    point = replay.space.point(replay.landscape.baseline) | {"batch_size": 24}
    planned = point | {"Block+": 12}
    for one in (planned, planned, point | {"gelu+": 12}):
        replay.optuna.enqueue_trial(one)
    asked = replay.search.ask()
    assert {one.configuration.key for one in asked} == {
        replay.space.configuration(one).key for one in (planned, point | {"gelu+": 12})
    }
    unfinished = {trial.number for trial in replay.optuna.trials if not trial.state.is_finished()}
    assert unfinished == {one.number for one in asked}
