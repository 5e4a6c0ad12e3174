"""The gate: its test, its answer, its baseline, and the files it writes."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from xml.etree import ElementTree as ET

import pytest

from autotune.errors import UsageError
from autotune.records.gate import GATE_VERSION, Gate, GateBaseline, PastGate, Reading
from autotune.records.outcome import Died, OutOfMemory, ScriptError
from autotune.records.study import StudySpec
from autotune.report.gates import gate_table
from autotune.verdict.gate.baseline import (
    differences,
    new_baseline,
    read_baseline,
    reference_for,
    why_no_baseline,
    write_baseline,
)
from autotune.verdict.gate.comparison import Allowed, GateRepetition, judge_loss, weigh
from autotune.verdict.gate.decision import decide_gate
from autotune.verdict.gate.rendering import render_junit, render_markdown
from tests.fakes.landscape import ENVIRONMENT, MIB, measured

KEY = "a setting"
BASELINE = GateBaseline(
    version=GATE_VERSION,
    autotune="0.1.0",
    taken_on="2026-01-31",
    configuration=KEY,
    script_name="train.py",
    script_sha256="abc",
    environment=ENVIRONMENT,
    setting=Reading((400.0, 402.0, 398.0, 401.0), (900 * MIB, 901 * MIB, 900 * MIB, 900 * MIB)),
    script=Reading((200.0, 201.0, 199.0, 200.0), (600 * MIB, 600 * MIB, 601 * MIB, 600 * MIB)),
)


def came_to(rate, peak_mib=900, batch=16):
    return measured(rate, batch, int(peak_mib * MIB))


def gate_of(repetitions, reference="stored", differs=(), most_repetitions=20, *, is_same=True, environment=ENVIRONMENT):
    gauges = weigh(repetitions, BASELINE, reference, Allowed(), most_repetitions=most_repetitions, is_over=True)
    return decide_gate(repetitions, gauges, reference, environment, differs, is_same=is_same)


def stored(*rates, peak_mib=900):
    return [GateRepetition(came_to(rate, peak_mib)) for rate in rates]


# -- the test


def found_of(seed, true_loss, *, is_paired, shared=0.0, repetitions=20):
    """One simulated gate, at the noise of a process of 2.7 %."""
    chance = random.Random(f"{seed}, {true_loss}, {is_paired}")
    before = [] if is_paired else [chance.gauss(0, 0.027) for _ in range(14)]
    now = []
    for number in range(repetitions):
        noise = chance.gauss(0, 0.027) - (chance.gauss(0, 0.027) if is_paired else 0.0)
        now.append(math.log1p(true_loss) + noise)
        judged = judge_loss(now, before, allowed=0.05, most_repetitions=repetitions, is_over=number == repetitions - 1)
        if judged.found != "open":
            break
    return judged.found


@pytest.mark.parametrize("is_paired", [True, False])
def test_noise_is_no_regression_and_what_is_allowed_at_most_is_found(is_paired):
    # The benchmark asks for less and more, of 10,000 gates.
    alarms = sum(found_of(seed, 0.0, is_paired=is_paired) == "worse" for seed in range(400))
    misses = sum(found_of(seed, 0.05, is_paired=is_paired) != "worse" for seed in range(400))
    assert alarms <= 12
    assert misses <= 24


def test_a_single_measurement_of_before_is_enough_to_compare_with():
    judged = judge_loss([0.2, 0.21, 0.19], [0.0], allowed=0.05, most_repetitions=20, is_over=True)
    assert judged.found == "worse"
    assert judged.loss == pytest.approx(0.2)
    assert 0.02 < judged.error < 0.2


# -- the answer


def test_what_is_as_it_was_passes():
    gate = gate_of(stored(399.0, 401.0, 400.5, 402.0))
    assert gate.answer == "pass"
    assert gate.sentences[0] == "No regression against the stored figures."
    assert gate.sentences[1].startswith("Speed 400.6 samples/s, 400.2 samples/s before; 1.001x, 0.9")
    assert gate.sentences[2].startswith("Peak 900 MiB, 900 MiB before; 1.000x, 0.9")
    assert gate.sentences[3] == "Measured in 4 repetitions."
    assert gate.reading == Reading((399.0, 401.0, 400.5, 402.0), (900 * MIB,) * 4)


def test_a_slowdown_is_a_regression_and_what_has_changed_is_told():
    gate = gate_of(stored(360.0, 362.0, 358.0), differs=("torch 2.13.0 -> 2.14.0", "the script"))
    assert gate.answer == "regression"
    assert gate.sentences[0] == "Regression: 11.2 % slower, against the stored figures."
    assert gate.sentences[-1] == "Since the baseline was taken, torch 2.13.0 -> 2.14.0 and the script changed."


def test_growth_is_a_regression_too():
    gate = gate_of(stored(400.0, 401.0, 399.0, peak_mib=945))
    assert gate.answer == "regression"
    assert gate.sentences[0] == "Regression: 4.97 % more memory, against the stored figures."


def test_less_than_is_allowed_passes_though_it_is_shown():
    assert gate_of(stored(392.0, 393.0, 391.0, 392.0)).answer == "pass"
    assert gate_of(stored(400.0, 401.0, 399.0, peak_mib=915)).answer == "pass"


def test_a_gain_that_was_seen_side_by_side_is_an_improvement():
    pairs = [GateRepetition(came_to(rate, 800), came_to(rate / 1.1)) for rate in (440.0, 441.0, 439.0)]
    gate = gate_of(pairs, "other")
    assert gate.answer == "improvement"
    beside = "against the other version of the script"
    assert gate.sentences[0] == f"Improvement: 10 % more samples per second and 11.1 % less memory, {beside}."


def test_a_gain_over_another_day_is_none_of_speed_as_the_machine_may_have_become_faster():
    gate = gate_of(stored(440.0, 441.0, 439.0))
    assert gate.answer == "pass"
    doubt = "9.93 % more samples per second than before: either the script or the machine has become faster."
    assert doubt in gate.sentences
    both = gate_of(stored(440.0, 441.0, 439.0, peak_mib=800))
    assert both.answer == "improvement"
    assert both.sentences[0] == "Improvement: 11.1 % less memory, against the stored figures."
    assert doubt in both.sentences


def test_too_much_noise_tells_nothing_and_less_passes():
    noisy = gate_of(stored(300.0, 460.0, 330.0))
    assert noisy.answer == "not_comparable"
    assert noisy.sentences[0] == "No answer: speed varies too much."
    less = gate_of(stored(380.0, 430.0, 400.0))
    assert less.answer == "pass", "the middle of what is open is within"
    assert less.sentences[0] == "No regression of speed was found, but none is ruled out."
    assert "For speed, the mean is within the allowance, but the confidence" in less.reason
    smaller = gate_of(stored(380.0, 430.0, 400.0, peak_mib=800))
    assert smaller.answer == "improvement"
    assert "For speed, the mean is within the allowance, but the confidence" in smaller.reason


def test_what_could_be_far_worse_than_is_allowed_is_no_pass_though_the_middle_is_within():
    """Noise of a third leaves open whether it is as fast as before, or half as fast."""
    wild = gate_of(stored(290.0, 530.0, 400.0, 300.0, 520.0))
    assert wild.answer == "not_comparable"
    assert wild.sentences[0] == "No answer: speed varies too much."
    speed = next(gauge for gauge in wild.gauges if gauge.name == "speed")
    assert (speed.found, speed.change > 0.95) == ("open", True), "the middle is within what is allowed"


def test_a_sitting_that_left_something_open_is_no_baseline():
    gate = gate_of(stored(380.0, 430.0, 400.0, 385.0, 425.0, 398.0, 380.0, 430.0))
    gauges = tuple(dataclasses.replace(one, found="open") if one.name == "speed" else one for one in gate.gauges)
    left_open = dataclasses.replace(gate, answer="pass", gauges=gauges)
    assert (
        why_no_baseline(left_open)
        == "these repetitions do not decide about speed; use more of them, or a quieter machine"
    )


def test_two_repetitions_are_no_answer():
    gate = gate_of(stored(400.0, 401.0))
    assert (gate.answer, gate.sentences[0]) == ("not_comparable", "No answer: 3 repetitions are needed at least.")
    assert gate.sentences[1] == "Speed 400.5 samples/s, 400.2 samples/s before; 5 % slower is allowed."


def test_on_a_busy_machine_what_was_measured_before_is_no_measure():
    def busy(outcome):
        return dataclasses.replace(outcome, measurement=dataclasses.replace(outcome.measurement, contended=True))

    slow = [GateRepetition(busy(came_to(rate))) for rate in (250.0, 251.0, 249.0)]
    gate = gate_of(slow)
    assert gate.answer == "not_comparable"
    assert "other programs used the machine" in gate.sentences[0]
    on_cpu = dataclasses.replace(ENVIRONMENT, device_kind="cpu")
    repetitions = [GateRepetition(busy(came_to(rate, 1000))) for rate in (250.0, 251.0, 249.0)]
    larger = gate_of(repetitions, environment=on_cpu)
    assert gate_of(repetitions).answer == "not_comparable", "others may hold memory of a GPU"
    assert larger.sentences[0] == "Regression: 11.1 % more memory, against the stored figures."
    assert {gauge.name: gauge.found for gauge in larger.gauges} == {"speed": "open", "memory": "worse"}
    assert "Speeds were not compared: other programs" in larger.reason
    beside = [
        GateRepetition(one.setting, busy(came_to(rate / 2, 600)))
        for one, rate in zip(slow, (250, 251, 249), strict=True)
    ]
    assert gate_of(beside, "script").answer == "pass", "the script is slowed down alike"


def test_beside_the_script_the_ratio_counts_on_any_machine():
    repetitions = [GateRepetition(came_to(rate * 2, 450), came_to(rate, 300)) for rate in (800.0, 900.0, 850.0, 820.0)]
    assert gate_of(repetitions, "script").answer == "pass"
    slower = [GateRepetition(came_to(rate * 1.8, 450), came_to(rate, 300)) for rate in (800.0, 900.0, 850.0, 820.0)]
    gate = gate_of(slower, "script")
    assert gate.answer == "regression"
    assert gate.sentences[1].startswith("Speed 1.800 of the script's, 2.001 of the script's before; 0.899x")
    assert gate.script_reading.samples_per_s == pytest.approx((800.0, 900.0, 850.0, 820.0))
    assert gate.script_reading.peak_bytes == (300 * MIB,) * 4


def test_beside_another_version_no_baseline_is_needed():
    repetitions = [GateRepetition(came_to(rate * 0.9), came_to(rate)) for rate in (800.0, 500.0, 650.0, 720.0)]
    gauges = weigh(repetitions, None, "other", Allowed(), most_repetitions=20, is_over=True)
    gate = decide_gate(repetitions, gauges, "other", ENVIRONMENT, (), is_same=True)
    assert gate.answer == "regression"
    assert gate.sentences[0].endswith("against the other version of the script.")
    assert gate.script_reading is None


def test_what_does_not_fit_any_more_is_a_regression_and_other_failures_are_none():
    full = gate_of([GateRepetition(came_to(400.0)), GateRepetition(OutOfMemory("out of memory in the backward"))])
    assert full.answer == "regression"
    assert full.sentences[0] == "Regression: the setting does not fit any more: out of memory in the backward."
    both = gate_of([GateRepetition(OutOfMemory("out of memory"), OutOfMemory("out of memory"))], "other")
    assert both.answer == "failed", "it does not fit for what is not the script's doing"
    assert gate_of([GateRepetition(OutOfMemory("out of memory"))], "script", is_same=False).answer == "failed"
    broken = gate_of([GateRepetition(ScriptError("KeyError: 'lr'", advice="see the traceback"))])
    assert (broken.answer, broken.sentences) == (
        "failed",
        ("The setting could not be measured: KeyError: 'lr'.", "See the traceback."),
    )
    other = gate_of([GateRepetition(came_to(400.0), Died("killed"))], "script")
    assert other.answer == "failed"
    assert other.sentences[0] == "The unmodified script could not be measured: killed."


def test_without_samples_speeds_are_not_compared():
    assert gate_of([GateRepetition(came_to(0.0))] * 3).answer == "failed"


@pytest.mark.parametrize("reference", ["stored", "other"])
def test_the_figures_that_are_shown_have_the_ratio_that_was_judged(reference):
    repetitions = [GateRepetition(came_to(rate), came_to(400.0)) for rate in (300.0, 310.0, 390.0, 950.0)]
    for gauge in gate_of(repetitions, reference).gauges:
        assert gauge.now / gauge.before == pytest.approx(gauge.change)


def test_without_a_peak_memory_is_not_said_to_be_as_it_was():
    found = gate_of([GateRepetition(came_to(400.0, peak_mib=0))] * 3)
    assert (found.answer, found.sentences[0]) == (
        "failed",
        "The peak could not be measured, so memory can't be compared.",
    )


# -- the baseline


def test_a_baseline_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "ci" / "gate.json"
    write_baseline(path, BASELINE)
    assert read_baseline(path, KEY) == BASELINE
    assert json.loads(path.read_text())["setting"]["samples_per_s"] == [400.0, 402.0, 398.0, 401.0]
    assert [one.name for one in path.parent.iterdir()] == ["gate.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: No such file"),
        ("{", "is no baseline of a gate"),
        ("{}", "is no baseline of a gate"),
        ("[" * 100_000, "is no baseline of a gate"),
        ({"version": GATE_VERSION + 1}, "is of a newer version"),
        ({"configuration": "another"}, "is of another setting"),
        ({"script": Reading((1.0,), (1,))}, "or not as many of both"),
        ({"setting": Reading((), ()), "script": None}, "has repetitions without figures"),
        ({"setting": Reading((0.0,), (1,)), "script": None}, "has repetitions without figures"),
    ],
)
def test_a_file_that_is_no_baseline_of_this_setting_is_refused(text, message, tmp_path):
    path = tmp_path / "gate.json"
    if isinstance(text, dict):
        write_baseline(path, dataclasses.replace(BASELINE, **text))
    elif text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=message) as raised:
        read_baseline(path, KEY)
    assert raised.value.hint


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "train.py").write_text("train()")
    return StudySpec(str(tmp_path / "train.py"))


def test_what_a_gate_measured_is_a_later_ones_baseline(spec):
    made = new_baseline(gate_of(stored(399.0, 401.0, 400.5)), KEY, spec)
    assert made.script_name == "train.py"
    assert made.setting == Reading((399.0, 401.0, 400.5), (900 * MIB,) * 3)
    assert made.script is None
    assert (made.configuration, made.environment) == (KEY, ENVIRONMENT)


@pytest.mark.parametrize(
    ("rates", "why_not"),
    [
        ((400.0,) * 8, ""),
        ((400.0,) * 7, "it takes 8 repetitions without a regression"),
        ((300.0,) * 8, "it takes 8 repetitions without a regression"),
        ((500.0,) * 8, "the machine may just be faster today. `--against script`, or another version's path, shows it"),
    ],
    ids=["as before", "too few repetitions", "worse", "better than on another day"],
)
def test_what_is_no_regression_by_enough_repetitions_may_be_a_baseline(rates, why_not):
    assert why_no_baseline(gate_of(stored(*rates))) == why_not


def test_a_gain_that_was_seen_side_by_side_may_be_a_baseline():
    assert why_no_baseline(gate_of([GateRepetition(came_to(440.0), came_to(400.0))] * 8, "other")) == ""


@pytest.mark.parametrize(
    ("changes", "expected", "named"),
    [
        ({}, "stored", ()),
        ({"torch": "2.14.0", "driver": "600"}, "stored", ("torch 2.13.0 -> 2.14.0", "driver none -> 600")),
        ({"device_name": "Formula 2"}, "script", ("device Formula 1 -> Formula 2",)),
        ({"device_memory_bytes": 1 << 39}, "script", ("device memory",)),
        ({"num_threads": 4}, "stored", ()),
        ({"device_kind": "cpu", "num_threads": 4}, "script", ("number of threads 1 -> 4",)),
    ],
)
def test_the_device_says_what_to_compare_with(changes, expected, named):
    here = dataclasses.replace(ENVIRONMENT, **changes)
    assert reference_for(BASELINE, here) == expected
    told = differences(BASELINE, here, "abc", ())
    assert len(told) == len(named)
    assert all(one.startswith(start) for one, start in zip(told, named, strict=True))
    assert differences(BASELINE, here, "other", ())[-1] == "the script"
    assert "the script's arguments" in differences(BASELINE, here, "abc", ("--hidden", "4096"))
    alone = dataclasses.replace(BASELINE, script=None)
    assert reference_for(alone, here) == ("stored" if expected == "stored" else None)


# -- the files


def test_junit_counts_what_its_readers_count():
    root = ET.fromstring(render_junit(gate_of(stored(360.0, 362.0, 358.0)), "train.py"))
    (suite,) = root
    cases = {case.get("name"): [child.tag for child in case] for case in suite}
    assert cases == {"speed": ["failure", "system-out"], "memory": ["system-out"]}
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    failed = ET.fromstring(render_junit(gate_of([GateRepetition(ScriptError("<KeyError>"))]), "a&b.py"))
    assert [child.tag for child in failed[0][0]] == ["error", "system-out"]
    full = gate_of([*stored(400.0, 401.0, 399.0), GateRepetition(OutOfMemory("out of memory"))])
    assert [
        case.get("name") for case in ET.fromstring(render_junit(full, "x.py"))[0] if case.find("failure") is not None
    ]
    passed = ET.fromstring(render_junit(gate_of(stored(400.0, 401.0, 399.0)), "train.py"))
    assert not list(passed.iter("failure"))


def test_markdown_holds_no_markup_of_others():
    text = render_markdown(gate_of([GateRepetition(ScriptError("<img src=x> |a|"))]), "my_train*.py")
    assert "&#60;img src=x\\> &#124;a&#124;" in text
    assert "my\\_train\\*.py" in text
    table = render_markdown(gate_of(stored(360.0, 362.0, 358.0)), "train.py")
    assert "| speed | 400.2 samples/s | 360.0 samples/s | 0.899x |" in table
    assert table.startswith("### autotune gate: train.py: regression\n")
    repetitions = [GateRepetition(came_to(rate * 2, 450), came_to(rate, 300)) for rate in (800.0, 900.0, 850.0, 820.0)]
    beside = render_markdown(gate_of(repetitions, "script"), "train.py")
    assert "| memory | 1.500 of the script's | 1.500 of the script's | 1.000x |" in beside


# -- what gates said before


def test_the_history_has_figures_with_what_they_leave_open_and_none_where_nothing_was_measured():
    gate = gate_of([*stored(*[300.0, 301.0, 299.0] * 2)])
    first = PastGate(0.0, "train.py", "0123456789abcdef", "key", gate)
    failed = PastGate(60.0, "train.py", "fedcba9876543210", "key", Gate("not_comparable", ("No.",), "stored", 0))

    rows = gate_table((first, failed)).rows

    assert rows[0][1:6] == ("regression", "300.0 samples/s", rows[0][3], "900 MiB", rows[0][5])
    assert rows[0][3].startswith("0.7")
    assert rows[0][3].endswith(")")
    assert rows[0][6:8] == ("6", "01234567")
    assert rows[0][8] == f"{ENVIRONMENT.device_name}, torch {ENVIRONMENT.torch}"
    assert rows[1][1:] == ("not comparable", "", "", "", "", "0", "fedcba98", "")
