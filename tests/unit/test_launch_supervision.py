"""How runs end, and what they are said to have ended of: the supervision, without processes and by its own clock."""

from __future__ import annotations

import dataclasses
import shutil
import signal
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.errors import RunError
from autotune.launch.port import Event
from autotune.machine.meters.port import Neighbours
from autotune.machine.meters.run_meter import RunMeter
from autotune.records.environment import DeviceReading
from autotune.records.measurement import Peaks
from autotune.records.outcome import Died, HostOutOfMemory, Measured, OutOfMemory, ScriptError, TimedOut
from autotune.records.run import Described, Result
from tests.fakes.memory_meter import FakeMeter, fake_gpu
from tests.fakes.scripted_run import PID, ScriptedWorker, Steps, supervise
from tests.fakes.study_record import study_record
from tests.fakes.worker_side import ENVIRONMENT, measured, request_for

LIMIT = 200 * 2**20
GPU = fake_gpu("GPU-aa", total=2**36, reserved=0, used=2**30)


def test_a_good_run_gives_an_outcome_for_every_configuration(tmp_path: Path) -> None:
    def script(run: ScriptedWorker) -> Steps:
        for index in range(3):
            run.result(index, measured(0.1 * (index + 1)))
            yield
        run.ended()

    result = supervise(tmp_path, script, request=request_for(3))

    assert [outcome.measurement.step_time_s for outcome in result.outcomes] == [0.1, 0.2, pytest.approx(0.3)]
    assert result.environment == ENVIRONMENT
    assert result.reason == "all configurations were measured"
    assert result.failure is None


def test_events_come_in_the_order_of_what_happens(tmp_path: Path) -> None:
    events: list[Event] = []

    def script(run: ScriptedWorker) -> Steps:
        for index in range(2):
            run.progress("forward", index=index, steps=index)
            yield from run.wait(0.1)
            run.result(index)
            yield from run.wait(0.1)

    supervise(tmp_path, script, request=request_for(2), on_event=events.append)

    told = [(event.kind, event.index) for event in events]
    assert [step for step in told if step[0] != "step"] == [
        ("started", 0),
        ("result", 0),
        ("started", 1),
        ("result", 1),
        ("ended", 1),
    ]
    assert [event.steps for event in events] == sorted(event.steps for event in events)
    assert [event.at_s for event in events] == sorted(event.at_s for event in events)
    assert all(isinstance(event.outcome, Measured) == (event.kind == "result") for event in events)


def test_a_crash_is_named_by_its_signal_and_phase_and_loses_only_the_trial_under_way(tmp_path: Path) -> None:
    def script(run: ScriptedWorker) -> Iterator[None]:
        run.result(0)
        yield
        run.progress("backward", index=1, steps=12)
        run.say("the last words")
        return -signal.SIGSEGV

    first, second, third = supervise(tmp_path, script, request=request_for(3)).outcomes

    assert isinstance(first, Measured)
    assert isinstance(second, Died)
    assert (second.signal, second.phase, second.exit_status) == ("SIGSEGV", "backward", None)
    assert second.cause == "killed by SIGSEGV in backward, after step 12"
    assert second.log_tail == ("the last words",)
    assert third is None


@pytest.mark.parametrize(
    ("number", "shown"), [(signal.SIGSEGV, "The end of its log shows which line crashed. "), (signal.SIGTERM, "")]
)
def test_a_crash_before_the_first_step_counts_no_steps_and_names_the_log_that_has_its_line(
    number: signal.Signals, shown: str, tmp_path: Path
) -> None:
    def script(run: ScriptedWorker) -> Iterator[None]:
        yield
        return -number

    (outcome,) = supervise(tmp_path, script).outcomes

    assert isinstance(outcome, Died)
    assert outcome.cause == f"killed by {number.name} before its first step"
    assert outcome.advice.startswith(f"{shown}Run the script by itself")


def test_an_exit_without_a_result_is_named_by_its_status(tmp_path: Path) -> None:
    def script(run: ScriptedWorker) -> Iterator[None]:
        run.progress("forward")
        yield
        return 3

    (outcome,) = supervise(tmp_path, script).outcomes

    assert isinstance(outcome, Died)
    assert (outcome.exit_status, outcome.phase) == (3, "forward")


