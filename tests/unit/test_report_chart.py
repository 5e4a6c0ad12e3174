"""The chart of a search: what is drawn where, and by which measurement."""

from __future__ import annotations

import dataclasses

import pytest

from autotune.report.build import build_report
from autotune.report.chart import Mark, _apart, draw_batches, draw_chart, round_ticks
from tests.fakes.study_record import LIMIT_BYTES, baseline_best, cpu_study, study_record, unfinished

STUDIES = [study_record, baseline_best, cpu_study]


def of_kind(chart, kind):
    return [mark for mark in chart.marks if mark.kind == kind]


@pytest.mark.parametrize("width", [920.0, 400.0])
@pytest.mark.parametrize("make", STUDIES)
def test_everything_is_within_the_field(make, width):
    chart = draw_chart(build_report(make()), width=width, height=400.0)
    for mark in chart.marks:
        assert chart.left < mark.x < chart.right
        assert chart.top <= mark.top <= mark.y <= mark.bottom <= chart.bottom
    assert all(chart.left < one.x < chart.right for one in chart.failures)
    assert all(chart.left <= tick.at <= chart.right for tick in chart.across)
    assert all(chart.top <= tick.at <= chart.bottom for tick in chart.upward)
    assert len(chart.across) > 1
    assert len(chart.upward) > 1


def test_nothing_is_drawn_before_a_trial_has_ended():
    assert draw_chart(build_report(unfinished())) is None


def test_script_and_answer_are_drawn_by_their_repetitions_as_the_figures_above_are():
    report = build_report(study_record())
    chart = draw_chart(report)
    (winner,), (baseline,) = of_kind(chart, "winner"), of_kind(chart, "baseline")
    assert "187.2 samples/s (185.4 to 187.7, 3 repetitions) at a peak of 22.1 GiB" in winner.title
    assert "your script as it is: 158.1 samples/s (157.0 to 158.8, 3 repetitions)" in baseline.title
    assert (winner.label, baseline.label) == ("winner", "your script")
    assert report.points[11].samples_per_s != report.winner.samples_per_s, "its trial came to something else"


def test_another_finalist_is_drawn_by_its_repetitions_too():
    record = study_record()
    (first,) = record.verdict.comparisons
    figures = dataclasses.replace(first.figures, samples_per_s=150.0)
    other = dataclasses.replace(first, configuration=record.trials[10].configuration, figures=figures)
    verdict = dataclasses.replace(record.verdict, comparisons=(first, other))
    (mark,) = of_kind(draw_chart(build_report(dataclasses.replace(record, verdict=verdict))), "finalist")
    assert "150.0 samples/s (185.4 to 187.7, 3 repetitions) at a peak of 22.1 GiB" in mark.title


def test_what_nothing_confirmed_is_no_winner_in_the_chart():
    chart = draw_chart(build_report(study_record(repeats=())))
    assert not of_kind(chart, "winner")
    (best,) = of_kind(chart, "best")
    assert best.label == "best so far"


@pytest.mark.parametrize(("across", "down", "lowered"), [(0, 0, -8.5), (-60, 7, 5.0), (60, 17, 0.0), (200, 0, 0.0)])
def test_labels_of_two_settings_that_are_alike_do_not_cover_each_other(across, down, lowered):
    script = Mark("baseline", 300.0, 100.0, 99.0, 101.0, "", "your script")
    winner = Mark("winner", 300.0 + across, 100.0 + down, 99.0, 101.0, "", "winner")
    other = Mark("fits", 300.0, 100.0, 99.0, 101.0, "")
    placed = _apart([other, winner, script])
    assert [mark.lowered for mark in placed] == [0.0, lowered, -lowered]
    assert [(mark.x, mark.y) for mark in placed] == [(mark.x, mark.y) for mark in (other, winner, script)]


def test_what_may_not_be_the_answer_looks_different():
    chart = draw_chart(build_report(study_record()))
    (over,), (flawed,) = of_kind(chart, "over"), of_kind(chart, "flawed")
    assert over.x > chart.limit.x > flawed.x
    assert set(chart.kinds) == {mark.kind for mark in chart.marks}


def test_trials_that_ran_out_of_memory_stand_below_at_what_they_needed():
    chart = draw_chart(build_report(study_record()))
    assert chart.failures_at > chart.bottom
    assert all(one.x >= chart.limit.x for one in chart.failures)
    assert all("out of memory" in one.title for one in chart.failures)


def test_a_limit_that_lies_far_off_is_an_arrow_and_crushes_nothing():
    record = cpu_study()
    near = draw_chart(build_report(record))
    spec = dataclasses.replace(record.spec, memory_limit_bytes=64 * LIMIT_BYTES)
    environment = dataclasses.replace(record.facts.environment, device_memory_bytes=64 * LIMIT_BYTES)
    facts = dataclasses.replace(record.facts, environment=environment)
    far = draw_chart(build_report(dataclasses.replace(record, spec=spec, facts=facts)))
    assert not near.limit.is_beyond
    assert far.limit.is_beyond
    assert max(mark.x for mark in far.marks) > 0.9 * far.right


def test_the_front_goes_up_in_steps_from_left_to_right():
    (line,) = draw_chart(build_report(study_record())).lines
    path = line.path
    assert path.startswith("M")
    across = [float(part.split("V")[0]) for part in path.split("H")[1:]]
    assert across == sorted(across)
    assert len(across) == 8


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 10, [0, 2, 4, 6, 8, 10]), (117, 194, [120, 140, 160, 180]), (0.001, 0.0035, [0.001, 0.0015, 0.002])],
)
def test_ticks_are_round_numbers(low, high, expected):
    assert round_ticks(low, high, 6)[: len(expected)] == pytest.approx(expected)


def test_the_fastest_trial_at_each_batch_size_is_drawn_with_plans_and_without():
    report = build_report(study_record())
    chart = draw_batches(report)
    assert [line.kind for line in chart.lines] == ["plain", "planned"]
    fitting = [one for one in report.points if one.may_win]
    for kind, has_plans in (("plain", False), ("planned", True)):
        own = [one for one in fitting if bool(one.plans) == has_plans]
        assert len(of_kind(chart, kind)) == len({one.batch_size for one in own})
    (at_48,) = [mark for mark in of_kind(chart, "planned") if "batch 48" in mark.title]
    fastest = max(one.samples_per_s for one in fitting if one.batch_size == 48)
    assert f"{fastest:.1f} samples/s" in at_48.title
    for mark in chart.marks:
        assert chart.left < mark.x < chart.right
        assert chart.top <= mark.top <= mark.bottom <= chart.bottom


def test_what_may_not_be_the_answer_is_no_part_of_the_curve():
    report = build_report(study_record())
    drawn = {int(mark.title.split(",")[0].removeprefix("Trial ")) for mark in draw_batches(report).marks}
    assert not drawn & {one.number for one in report.points if not one.may_win}


def test_two_batch_sizes_are_no_curve():
    report = build_report(study_record())
    few = tuple(one for one in report.points if one.batch_size in (16, 48))
    assert draw_batches(dataclasses.replace(report, points=few)) is None
