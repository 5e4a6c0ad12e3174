"""Finalists, the repetitions beside the baseline, and the answer."""

from __future__ import annotations

import dataclasses
import math

import pytest

from autotune.records.configuration import Configuration
from autotune.records.environment import DeviceConditions
from autotune.records.facts import BatchControl, EpochFacts
from autotune.records.measurement import Peaks
from autotune.records.outcome import Died, Fallback, Measured, OutOfMemory, TimedOut
from autotune.records.plan import Plan
from autotune.records.study import Objective, Repeat, StudyRecord, StudySpec, Trial
from autotune.verdict.aim import Aim
from autotune.verdict.decision import decide
from autotune.verdict.feasible import flaws_of, front, is_feasible
from autotune.verdict.finalists import doubtful, finalists
from autotune.verdict.idle_memory import idle_memory
from autotune.verdict.repetitions import compare, is_beaten, next_repetition
from autotune.verdict.search_end import Believed
from autotune.verdict.sentences import batch_size_left_alone
from tests.benchmarks.repetitions import cells, simulate
from tests.fakes.landscape import MIB, Landscape, measured

FACTS = Landscape().facts
BASELINE = FACTS.baseline
LIMIT = 900 * MIB
AIM = Aim(Objective(), LIMIT)
GELU = Configuration("aot", (Plan("gelu+", 1, -1),), 0, 48)
LAYERS = Configuration("aot", (Plan("Block+", 1, 6),), 0, 64)
SMALL = Configuration("aot", (Plan("Block+", 1, -1),), 0, 32)
STOP = "The study may have no more than 60 trials."


def trials(*pairs):
    return tuple(Trial(i, configuration, "finished", outcome) for i, (configuration, outcome) in enumerate(pairs))


def fast(rate, peak_mib=800, **flags):
    return measured(rate, 48, peak_mib * MIB, **flags)


def repetitions(configuration, *outcomes, confirmation=1):
    outcomes = [fast(outcome) if isinstance(outcome, float) else outcome for outcome in outcomes]
    return tuple(
        Repeat(configuration, number, outcome, confirmation=confirmation) for number, outcome in enumerate(outcomes)
    )


def verdict(tried, repeats=(), most_repetitions=12):
    spec = StudySpec("train.py", finalist_repetitions=most_repetitions)
    record = StudyRecord("s", spec, 0.0, "0", FACTS, tried, tuple(repeats))
    return decide(record, LIMIT, STOP)


TRIED = trials((BASELINE, fast(340.0)), (GELU, fast(412.0)), (LAYERS, fast(405.0)))


def test_the_fastest_and_a_runner_up_within_noise_are_finalists():
    assert finalists(TRIED, FACTS, AIM) == (GELU, LAYERS)


def test_who_is_believed_to_be_faster_goes_before_the_fastest_trial_which_may_have_been_lucky():
    tried = trials((BASELINE, fast(340.0)), (GELU, fast(412.0)), (LAYERS, fast(395.0)), (SMALL, fast(411.0)))
    believed = {BASELINE.key: 340.0, GELU.key: 398.0, LAYERS.key: 402.0, SMALL.key: 396.0}

    assert finalists(tried, FACTS, AIM, believed=Believed(believed)) == (LAYERS, GELU)
    assert finalists(tried, FACTS, AIM, believed=Believed(believed | {GELU.key: 403.0})) == (GELU, SMALL)
    assert finalists(tried, FACTS, AIM, believed=Believed({LAYERS.key: 402.0})) == (GELU, SMALL)


def test_the_fastest_trial_is_waited_for_where_the_one_believed_to_be_faster_was_not():
    tried = trials((BASELINE, fast(340.0)), (GELU, fast(412.0)), (LAYERS, fast(395.0)))
    measured_again = (*repetitions(BASELINE, *[340.0] * 4), *repetitions(LAYERS, *[330.0] * 4))
    record = StudyRecord("s", StudySpec("train.py"), 0.0, "0", FACTS, tried, measured_again)
    found = decide(record, LIMIT, STOP, believed=Believed({LAYERS.key: 402.0, GELU.key: 345.0}))
    assert found.kind_of_answer == "undecided"
    assert found.winner == GELU
    assert "is the fastest so far, but was not yet measured again" in found.sentences


def test_who_was_no_faster_than_the_baseline_is_no_finalist_whatever_is_believed():
    tried = trials((BASELINE, fast(340.0)), (GELU, fast(412.0)), (LAYERS, fast(339.0)))
    assert finalists(tried, FACTS, AIM, believed=Believed({GELU.key: 398.0, LAYERS.key: 402.0})) == (GELU,)


def test_a_slower_runner_up_is_a_finalist_only_if_it_needs_much_less_memory():
    slower = trials((BASELINE, fast(340.0)), (GELU, fast(412.0)), (LAYERS, fast(370.0)))
    assert finalists(slower, FACTS, AIM) == (GELU,)
    smaller = trials((BASELINE, fast(340.0)), (GELU, fast(412.0)), (SMALL, fast(370.0, 500)))
    assert finalists(smaller, FACTS, AIM) == (GELU, SMALL)


def test_what_does_not_beat_the_baseline_is_no_finalist():
    assert finalists(trials((BASELINE, fast(340.0)), (GELU, fast(341.0))), FACTS, AIM) == ()
    assert finalists(trials((BASELINE, fast(340.0)), (GELU, fast(412.0)), (SMALL, fast(330.0, 300))), FACTS, AIM) == (
        GELU,
    )


@pytest.mark.parametrize(("finite", "said"), [(True, False), (False, True)])
def test_an_answer_says_so_where_the_scripts_own_loss_is_no_number(finite, said):
    tried = trials(*((one, fast(rate, nonfinite_loss=not finite)) for one, rate in ((BASELINE, 340.0), (GELU, 412.0))))

    assert ("is NaN or infinite: lower its learning rate" in verdict(tried).sentences) is said


def test_where_the_baseline_does_not_fit_whatever_fits_is_a_finalist():
    tried = trials((BASELINE, fast(340.0, 1000)), (SMALL, fast(200.0)))
    assert finalists(tried, FACTS, AIM) == (SMALL,)


def compared(repeats, **options):
    return compare(repeats, BASELINE, AIM, 12, **options)


def test_settings_are_compared_within_each_repetition():
    (comparison,) = compared(repetitions(BASELINE, 340.0, 170.0, 342.0) + repetitions(GELU, 412.0, 204.0, 420.0))
    assert comparison.baseline_figures.samples_per_s == 340.0
    assert comparison.speedup == pytest.approx((412 / 340 * 204 / 170 * 420 / 342) ** (1 / 3))
    assert comparison.speedup_low == pytest.approx(comparison.speedup**2 / comparison.speedup_high)
    assert (comparison.repetitions, comparison.found) == (3, "win"), (
        "though the second repetition was twice as slow for both"
    )


def test_the_same_rates_in_other_repetitions_show_nothing():
    (comparison,) = compared(repetitions(BASELINE, 170.0, 340.0, 342.0) + repetitions(GELU, 412.0, 204.0, 420.0))
    assert comparison.found == "open"


