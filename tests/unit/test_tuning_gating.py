"""A gate's sitting: who is measured when, until when, and what it is held against."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter

import pytest

from autotune.records.configuration import Configuration
from autotune.records.facts import BatchControl
from autotune.records.gate import GATE_VERSION, GateBaseline, Reading
from autotune.records.outcome import OutOfMemory, ScriptError
from autotune.records.plan import Plan
from autotune.records.study import StudySpec
from autotune.tuning.budget import Interruption
from autotune.tuning.gating import Entrant, Sitting
from autotune.verdict.gate.comparison import Allowed
from tests.fakes.landscape import ENVIRONMENT, MIB, measured
from tests.fakes.launcher import FakeLauncher

SETTING = Configuration("aot", (Plan("gelu+", 1, -1),), 0, 64)
SPEC = StudySpec("/somewhere/train.py", finalist_repetitions=20, python="python")
BASELINE = GateBaseline(
    version=GATE_VERSION,
    autotune="0.1.0",
    taken_on="",
    configuration=SETTING.key,
    script_name="train.py",
    script_sha256="abc",
    environment=ENVIRONMENT,
    setting=Reading((400.0, 402.0, 398.0), (900 * MIB,) * 3),
    script=Reading((200.0, 201.0, 199.0), (600 * MIB,) * 3),
)


class Machine:
    """A launcher on which the setting comes to ``rates`` in turn, and the script to half of that of its repetition."""

    def __init__(self, *rates, environment=ENVIRONMENT, other=None, seconds=0.0):
        self.rates = itertools.cycle(rates)
        self.latest = rates[0]
        self.launcher = FakeLauncher(self._outcome_of, environment=environment)
        self.told = []

    def _outcome_of(self, configuration):
        if configuration.key == SETTING.key:
            self.latest = rate = next(self.rates)
            return rate if isinstance(rate, ScriptError) else measured(rate, 64, 900 * MIB)
        return measured(200.0, 16, 600 * MIB)

    def sitting(self, folder, *, other=None, interruption=None, **changes):
        return Sitting(
            Entrant("setting", dataclasses.replace(SPEC, **changes), SETTING),
            Entrant("script", SPEC, Configuration()),
            None if other is None else Entrant("other", dataclasses.replace(SPEC, script=other), SETTING),
            batch_control=BatchControl("loaders"),
            accumulation_control=None,
            allowed=Allowed(),
            launcher=self.launcher,
            interruption=interruption or Interruption(),
            runs=folder,
            told=lambda *what: self.told.append(what),
        )

    def hold(self, folder, baseline=BASELINE, reference=None, **changes):
        return self.sitting(folder, **changes).hold(baseline, reference, script_sha256="abc")

    @property
    def measured(self):
        return Counter("setting" if one.key == SETTING.key else "script" for one in self.launcher.configurations)


def test_on_the_baselines_device_only_the_setting_is_measured_until_it_is_told(tmp_path):
    machine = Machine(400.0, 401.0, 399.0)
    gate = machine.hold(tmp_path)
    assert (gate.answer, gate.reference, gate.repetitions, gate.differs) == ("pass", "stored", 3, ())
    assert machine.measured == {"setting": 3}
    assert [(name, number, outcome is None) for name, number, outcome in machine.told[:4]] == [
        ("setting", 0, True),
        ("setting", 0, False),
        ("setting", 1, True),
        ("setting", 1, False),
    ]
    assert gate.environment == ENVIRONMENT


def test_on_another_device_the_script_is_measured_in_every_repetition_in_random_order(tmp_path):
    elsewhere = dataclasses.replace(ENVIRONMENT, device_name="Formula 2")
    machine = Machine(390.0, 410.0, 380.0, 420.0, environment=elsewhere)
    gate = machine.hold(tmp_path)
    assert gate.reference == "script"
    assert gate.differs == ("device Formula 1 -> Formula 2",)
    assert machine.measured == {"setting": gate.repetitions, "script": gate.repetitions}
    order = ["setting" if one.key == SETTING.key else "script" for one in machine.launcher.configurations]
    assert {*zip(order[2::2], order[3::2], strict=True)} == {("setting", "script"), ("script", "setting")}


def test_another_version_of_the_script_is_held_against_without_a_baseline(tmp_path):
    machine = Machine(400.0)
    gate = machine.hold(tmp_path, None, "other", other="/elsewhere/train.py")
    assert (gate.answer, gate.repetitions) == ("pass", 4)
    assert Counter(run.request.script for run in machine.launcher.runs) == {
        "/somewhere/train.py": 4,
        "/elsewhere/train.py": 4,
    }
    assert all(one.key == SETTING.key for one in machine.launcher.configurations)


def test_beside_another_version_nothing_is_told_of_a_baseline_that_is_not_held_against(tmp_path):
    machine = Machine(400.0, environment=dataclasses.replace(ENVIRONMENT, torch="9.9"))
    assert machine.hold(tmp_path, BASELINE, "stored").differs
    assert machine.hold(tmp_path, BASELINE, "other", other="/elsewhere/train.py").differs == ()


def test_noise_takes_more_repetitions_up_to_as_many_as_were_asked_for(tmp_path):
    gate = Machine(300.0, 500.0, 380.0).hold(tmp_path, finalist_repetitions=7)
    assert gate.repetitions == 7


def test_no_repetition_begins_that_would_end_after_the_budget(tmp_path):
    machine = Machine(300.0, 500.0)
    sitting = machine.sitting(tmp_path, time_budget_s=60.0)
    machine.launcher._before = lambda run: setattr(sitting._budget, "ends_at", 1.0) if run == 3 else None
    gate = sitting.hold(BASELINE, None, script_sha256="abc")
    assert gate.repetitions == 4
    assert gate.gauges[0].found == "open"


def test_a_budget_too_short_for_a_repetition_is_told(tmp_path):
    gate = Machine(400.0).hold(tmp_path, time_budget_s=1e-6)
    assert (gate.answer, gate.repetitions) == ("not_comparable", 0)
    assert gate.sentences == ("Nothing was measured: --time-budget was over before the first run was.",)


def test_a_baseline_takes_more_repetitions_than_an_answer(tmp_path):
    machine = Machine(400.0, 401.0, 399.0)
    gate = machine.sitting(tmp_path).hold(BASELINE, None, script_sha256="abc", least_repetitions=8)
    assert (gate.answer, gate.repetitions) == ("pass", 8)


def test_a_failure_ends_the_sitting(tmp_path):
    machine = Machine(400.0, ScriptError("KeyError: 'lr'"), 400.0)
    gate = machine.hold(tmp_path)
    assert (gate.answer, gate.repetitions) == ("failed", 2)
    assert machine.measured == {"setting": 2}


@pytest.mark.parametrize("reference", [None, "script"])
def test_without_anything_in_common_nothing_is_compared(reference, tmp_path):
    elsewhere = dataclasses.replace(ENVIRONMENT, device_name="Formula 2")
    alone = dataclasses.replace(BASELINE, script=None)
    gate = Machine(400.0, environment=elsewhere).hold(tmp_path, alone, reference)
    assert (gate.answer, gate.repetitions) == ("not_comparable", 0)
    assert gate.sentences[0].startswith("Nothing to compare with: device Formula 1 -> Formula 2, and the baseline has")


def test_a_first_run_that_died_is_told_though_nobody_knows_where_it_ran(tmp_path):
    gate = Machine(ScriptError("KeyError: 'lr'"), environment=None).hold(tmp_path)
    assert (gate.answer, gate.sentences[0]) == ("failed", "The setting could not be measured: KeyError: 'lr'.")


def test_what_was_stored_of_another_device_is_no_measure(tmp_path):
    elsewhere = dataclasses.replace(ENVIRONMENT, device_name="Formula 2")
    gate = Machine(400.0, environment=elsewhere).hold(tmp_path, reference="stored")
    assert (gate.answer, gate.repetitions) == ("not_comparable", 0)
    assert gate.sentences == ("What was measured before is no measure here: device Formula 1 -> Formula 2.",)


def test_ctrl_c_ends_it_without_an_answer(tmp_path):
    machine = Machine(400.0)
    interruption = Interruption()
    sitting = machine.sitting(tmp_path, interruption=interruption)
    machine.launcher._before = lambda run: interruption.finish.set() if run == 1 else None
    assert sitting.hold(BASELINE, None, script_sha256="abc") is None
    assert machine.measured == {"setting": 2}


@pytest.mark.parametrize("interrupted_in", [0, 1], ids=["setting", "script"])
def test_ctrl_c_in_the_first_repetition_ends_it_without_an_answer(tmp_path, interrupted_in):
    machine = Machine(400.0)
    interruption = Interruption()
    sitting = machine.sitting(tmp_path, interruption=interruption)
    # Whoever presses Ctrl-C twice ends what runs.
    machine.launcher._before = lambda run: (
        run == interrupted_in and (interruption.finish.set(), interruption.cancel.set())
    )
    assert sitting.hold(BASELINE, "script", script_sha256="abc") is None
    assert len(machine.launcher.runs) == interrupted_in + 1


def test_between_the_runs_of_a_repetition_ctrl_c_starts_nothing_more(tmp_path):
    machine = Machine(400.0)
    interruption = Interruption()
    sitting = machine.sitting(tmp_path, interruption=interruption)
    machine.launcher._before = lambda run: interruption.finish.set() if run == 0 else None
    assert sitting.hold(BASELINE, "script", script_sha256="abc") is None
    assert machine.measured == {"setting": 1}, "what ran was not cut off, and the script was not started"


@pytest.mark.parametrize(("reference", "cut_off"), [("stored", 2), ("script", 5)])
def test_a_budget_that_ends_within_a_repetition_leaves_the_answer_to_the_repetitions_before(
    tmp_path, monkeypatch, reference, cut_off
):
    machine, ran = Machine(300.0, 500.0), FakeLauncher.run

    def run(launcher, request, *, cancel, **about):
        if len(launcher.runs) == cut_off:
            cancel.ends_by(0.0)
        return ran(launcher, request, cancel=cancel, **about)

    monkeypatch.setattr(FakeLauncher, "run", run)
    gate = machine.hold(tmp_path, reference=reference)
    assert len(machine.launcher.runs) == cut_off + 1
    assert (gate.repetitions, gate.gauges[0].found) == (2, "open")


@pytest.mark.parametrize(
    ("fits_before", "answer"), [(True, "regression"), (False, "failed")], ids=["it fitted", "it never did"]
)
def test_what_does_not_fit_from_the_first_repetition_is_held_against_the_other_version(tmp_path, fits_before, answer):
    machine = Machine(400.0)
    outcomes = iter([OutOfMemory("out of memory"), measured(400.0, 64, MIB) if fits_before else OutOfMemory("as well")])
    machine.launcher = FakeLauncher(lambda _: next(outcomes), environment=ENVIRONMENT)
    gate = machine.hold(tmp_path, None, "other", other="/elsewhere/train.py")
    assert (gate.answer, gate.repetitions) == (answer, 1)
    assert [run.request.script for run in machine.launcher.runs] == ["/somewhere/train.py", "/elsewhere/train.py"]