def test_a_worker_that_leaves_without_any_result_is_quoted(tmp_path: Path) -> None:
    def script(run: ScriptedWorker) -> Steps:
        run.ended("the script found nothing to train on")
        yield

    (outcome,) = supervise(tmp_path, script).outcomes

    assert isinstance(outcome, Died)
    assert "the script found nothing to train on" in outcome.cause


def test_what_comes_after_a_failure_was_not_reached(tmp_path: Path) -> None:
    def script(run: ScriptedWorker) -> Steps:
        run.say("Traceback")
        run.result(0)
        run.result(1, ScriptError("boom"))
        yield

    first, second, third = supervise(tmp_path, script, request=request_for(3)).outcomes

    assert isinstance(first, Measured)
    assert isinstance(second, ScriptError)
    assert second.log_tail == ("Traceback",)
    assert third is None


def test_a_failure_with_log_lines_of_its_own_keeps_them(tmp_path: Path) -> None:
    def script(run: ScriptedWorker) -> Steps:
        run.say("noise")
        run.result(0, ScriptError("boom", ("own line",)))
        yield

    (outcome,) = supervise(tmp_path, script).outcomes

    assert outcome.log_tail == ("own line",)


def test_what_the_worker_leaves_on_purpose_was_not_reached(tmp_path: Path) -> None:
    def script(run: ScriptedWorker) -> Steps:
        run.result(0)
        run.ended("the script ended by itself")
        yield

    result = supervise(tmp_path, script, request=request_for(2))

    assert result.outcomes[1] is None
    assert result.reason == "the script ended by itself"


def stuck(run: ScriptedWorker) -> Steps:
    """Begin to train, and end no step."""
    run.progress("forward")
    yield from run.hang()


def test_a_run_that_never_steps_meets_the_start_deadline(tmp_path: Path) -> None:
    (outcome,) = supervise(tmp_path, stuck, start_timeout_s=4.0).outcomes

    assert isinstance(outcome, TimedOut)
    assert outcome.phase == "forward"
    assert "4 s" in outcome.cause
    assert "--start-timeout" in outcome.advice


def test_a_trial_that_hangs_meets_the_trial_deadline(tmp_path: Path) -> None:
    def script(run: ScriptedWorker) -> Steps:
        run.result(0)
        run.progress("backward", index=1, steps=7)
        yield from run.hang()

    first, second, third = supervise(tmp_path, script, request=request_for(3), trial_timeout_s=2.0).outcomes

    assert isinstance(first, Measured)
    assert isinstance(second, TimedOut)
    assert second.phase == "backward"
    assert "--trial-timeout" in second.advice
    assert third is None


def test_each_trial_has_its_own_deadline(tmp_path: Path) -> None:
    def script(run: ScriptedWorker) -> Steps:
        for index in range(4):
            yield from run.wait(1.0)
            run.result(index)

    result = supervise(tmp_path, script, request=request_for(4), trial_timeout_s=1.5)

    assert all(isinstance(outcome, Measured) for outcome in result.outcomes)


def test_a_result_that_comes_in_while_the_run_is_being_killed_counts(tmp_path: Path) -> None:
    def script(run: ScriptedWorker) -> Steps:
        run.at_dump = lambda: run.result(0)
        yield from stuck(run)

    first, second = supervise(tmp_path, script, request=request_for(2), start_timeout_s=4.0).outcomes

    assert isinstance(first, Measured)
    assert second is None


@pytest.mark.parametrize("moment", ["at_dump", "at_terminate"])
def test_what_fails_while_the_run_is_being_killed_fails_of_that(moment: str, tmp_path: Path) -> None:
    def script(run: ScriptedWorker) -> Steps:
        setattr(run, moment, lambda: run.result(0, ScriptError("process 0 is gone")))
        yield from stuck(run)

    (outcome,) = supervise(tmp_path, script, start_timeout_s=4.0).outcomes

    assert isinstance(outcome, TimedOut)


def test_a_run_that_does_not_end_after_its_last_result_is_ended(tmp_path: Path) -> None:
    def script(run: ScriptedWorker) -> Steps:
        run.result(0)
        run.ended()
        yield from run.hang()

    assert isinstance(supervise(tmp_path, script).outcomes[0], Measured)


