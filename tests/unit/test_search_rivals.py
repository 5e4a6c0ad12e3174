"""The rivals that searches are held against, and the figures and marks of the benchmark."""

from __future__ import annotations

import dataclasses
import math

import pytest

from autotune.records.outcome import Measured
from tests.benchmarks.landscapes import rivals
from tests.benchmarks.landscapes.figures import Played, beside, judge, landscapes, marks, stops
from tests.benchmarks.landscapes.physics import landscape_of
from tests.benchmarks.landscapes.replay import NEAR, Needed, Replay
from tests.benchmarks.landscapes.rivals import RIVALS, Attempts, Effort, heuristic, patient
from tests.benchmarks.landscapes.synthetic import transformer
from tests.benchmarks.landscapes.table import Entry, Table

pytestmark = pytest.mark.slow  # guards benchmarks, and nothing that is shipped

COARSE, FINE = landscape_of(102), landscape_of(102, finer=True)
SMALL = transformer("small", own=8, sizes=(4, 8, 16, 32), fits=20, layers=4)
LANDSCAPE = SMALL.landscape()


def tried(monkeypatch):
    """Every configuration that is measured from now on, in order."""
    seen, measure = [], Table.measure

    def spied(self, configuration, process):
        seen.append(configuration)
        return measure(self, configuration, process)

    monkeypatch.setattr(Table, "measure", spied)
    return seen


@pytest.mark.parametrize("name", ["tpe", "random"])
def test_what_knows_no_stop_goes_on_until_something_near_the_best_was_measured(name, monkeypatch):
    table, seen = Table(LANDSCAPE), tried(monkeypatch)
    effort = RIVALS[name](table, 0)
    assert effort.found == effort.stopped
    assert effort.stopped.runs == effort.stopped.trials == len(seen) == len({one.key for one in seen})
    assert effort.stopped.seconds == 30.0 * len(seen) > 0
    worths = [table.worth(one) >= NEAR * table.best for one in seen]
    assert worths == [False] * (len(seen) - 1) + [True]


@pytest.mark.parametrize("name", sorted({*RIVALS} - {"gp"}))  # which loads torch: see tests/torch
def test_a_rival_of_the_same_seed_takes_the_same(name):
    assert RIVALS[name](Table(LANDSCAPE), 3) == RIVALS[name](Table(LANDSCAPE), 3)


def test_a_sampler_that_finds_nothing_gives_up(monkeypatch):
    monkeypatch.setattr(rivals, "_MOST_TRIALS", 5)
    effort = rivals.plain_tpe(Table(LANDSCAPE), 0)
    assert (effort.found, effort.stopped.trials) == (None, 5)
    assert effort.loss > 0.01


def test_a_sampler_is_told_how_far_the_memory_is_over_the_limit(monkeypatch):
    monkeypatch.setattr(rivals, "_MOST_TRIALS", 30)
    monkeypatch.setattr(rivals, "NEAR", 2.0)
    studies, make = [], rivals.optuna.create_study
    monkeypatch.setattr(rivals.optuna, "create_study", lambda **given: studies.append(make(**given)) or studies[-1])
    table = Table(LANDSCAPE)
    rivals.plain_tpe(table, 0)
    limits = {True: [], False: []}
    for trial in studies[0].trials:
        values = {one: choices[trial.params[one]] for one, choices in table.space.parameters.items()}
        entry = table.entry(table.space.configuration(values))
        limits[entry.outcome == "measured"].append((trial.constraints["memory"], entry.peak_memory_bytes))
    assert all(over > 0 for over, _ in limits[False])
    assert all(over == pytest.approx(peak / table.limit_bytes - 1) for over, peak in limits[True])
    assert all(limits.values())


def test_what_is_tried_again_is_free_and_repeats_itself():
    attempts = Attempts(Table(LANDSCAPE), 0)
    plain = attempts.table.space.plain(16)
    first = attempts.measure(plain)
    assert isinstance(first, Measured)
    assert attempts.measure(plain) is first
    assert attempts.needed == Needed(1, 1, 30.0)


def test_by_hand_the_batch_is_raised_as_far_as_it_fits_and_then_more_and_more_is_recomputed(monkeypatch):
    table, seen = Table(LANDSCAPE), tried(monkeypatch)
    effort = heuristic(table, 0)
    own, *others = seen
    assert own == table.facts.baseline
    assert [(one.batch_size, bool(one.plans)) for one in others[:2]] == [(16, False), (32, False)]
    assert not table.speed(others[1]), "32 does not fit without plans"
    ladder = [one for one in others if one.plans]
    assert ladder
    assert all(one.batch_size == 32 for one in ladder), "what fits without plans is not tried with them"
    assert effort.stopped.trials == len(others), "the script as it stands was given"


def test_by_hand_two_steps_of_the_ladder_that_bring_nothing_are_the_end(monkeypatch):
    table = Table(LANDSCAPE)
    nothing = tuple(
        Entry(one.batch_size, one.plans, 0, "out_of_memory") if one.plans else one for one in LANDSCAPE.table
    )
    without = Table(dataclasses.replace(LANDSCAPE, table=nothing))
    seen = tried(monkeypatch)
    heuristic(without, 0)
    assert sum(bool(one.plans) for one in seen) == 2
    seen.clear()
    patient(without, 0)
    steps = sum(bool(one.plans) for one in seen)
    rows = table.space.clusters
    counts = sum(len(table.space.counts[row.cluster_id]) - 1 for row in rows if row.is_layer)
    assert steps == sum(not row.is_layer for row in rows) + counts, "who is patient goes up to what frees most"