def test_a_confirmation_under_way_asks_for_more_than_one_that_is_over():
    repeats = repetitions(BASELINE, 340.0, 338.0, 342.0) + repetitions(GELU, 412.0, 405.0, 420.0)
    assert [one.found for one in compared(repeats)] == ["win"]
    assert [one.found for one in compared(repeats, is_over=False)] == ["open"]


def test_a_repetition_in_which_either_of_both_failed_is_not_compared():
    (comparison,) = compared(
        repetitions(BASELINE, 340.0, Died("killed"), 342.0, 341.0) + repetitions(GELU, 412.0, 405.0, 420.0, 418.0)
    )
    assert comparison.baseline_figures.samples_per_s == pytest.approx(341.0)
    assert (comparison.repetitions, comparison.found) == (3, "win")
    (comparison,) = compared(
        repetitions(BASELINE, 340.0, 341.0, 342.0) + repetitions(GELU, 412.0, Died("killed"), 420.0)
    )
    assert (comparison.repetitions, comparison.found) == (2, "failed")
    assert comparison.figures.samples_per_s == 416.0, "the median of those that were measured"


def test_without_a_measured_repetition_of_the_baseline_nothing_is_compared():
    assert compared(repetitions(GELU, 412.0)) == ()
    assert compared(repetitions(GELU, 412.0) + repetitions(BASELINE, Died("killed"))) == ()


def test_a_clear_win_is_told_in_one_sentence():
    answer = verdict(TRIED, repetitions(BASELINE, 340.0, 338.0, 342.0) + repetitions(GELU, 412.0, 405.0, 420.0))
    assert answer.kind_of_answer == "winner"
    assert answer.winner == GELU
    assert answer.sentences == (
        "Recomputing all 12 gelu operators at batch 48 gives 1.21x as many samples per second as your baseline "
        "(412.0 vs 340.0 samples/s; at least 1.097x in 3 repetitions) within 900 MiB."
    )
    assert answer.stop_reason == STOP


def test_of_two_winners_the_faster_one_wins():
    repeats = (
        repetitions(BASELINE, 340.0, 338.0, 342.0)
        + repetitions(GELU, 400.0, 401.0, 402.0)
        + repetitions(LAYERS, 410.0, 411.0, 412.0)
    )
    assert verdict(TRIED, repeats).winner == LAYERS


def scattered(*gains):
    """Repetitions in which GELU is so many percent faster, on a machine that changes from repetition to repetition."""
    own = [340.0 * (1 + 0.3 * math.sin(3 * number)) for number in range(len(gains))]
    return repetitions(BASELINE, *own) + repetitions(
        GELU, *(rate * (1 + gain / 100) for rate, gain in zip(own, gains, strict=True))
    )


def test_what_may_be_faster_after_a_few_repetitions_is_still_open():
    answer = verdict(TRIED, scattered(1, 12, 6))
    assert (answer.kind_of_answer, answer.winner) == ("undecided", GELU)
    assert answer.sentences.startswith(
        "Recomputing all 12 gelu operators at batch 48 is the fastest so far, but is not confirmed: 0."
    )
    assert answer.sentences.endswith("x the speed in 3 repetitions.")


def test_what_may_be_faster_after_all_repetitions_is_said_to_be_and_the_baseline_stays():
    answer = verdict(TRIED, scattered(*[-3, 14, 4, -2, 9, -4, 12, 3, -3, 11, -2, 10]))
    assert (answer.kind_of_answer, answer.winner) == ("baseline_best", BASELINE)
    assert answer.sentences.startswith(
        "Your baseline stays: recomputing all 12 gelu operators at batch 48 may be faster (0.9"
    )
    assert answer.sentences.endswith("x the speed), but 12 repetitions do not decide it.")


def test_what_is_unlikely_to_be_shown_faster_is_not_said_to_be_slower():
    answer = verdict(TRIED, scattered(5, -9, 1, -4))
    assert answer.kind_of_answer == "baseline_best"
    assert answer.sentences.startswith(
        "Your baseline stays: recomputing all 12 gelu operators at batch 48 came to 0.981x the speed (0."
    )
    assert answer.sentences.endswith("x, 4 repetitions), and more repetitions would hardly show that it is faster.")


def test_measuring_did_not_stop_early_where_no_repetition_was_left():
    answer = verdict(TRIED, scattered(5, -9, 1, -4), 4)
    assert answer.kind_of_answer == "baseline_best"
    assert answer.sentences.endswith("x the speed), but 4 repetitions do not decide it.")


def test_who_was_given_up_early_is_said_to_be_though_others_had_more_repetitions():
    beside = repetitions(LAYERS, *[340.0 * (1 + 0.01 * (-1) ** number) for number in range(12)])
    answer = verdict(TRIED, (*scattered(*[5, -9, 1, -4] + [0] * 8)[:16], *beside))
    gelu = next(one for one in answer.comparisons if one.configuration == GELU)
    assert gelu.repetitions < 12
    assert gelu.found == "futile"


def test_what_repetitions_scatter_too_much_for_is_not_called_unlikely():
    answer = verdict(TRIED, scattered(500, -90, 300, -80))
    assert "may be faster (under 0.1x to over 10x the speed), but 4 repetitions do not decide it." in answer.sentences


def test_what_is_not_faster_by_half_a_percent_leaves_the_baseline_the_best():
    answer = verdict(TRIED, scattered(-9, -10, -11, -10))
    assert answer.kind_of_answer == "baseline_best"
    assert answer.sentences.startswith(
        "Your baseline is already the best: recomputing all 12 gelu operators "
        "at batch 48, measured again in 4 repetitions, is not "
        "faster by 0.5 % or more ("
    )


def test_a_gain_below_half_a_percent_is_no_win_however_little_repetitions_scatter():
    assert compared(scattered(*[0.4] * 12))[0].found != "win"
    assert compared(scattered(*[0.6] * 12))[0].found == "win"


@pytest.mark.parametrize(
    "flaw",
    [
        Died("killed by SIGSEGV"),
        OutOfMemory("out of memory"),
        fast(415.0, 901),
        fast(415.0, allocator_retries=1),
        fast(415.0, nonfinite_loss=True),
    ],
    ids=["died", "out of memory", "over the limit", "thrashed", "loss not finite"],
)
def test_one_bad_repetition_of_many_disqualifies(flaw):
    many = [412.0 + i for i in range(19)]
    repeats = repetitions(BASELINE, *[340.0 + i for i in range(20)]) + repetitions(GELU, *many, flaw)
    answer = verdict(TRIED[:2], repeats)
    assert answer.kind_of_answer == "baseline_best"
    assert answer.comparisons[0].found == "failed"
    # The next in line was not measured again yet.
    answer = verdict(TRIED, repeats)
    assert (answer.kind_of_answer, answer.winner) == ("undecided", LAYERS)


def test_where_nothing_beat_the_baseline_it_is_said_plainly():
    answer = verdict(trials((BASELINE, fast(340.0)), (GELU, fast(320.0)), (LAYERS, OutOfMemory("out of memory"))))
    assert answer.kind_of_answer == "baseline_best"
    assert answer.sentences == (
        "Your baseline is already the best: of 1 other setting measured within 900 MiB, none beats its 340.0 samples/s "
        "by more than 0.5 %, and no untried setting is expected to."
    )


