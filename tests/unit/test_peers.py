"""Peers: who is measured next, at which batch size, what is kept of it, and what the table says."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import pytest

from autotune.errors import UsageError
from autotune.export.bundle import export_bundle, read_bundle
from autotune.records.codec import dumps, loads
from autotune.records.configuration import Configuration
from autotune.records.facts import BatchControl
from autotune.records.measuring import Measuring
from autotune.records.outcome import Died, OutOfMemory, ScriptError
from autotune.records.proof import GroupDifference
from autotune.tuning.budget import Interruption
from tests.benchmarks.peers import batches, measuring
from tests.benchmarks.peers.__main__ import parse, with_bundle, workload_of
from tests.benchmarks.peers.batches import Chosen, Range
from tests.benchmarks.peers.entrants import PEERS, REFERENCE
from tests.benchmarks.peers.measuring import Workload
from tests.benchmarks.peers.record import (
    NOTHING,
    Check,
    Found,
    Record,
    Run,
    Setting,
    file_of,
    read_record,
    without_logs,
)
from tests.benchmarks.peers.sitting import Sitting
from tests.benchmarks.peers.table import HEADINGS, as_markdown, as_text, rows_of
from tests.fakes.landscape import ENVIRONMENT, MIB, measured
from tests.fakes.launcher import FakeLauncher
from tests.fakes.study_record import study_record

pytestmark = pytest.mark.slow  # guards benchmarks, and nothing that is shipped

RECORDS = Path(__file__).resolve().parents[2] / "trials/records"
LIMIT = 1000 * MIB
SIZES = Range(own=8, least=1, most=64, limit_bytes=LIMIT)
RECORD = Record("toy", "abc", (), LIMIT, (1, 64))
EQUAL = (GroupDifference("losses", 3), GroupDifference("gradients", 4), GroupDifference("buffers"))


class Machine:
    """A measurer on which a setting's rate and peak are formulas; ``of`` is (rate, fixed MiB, MiB a sample) by what."""

    def __init__(self, *, slower_in_repetition=1.0, interrupted_after=None, finds=None, **of):
        self.of = {NOTHING: (100.0, 200, 40), "checkpoint:1": (80.0, 200, 10)} | of
        self.measured = []
        self.checked = []
        self.asked = []
        self._interrupted_after = interrupted_after
        self._finds = finds or {}
        self._slower = slower_in_repetition

    def measure(self, setting, limit_bytes):
        if len(self.measured) == self._interrupted_after:
            return None
        self.measured.append((setting, limit_bytes))
        return self._outcome(setting, limit_bytes), ENVIRONMENT, 1.0

    def _outcome(self, setting, limit_bytes):
        formula = self.of[setting.what]
        if not isinstance(formula, tuple):
            return formula
        rate, fixed, each = formula
        batch = setting.batch_size or 8
        peak = (fixed + each * batch) * MIB
        if limit_bytes is not None and peak > limit_bytes:
            return OutOfMemory("too much", ("a line of /home/somebody",), limit_bytes=limit_bytes)
        return measured(rate * batch / (batch + 4), batch, peak)

    def check(self, what, batch_size):
        self.checked.append((what, batch_size))
        return Check(what, EQUAL)

    def find(self, peer, finder, first, most, train):
        self.asked.append((finder, first, most))
        answers = {size: train(size) for size in self._finds.get(finder, ())}
        if None in answers.values():
            return None
        fitting = [size for size, answer in answers.items() if answer == "fits"]
        return Found(peer, max(fitting, default=None)), "1.2"


def sitting(path, machine, *names, record=RECORD, repetitions=2, ends_at=float("inf")):
    asked = [PEERS[name] for name in (REFERENCE, *names)]
    return Sitting(
        record,
        path / "toy.json",
        asked,
        machine,
        repetitions=repetitions,
        interruption=Interruption(),
        ends_at=ends_at,
        told=lambda what: None,
    )