def test_a_limit_that_is_kept_disturbs_nothing(tmp_path: Path) -> None:
    def script(run: ScriptedWorker) -> Steps:
        yield
        run.result(0)

    meter = RunMeter(resident=FakeMeter(lambda pids: LIMIT))
    result = supervise(tmp_path, script, request=request_for(1, memory_limit_bytes=LIMIT), meter=meter)

    assert isinstance(result.outcomes[0], Measured)


def test_a_cancelled_run_ends_now_and_keeps_what_it_has(tmp_path: Path) -> None:
    def script(run: ScriptedWorker) -> Steps:
        run.result(0)
        yield from run.hang()

    first, second = supervise(
        tmp_path, script, request=request_for(2), cancelled_by=lambda event: event.kind == "result"
    ).outcomes

    assert isinstance(first, Measured)
    assert second is None


def test_a_line_that_is_not_finished_is_no_result(tmp_path: Path) -> None:
    def script(run: ScriptedWorker) -> Steps:
        run.result(0)
        run.write(b'{"kind":"result","index":1,"outc')
        run.progress("optimizer", index=1, steps=4)
        yield

    first, second = supervise(tmp_path, script, request=request_for(2)).outcomes

    assert isinstance(first, Measured)
    assert isinstance(second, Died)


def test_a_broken_results_file_is_an_error_and_not_an_outcome(tmp_path: Path) -> None:
    def script(run: ScriptedWorker) -> Steps:
        run.result(0)
        run.write(b'{"kind":\n')
        yield from run.hang()

    with pytest.raises(RunError, match=r"results\.jsonl line 2"):
        supervise(tmp_path, script, request=request_for(2))


@pytest.mark.parametrize("is_whole", [True, False])
def test_two_ranks_make_one_outcome(tmp_path: Path, is_whole: bool) -> None:
    def script(run: ScriptedWorker) -> Steps:
        ranks = [run.another(rank, 2) for rank in range(2)]
        for rank in ranks:
            rank.progress("forward")
        yield
        ranks[0].result(0, measured(0.2, 0.2))
        yield
        if is_whole:
            ranks[1].result(0, measured(0.1, 0.3, 0.1))

    (outcome,) = supervise(tmp_path, script).outcomes

    assert isinstance(outcome, Measured if is_whole else Died)
    if isinstance(outcome, Measured):
        assert outcome.measurement.step_times_s == (0.2, 0.3)
        assert outcome.measurement.samples_per_step == (16, 16)
        assert outcome.measurement.num_processes == 2


def test_a_rank_that_waits_for_a_failed_one_is_not_waited_for(tmp_path: Path) -> None:
    def script(run: ScriptedWorker) -> Steps:
        ranks = [run.another(rank, 2) for rank in range(2)]
        for rank in ranks:
            rank.progress("forward")
        ranks[1].result(0, OutOfMemory("no room", phase="backward"))
        yield from run.hang()

    assert isinstance(supervise(tmp_path, script, grace_s=0.3).outcomes[0], OutOfMemory)


def test_a_parent_that_only_starts_the_ranks_is_none_of_them(tmp_path: Path) -> None:
    def script(run: ScriptedWorker) -> Steps:
        run.progress("start")
        yield
        run.another(1, 1).result(0)

    assert isinstance(supervise(tmp_path, script).outcomes[0], Measured)


def test_a_discovery_that_dies_while_describing_says_so_beside_its_baseline(tmp_path: Path) -> None:
    def script(run: ScriptedWorker) -> Iterator[None]:
        run.result(0)
        yield
        return -signal.SIGABRT

    result = supervise(tmp_path, script, request=request_for(1, mode="discover"))

    assert isinstance(result.outcomes[0], Measured)
    assert result.facts is None
    assert isinstance(result.failure, Died)
    assert result.failure.signal == "SIGABRT"
    assert "described" in result.failure.cause