@pytest.mark.parametrize(
    ("tried", "said"),
    [
        ([], "nothing else was tried, and it is not known what could be recomputed."),
        ([(dataclasses.replace(BASELINE, batch_size=64), fast(300.0))], "none beats its 340.0 samples/s by more than"),
    ],
)
def test_nothing_is_claimed_of_plans_that_are_not_known(tried, said):
    facts = dataclasses.replace(FACTS, clusters=(), undescribed=TimedOut("too slow"))
    record = StudyRecord("s", StudySpec("train.py"), 0.0, "0", facts, trials((BASELINE, fast(340.0)), *tried), ())
    reason = decide(record, LIMIT, STOP).sentences
    assert reason.startswith("Your baseline stays")
    assert said in reason
    assert reason.endswith("it is not known what could be recomputed.")


def cut_short(tried, repeats=()):
    record = StudyRecord("s", StudySpec("train.py"), 0.0, "0", FACTS, tried, tuple(repeats))
    return decide(record, LIMIT, STOP, cut_short="time was up", num_configurations=40095)


def test_where_a_search_was_cut_short_nothing_is_said_of_what_was_not_tried():
    answer = cut_short(trials((BASELINE, fast(340.0)), (GELU, fast(320.0)), (LAYERS, OutOfMemory("out of memory"))))
    assert (answer.kind_of_answer, answer.winner) == ("undecided", BASELINE)
    assert answer.sentences == (
        "Nothing was better than your baseline (340.0 samples/s). The search measured 1 of 40,094 other settings "
        "(1 more trial failed): time was up."
    )


def test_finalists_that_lost_say_nothing_of_what_was_not_tried():
    answer = cut_short(TRIED, repetitions(BASELINE, 340.0, 341.0, 340.5) + repetitions(GELU, 339.0, 338.0, 339.5))
    assert (answer.kind_of_answer, answer.winner) == ("undecided", BASELINE)
    assert answer.sentences.startswith("Your baseline stays: ")
    assert answer.sentences.endswith(". The search measured 2 of 40,094 other settings: time was up.")


def test_a_winner_is_one_however_the_search_ended():
    repeats = repetitions(BASELINE, 340.0, 341.0, 340.5) + repetitions(GELU, 412.0, 413.0, 411.0)
    assert cut_short(TRIED, repeats).kind_of_answer == "winner"


def test_where_there_is_nothing_to_gain_the_baseline_is_the_answer():
    answer = verdict(trials((BASELINE, fast(340.0))))
    assert (answer.kind_of_answer, answer.winner) == ("baseline_best", BASELINE)
    assert "no other setting is expected to be better" in answer.sentences
    answer = cut_short(trials((BASELINE, fast(340.0))))
    assert (answer.kind_of_answer, answer.winner) == ("undecided", None)
    assert "and nothing else: time was up" in answer.sentences


@pytest.mark.parametrize("baseline", [(340.0, 338.0), (340.0, 338.0, Died("killed"), Died("killed"))])
def test_a_runner_up_of_which_the_repetitions_have_begun_is_waited_for(baseline):
    slow = repetitions(GELU, 309.0, 306.0, 308.0, 307.0)
    own = repetitions(BASELINE, 340.0, 338.0, 341.0, 339.0)
    later = repetitions(BASELINE, *baseline, confirmation=2) + repetitions(LAYERS, 405.0, 402.0, confirmation=2)
    answer = verdict(TRIED, own + slow + later)
    assert (answer.kind_of_answer, answer.winner) == ("undecided", LAYERS)
    assert verdict(TRIED, own + slow).kind_of_answer == "baseline_best", "and one that has none is not"


def test_without_enough_repetitions_the_fastest_is_named_but_nothing_is_decided():
    answer = verdict(TRIED)
    assert (answer.kind_of_answer, answer.winner) == ("undecided", GELU)
    assert "not yet measured again" in answer.sentences
    for most_repetitions in (2, 12):
        answer = verdict(TRIED, repetitions(BASELINE, 340.0, 341.0) + repetitions(GELU, 412.0, 413.0), most_repetitions)
        assert (answer.kind_of_answer, answer.winner) == ("undecided", GELU)
        assert "2 repetitions" in answer.sentences


def test_a_baseline_over_the_limit_gives_way_to_the_fastest_that_fits():
    answer = verdict(trials((BASELINE, fast(340.0, 1200)), (SMALL, fast(250.0, 700)), (GELU, fast(240.0, 800))))
    assert (answer.kind_of_answer, answer.winner) == ("baseline_does_not_fit", SMALL)
    assert answer.reason.text == (
        "Recomputing all 12 Blocks at batch 32 gives 250.0 samples/s within 700 MiB, measured once."
    )
    assert [one.text for one in answer.remarks] == ["Your baseline needs 1.17 GiB, more than 900 MiB."]


def test_a_finalist_that_failed_in_the_repetitions_gives_way_to_the_next():
    tried = trials((BASELINE, OutOfMemory("out of memory")), (SMALL, fast(250.0)), (GELU, fast(240.0)))
    answer = verdict(
        tried, repetitions(SMALL, 250.0, OutOfMemory("out of memory"), 250.0) + repetitions(GELU, 239.0, 240.0)
    )
    assert (answer.kind_of_answer, answer.winner) == ("baseline_does_not_fit", GELU)
    assert "runs out of memory" in answer.sentences


def test_a_lucky_trial_does_not_beat_what_was_measured_again():
    tried = trials((BASELINE, OutOfMemory("out of memory")), (SMALL, fast(300.0)), (GELU, fast(298.0)))
    answer = verdict(tried, repetitions(SMALL, 281.0, 282.0, 283.0))
    assert (answer.kind_of_answer, answer.winner) == ("baseline_does_not_fit", SMALL)
    assert "gives 282.0 samples/s" in answer.sentences
    assert "measured once" not in answer.sentences


def test_a_finalist_without_figures_of_its_repetitions_is_told_without_them():
    tried = trials((BASELINE, fast(340.0)), (GELU, fast(330.0)))
    uncounted = repetitions(BASELINE, 340.0, 341.0, 342.0) + repetitions(GELU, *[fast(0.0)] * 3)
    (comparison,) = compared(uncounted)
    assert (comparison.figures, comparison.found) == (None, "open")
    told = verdict(tried, uncounted)
    assert told.winner == BASELINE
    assert "0 repetitions do not decide it yet" in told.sentences


def test_repetitions_are_held_against_the_baseline_of_the_same_confirmation():
    slow_day = repetitions(BASELINE, 240.0, 238.0, 242.0) + repetitions(LAYERS, 241.0, 239.0, 240.0)
    fast_day = repetitions(BASELINE, 340.0, 338.0, 342.0, confirmation=2) + repetitions(
        GELU, 341.0, 339.0, 343.0, confirmation=2
    )
    by_key = {one.configuration.key: one for one in compared(slow_day + fast_day)}
    assert by_key[LAYERS.key].baseline_figures.samples_per_s == 240.0
    assert by_key[GELU.key].baseline_figures.samples_per_s == 340.0
    assert verdict(TRIED, slow_day + fast_day).kind_of_answer == "baseline_best"