def choose(rule, fixed, each, *, rate=100.0, sizes=SIZES):
    """What a rule comes to, and what it looked at on the way, where peaks are a line."""
    tried, order = {}, []
    while isinstance(following := rule(tried, sizes), int):
        assert following not in tried
        peak = (fixed + each * following) * MIB
        outcome = OutOfMemory("too much") if peak > sizes.limit_bytes else measured(rate, following, peak)
        tried[following] = outcome
        order.append(following)
    return following, order


def test_doubling_ends_with_the_last_batch_that_fits():
    assert choose(batches.doubled, 200, 20) == (Chosen(32), [8, 16, 32, 64])
    assert choose(batches.doubled, 200, 1) == (Chosen(64), [8, 16, 32, 64])


def test_a_batch_that_does_not_fit_is_halved_until_one_does():
    assert choose(batches.doubled, 200, 200) == (Chosen(4), [8, 4])
    chosen, order = choose(batches.best, 200, 200)
    assert order[:2] == [8, 4]
    assert chosen == Chosen(4)


def test_the_best_batch_is_looked_for_up_to_the_largest_that_fits_to_an_eighth():
    for each in (9, 13, 21, 37, 90):
        largest = 800 // each
        _, order = choose(batches.best, 200, each)
        fitting = [size for size in order if size <= largest]
        assert largest * 0.8 <= max(fitting) <= largest or max(fitting) == 64
        assert len(order) <= 7


def test_where_peaks_say_that_twice_the_batch_is_too_much_it_is_not_looked_at():
    _, order = choose(batches.best, 200, 40)  # 20 fit
    assert order[:2] == [8, 16]
    assert 32 not in order


def test_the_best_batch_is_the_fastest_one_and_repetitions_may_show_that_the_largest_is():
    tried = {8: measured(100.0, 8, 300 * MIB), 16: measured(120.0, 16, 500 * MIB), 32: measured(90.0, 32, 900 * MIB)}
    assert batches.best(tried | {36: OutOfMemory("too much")}, SIZES) == Chosen(16, or_else=32)


def test_a_batch_at_which_the_allocator_thrashed_does_not_fit():
    tried = {8: measured(100.0, 8, 300 * MIB), 16: measured(120.0, 16, 900 * MIB, allocator_retries=3)}
    assert batches.doubled(tried, SIZES) == Chosen(8)


def test_nobody_halves_a_batch_that_failed_for_another_reason():
    for rule in (batches.best, batches.doubled):
        assert rule({8: ScriptError("KeyError: 'lr'")}, SIZES) == Chosen(None, "KeyError: 'lr'")


def test_the_script_as_it_stands_keeps_its_batch_though_it_does_not_fit():
    assert choose(batches.own, 200, 200) == (Chosen(None, "too much"), [8])


def test_a_sitting_looks_at_batches_then_at_gradients_then_measures_in_turns(tmp_path):
    machine = Machine()
    done = sitting(tmp_path, machine, "checkpoint all", "by hand")
    assert done.go_on()
    purposes = [run.purpose for run in done.record.runs]
    assert purposes == sorted(purposes, key=["own", "probe", "repetition"].index)
    assert machine.measured[0] == (Setting(NOTHING, 0), None)
    assert {limit for _, limit in machine.measured[1:]} == {LIMIT}
    assert machine.checked == [(NOTHING, 8), ("checkpoint:1", 8)]
    repetitions = [[run.setting for run in done.record.runs if run.repetition == number] for number in range(2)]
    # Those who come to one setting share its runs.
    assert [sorted(map(str, one)) for one in repetitions] == [["checkpoint:1 at batch 64", "nothing at batch 20"]] * 2


@pytest.mark.parametrize("path", sorted(RECORDS.glob("*/[!n]*-miniature.json")), ids=lambda path: path.stem)
def test_records_that_were_landed_are_read(path):
    assert read_record(path).runs


