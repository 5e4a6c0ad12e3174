"""Finalists, the rounds beside the baseline, and the answer."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

from autotune.records import (
    Configuration,
    Died,
    Objective,
    OutOfMemory,
    Plan,
    Repeat,
    StudyRecord,
    StudySpec,
    Trial,
)
from autotune.records.figures import front
from autotune.search import Aim, compare, decide, finalists, is_beaten, is_lost
from tests.fakes.landscape import MIB, Landscape, measured

FACTS = Landscape().facts
BASELINE = FACTS.baseline
LIMIT = 900 * MIB
AIM = Aim(Objective(), LIMIT)
GELU = Configuration("aot", (Plan("gelu+", 1, -1),), 0, 48)
LAYERS = Configuration("aot", (Plan("Block+", 1, 6),), 0, 64)
SMALL = Configuration("aot", (Plan("Block+", 1, -1),), 0, 32)
STOP = "60 trials were run, as many as this study may."


def trials(*pairs):
    return tuple(Trial(i, configuration, "finished", outcome) for i, (configuration, outcome) in enumerate(pairs))


def fast(rate, peak_mib=800, **flags):
    return measured(rate, 48, peak_mib * MIB, **flags)


def rounds(configuration, *outcomes, final=1):
    outcomes = [fast(outcome) if isinstance(outcome, float) else outcome for outcome in outcomes]
    return tuple(Repeat(configuration, number, outcome, final=final) for number, outcome in enumerate(outcomes))


def verdict(tried, repeats=()):
    record = StudyRecord("s", StudySpec("train.py"), 0.0, "0", FACTS, tried, tuple(repeats))
    return decide(record, LIMIT, STOP)


TRIED = trials((BASELINE, fast(340.0)), (GELU, fast(412.0)), (LAYERS, fast(405.0)))


def test_the_fastest_and_a_runner_up_within_noise_are_finalists():
    assert finalists(TRIED, FACTS, AIM) == (GELU, LAYERS)


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


@pytest.mark.parametrize("flaw", [{"peak_mib": 901}, {"allocator_retries": 2}, {"nonfinite_loss": True}])
def test_what_may_not_win_is_no_finalist(flaw):
    assert finalists(trials((BASELINE, fast(340.0)), (GELU, fast(412.0, **flaw))), FACTS, AIM) == ()


def test_where_the_baseline_does_not_fit_whatever_fits_is_a_finalist():
    tried = trials((BASELINE, fast(340.0, 1000)), (SMALL, fast(200.0)))
    assert finalists(tried, FACTS, AIM) == (SMALL,)


def test_rounds_are_compared_by_medians_pairs_and_ranks():
    (comparison,) = compare(rounds(BASELINE, 340.0, 338.0, 342.0) + rounds(GELU, 412.0, 405.0, 420.0), BASELINE, AIM)
    assert comparison.speedup == pytest.approx(412 / 340)
    assert (comparison.speedup_low, comparison.speedup_high) == pytest.approx((405 / 342, 420 / 338))
    assert comparison.effect == 1.0
    assert comparison.p_value == pytest.approx(0.05)


def test_a_failed_round_counts_as_no_samples_and_a_failed_round_of_the_baseline_not_at_all():
    (comparison,) = compare(
        rounds(BASELINE, 340.0, Died("killed"), 342.0) + rounds(GELU, 412.0, Died("killed"), 420.0), BASELINE, AIM
    )
    assert comparison.baseline_samples_per_s == pytest.approx(341.0)
    assert comparison.effect == pytest.approx(4 / 6)


def test_without_a_measured_round_of_the_baseline_nothing_is_compared():
    assert compare(rounds(GELU, 412.0), BASELINE, AIM) == ()
    assert compare(rounds(GELU, 412.0) + rounds(BASELINE, Died("killed")), BASELINE, AIM) == ()


def test_a_clear_win_is_told_in_one_sentence():
    answer = verdict(TRIED, rounds(BASELINE, 340.0, 338.0, 342.0) + rounds(GELU, 412.0, 405.0, 420.0))
    assert answer.kind_of_answer == "winner"
    assert answer.winner == GELU
    assert answer.reason == (
        "gelu+:1:-1 at batch 48 trains 1.21x as many samples per second as your baseline (412.0 vs 340.0 samples/s) "
        "within 900 MiB."
    )
    assert answer.stop_reason == STOP


def test_a_win_by_the_compiler_alone_is_told_as_such():
    compiled = Configuration("inductor", (), 0, 48)
    tried = trials((BASELINE, fast(340.0)), (compiled, fast(412.0)))
    repeats = rounds(BASELINE, 340.0, 338.0, 342.0) + rounds(compiled, 412.0, 405.0, 420.0)
    assert verdict(tried, repeats).reason.startswith("batch 48 without plans compiled by Inductor trains 1.21x")


def test_of_two_winners_the_faster_one_wins():
    repeats = (
        rounds(BASELINE, 340.0, 338.0, 342.0) + rounds(GELU, 400.0, 401.0, 402.0) + rounds(LAYERS, 410.0, 411.0, 412.0)
    )
    assert verdict(TRIED, repeats).winner == LAYERS


def test_a_gain_within_the_spread_of_the_rounds_is_no_win():
    answer = verdict(TRIED, rounds(BASELINE, 330.0, 340.0, 350.0) + rounds(GELU, 352.0, 360.0, 370.0))
    assert answer.kind_of_answer == "baseline_best"
    assert answer.winner == BASELINE
    assert "may be chance" in answer.reason


def test_a_gain_below_one_percent_is_no_win():
    answer = verdict(TRIED, rounds(BASELINE, 340.0, 340.1, 340.2) + rounds(GELU, 342.0, 342.1, 342.2))
    assert answer.kind_of_answer == "baseline_best"
    assert "in 3 rounds beside it, came to 1.006x" in answer.reason


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
def test_one_bad_round_of_many_disqualifies(flaw):
    many = [412.0 + i for i in range(19)]
    repeats = rounds(BASELINE, *[340.0 + i for i in range(20)]) + rounds(GELU, *many, flaw)
    answer = verdict(TRIED[:2], repeats)
    assert answer.kind_of_answer == "baseline_best"
    assert answer.comparisons[0].effect >= 0.9
    # The next in line was not measured again yet.
    answer = verdict(TRIED, repeats)
    assert (answer.kind_of_answer, answer.winner) == ("undecided", LAYERS)


def test_where_nothing_beat_the_baseline_it_is_said_plainly():
    answer = verdict(trials((BASELINE, fast(340.0)), (GELU, fast(320.0)), (LAYERS, OutOfMemory("out of memory"))))
    assert answer.kind_of_answer == "baseline_best"
    assert answer.reason == (
        "Your baseline is already the best: of 2 other configurations tried within 900 MiB, "
        "none beats its 340.0 samples/s by more than half a percent."
    )


@pytest.mark.parametrize("baseline", [(340.0, 338.0), (340.0, 338.0, Died("killed"), Died("killed"))])
def test_a_runner_up_of_which_the_rounds_have_begun_is_waited_for(baseline):
    answer = verdict(TRIED, rounds(BASELINE, *baseline) + rounds(GELU, 339.0) + rounds(LAYERS, 405.0, 402.0))
    assert (answer.kind_of_answer, answer.winner) == ("undecided", LAYERS)
    answer = verdict(TRIED, rounds(BASELINE, *baseline) + rounds(GELU, 339.0))
    assert answer.kind_of_answer == "baseline_best", "and one that has none is not"


def test_without_enough_rounds_the_fastest_is_named_but_nothing_is_decided():
    answer = verdict(TRIED)
    assert (answer.kind_of_answer, answer.winner) == ("undecided", GELU)
    assert "not measured again" in answer.reason
    answer = verdict(TRIED, rounds(BASELINE, 340.0, 341.0) + rounds(GELU, 412.0, 413.0))
    assert (answer.kind_of_answer, answer.winner) == ("undecided", GELU)
    assert "2 rounds" in answer.reason


def test_a_baseline_over_the_limit_gives_way_to_the_fastest_that_fits():
    answer = verdict(trials((BASELINE, fast(340.0, 1200)), (SMALL, fast(250.0, 700)), (GELU, fast(240.0, 800))))
    assert (answer.kind_of_answer, answer.winner) == ("baseline_does_not_fit", SMALL)
    assert answer.reason == (
        "Your baseline needs 1.17 GiB, more than 900 MiB; Block+:1:-1 at batch 32 trains 250.0 samples/s "
        "within 700 MiB, measured once."
    )


def test_a_finalist_that_failed_in_the_rounds_gives_way_to_the_next():
    tried = trials((BASELINE, OutOfMemory("out of memory")), (SMALL, fast(250.0)), (GELU, fast(240.0)))
    answer = verdict(tried, rounds(SMALL, 250.0, OutOfMemory("out of memory"), 250.0) + rounds(GELU, 239.0, 240.0))
    assert (answer.kind_of_answer, answer.winner) == ("baseline_does_not_fit", GELU)
    assert "runs out of memory" in answer.reason


def test_a_lucky_trial_does_not_beat_what_was_measured_again():
    tried = trials((BASELINE, OutOfMemory("out of memory")), (SMALL, fast(300.0)), (GELU, fast(298.0)))
    answer = verdict(tried, rounds(SMALL, 281.0, 282.0, 283.0))
    assert (answer.kind_of_answer, answer.winner) == ("baseline_does_not_fit", SMALL)
    assert "trains 282.0 samples/s" in answer.reason
    assert "measured once" not in answer.reason


def test_rounds_are_held_against_the_baseline_of_the_same_final():
    slow_day = rounds(BASELINE, 240.0, 238.0, 242.0) + rounds(LAYERS, 241.0, 239.0, 240.0)
    fast_day = rounds(BASELINE, 340.0, 338.0, 342.0, final=2) + rounds(GELU, 341.0, 339.0, 343.0, final=2)
    by_key = {one.configuration.key: one for one in compare(slow_day + fast_day, BASELINE, AIM)}
    assert by_key[LAYERS.key].baseline_samples_per_s == 240.0
    assert by_key[GELU.key].baseline_samples_per_s == 340.0
    assert verdict(TRIED, slow_day + fast_day).kind_of_answer == "baseline_best"


def test_a_final_that_was_cut_short_does_not_hide_an_earlier_whole_one():
    whole = rounds(BASELINE, 340.0, 338.0, 342.0) + rounds(GELU, 412.0, 405.0, 420.0)
    cut_short = rounds(BASELINE, 340.0, final=2) + rounds(GELU, 412.0, final=2)
    assert verdict(TRIED, whole + cut_short).winner == GELU


def test_a_faster_one_that_was_not_measured_again_leaves_the_question_open():
    tried = trials((BASELINE, fast(340.0)), (GELU, fast(350.0)), (LAYERS, fast(480.0)))
    answer = verdict(tried, rounds(BASELINE, 340.0, 338.0, 342.0) + rounds(GELU, 340.0, 339.0, 341.0))
    assert (answer.kind_of_answer, answer.winner) == ("undecided", LAYERS)


def test_a_baseline_that_fails_in_its_rounds_is_said_to():
    answer = verdict(TRIED, rounds(BASELINE, 340.0, Died("killed"), 341.0) + rounds(GELU, 480.0, 481.0, 479.0))
    assert (answer.kind_of_answer, answer.winner) == ("undecided", GELU)
    assert "your baseline failed in 1 of 3 rounds" in answer.reason


def test_where_nothing_fits_the_least_seen_is_named():
    answer = verdict(trials((BASELINE, OutOfMemory("out of memory")), (SMALL, fast(250.0, 950))))
    assert (answer.kind_of_answer, answer.winner) == ("nothing_fits", None)
    assert answer.reason == (
        "Nothing tried trains within 900 MiB; the least seen was 950 MiB, of Block+:1:-1 at batch 32."
    )


def test_a_study_that_measured_nothing_is_undecided():
    assert verdict(()).kind_of_answer == "undecided"
    assert verdict(trials((BASELINE, measured(0.0, 16, MIB)), (GELU, measured(0.0, 16, MIB)))).winner is None


@pytest.mark.parametrize(
    ("ours", "others", "num_rounds", "lost"),
    [
        ((412.0,), (340.0,), 3, False),
        ((412.0,), (412.1,), 3, True),
        ((412.0, 405.0), (340.0,), 3, False),
        ((412.0, 405.0), (340.0, 410.0), 3, True),
        ((412.0, 405.0), (340.0, 410.0), 5, False),
        ((412.0, 405.0), (420.0, 410.0), 5, True),
        ((412.0, 405.0, 420.0), (340.0, 338.0, 342.0), 3, False),
        ((412.0,), (), 3, False),
        ((338.0,), (340.0,), 2, False),
    ],
)
def test_a_finalist_has_lost_once_no_further_rounds_could_make_it_win(ours, others, num_rounds, lost):
    repeats = rounds(GELU, *ours) + rounds(BASELINE, *others)
    assert is_lost(repeats, GELU, BASELINE, AIM, num_rounds) is lost


def test_what_lost_in_its_first_round_leaves_the_answer_to_the_baseline():
    answer = verdict(TRIED, rounds(BASELINE, 340.0) + rounds(GELU, 338.0))
    assert answer.kind_of_answer == "baseline_best"
    assert "measured again in 1 round beside it, came to 0.994x" in answer.reason
    assert verdict(TRIED, rounds(BASELINE, 340.0) + rounds(GELU, 412.0)).kind_of_answer == "undecided"


def test_one_that_lost_early_does_not_hide_a_winner_with_all_rounds():
    answer = verdict(
        TRIED, rounds(BASELINE, 340.0, 338.0, 342.0) + rounds(GELU, 339.0) + rounds(LAYERS, 405.0, 402.0, 407.0)
    )
    assert (answer.kind_of_answer, answer.winner) == ("winner", LAYERS)


def test_a_finalist_is_beaten_by_one_that_was_better_in_every_round_of_both():
    repeats = rounds(GELU, 412.0, 400.0) + rounds(LAYERS, 405.0)
    assert is_beaten(repeats, LAYERS, GELU, AIM)
    assert not is_beaten(repeats, GELU, LAYERS, AIM)
    assert not is_beaten((*repeats, Repeat(LAYERS, 1, fast(401.0))), LAYERS, GELU, AIM)
    assert not is_beaten(rounds(GELU, 412.0) + rounds(LAYERS, 405.0, final=2), LAYERS, GELU, AIM)


def test_in_search_of_memory_only_one_that_is_smaller_and_no_slower_beats_another():
    aim = Aim(Objective("memory"), LIMIT)
    slow_and_small, fast_and_large = rounds(GELU, fast(400.0, 700)), rounds(LAYERS, fast(405.0, 800))
    assert not is_beaten(slow_and_small + fast_and_large, LAYERS, GELU, aim)
    assert is_beaten(rounds(GELU, fast(405.0, 700)) + fast_and_large, LAYERS, GELU, aim)


def replay(seed, speedup, noise_cv, num_rounds=3):
    """A whole final: noisy trials, finalists chosen by them, noisy rounds; who has lost is measured no more."""
    chance = random.Random(seed)

    def noisy(rate):
        return fast(rate * math.exp(chance.gauss(0.0, noise_cv)))

    others = [dataclasses.replace(GELU, batch_size=size) for size in range(24, 48)]
    tried = trials((BASELINE, noisy(340.0)), *((other, noisy(340.0 * speedup)) for other in others))
    repeats = []
    entrants = finalists(tried, FACTS, AIM)
    for number in range(num_rounds):
        left = [one for one in entrants if not is_lost(repeats, one, BASELINE, AIM, num_rounds)]
        entrants_left = (BASELINE, *left) if left else ()
        repeats += [Repeat(one, number, noisy(340.0 if one == BASELINE else 340.0 * speedup)) for one in entrants_left]
    return verdict(tried, repeats).kind_of_answer


def test_identical_configurations_rarely_win():
    answers = [replay(seed, speedup=1.0, noise_cv=0.027) for seed in range(200)]
    assert answers.count("winner") <= 3
    assert answers.count("winner") + answers.count("baseline_best") == 200


def test_a_real_gain_wins_almost_always():
    assert [replay(seed, speedup=1.1, noise_cv=0.01) for seed in range(50)].count("winner") >= 48


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
    assert [trial.number for trial in front(tried)] == [3, 0, 1]