def test_a_confirmation_that_was_cut_short_does_not_hide_an_earlier_whole_one():
    whole = repetitions(BASELINE, 340.0, 338.0, 342.0) + repetitions(GELU, 412.0, 405.0, 420.0)
    cut_short = repetitions(BASELINE, 340.0, confirmation=2) + repetitions(GELU, 412.0, confirmation=2)
    assert verdict(TRIED, whole + cut_short).winner == GELU


def test_a_faster_one_that_was_not_measured_again_leaves_the_question_open():
    tried = trials((BASELINE, fast(340.0)), (GELU, fast(350.0)), (LAYERS, fast(480.0)))
    answer = verdict(tried, repetitions(BASELINE, 340.0, 338.0, 342.0) + repetitions(GELU, 340.0, 339.0, 341.0))
    assert (answer.kind_of_answer, answer.winner) == ("undecided", LAYERS)


def test_a_baseline_that_fails_in_its_repetitions_is_said_to():
    answer = verdict(
        TRIED, repetitions(BASELINE, 340.0, Died("killed"), 341.0) + repetitions(GELU, 480.0, 481.0, 479.0)
    )
    assert (answer.kind_of_answer, answer.winner) == ("undecided", GELU)
    assert [one.text for one in answer.remarks] == ["Your baseline failed in 1 of 3 repetitions."]


def test_where_nothing_fits_the_least_seen_is_named():
    answer = verdict(trials((BASELINE, OutOfMemory("out of memory")), (SMALL, fast(250.0, 950))))
    assert (answer.kind_of_answer, answer.winner) == ("nothing_fits", None)
    assert answer.sentences == (
        "Nothing tried trains within 900 MiB; the lowest peak was 950 MiB, of recomputing all 12 Blocks at batch 32, "
        "at 250.0 samples/s. Allow more with --memory-limit."
    )


def test_the_answer_says_how_to_pass_a_batch_size_that_cannot_be_set():
    control = BatchControl("none", reason="no DataLoader feeds training", options={"--batch_size": 16})
    facts = dataclasses.replace(FACTS, batch_control=control)
    (remark, *_) = decide(StudyRecord("s", StudySpec("train.py"), 0.0, "0", facts, TRIED[:1]), LIMIT, STOP).remarks
    assert remark.code == "batch_size_stays"
    assert remark.text == (
        "The batch size stays: no DataLoader feeds training. Pass the batch size as an option instead, behind `--`: "
        "`--batch_size={batch_size:16}`."
    )
    assert "batch_size_stays" not in [one.code for one in verdict(TRIED).remarks]
    asked = StudySpec("train.py", batch_sizes=(16, 16))
    answer = decide(StudyRecord("s", asked, 0.0, "0", facts, TRIED[:1]), LIMIT, STOP)
    assert "batch_size_stays" not in [one.code for one in answer.remarks]


@pytest.mark.parametrize("undescribed", [None, Fallback("no graph of the model was captured")])
def test_a_script_with_nothing_to_try_is_not_called_the_best(undescribed):
    control = BatchControl("none", reason="no DataLoader feeds training")
    facts = dataclasses.replace(FACTS, batch_control=control, clusters=(), undescribed=undescribed)
    found = decide(StudyRecord("s", StudySpec("train.py"), 0.0, "0", facts, TRIED[:1]), LIMIT, STOP)
    assert found.reason is not None
    assert (
        found.reason.text == "Your baseline stays, at 340.0 samples/s: at its batch size nothing else is worth trying."
    )


def test_a_model_is_not_told_to_pass_options():
    reason = "the model's batch dimension is fixed: export it with a dynamic one"
    own, control = Configuration("onnxruntime", batch_size=16), BatchControl("none", reason=reason)
    facts = dataclasses.replace(FACTS, baseline=own, batch_control=control)
    remark = batch_size_left_alone(StudyRecord("s", StudySpec("m.onnx"), 0.0, "0", facts), facts)
    assert remark.text == f"The batch size stays: {reason}."


def test_smaller_batches_are_advised_only_where_the_search_left_some_out():
    tried = trials((BASELINE, OutOfMemory("out of memory")), (SMALL, fast(250.0, 950)))
    fixed = dataclasses.replace(FACTS, batch_control=BatchControl("none", reason="no loader"))
    for sizes, facts, advised in (
        (None, FACTS, False),
        ((1, 64), FACTS, False),
        ((8, 64), FACTS, True),
        ((8, 64), fixed, False),
        ((8, 64), dataclasses.replace(FACTS, batch_size=None), False),
    ):
        record = StudyRecord("s", StudySpec("train.py", batch_sizes=sizes), 0.0, "0", facts, tried)
        assert ("--batch-sizes" in decide(record, LIMIT, STOP).reason.text) == advised


def on_gpu(tried, *, engine="aot", choices=(), kind="cuda", repeats=(), **variables):
    environment = dataclasses.replace(FACTS.environment, device_kind=kind, variables=variables)
    facts = dataclasses.replace(FACTS, environment=environment)
    spec = StudySpec("train.py", engine=engine, choices=choices)
    return decide(StudyRecord("s", spec, 0.0, "0", facts, tried, tuple(repeats)), LIMIT, STOP).sentences


def held(allocated_mib, reserved_mib, **flags):
    peaks = Peaks(allocated=allocated_mib * MIB, reserved=reserved_mib * MIB, non_torch=50 * MIB)
    outcome = fast(300.0, **flags)
    return Measured(dataclasses.replace(outcome.measurement, peaks=peaks))


def hot(rate, share=0.5):
    measurement = fast(rate).measurement
    limits = {"software_thermal": share} if share else {"power_cap": 1.0}
    return Measured(
        dataclasses.replace(measurement, conditions=DeviceConditions(10, limits=limits, throttled_share=share))
    )


def test_an_answer_says_in_how_many_of_its_repetitions_heat_slowed_the_gpu_down():
    repeats = (
        *repetitions(BASELINE, 340.0, hot(200.0), 341.0),
        *repetitions(GELU, hot(412.0), hot(413.0, share=0), 414.0),
    )
    sentence = "Heat or the power supply slowed the GPU down in 2 of 6 measurements of the confirmation"
    assert sentence in verdict(TRIED, repeats).sentences
    assert "slowed the GPU down" not in verdict(TRIED, repetitions(BASELINE, 340.0, 341.0)).sentences
    hot_trials = trials((BASELINE, hot(340.0)), (GELU, fast(330.0)))
    assert "slowed the GPU down in 1 of 2 trials" in verdict(hot_trials).sentences


OFFER = "with expandable-segments more may fit. This study tries it if you resume it."


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (held(770, 800, allocator_retries=2), "allocator had to free memory and try again in 1 measurement: "),
        (held(700, 830), "allocator kept up to 130 MiB that no tensor used: "),
        (
            held(700, 830, allocator_retries=1),
            "again in 1 measurement and kept up to 130 MiB that no tensor used: ",
        ),
        (held(820, 830), None),
        (held(400, 700), "allocator kept up to 300 MiB that no tensor used: "),
        (held(300, 500), None),
        (
            OutOfMemory(cause="no", advice="", idle_bytes=60 * MIB),
            "allocator kept up to 60 MiB that no tensor used: ",
        ),
        (OutOfMemory(cause="no", advice="", idle_bytes=40 * MIB), None),
    ],
    ids=[
        "tried again",
        "idle at the limit",
        "both",
        "full of tensors",
        "more than is left",
        "far from the limit",
        "out of memory",
        "full of tensors, out of memory",
    ],
)
def test_an_allocator_in_need_of_memory_that_it_holds_is_offered_segments_that_grow(outcome, words):
    tried = trials((BASELINE, fast(340.0)), (GELU, outcome))
    reason = on_gpu(tried)
    assert (OFFER in reason) == (words is not None), reason
    if words is not None:
        assert "Torch's allocator " in reason
        assert f"{words}{OFFER}" in reason