def test_each_thing_is_stored_as_it_ends_and_the_next_sitting_goes_on_from_there(tmp_path):
    whole = Machine()
    sitting(tmp_path / "whole", whole, "checkpoint all").go_on()
    path, seen = tmp_path / "cut" / "toy.json", []
    for after in range(1, 100):
        machine = Machine(interrupted_after=1)
        one = sitting(path.parent, machine, "checkpoint all", record=read_record(path) or RECORD)
        is_done = one.go_on()
        seen += machine.measured
        assert read_record(path) == one.record
        assert len(one.record.runs) == after
        if is_done:
            break
    # But for the reference, which is measured again beside what is measured of a repetition in a later sitting.
    reference = Setting(NOTHING, 20)
    assert [one for one, _ in seen if one != reference] == [one for one, _ in whole.measured if one != reference]
    assert {row.peer: row.repetitions for row in rows_of(one.record)}["checkpoint all"] == 2


def test_what_goes_on_with_a_repetition_is_held_against_a_reference_of_its_own_sitting(tmp_path):
    settled = sitting(tmp_path, Machine(), "checkpoint all", repetitions=0)
    settled.go_on()
    reference, other = Setting(NOTHING, 20), Setting("checkpoint:1", 64)
    before = [
        Run("repetition", reference, measured(200.0, 20, 900 * MIB), 1.0, "before", 0),
        Run("repetition", Setting("compile", 8), measured(1.0, 8, 900 * MIB), 1.0, "before", 0),
    ]
    cut = dataclasses.replace(settled.record, runs=(*settled.record.runs, *before))
    later = Machine()
    one = sitting(tmp_path, later, "checkpoint all", record=cut, repetitions=1)
    assert one.go_on()
    assert [setting for setting, _ in later.measured] == [reference, other]
    (row,) = [row for row in rows_of(one.record) if row.peer == "checkpoint all"]
    assert row.ratio == pytest.approx(80 * 64 / 68 / (100 * 20 / 24))


def test_nothing_begins_that_would_end_after_the_time(tmp_path):
    machine = Machine()
    assert not sitting(tmp_path, machine, ends_at=time.monotonic() + 5).go_on()
    assert machine.measured == []  # nothing is known of how long a run takes
    first = sitting(tmp_path, machine)
    first.go_on(1)
    assert len(machine.measured) == 1
    assert not sitting(tmp_path, machine, record=first.record, ends_at=time.monotonic() + 0.5).go_on()
    assert len(machine.measured) == 1


def test_ctrl_c_ends_a_sitting_before_the_next_thing(tmp_path):
    machine = Machine()
    one = sitting(tmp_path, machine)
    one._interruption.finish.set()
    assert not one.go_on()
    assert machine.measured == []


def test_a_librarys_finder_gets_what_was_measured_and_is_asked_once(tmp_path):
    machine = Machine(finds={"accelerate": (24, 21, 18)})
    one = sitting(tmp_path, machine, "accelerate")
    assert one.go_on()
    # It goes down from the smallest that is known not to fit.
    smallest_failure = min(
        size for size, outcome in one.record.probes(NOTHING).items() if isinstance(outcome, OutOfMemory) and size != 21
    )
    assert machine.asked == [("accelerate", 8, min(smallest_failure, 22))]
    assert one.record.found == (Found("accelerate", 18),)
    assert one.record.libraries == {"accelerate": "1.2"}
    assert sitting(tmp_path, machine, "accelerate", record=one.record).go_on()
    assert len(machine.asked) == 1


def test_a_finder_that_is_cut_short_keeps_what_it_looked_at_and_is_asked_anew(tmp_path):
    settled = sitting(tmp_path, Machine(), repetitions=0)
    settled.go_on()
    machine = Machine(finds={"accelerate": (19, 17)}, interrupted_after=1)
    one = sitting(tmp_path, machine, "accelerate", record=settled.record)
    assert not one.go_on()
    assert one.record.found == ()
    assert 19 in one.record.probes(NOTHING)
    later = Machine(finds={"accelerate": (19, 17)})
    assert sitting(tmp_path, later, "accelerate", record=one.record).go_on()
    assert Setting(NOTHING, 19) not in [setting for setting, limit in later.measured[:1]]