def test_a_description_that_takes_too_long_names_its_time_and_keeps_the_plans_that_it_has_found(tmp_path: Path) -> None:
    facts = dataclasses.replace(study_record().facts, undescribed=None)
    events: list[Event] = []

    def script(run: ScriptedWorker) -> Steps:
        run.result(0)
        run.line(Described(dataclasses.replace(facts, clusters=()), PID, may_take_s=2.0))
        yield from run.wait(1.0)
        run.line(Described(facts, PID, may_take_s=2.0))
        yield from run.wait(1.5)
        run.line(Described(facts, PID))
        run.ended()

    result = supervise(tmp_path, script, request=request_for(1, mode="discover"), on_event=events.append)

    assert isinstance(result.outcomes[0], Measured)
    assert result.facts is not None
    assert isinstance(result.facts.undescribed, TimedOut)
    assert "took longer than the 2 s that" in result.facts.undescribed.cause
    assert result.facts.clusters == facts.clusters != ()
    assert [event.may_take_s for event in events if event.kind == "describing"] == [2.0]


def test_a_description_that_crashes_after_it_has_found_plans_keeps_none(tmp_path: Path) -> None:
    """Guards the time of trials: what crashes in a graph crashes there with plans as well."""
    facts = dataclasses.replace(study_record().facts, undescribed=None)

    def script(run: ScriptedWorker) -> Iterator[None]:
        run.result(0)
        run.line(Described(facts, PID, may_take_s=60.0))
        yield
        return -signal.SIGSEGV

    result = supervise(tmp_path, script, request=request_for(1, mode="discover"))

    assert result.facts is not None
    assert isinstance(result.facts.undescribed, Died)
    assert result.facts.clusters == ()


@pytest.mark.parametrize(
    ("kills", "expected"),
    [((4, 5), HostOutOfMemory), ((None, None), HostOutOfMemory), ((4, 4), Died)],
    ids=["the kernel counted it", "the kernel does not count", "the kernel counted none"],
)
def test_sigkill_from_elsewhere_is_the_kernel_only_where_the_kernel_says_so(
    kills: tuple[int | None, int | None], expected: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter(kills)
    monkeypatch.setattr("autotune.launch.supervise.oom_kills", lambda: next(counts))

    def script(run: ScriptedWorker) -> Iterator[None]:
        run.progress("forward", steps=2)
        yield
        return -signal.SIGKILL

    (outcome,) = supervise(tmp_path, script).outcomes

    assert isinstance(outcome, expected)
    assert getattr(outcome, "signal", "SIGKILL") == "SIGKILL"


def test_a_disk_that_fills_up_blames_no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")(2**40, 2**40, 0)  # noqa: PYI024
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)

    def script(run: ScriptedWorker) -> Iterator[None]:
        yield
        return 1

    with pytest.raises(RunError, match="is full"):
        supervise(tmp_path, script)


# -- what the meter of a GPU sees


def on_gpu(meter: FakeMeter) -> RunMeter:
    """Make the meter of a machine with one GPU."""
    return RunMeter([(GPU, meter)], resident=FakeMeter(lambda pids: 0))


def test_the_meter_fills_in_the_peak_of_each_trial_on_a_gpu(tmp_path: Path) -> None:
    meter = FakeMeter()

    def script(run: ScriptedWorker) -> Steps:
        run.device = "aa"
        for index in range(3):
            meter._used = lambda pids, index=index: 100 * (index + 1)
            meter.contended = index == 1
            run.progress("forward", index=index, steps=index)
            yield
            yield
            run.result(index, measured(peaks=Peaks(reserved=60)))

    result = supervise(tmp_path, script, request=request_for(3), meter=on_gpu(meter))

    measurements = [outcome.measurement for outcome in result.outcomes]
    assert [measurement.peaks.device for measurement in measurements] == [100, 200, 300]
    assert [measurement.peaks.non_torch for measurement in measurements] == [40, 140, 240]
    assert [measurement.contended for measurement in measurements] == [False, True, False]
    assert meter.state == "closed"


def test_neighbours_contend_a_trial_while_it_is_measured_and_not_in_its_warm_up(tmp_path: Path) -> None:
    meter = FakeMeter(lambda pids: 100)
    meter.neighbours = Neighbours(1.0, since_s=1.0)

    def script(run: ScriptedWorker) -> Steps:
        run.device = "aa"
        for index in range(2):
            run.progress("forward", index=index, steps=index, measuring_since_s=float(index))
            yield
            yield
            run.result(index, measured(peaks=Peaks(reserved=60)))

    result = supervise(tmp_path, script, request=request_for(2), meter=on_gpu(meter))

    assert [outcome.measurement.contended for outcome in result.outcomes] == [False, True]