def test_by_hand_two_sizes_in_a_row_that_are_slower_are_enough(monkeypatch):
    sizes = (4, 8, 16, 32)
    rates = dict(zip(sizes, (50.0, 100.0, 90.0, 80.0), strict=True))
    table = tuple(
        dataclasses.replace(one, outcome="measured", samples_per_s=rates[one.batch_size], peak_memory_bytes=1 << 20)
        for one in LANDSCAPE.table
    )
    easy = Table(dataclasses.replace(LANDSCAPE, table=table, noise_cv=0.0))
    seen = tried(monkeypatch)
    effort = heuristic(easy, 0)
    assert [(one.batch_size, bool(one.plans)) for one in seen] == [(8, False), (16, False), (32, False)]
    assert (effort.found, effort.loss) == (Needed(), 0.0)


def test_by_hand_a_script_that_does_not_fit_is_made_smaller_first(monkeypatch):
    large = transformer("large", own=32, sizes=(4, 8, 16, 32), fits=20, layers=4).landscape()
    table, seen = Table(large), tried(monkeypatch)
    assert not table.speed(table.facts.baseline)
    heuristic(table, 0)
    assert [(one.batch_size, bool(one.plans)) for one in seen[:3]] == [(32, False), (16, False), (32, True)]


def test_by_hand_only_listed_sizes_are_tried(monkeypatch):
    table, seen = Table(FINE), tried(monkeypatch)
    heuristic(table, 0)
    assert len(seen) > 1
    assert not {one.batch_size for one in seen} & set(table.landscape.between)


# -- figures


@pytest.fixture(scope="module")
def row():
    return Replay(Table(LANDSCAPE), 0, "model").run()


def test_who_never_found_the_best_is_taken_to_go_on_as_the_rival(row):
    effort = Effort(Needed(5, 5, 500.0), Needed(5, 5, 500.0), 0.0)
    at_once = dataclasses.replace(row, found=Needed(1, 1, 50.0), stopped=Needed(2, 2, 100.0))
    never = dataclasses.replace(at_once, found=None)
    assert beside([Played(at_once, {"tpe": effort})])["times_tpe"] == 10.0
    assert beside([Played(never, {"tpe": effort})])["times_tpe"] == pytest.approx(500 / 600)


def test_a_rival_that_gave_up_counts_with_what_it_had_spent(row):
    effort = Effort(None, Needed(8, 8, 800.0), 0.2)
    at_once = dataclasses.replace(row, found=Needed(1, 1, 50.0))
    figures = beside([Played(at_once, {"gp": effort})])
    assert figures["times_gp"] == 16.0
    assert figures["gp_trials_median"] == math.inf


def test_by_hand_stops_are_compared_and_losses(row):
    efforts = [Effort(None, Needed(8, 8, 300.0), 0.02), Effort(Needed(1, 1, 30.0), Needed(4, 4, 100.0), 0.0)]
    stopped = dataclasses.replace(row, stopped=Needed(2, 2, 100.0), loss=0.03)
    figures = beside([Played(stopped, {"heuristic": effort}) for effort in efforts])
    assert figures["times_heuristic"] == 2.0
    assert figures["heuristic_loss_mean"] == 0.01
    assert figures["loss_above_heuristic"] == pytest.approx(0.02)
    assert figures["heuristic_loss_under_1_percent_share"] == 0.5
    assert figures["heuristic_loss_under_3_percent_share"] == 1.0


def test_stops_elsewhere_are_of_all_seeds_that_were_asked(row):
    rows = [dataclasses.replace(row, gone_on=count) for count in (0, 0, 3, None)]
    assert stops(rows) == {"stops_elsewhere_share": pytest.approx(0.1), "stops_not_by_all_share": pytest.approx(1 / 3)}
    assert stops(rows[3:]) == {"stops_elsewhere_share": None, "stops_not_by_all_share": None}


def test_how_much_a_finer_grid_brings_is_told_where_there_is_one():
    table = Table(FINE)
    figures = landscapes([table])
    assert figures["finer_gain_max"] == table.best / Table(COARSE).best - 1
    assert landscapes([Table(COARSE)]).keys() == {"best_without_plans_share"}


def test_it_is_told_where_the_best_needs_no_plans():
    tables = [Table(LANDSCAPE), Table(COARSE)]
    assert [landscapes([table])["best_without_plans_share"] for table in tables] == [0.0, 1.0]
    assert landscapes(tables)["best_without_plans_share"] == 0.5


def test_a_figure_outside_of_its_mark_is_missed_and_one_that_is_not_known_is_not():
    asked = marks(physics=True, alone=False)
    assert judge({"duplicates": 1, "times_heuristic": 1.4, "times_tpe": None}, asked) == [
        "times_heuristic",
        "duplicates",
    ]
    assert judge({"peaks_within_90_before": 0.96, "speeds_within_90_at_the_stop": 0.84}, asked) == [
        "peaks_within_90_before",
        "speeds_within_90_at_the_stop",
    ]
    assert judge({"peaks_within_90_before": 0.9, "loss_above_heuristic": -0.1, "times_tpe": 11}, asked) == []


def test_files_and_executed_steps_are_held_against_marks_of_their_own():
    figures = {"runs_median": 4, "trials_median": 11, "times_tpe": 9.0}
    assert judge(figures, marks(physics=False, alone=False)) == []
    assert judge(figures, marks(physics=False, alone=True)) == ["trials_median"]
    for alone in (False, True):
        assert judge(figures, marks(physics=True, alone=alone)) == ["runs_median", "times_tpe"]