def test_peers_that_cannot_be_had_say_why_and_measure_nothing(tmp_path):
    machine = Machine(
        transformers=ScriptError("NotApplicableError: Toy is no model of transformers", traceback="/home/somebody")
    )
    one = sitting(tmp_path, machine, "deepspeed autotuner", "transformers", repetitions=1)
    assert one.go_on()
    rows = {row.peer: row for row in rows_of(one.record)}
    assert rows["deepspeed autotuner"].why_not == "deepspeed is not installed"
    assert rows["transformers"].why_not == "Toy is no model of transformers"
    assert [setting.what for setting, _ in machine.measured].count("transformers") == 1
    there = dataclasses.replace(one.record, libraries={"deepspeed": "installed"})
    assert "initialize" in {row.peer: row for row in rows_of(there)}["deepspeed autotuner"].why_not


def test_without_the_scripts_own_batch_nothing_is_compared(tmp_path):
    machine = Machine(**{NOTHING: Died("killed by SIGSEGV")})
    one = sitting(tmp_path, machine, "checkpoint all")
    assert one.go_on()
    assert len(machine.measured) == 1
    assert all("killed by SIGSEGV" in row.why_not for row in rows_of(one.record))


def test_a_record_reads_back_as_it_was_and_names_nothing_of_the_machine(tmp_path):
    one = sitting(tmp_path, Machine(), "checkpoint all", "accelerate", "script")
    one.go_on()
    assert loads(Record, dumps(one.record)) == one.record
    text = (tmp_path / "toy.json").read_text()
    assert "somebody" not in text
    assert ENVIRONMENT.hostname not in json.loads(text)["environment"].values()
    failed = without_logs(ScriptError("KeyError: 'lr'", ("a line",), traceback="a path"))
    assert failed == ScriptError("KeyError: 'lr'")


def test_a_study_is_kept_with_its_samples_and_nothing_of_the_machine_besides_its_device():
    study = study_record()
    record = RECORD.with_study(study)
    text = dumps(record)
    assert loads(Record, text) == record
    kept = record.study
    assert kept.facts.environment.device_name == study.facts.environment.device_name
    assert kept.facts.environment.python == study.facts.environment.python
    samples = [[one.measured.step_times_s for one in of.trials if one.measured] for of in (study, kept)]
    assert samples[0] == samples[1] != []
    assert len(kept.repeats) == len(study.repeats)
    assert study.facts.environment.hostname not in text
    assert str(Path(study.spec.script).parent) not in text
    assert all(trial.run_directory not in text for trial in study.trials if trial.run_directory)


def test_a_file_is_named_by_device_workload_and_limit(tmp_path):
    assert file_of(tmp_path, "NVIDIA H100 80GB HBM3", "gpt2-24 GiB") == (
        tmp_path / "nvidia-h100-80gb-hbm3" / "gpt2-24GiB.json"
    )


def test_runs_of_another_device_are_not_added_to_a_record():
    there = RECORD.in_environment(ENVIRONMENT)
    assert there.in_environment(dataclasses.replace(ENVIRONMENT, hostname="there")) == there
    for change in ({"device_name": "Formula 2"}, {"torch": "2.14.0"}):
        with pytest.raises(UsageError, match="measured elsewhere"):
            there.in_environment(dataclasses.replace(ENVIRONMENT, **change))


@pytest.mark.parametrize(
    ("differences", "reason", "answer"),
    [
        (EQUAL, "", "equal bits"),
        (EQUAL, "two runs of the script differ themselves", "not comparable"),
        ((), "", "not comparable"),
        ((GroupDifference("gradients", 4, 2, "w", 1, 1e-7, 1e-6),), "", "rounding"),
        ((GroupDifference("gradients", 4, 2, "w", 1, 0.1, 0.3),), "", "differs"),
        ((GroupDifference("gradients", 4), GroupDifference("counters", 1, 1, "n", 1, 1.0, 1e-3)), "", "differs"),
        ((GroupDifference("gradients", 4), GroupDifference("random", 1, 1, "torch")), "", "equal bits"),
    ],
)
def test_gradients_are_equal_or_rounded_or_others_or_not_comparable(differences, reason, answer):
    assert Check("compile", differences, reason).answer == answer