def test_what_the_gpu_was_like_in_the_measured_window_stands_beside_the_trial(tmp_path: Path) -> None:
    meter = FakeMeter(lambda pids: 100)

    def script(run: ScriptedWorker) -> Steps:
        run.device = "aa"
        meter.reading = DeviceReading(200)
        run.progress("forward", steps=1)
        yield
        yield
        meter.reading = DeviceReading(1500, 600.0, ("hardware_thermal",))
        run.progress("forward", steps=2, measuring_since_s=5.0)
        yield
        yield
        run.result(0, measured(peaks=Peaks(reserved=60)))

    (outcome,) = supervise(tmp_path, script, meter=on_gpu(meter)).outcomes

    assert isinstance(outcome, Measured)
    conditions = outcome.measurement.conditions
    assert conditions is not None
    assert conditions.highest_sm_clock_mhz == 1500
    assert conditions.throttled_share == 1.0
    assert any("the GPU slowed itself down (hardware thermal)" in note for note in outcome.measurement.notes)


def test_what_a_run_holds_before_it_trains_and_while_it_changes_the_trial_is_no_peak(tmp_path: Path) -> None:
    holds = [0]
    changes = [lambda: None]

    def used(pids: object) -> int:
        seen = holds[0]
        changes[0]()
        return seen

    def script(run: ScriptedWorker) -> Steps:
        def change() -> None:
            run.line(Result(0, measured(peaks=Peaks(reserved=40)), ENVIRONMENT, PID))
            run.progress("forward", index=1, steps=1)
            changes[0] = lambda: None

        run.device = "aa"
        holds[0] = 9000
        run.progress("start")
        yield
        holds[0] = 50
        run.progress("forward")
        yield
        # The next sample begins in the first trial and ends in the second.
        holds[0], changes[0] = 3000, change
        yield
        holds[0] = 100
        yield
        run.result(1, measured(peaks=Peaks(reserved=400)))

    result = supervise(tmp_path, script, request=request_for(2), meter=on_gpu(FakeMeter(used)))

    first, second = (outcome.measurement for outcome in result.outcomes)
    assert (first.peaks.device, first.peaks.non_torch, first.notes) == (50, 10, ())
    # Less than what torch reserved is no figure of the device, nor of what is outside of torch.
    assert (second.peaks.device, second.peaks.non_torch) == (None, None)
    assert any("the meter saw less" in note for note in second.notes)


def test_a_run_that_holds_more_of_a_gpu_than_the_limit_is_out_of_memory(tmp_path: Path) -> None:
    def script(run: ScriptedWorker) -> Steps:
        run.device = "aa"
        run.progress("backward", steps=3)
        yield from run.hang()

    meter = on_gpu(FakeMeter(lambda pids: LIMIT + 1))
    (outcome,) = supervise(tmp_path, script, request=request_for(1, memory_limit_bytes=LIMIT), meter=meter).outcomes

    assert isinstance(outcome, OutOfMemory)
    assert (outcome.phase, outcome.needed_bytes, outcome.limit_bytes) == ("backward", LIMIT + 1, LIMIT)
    assert outcome.cause.startswith("what the run holds on the GPU reached")


@pytest.mark.parametrize("flag", [{"contended": True}, {"problem": "others cannot be told from the run"}])
def test_what_may_be_others_memory_ends_no_run(flag: dict[str, object], tmp_path: Path) -> None:
    meter = FakeMeter(lambda pids: LIMIT + 1)
    vars(meter).update(flag)

    def script(run: ScriptedWorker) -> Steps:
        run.device = "aa"
        run.progress("forward")
        yield from run.wait(0.2)
        run.result(0, measured(peaks=Peaks(reserved=60)))

    request = request_for(1, memory_limit_bytes=LIMIT)
    (outcome,) = supervise(tmp_path, script, request=request, meter=on_gpu(meter)).outcomes

    assert isinstance(outcome, Measured)
    assert outcome.measurement.contended or outcome.measurement.notes == (flag["problem"],)