@pytest.mark.parametrize(
    "setting",
    [
        {"kind": "cpu"},
        {"choices": ("expandable-segments",)},
        {"engine": "ortmodule"},
        {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"},
    ],
    ids=["on a CPU", "allowed", "another engine", "set", "another allocator"],
)
def test_segments_that_grow_are_offered_only_where_they_can_be_had_and_were_not(setting):
    tried = trials((BASELINE, fast(340.0)), (GELU, held(700, 830, allocator_retries=1)))
    assert "expandable" not in on_gpu(tried, **setting)


def test_segments_that_grow_are_not_offered_where_they_were_tried():
    grown = dataclasses.replace(GELU, choices=("expandable-segments=1",))
    tried = trials((BASELINE, fast(340.0)), (GELU, held(700, 830)), (grown, fast(300.0)))
    assert "expandable" not in on_gpu(tried)


def test_segments_that_the_environment_rules_out_have_to_be_allowed():
    tried = trials((BASELINE, fast(340.0)), (GELU, held(700, 830)))
    reason = on_gpu(tried, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:False")
    assert "with --allow expandable-segments more may fit." in reason


def test_where_the_least_memory_is_sought_a_twentieth_of_a_peak_that_lies_idle_is_worth_having():
    def idle(allocated, reserved):
        tried = trials((BASELINE, held(allocated, reserved)))
        record = StudyRecord("s", StudySpec("train.py"), 0.0, "0", FACTS, tried, ())
        return idle_memory(record, Aim(Objective("memory"), LIMIT))

    assert "130 MiB" in idle(270, 400)
    assert idle(390, 400) == ""


def test_segments_that_grow_are_offered_for_what_repetitions_show_and_where_nothing_fits():
    assert OFFER in on_gpu(TRIED, repeats=repetitions(GELU, held(700, 800, allocator_retries=1)))
    too_large = trials((BASELINE, held(700, 980)), (SMALL, held(700, 870)))
    reason = on_gpu(too_large)
    assert reason.startswith("Nothing tried trains within")
    assert reason.endswith(OFFER)


def test_a_baseline_that_thrashes_only_just_fits():
    answer = verdict(trials((BASELINE, fast(340.0, allocator_retries=2)), (SMALL, fast(250.0, 700))))
    assert (answer.kind_of_answer, answer.winner) == ("baseline_does_not_fit", SMALL)
    assert answer.remarks[0].text == (
        "Your baseline only just fits 900 MiB: torch's allocator had to free memory and try again."
    )


def test_without_its_baseline_a_study_is_undecided_whatever_else_it_measured():
    answer = verdict(trials((GELU, fast(412.0))))
    assert (answer.kind_of_answer, answer.winner) == ("undecided", None)
    assert answer.sentences == "The baseline was not measured yet."


def test_a_study_that_measured_nothing_is_undecided():
    assert verdict(()).kind_of_answer == "undecided"
    assert verdict(trials((BASELINE, measured(0.0, 16, MIB)), (GELU, measured(0.0, 16, MIB)))).winner is None


def test_one_that_lost_early_does_not_hide_a_winner_with_all_repetitions():
    answer = verdict(
        TRIED,
        repetitions(BASELINE, 340.0, 338.0, 342.0, 341.0)
        + repetitions(GELU, 309.0, 307.0, 308.0)
        + repetitions(LAYERS, 405.0, 402.0, 407.0, 405.0),
    )
    assert (answer.kind_of_answer, answer.winner) == ("winner", LAYERS)


# -- who is measured in the next repetition


def following(repeats, entrants=(BASELINE, GELU, LAYERS), **options):
    given = {"most_repetitions": 12, "baseline_is_finite": True, "seed": "a confirmation"}
    return next_repetition(repeats, entrants, BASELINE, AIM, **given | options)


def alike(num_repetitions, *configurations):
    return tuple(
        one
        for each in configurations
        for one in repetitions(each, *[340.0 + 30 * (n % 2) for n in range(num_repetitions)])
    )


def test_the_second_repetition_is_the_reverse_of_the_first_and_others_have_orders_of_their_own():
    everyone = (BASELINE, GELU, LAYERS)
    orders = [following(noisy_repetitions(number)) for number in range(8)]
    assert all(set(order) == set(everyone) for order in orders)
    assert orders[1] == orders[0][::-1]
    assert len({*orders[2:]}) > 2
    assert orders == [following(noisy_repetitions(number)) for number in range(8)], (
        "the same study measures the same way"
    )
    assert len({following((), seed=str(seed)) for seed in range(30)}) == 6


def noisy_repetitions(number):
    """Repetitions that leave everything open."""
    rates = {BASELINE: (340.0, 340.0), GELU: (440.0, 330.0), LAYERS: (350.0, 440.0)}
    return tuple(one for each, rate in rates.items() for one in repetitions(each, *(rate * 4)[:number]))


def test_repetitions_go_on_while_the_answer_is_open_and_no_further_than_they_may():
    assert following(noisy_repetitions(8))
    assert following(noisy_repetitions(8), most_repetitions=8) == ()


def test_a_win_ends_a_confirmation():
    sure = repetitions(GELU, *[420.0] * 4)
    assert following(alike(4, BASELINE, LAYERS)[:4] + sure, (BASELINE, GELU)) != ()
    steady = repetitions(BASELINE, 340.0, 341.0, 340.0, 339.0)
    assert following(steady + sure + repetitions(LAYERS, 341.0, 340.0, 339.0, 340.0)) == ()


def test_who_cannot_win_any_more_or_failed_is_measured_no_further():
    own = repetitions(BASELINE, 340.0, 370.0, 310.0, 345.0)
    slow = repetitions(GELU, 240.0, 260.0, 215.0, 241.0)
    close = repetitions(LAYERS, 380.0, 375.0, 340.0, 390.0)
    assert set(following(own + slow + close)) == {BASELINE, LAYERS}
    assert set(following(own[:1] + repetitions(GELU, Died("killed")) + close[:1])) == {BASELINE, LAYERS}
    assert following(own[:1] + repetitions(GELU, Died("killed")) + repetitions(LAYERS, fast(380.0, 901))) == ()
    # Who was left out of a repetition stays out, whatever its repetitions look like later.
    assert set(following(own + slow[:3] + close)) == {BASELINE, LAYERS}


def test_a_baseline_that_keeps_failing_ends_its_confirmation():
    failing = [Died("killed"), 340.0, Died("killed"), Died("killed")]
    assert following(repetitions(BASELINE, *failing[:3]) + repetitions(GELU, *[412.0] * 3), (BASELINE, GELU))
    assert following(repetitions(BASELINE, *failing) + repetitions(GELU, *[412.0] * 4), (BASELINE, GELU)) == ()


# -- a machine that others use too


def contended(outcome, waited_share=0.0):
    return Measured(dataclasses.replace(outcome.measurement, contended=True, waited_share=waited_share))


def test_what_was_slower_while_others_kept_the_machine_busy_is_measured_again():
    tried = trials((BASELINE, fast(340.0)), (GELU, contended(fast(300.0))), (LAYERS, fast(330.0)))
    assert finalists(tried, FACTS, AIM) == ()
    assert doubtful(tried, FACTS, AIM) == (GELU,)
    unsearched = Measured(dataclasses.replace(fast(300.0).measurement, kernels_searched=False))
    assert doubtful(trials((BASELINE, fast(340.0)), (GELU, unsearched)), FACTS, AIM) == (GELU,)
    slower = Measured(dataclasses.replace(fast(270.0).measurement, kernels_searched=False))
    assert doubtful(trials((BASELINE, fast(340.0)), (GELU, slower)), FACTS, AIM) == (), "kernels do not bring so much"
    alike = Measured(dataclasses.replace(fast(340.0).measurement, kernels_searched=False))
    assert doubtful(trials((BASELINE, alike), (GELU, unsearched)), FACTS, AIM) == (), "a search helps both"
    alone = trials((BASELINE, contended(fast(340.0))), (GELU, fast(300.0)), (LAYERS, contended(fast(160.0))))
    assert doubtful(alone, FACTS, AIM) == (), "it was slower with the machine to itself, or by far"


def test_how_long_its_threads_waited_says_how_much_faster_a_setting_may_be_alone():
    def asked(waited_share):
        return doubtful(trials((BASELINE, fast(340.0)), (GELU, contended(fast(100.0), waited_share))), FACTS, AIM)

    assert asked(0.6) == (), "alone it had 250 samples/s at most"
    assert asked(0.8) == (GELU,)
    assert asked(1.0) == (GELU,)


def test_what_may_be_faster_on_a_machine_of_its_own_leaves_the_question_open():
    tried = trials((BASELINE, fast(340.0)), (GELU, contended(fast(300.0))), (LAYERS, fast(330.0)))
    answer = verdict(tried)
    assert (answer.kind_of_answer, answer.winner) == ("undecided", BASELINE)
    assert "recomputing all 12 gelu operators at batch 48 was measured while other programs" in answer.sentences
    begun = verdict(tried, repetitions(BASELINE, 340.0, 341.0) + repetitions(GELU, 412.0, 413.0))
    assert (begun.kind_of_answer, begun.winner) == ("undecided", BASELINE)
    assert "may be faster, but 2 repetitions do not decide it yet" in begun.sentences
    failed = verdict(tried, repetitions(BASELINE, Died("killed")) + repetitions(GELU, 412.0))
    assert failed.kind_of_answer == "undecided"
    told = verdict(tried, repetitions(BASELINE, 340.0, 341.0, 339.0) + repetitions(GELU, 301.0, 302.0, 300.0))
    assert told.kind_of_answer == "baseline_best"


def unsearched(samples_per_s):
    return Measured(dataclasses.replace(fast(samples_per_s).measurement, kernels_searched=False))


def test_a_small_gain_is_seen_where_neither_the_baseline_nor_trials_had_their_kernels_searched():
    """Guards a gain of 3 % that looks like a loss beside a baseline whose kernels were searched."""
    tried = trials((BASELINE, unsearched(340.0)), (GELU, unsearched(350.0)))
    assert finalists(tried, FACTS, AIM) == (GELU,)
    answer = verdict(tried)
    says = "Trials leave out the kernel search (max-autotune)"
    assert says in answer.sentences
    told = verdict(tried, repetitions(BASELINE, 390.0, 391.0, 389.0) + repetitions(GELU, 450.0, 451.0, 449.0))
    assert told.kind_of_answer == "winner"
    assert "kernels" not in told.sentences, "repetitions have the search"


def test_what_was_held_back_is_told():
    alone = verdict(trials((BASELINE, fast(340.0)), (GELU, unsearched(300.0)))).sentences
    assert "at batch 48 was measured without the kernel search that the script asks for: it may really be" in alone
    assert "Trials leave out the kernel search" in alone
    both = dataclasses.replace(unsearched(300.0).measurement, contended=True)
    reason = verdict(trials((BASELINE, fast(340.0)), (GELU, Measured(both)))).sentences
    assert "while other programs used the machine and without the kernel search" in reason
    assert "kernels" not in verdict(trials((BASELINE, fast(340.0)), (GELU, fast(300.0)))).sentences


def test_in_search_of_memory_what_was_too_slow_on_a_busy_machine_is_measured_again():
    tried = trials((BASELINE, fast(340.0)), (SMALL, contended(fast(300.0, 300))))
    aim = Aim(Objective("memory"), LIMIT)
    assert finalists(tried, FACTS, aim) == ()
    assert doubtful(tried, FACTS, aim) == (SMALL,)


def test_a_busy_machine_is_told_once_with_the_difference_that_repetitions_can_show():
    repeats = repetitions(BASELINE, 340.0, contended(fast(338.0)), 342.0) + repetitions(
        GELU, 412.0, contended(fast(405.0)), 420.0
    )
    answer = verdict(TRIED, repeats)
    assert answer.kind_of_answer == "winner"
    (comparison,) = answer.comparisons
    difference = comparison.speedup_high / comparison.speedup - 1
    assert answer.sentences.endswith(
        "Other programs used the machine in 2 of 6 measurements of the confirmation: only differences of "
        f"{100 * difference:.3g} % or more are reliable."
    )


def test_repetitions_that_vary_by_whole_factors_are_said_to_tell_nothing():
    slow, quick = contended(fast(20.0)), contended(fast(900.0))
    repeats = repetitions(BASELINE, slow, slow, quick) + repetitions(GELU, quick, 300.0, 990.0)
    answer = verdict(TRIED, repeats, 3)
    assert "may be faster (under 0.1x to over 10x the speed), but 3 repetitions do not decide it" in answer.sentences
    assert answer.sentences.endswith(
        "Other programs used the machine in 4 of 6 measurements of the confirmation, and the figures show next to "
        "nothing: measure again when these programs have ended, as a study of another name (--study)."
    )


def test_what_kept_a_loser_open_says_nothing_of_a_winner():
    wild = contended(fast(20.0))
    repeats = repetitions(BASELINE, 340.0, 342.0, wild, confirmation=1) + repetitions(
        LAYERS, 341.0, wild, 900.0, confirmation=1
    )
    repeats += repetitions(BASELINE, 340.0, contended(fast(338.0)), 342.0, confirmation=2)
    repeats += repetitions(GELU, 412.0, contended(fast(405.0)), 420.0, confirmation=2)
    answer = verdict(TRIED, repeats, 3)
    assert (answer.kind_of_answer, answer.winner) == ("winner", GELU)
    loser, won = answer.comparisons
    assert loser.speedup_high > 10
    assert answer.sentences.endswith(
        f"only differences of {100 * (won.speedup_high / won.speedup - 1):.3g} % or more are reliable."
    )


def test_without_repetitions_single_measurements_on_a_busy_machine_are_trusted_to_a_factor():
    tried = trials((BASELINE, contended(fast(340.0))), (GELU, contended(fast(160.0))), (LAYERS, fast(150.0)))
    answer = verdict(tried)
    assert answer.kind_of_answer == "baseline_best"
    assert "reliable to a factor of 5 only" in verdict(trials((BASELINE, contended(fast(340.0), 0.8)))).sentences
    assert answer.sentences.endswith(
        "Other programs used the machine in 2 of 3 trials: speeds measured once are reliable to a factor of 2 only."
    )
    assert "Other programs" not in verdict(trials((BASELINE, fast(340.0)), (GELU, fast(320.0)))).sentences


def test_a_finalist_is_beaten_by_one_that_was_better_in_every_repetition_of_both():
    repeats = repetitions(GELU, 412.0, 400.0) + repetitions(LAYERS, 405.0)
    assert is_beaten(repeats, LAYERS, GELU, AIM)
    assert not is_beaten(repeats, GELU, LAYERS, AIM)
    assert not is_beaten((*repeats, Repeat(LAYERS, 1, fast(401.0))), LAYERS, GELU, AIM)
    assert not is_beaten(repetitions(GELU, 412.0) + repetitions(LAYERS, 405.0, confirmation=2), LAYERS, GELU, AIM)


def test_in_search_of_memory_only_one_that_is_smaller_and_no_slower_beats_another():
    aim = Aim(Objective("memory"), LIMIT)
    slow_and_small, fast_and_large = repetitions(GELU, fast(400.0, 700)), repetitions(LAYERS, fast(405.0, 800))
    assert not is_beaten(slow_and_small + fast_and_large, LAYERS, GELU, aim)
    assert is_beaten(repetitions(GELU, fast(405.0, 700)) + fast_and_large, LAYERS, GELU, aim)


def test_the_front_keeps_what_nothing_beats_in_both():
    tried = trials(
        (BASELINE, fast(340.0, 500)),
        (GELU, fast(412.0, 800)),
        (LAYERS, fast(330.0, 600)),
        (SMALL, fast(250.0, 300)),
        (SMALL, fast(250.0, 300)),
        (GELU, OutOfMemory("out of memory")),
        (GELU, fast(500.0, 700, allocator_retries=1)),
    )
    assert [trial.number for trial in front(tried, baseline_is_finite=True)] == [3, 0, 1]


def test_a_loss_that_is_no_number_keeps_off_the_front_only_where_the_script_s_own_is_one():
    tried = trials((BASELINE, fast(340.0, 500, nonfinite_loss=True)))
    assert front(tried, baseline_is_finite=True) == ()
    assert front(tried, baseline_is_finite=False) == tried


@pytest.mark.parametrize(
    ("measurement", "flaws"),
    [
        (fast(340.0).measurement, set()),
        (fast(340.0, 901).measurement, {"over_limit"}),
        (fast(340.0, allocator_retries=1).measurement, {"thrashed"}),
        (fast(340.0, nonfinite_loss=True).measurement, {"loss_not_finite"}),
        (fast(340.0, 901, allocator_retries=1).measurement, {"over_limit", "thrashed"}),
        (dataclasses.replace(fast(340.0).measurement, peaks=Peaks()), {"peak_unknown"}),
    ],
)
def test_what_stands_against_a_measurement_is_named(measurement, flaws):
    assert flaws_of(measurement, LIMIT, baseline_is_finite=True) == flaws
    assert is_feasible(measurement, LIMIT, baseline_is_finite=True) == (not flaws)


# -- whole confirmations on simulated machines; tests/benchmarks/repetitions.py has many more of them


def chance_cells(*, aside):
    return {one.name: one for one in cells(aside=aside)}


NULLS = [
    "1 finalist, 2.7%, not shared: no difference",
    "1 finalist, 15.0%, bursts: no difference",
    "2 finalists, 40.0%, half shared: no difference",
    "2 finalists, 2.7%, two modes: no difference",
    "2 finalists, 2.7%, drift: no difference",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", NULLS)
def test_where_nothing_is_faster_something_rarely_wins(name):
    found = simulate(chance_cells(aside=False)[name], 400, seed=5000)
    assert found.wins <= 11, "one in a hundred is four"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("1 finalist, 2.7%, half shared: 1.05x", 0.90),
        ("1 finalist, 2.7%, not shared: 1.05x", 0.75),
        ("1 finalist, 40.0%, half shared: 2x", 0.90),
        ("2 finalists, 2.7%, nine tenths shared: 1.05x", 0.90),
    ],
)
def test_what_is_faster_is_found(name, least):
    found = simulate(chance_cells(aside=False)[name], 200, seed=5000)
    assert found.wins >= least * found.studies
    assert found.repetitions < 10


UNSURE = Believed(chances_to_fit={GELU.key: 0.4})


def decided(tried, repeats=(), believed=UNSURE):
    record = StudyRecord("s", StudySpec("train.py"), 0.0, "0", FACTS, tried, tuple(repeats))
    return decide(record, LIMIT, STOP, believed=believed)


def test_what_may_not_fit_again_is_a_finalist_only_where_nothing_else_is():
    assert finalists(TRIED, FACTS, AIM, believed=UNSURE) == (LAYERS,)
    alone = trials((BASELINE, fast(340.0)), (GELU, fast(412.0)))
    assert finalists(alone, FACTS, AIM, believed=UNSURE) == (GELU,)


def test_what_may_not_fit_again_has_its_turn_where_nothing_else_may_win_any_more():
    lost = repetitions(BASELINE, *[405.0] * 4) + repetitions(LAYERS, *[404.0] * 4)
    assert finalists(TRIED, FACTS, AIM, lost, believed=UNSURE)[0] == GELU
    answer = decided(TRIED, lost)
    assert (answer.kind_of_answer, answer.winner) == ("undecided", GELU)


def test_of_what_is_not_likely_to_fit_the_likelier_has_its_turn_first():
    believed = Believed(chances_to_fit={GELU.key: 0.4, LAYERS.key: 0.7}, least_chances=(0.8, 0.5))
    assert finalists(TRIED, FACTS, AIM, believed=believed) == (LAYERS,)
    both = Believed(chances_to_fit={GELU.key: 0.6, LAYERS.key: 0.7}, least_chances=(0.8, 0.5))
    assert finalists(TRIED, FACTS, AIM, believed=both)[0] == GELU


def test_repetitions_that_fitted_tell_more_than_what_was_believed():
    begun = repetitions(BASELINE, 340.0, 341.0) + repetitions(GELU, 412.0, 411.0)
    assert GELU in finalists(TRIED, FACTS, AIM, begun, believed=UNSURE)


def test_a_winner_is_told_with_what_was_left_out_for_it():
    won = repetitions(BASELINE, 340.0, 338.0, 342.0) + repetitions(LAYERS, 405.0, 404.0, 406.0)
    answer = decided(TRIED, won)
    assert (answer.kind_of_answer, answer.winner) == ("winner", LAYERS)
    assert " ".join(one.text for one in answer.remarks) == (
        "Recomputing all 12 gelu operators at batch 48 was faster in its trial, at a peak of 800 MiB. It was left out: "
        "peaks differ between processes, and in another process it may pass 900 MiB."
    )


def waiting(rate, batch_size, wait_s, num_processes=1):
    measurement = dataclasses.replace(
        measured(rate, batch_size, 500 * MIB).measurement, epoch_wait_s=wait_s, num_processes=num_processes
    )
    samples = tuple(num_processes * one for one in measurement.samples_per_step)
    times = tuple(num_processes * one for one in measurement.step_times_s)
    return Measured(dataclasses.replace(measurement, samples_per_step=samples, step_times_s=times))


@pytest.mark.parametrize(
    ("samples", "own_s", "ours_s", "processes", "said"),
    [
        (3400, 10.0, 10.0, 1, "whole epochs of 3,400 samples are 1.087x as fast."),
        (3400, 10.0, 12.0, 1, "whole epochs of 3,400 samples are 0.981x as fast."),
        (1700, 10.0, 10.0, 2, "whole epochs of 3,400 samples are 1.087x as fast."),
        (3400, 0.01, 0.01, 1, ""),
        (3400, 0.0, 0.0, 1, ""),
        (3400, 10.0, None, 1, ""),
        (3400, None, 10.0, 1, ""),
        (190, 10.0, 10.0, 1, ""),  # three steps or less, which have the wait in them
    ],
)
def test_a_winner_is_told_with_the_gain_of_whole_epochs_where_each_waits(samples, own_s, ours_s, processes, said):
    won = repetitions(BASELINE, 340.0, 338.0, 342.0) + repetitions(LAYERS, 405.0, 404.0, 406.0)
    tried = trials((BASELINE, waiting(340.0, 16, own_s, processes)), (LAYERS, waiting(400.0, 64, ours_s, processes)))
    facts = dataclasses.replace(FACTS, epoch=EpochFacts(samples, drops_last=False))
    record = StudyRecord("s", StudySpec("train.py"), 0.0, "0", facts, tried, tuple(won))
    remarks = [one for one in decide(record, LIMIT, STOP).remarks if one.code == "epochs_wait"]
    assert bool(remarks) == bool(said)
    assert all(one.text.endswith(said) for one in remarks)


def test_a_winner_is_told_with_the_better_trial_that_was_not_measured_again():
    won = repetitions(BASELINE, 340.0, 338.0, 342.0) + repetitions(LAYERS, 405.0, 404.0, 406.0)
    (remark,) = decided(TRIED, won, Believed()).remarks
    assert remark.code == "better_unconfirmed"
    assert "was faster in its only trial (412.0 samples/s, 800 MiB)" in remark.text
    assert decided(TRIED, won + repetitions(GELU, 404.0, 405.0, 403.0), Believed()).remarks == ()


def test_without_a_baseline_what_should_fit_goes_before_what_may_not():
    over = trials((BASELINE, OutOfMemory("out of memory")), (GELU, fast(300.0, 895)), (LAYERS, fast(250.0, 500)))
    assert decided(over).winner == LAYERS
    assert decided(over, believed=Believed()).winner == GELU


def test_without_a_baseline_of_what_is_not_likely_to_fit_the_likelier_goes_first():
    over = trials((BASELINE, OutOfMemory("out of memory")), (GELU, fast(300.0, 895)), (LAYERS, fast(250.0, 890)))
    believed = Believed(chances_to_fit={GELU.key: 0.3, LAYERS.key: 0.6}, least_chances=(0.8, 0.5))
    assert decided(over, believed=believed).winner == LAYERS


def test_what_others_slowed_down_below_the_script_is_not_called_the_best():
    slow = contended(fast(60.0), 0.9)
    tried = trials((BASELINE, fast(340.0)), (GELU, fast(412.0)))
    answer = verdict(tried, repetitions(GELU, slow))
    assert (answer.kind_of_answer, answer.winner, answer.is_drowned) == ("undecided", BASELINE, True)
    assert answer.sentences == (
        "Other programs kept this machine too busy for an answer: end them first. Recomputing all 12 gelu operators at "
        "batch 48 may be the best, but was no faster than your script while they ran."
    )
    for others in (
        repetitions(BASELINE, 340.0, 341.0) + repetitions(GELU, slow, slow),  # measured twice
        repetitions(GELU, contended(fast(330.0))),  # no slower than measurements scatter
        repetitions(GELU, contended(fast(60.0), 0.1)),  # the machine is not why
        repetitions(GELU, fast(60.0)),
    ):
        assert not verdict(tried, others).is_drowned


def test_where_others_contended_every_trial_nothing_is_said_of_what_is_better():
    every = trials((BASELINE, contended(fast(36.0))), (GELU, contended(fast(20.0))))
    answer = verdict(every)
    assert (answer.kind_of_answer, answer.winner, answer.is_drowned) == ("undecided", BASELINE, True)
    assert answer.reason.code == "machine_too_busy"
    assert not verdict(trials((BASELINE, fast(36.0)), (GELU, contended(fast(20.0))))).is_drowned


def test_where_a_busy_machine_left_time_for_the_baseline_only_that_is_why():
    record = StudyRecord("s", StudySpec("train.py"), 0.0, "0", FACTS, trials((BASELINE, contended(fast(2.5)))), ())
    answer = decide(record, LIMIT, STOP, cut_short="time was up")
    assert (answer.kind_of_answer, answer.winner, answer.is_drowned) == ("undecided", None, True)
    assert [one.code for one in answer.remarks] == ["machine_too_busy"]
    quiet = dataclasses.replace(record, trials=trials((BASELINE, fast(340.0))))
    assert decide(quiet, LIMIT, STOP, cut_short="time was up").remarks == ()


def test_of_what_alone_fits_no_tenth_of_the_speed_is_called_the_best_on_a_busy_machine():
    over = (BASELINE, fast(340.0, 950))
    answer = verdict(trials(over, (SMALL, contended(fast(34.0, 500), 0.9))))
    assert (answer.kind_of_answer, answer.winner) == ("undecided", None)
    assert answer.reason.code == "machine_too_busy"
    assert [one.text for one in answer.remarks] == ["Your baseline needs 950 MiB, more than 900 MiB."]
    for slower in (contended(fast(200.0, 500)), fast(34.0, 500), contended(fast(34.0, 500), 0.05)):
        assert verdict(trials(over, (SMALL, slower))).kind_of_answer == "baseline_does_not_fit"


@pytest.mark.parametrize(
    ("resident", "said"),
    [
        (
            (600, 660, 500),
            "Of the 3 processes of your script rank 1 needs the most memory, 660 MiB, and rank 2 the least",
        ),
        ((600, 620), None),
        ((), None),
    ],
)
def test_it_is_said_which_rank_needs_the_most_memory(resident, said):
    own = fast(340.0)
    peaks = tuple(Peaks(resident=size * 2**20) for size in resident)
    own = dataclasses.replace(own, measurement=dataclasses.replace(own.measurement, rank_peaks=peaks))
    remarks = [
        one for one in verdict(trials((BASELINE, own), (LAYERS, fast(405.0)))).remarks if one.code == "ranks_differ"
    ]
    assert [one.text.startswith(said or "") for one in remarks] == [True] * bool(said)