def test_the_table_holds_each_repetition_against_its_own_reference():
    reference, other = Setting(NOTHING, 8), Setting("checkpoint:1", 16)

    def run(setting, rate, number):
        return Run("repetition", setting, measured(rate, setting.batch_size, 500 * MIB), 1.0, "one", number)

    probes = (
        Run("own", Setting(NOTHING, 0), measured(100.0, 8, 500 * MIB), 1.0, "one"),
        *(Run("probe", Setting(NOTHING, size), measured(size, size, 990 * MIB), 1.0, "one") for size in (8,)),
        Run("probe", Setting(NOTHING, 9), OutOfMemory("too much"), 1.0, "one"),
        *(
            Run("probe", Setting("checkpoint:1", size), measured(size, size, 60 * size * MIB), 1.0, "one")
            for size in (8, 16)
        ),
        Run("probe", Setting("checkpoint:1", 17), OutOfMemory("too much"), 1.0, "one"),
    )
    record = dataclasses.replace(
        RECORD,
        asked=(REFERENCE, "checkpoint all"),
        runs=(*probes, run(reference, 100, 0), run(other, 200, 0), run(reference, 50, 1), run(other, 50, 1)),
        checks=(Check(NOTHING, EQUAL), Check("checkpoint:1", EQUAL)),
    )
    best, checkpointed = rows_of(record)
    assert (best.ratio, best.gradients) == (pytest.approx(1.0), "the script")
    assert checkpointed.ratio == pytest.approx(2**0.5)
    assert checkpointed.ratio_between == (1.0, 2.0)
    assert (checkpointed.samples_per_s, checkpointed.repetitions, checkpointed.gradients) == (125.0, 2, "equal bits")
    text, page = as_text(record), as_markdown(record)
    assert "Not told apart from the script's best batch without recompute: checkpoint all, 1.414x (1.000 to 2.0" in text
    assert "| checkpoint all | 16 | 125 | 50-200 | 1.414x | 1.000-2.000 | 2 | 500 MiB | equal bits |" in page


def test_who_has_other_gradients_is_not_called_ahead_alone(tmp_path):
    machine = Machine(compile=(300.0, 200, 40))
    machine.check = lambda what, batch_size: Check(
        what, EQUAL if what != "compile" else (GroupDifference("gradients", 4, 4, "w", 1, 0.5, 0.7),)
    )
    one = sitting(tmp_path, machine, "compile")
    assert one.go_on()
    text = as_text(one.record)
    assert "Ahead: compile, 3.000x" in text
    assert "Ahead of those with the script's gradients: best batch, 1.000x" in text
    assert "OTHERS: gradients 7.0e-01" in text


WORKLOAD = Workload("toy", Path("/trials/toy/train.py"), ("--lr", "1"))
DRIVE = measuring.__file__.replace("measuring.py", "drive.py")


def runs(folder, launcher, *, bundle=None, variables=None):
    def launcher_with(own):
        if variables is not None:
            variables.append(own)
        return launcher

    return measuring.Runs(
        WORKLOAD,
        launcher_with,
        device=None,
        folder=folder,
        measuring=Measuring(max_measure_s=1.5),
        interruption=Interruption(),
        ends_at=float("inf"),
        bundle=bundle,
    )


def test_the_script_is_run_itself_and_through_the_driver_where_something_is_done_to_its_model(tmp_path):
    launcher = FakeLauncher(lambda one: measured(100.0, one.batch_size or 8, 300 * MIB), environment=ENVIRONMENT)
    measurer = runs(tmp_path, launcher)
    outcome, environment, _ = measurer.measure(Setting(NOTHING, 0), None)
    assert (outcome.measurement.batch_size, environment) == (8, ENVIRONMENT)
    measurer.measure(Setting(NOTHING, 16), LIMIT)
    measurer.measure(Setting("checkpoint:2", 16), LIMIT)
    own, alone, driven = [run.request for run in launcher.runs]
    assert (own.script, own.arguments, own.batch_size, own.memory_limit_bytes) == (
        "/trials/toy/train.py",
        ("--lr", "1"),
        None,
        None,
    )
    assert (alone.script, alone.arguments) == (own.script, ("--lr", "1", "--batch-size", "16"))
    assert (driven.script, driven.arguments) == (DRIVE, ("checkpoint:2", alone.script, *alone.arguments))
    for one in (alone, driven):
        assert (one.batch_size, one.batch_control, one.memory_limit_bytes) == (16, BatchControl("arguments"), LIMIT)
        assert (one.measuring, one.configurations) == (Measuring(max_measure_s=1.5), (Configuration(batch_size=16),))
        assert not one.may_fork