def resident_above_the_limit() -> RunMeter:
    """Make the meter of a run on the machine with a GPU, whose processes hold more memory than the limit."""
    return RunMeter([(GPU, FakeMeter(lambda pids: 0))], resident=FakeMeter(lambda pids: LIMIT + 1))


def test_a_script_that_trains_on_the_cpu_of_a_machine_with_a_gpu_keeps_to_the_limit(tmp_path: Path) -> None:
    def script(run: ScriptedWorker) -> Steps:
        run.progress("forward", steps=3)
        yield from run.hang()

    request = request_for(1, memory_limit_bytes=LIMIT)
    (outcome,) = supervise(tmp_path, script, request=request, meter=resident_above_the_limit()).outcomes

    assert isinstance(outcome, OutOfMemory)
    assert outcome.cause.startswith("the resident set reached")


@pytest.mark.parametrize("is_on_gpu", [True, False])
def test_a_limit_is_on_no_resident_set_on_a_gpu_nor_before_a_process_says_where_it_trains(
    is_on_gpu: bool, tmp_path: Path
) -> None:
    def script(run: ScriptedWorker) -> Steps:
        if is_on_gpu:
            run.device = "aa"
            run.progress("forward")
        yield from run.wait(0.3)
        run.result(0)

    request = request_for(1, memory_limit_bytes=LIMIT)
    result = supervise(tmp_path, script, request=request, meter=resident_above_the_limit())

    assert isinstance(result.outcomes[0], Measured)


# -- several ranks


def test_a_rank_that_was_killed_is_the_cause_and_not_what_the_others_fail_of(tmp_path: Path) -> None:
    def script(run: ScriptedWorker) -> Steps:
        other = run.another(rank=1, num_processes=2)
        for rank in (run, other):
            rank.num_processes = 2
            rank.progress("forward", steps=5)
        yield
        run.ends[other.process] = -9
        run.line(Result(0, ScriptError("connection reset by peer"), ENVIRONMENT, run.process, 0))
        yield from run.hang()

    (outcome,) = supervise(tmp_path, script).outcomes
    assert isinstance(outcome, Died)
    assert outcome.cause == "rank 1 of 2: killed by SIGKILL in forward, after step 5"
    assert outcome.signal == "SIGKILL"


@pytest.mark.parametrize(
    ("code", "later", "cause"),
    [
        (7, False, "rank 1 of 2: ended with status 7 and without a result in forward, after step 5"),
        (None, False, "rank 1 of 2: left without a word in forward, after step 5"),
        (-signal.SIGSEGV, True, "rank 1 of 2: killed by SIGSEGV in forward, after step 5"),
        # So a launcher ends those that are left behind one that failed.
        (-signal.SIGTERM, True, "rank 0 of 2: no such thing"),
        (None, True, "rank 0 of 2: no such thing"),
    ],
)
def test_how_a_rank_has_ended_tells_whether_it_is_the_cause(
    code: int | None, later: bool, cause: str, tmp_path: Path
) -> None:
    def script(run: ScriptedWorker) -> Steps:
        other = run.another(rank=1, num_processes=2)
        for rank in (run, other):
            rank.num_processes = 2
            rank.progress("forward", steps=5)
        yield
        run.line(Result(0, ScriptError("no such thing"), ENVIRONMENT, run.process, 0))
        if later:
            yield
        run.ends[other.process] = code
        yield from run.hang()

    (outcome,) = supervise(tmp_path, script).outcomes
    assert not isinstance(outcome, Measured)
    assert outcome.cause == cause


@pytest.mark.parametrize(("marks", "said"), [(11, "; rank 1 of 2 came less far than the others"), (12, "")])
def test_a_rank_that_hangs_before_the_others_is_told(marks: int, said: str, tmp_path: Path) -> None:
    def script(run: ScriptedWorker) -> Steps:
        other = run.another(rank=1, num_processes=2)
        run.num_processes = 2
        run.progress("forward", steps=5, marks=12)
        other.progress("forward", steps=5, marks=marks)
        yield from run.hang()

    (outcome,) = supervise(tmp_path, script, trial_timeout_s=3.0).outcomes
    assert isinstance(outcome, TimedOut)
    assert outcome.cause == f"the trial was not measured within 3 s: killed in forward, after step 5{said}"