def test_gradients_are_compared_with_one_run_of_the_script_at_equal_numerics(tmp_path):
    launcher = FakeLauncher(lambda _: measured(100.0, 8, 300 * MIB))
    measurer = runs(tmp_path, launcher)
    assert measurer.check(NOTHING, 8).answer == "equal bits"
    assert measurer.check("compile", 8).answer == "equal bits"
    script, again, compiled = [run.request for run in launcher.runs]
    assert {one.mode for one in (script, again, compiled)} == {"verify"}
    assert script.verifying.is_reference
    assert again.verifying.references == compiled.verifying.references != ()
    assert compiled.arguments[:2] == ("--equal-numerics", "compile")
    assert compiled.memory_limit_bytes is None


def test_a_script_whose_first_steps_fail_or_differ_is_compared_with_nobody(tmp_path):
    failing = FakeLauncher(lambda _: Died("killed by SIGSEGV"))
    check = runs(tmp_path, failing).check(NOTHING, 8)
    assert (check.answer, check.reason) == ("not comparable", "the script: killed by SIGSEGV")
    unlike = FakeLauncher(lambda _: measured(100.0, 8, 300 * MIB), is_exact=lambda _: False)
    check = runs(tmp_path, unlike).check(NOTHING, 8)
    assert (check.answer, check.reason) == ("not comparable", "two runs of the script differ themselves")
    one = sitting(tmp_path, Machine(), "checkpoint all", repetitions=0)
    one._measurer.check = lambda what, batch_size: check
    assert one.go_on()
    assert [each.reason for each in one.record.checks] == ["two runs of the script differ themselves"] * 2


def test_a_bundle_is_measured_as_launch_applies_it(tmp_path):
    bundle = read_bundle(export_bundle(study_record(), tmp_path / "bundle"))
    record = with_bundle(RECORD, bundle)
    (found,) = record.found
    assert (found.batch_size, found.reason) == (bundle.configuration.batch_size, str(bundle.configuration))
    launcher, variables = FakeLauncher(lambda one: measured(100.0, one.batch_size or 8, 300 * MIB)), []
    measurer = runs(tmp_path, launcher, bundle=bundle, variables=variables)
    one = sitting(tmp_path, measurer, "autotune", record=record, repetitions=1)
    assert one.go_on()
    request = next(run.request for run in launcher.runs if run.request.configurations[0].engine != "eager")
    ours = [run.request for run in launcher.runs if run.request.configurations == (bundle.configuration,)]
    assert {(each.script, each.memory_limit_bytes) for each in ours if each.mode == "measure"} == {
        ("/trials/toy/train.py", LIMIT)
    }
    # Its first steps are compared at the script's own batch.
    assert (request.mode, request.configurations[0].batch_size) == ("verify", 8)
    assert bundle.environment in variables
    assert {row.peer: row.repetitions for row in rows_of(one.record)}["autotune"] == 1
    another = dataclasses.replace(bundle, plans=())
    assert with_bundle(one.record, another).found[0].what != found.what


def test_a_workload_is_a_case_of_trials_or_a_script(tmp_path):
    charlm, settings, limit = workload_of("charlm", 0, ())
    assert (charlm.name, charlm.script.name, settings["memory_limit"], limit) == ("charlm", "train.py", "4GiB", "")
    gpt2, settings, limit = workload_of("gpt2-24GB", 0, ())
    assert (gpt2.name, settings["memory_limit"], limit) == ("gpt2", "23.6GiB", "24GB")
    with pytest.raises(SystemExit, match="several limits: name one of gpt2-24GB"):
        workload_of("gpt2", 0, ())
    small, settings, _ = workload_of("charlm-miniature", None, ())
    assert settings["memory_limit"] == "600MiB"
    assert "--width" in small.arguments
    script = tmp_path / "other" / "train.py"
    script.parent.mkdir()
    script.write_text("")
    found = workload_of(str(script), None, ["--lr", "1"])
    assert found == (Workload("other", script, ("--lr", "1")), {}, "")
    with pytest.raises(SystemExit, match="no case 'nothing'"):
        workload_of("nothing", None, ())


def test_the_scripts_arguments_follow_after_two_dashes():
    options = parse(["charlm", "--peer", "compile", "--budget", "9m", "--cpu", "--", "--steps", "3", "--", "x"])
    assert (options.peer, options.budget, options.script_arguments) == (["compile"], 540.0, ["--steps", "3", "--", "x"])


def test_whoever_found_it_the_best_batch_without_recompute_in_the_repetitions_is_what_others_are_held_against(tmp_path):
    machine = Machine(finds={"accelerate": (23, 19)})
    settled = sitting(tmp_path, machine, "accelerate", repetitions=0)
    assert settled.go_on()
    rates = {20: 100.0, 19: 150.0}

    def measure(setting, limit_bytes):
        return measured(rates[setting.batch_size], setting.batch_size, 900 * MIB), ENVIRONMENT, 1.0

    machine.measure = measure
    one = sitting(tmp_path, machine, "accelerate", record=settled.record)
    assert one.go_on()
    best, accelerate = rows_of(one.record)
    assert (best.batch_size, best.ratio, accelerate.batch_size, accelerate.ratio) == (19, 1.0, 19, 1.0)
    rates[19] = 80.0
    other = sitting(tmp_path, machine, "accelerate", record=settled.record)
    assert other.go_on()
    best, accelerate = rows_of(other.record)
    assert (best.batch_size, best.ratio, accelerate.ratio) == (20, 1.0, pytest.approx(0.8))
    assert "Nobody is ahead" in as_text(other.record)


def test_a_peer_is_told_by_the_better_of_its_two_batches(tmp_path):
    machine = Machine()
    settled = sitting(tmp_path, machine, "checkpoint all", repetitions=0)
    settled.go_on()
    fastest = Run("probe", Setting("checkpoint:1", 16), measured(500.0, 16, 360 * MIB), 1.0, "quiet")
    lucky = dataclasses.replace(settled.record, runs=(*settled.record.runs, fastest))
    one = sitting(tmp_path, machine, "checkpoint all", record=lucky)
    assert one.go_on()
    assert {run.setting.batch_size for run in one.record.runs if run.repetition == 0} == {20, 16, 64}
    checkpointed = rows_of(one.record)[1]
    assert (checkpointed.batch_size, checkpointed.ratio) == (64, pytest.approx(80 * 64 / 68 / (100 * 20 / 24)))
    machine.of["checkpoint:1"] = Died("killed by SIGSEGV")
    failing = sitting(tmp_path, machine, "checkpoint all", record=one.record, repetitions=3)
    assert failing.go_on()
    assert rows_of(failing.record)[1].why_not == "in 1 of 3 repetitions killed by SIGSEGV"


def test_what_failed_for_another_reason_than_memory_can_be_tried_again(tmp_path):
    machine = Machine(**{"checkpoint:2": Died("killed by SIGKILL")})
    one = sitting(tmp_path, machine, "checkpoint every 2nd", "checkpoint all", repetitions=0)
    assert one.go_on()
    again = one.record.without_failures()
    assert again.probes("checkpoint:2") == {}
    for what in (NOTHING, "checkpoint:1"):
        assert again.probes(what) == one.record.probes(what)
    assert again.checks == one.record.checks
    failed = dataclasses.replace(
        one.record, checks=(Check("compile", (), "it died"),), found=(Found("lightning", None),)
    )
    assert (failed.without_failures().checks, failed.without_failures().found) == ((), ())


def test_no_two_columns_of_the_table_are_called_alike():
    assert len(set(HEADINGS)) == len(HEADINGS)
