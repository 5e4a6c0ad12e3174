"""The launcher with real processes: how runs end, and what they are said to have ended of."""

from __future__ import annotations

import dataclasses
import os
import shutil
import threading
import time
from collections import namedtuple
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from autotune.errors import RunError, UsageError
from autotune.launch import Event
from autotune.machine import Gpus, RunMeter
from autotune.machine.meters import Neighbours
from autotune.records import (
    DescriptionPace,
    DeviceReading,
    Died,
    HostOutOfMemory,
    Measured,
    OutOfMemory,
    Request,
    ScriptError,
    TimedOut,
    dumps,
    loads,
)
from tests.fakes.memory_meter import FakeMeter, fake_gpu
from tests.fakes.study_record import study_record
from tests.fakes.worker_side import ENVIRONMENT, launcher_for, request_for, run_script

pytestmark = pytest.mark.process


def test_a_good_run_gives_an_outcome_for_every_configuration(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        """
        for index in range(3):
            run.result(index, measured(0.1 * (index + 1)))
        run.ended()
        """,
        request=request_for(3),
    )

    assert [outcome.measurement.step_time_s for outcome in result.outcomes] == [0.1, 0.2, pytest.approx(0.3)]
    assert result.environment == ENVIRONMENT
    assert result.reason == "all configurations were measured"
    assert result.failure is None


def test_the_run_folder_keeps_the_request_and_the_logs(tmp_path: Path) -> None:
    request = request_for(2)

    result = run_script(
        tmp_path, "print('seen'); print('said', file=sys.stderr); run.result(0); run.result(1)", request=request
    )

    assert result.directory.parent == tmp_path / "runs"
    kept = loads(Request, (result.directory / "request.json").read_text())
    assert all(str(tmp_path) in folder for folder in kept.caches.values()), "the launcher adds the run's own caches"
    assert dataclasses.replace(kept, caches={}, kept_in="") == request
    assert (result.directory / "stdout.log").read_text() == "seen\n"
    assert (result.directory / "stderr.log").read_text() == "said\n"


def test_the_worker_reads_nothing_from_the_terminal_and_runs_in_the_working_directory(tmp_path: Path) -> None:
    run_script(tmp_path, "print(repr(sys.stdin.read()), os.getcwd()); run.result(0)")

    (log,) = (tmp_path / "runs").glob("*/stdout.log")
    assert log.read_text() == f"'' {tmp_path}\n"


def test_events_come_in_the_order_of_what_happens(tmp_path: Path) -> None:
    events: list[Event] = []

    run_script(
        tmp_path,
        """
        for index in range(2):
            run.progress("forward", index=index, steps=index)
            time.sleep(0.1)
            run.result(index)
            time.sleep(0.1)
        """,
        request=request_for(2),
        on_event=events.append,
    )

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
    result = run_script(
        tmp_path,
        """
        run.result(0)
        run.progress("backward", index=1, steps=12)
        print("the last words", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
        """,
        request=request_for(3),
    )

    first, second, third = result.outcomes
    assert isinstance(first, Measured)
    assert isinstance(second, Died)
    assert (second.signal, second.phase, second.exit_status) == ("SIGSEGV", "backward", None)
    assert second.cause == "killed by SIGSEGV in backward, after step 12"
    assert second.log_tail == ("the last words",)
    assert third is None


@pytest.mark.parametrize(("signal", "shown"), [("SIGSEGV", "stderr.log shows which line crashed. "), ("SIGTERM", "")])
def test_a_crash_before_the_first_step_counts_no_steps_and_names_the_log_that_has_its_line(
    signal: str, shown: str, tmp_path: Path
) -> None:
    result = run_script(tmp_path, f"os.kill(os.getpid(), signal.{signal})")

    (outcome,) = result.outcomes
    assert isinstance(outcome, Died)
    assert outcome.cause == f"killed by {signal} before its first step"
    assert outcome.advice.startswith(f"{shown}Run the script by itself")


def test_an_exit_without_a_result_is_named_by_its_status(tmp_path: Path) -> None:
    result = run_script(tmp_path, "run.progress('forward'); sys.exit(3)")

    (outcome,) = result.outcomes
    assert isinstance(outcome, Died)
    assert (outcome.exit_status, outcome.phase) == (3, "forward")


def test_a_worker_that_leaves_without_any_result_is_quoted(tmp_path: Path) -> None:
    result = run_script(tmp_path, "run.ended('the script found nothing to train on')")

    (outcome,) = result.outcomes
    assert isinstance(outcome, Died)
    assert "the script found nothing to train on" in outcome.cause


def test_what_comes_after_a_failure_was_not_reached(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        """
        print("Traceback", file=sys.stderr, flush=True)
        run.result(0)
        run.result(1, ScriptError("boom"))
        """,
        request=request_for(3),
    )

    assert isinstance(result.outcomes[1], ScriptError)
    assert result.outcomes[1].log_tail == ("Traceback",)
    assert result.outcomes[2] is None


def test_a_failure_with_log_lines_of_its_own_keeps_them(tmp_path: Path) -> None:
    result = run_script(tmp_path, "print('noise'); run.result(0, ScriptError('boom', ('own line',)))")

    assert result.outcomes[0].log_tail == ("own line",)


def test_what_the_worker_leaves_on_purpose_was_not_reached(tmp_path: Path) -> None:
    result = run_script(tmp_path, "run.result(0); run.ended('the script ended by itself')", request=request_for(2))

    assert result.outcomes[1] is None
    assert result.reason == "the script ended by itself"


def test_a_run_that_never_steps_meets_the_start_deadline(tmp_path: Path) -> None:
    result = run_script(tmp_path, "run.progress('forward'); hang()", start_timeout_s=4.0)

    (outcome,) = result.outcomes
    assert isinstance(outcome, TimedOut)
    assert outcome.phase == "forward"
    assert "4 s" in outcome.cause
    assert "--start-timeout" in outcome.advice


def test_a_trial_that_hangs_meets_the_trial_deadline(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        "run.result(0); run.progress('backward', index=1, steps=7); hang()",
        request=request_for(3),
        trial_timeout_s=2.0,
    )

    first, second, third = result.outcomes
    assert isinstance(first, Measured)
    assert isinstance(second, TimedOut)
    assert second.phase == "backward"
    assert "--trial-timeout" in second.advice
    assert third is None


def test_each_trial_has_its_own_deadline(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        "for index in range(4):\n    time.sleep(1.0)\n    run.result(index)",
        request=request_for(4),
        trial_timeout_s=3.0,
    )

    assert all(isinstance(outcome, Measured) for outcome in result.outcomes)


def test_a_hang_leaves_its_stacks_in_the_log(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        """
        import faulthandler
        faulthandler.register(signal.SIGUSR1)
        run.progress("forward")
        hang()
        """,
        start_timeout_s=4.0,
    )

    assert any("in hang" in line for line in result.outcomes[0].log_tail)


def test_a_result_that_comes_in_while_the_run_is_being_killed_counts(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        """
        signal.signal(signal.SIGUSR1, lambda number, frame: run.result(0))
        run.progress("forward")
        hang()
        """,
        request=request_for(2),
        start_timeout_s=4.0,
    )

    assert isinstance(result.outcomes[0], Measured)
    assert result.outcomes[1] is None


def test_what_fails_while_the_run_is_being_killed_fails_of_that(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        """
        signal.signal(signal.SIGUSR1, lambda number, frame: run.result(0, ScriptError("process 0 is gone")))
        run.progress("forward")
        hang()
        """,
        start_timeout_s=4.0,
    )

    assert isinstance(result.outcomes[0], TimedOut)


def test_a_run_that_is_ended_has_a_moment_to_say_goodbye_and_what_it_says_then_is_no_outcome(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        """
        def leave(number, frame):
            run.result(0, ScriptError("terminated"))
            with open("goodbye", "w") as file:
                file.write("said")
            sys.exit(1)
        signal.signal(signal.SIGTERM, leave)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # which asks for its stacks
        run.progress("forward")
        hang()
        """,
        start_timeout_s=4.0,
    )

    assert (tmp_path / "goodbye").read_text() == "said"
    assert isinstance(result.outcomes[0], TimedOut)


def test_a_run_that_does_not_go_when_it_is_told_to_is_killed(tmp_path: Path) -> None:
    script = "signal.signal(signal.SIGTERM, signal.SIG_IGN); run.result(0); run.ended(); hang()"

    assert isinstance(run_script(tmp_path, script, grace_s=0.1).outcomes[0], Measured)


def test_what_a_run_compiles_stays_for_the_next_unless_it_had_to_be_ended(tmp_path: Path) -> None:
    compiles = """
        with open(os.path.join(run.request.caches["TORCHINDUCTOR_CACHE_DIR"], "NAME.so"), "w") as file:
            file.write("compiled")
        run.result(0); run.ended()
    """
    for name, ending in (("well", ""), ("ended", "; hang()"), ("failed", "; sys.exit(3)")):
        run_script(tmp_path, compiles.replace("NAME", name).rstrip() + ending, grace_s=0.1)

    assert [path.name for path in tmp_path.rglob("*.so")] == ["well.so"]


def test_a_run_that_does_not_end_after_its_last_result_is_ended(tmp_path: Path) -> None:
    result = run_script(tmp_path, "run.result(0); run.ended(); hang()", grace_s=0.2)

    assert isinstance(result.outcomes[0], Measured)


def test_a_resident_set_above_the_limit_ends_the_run_as_out_of_memory(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        """
        run.result(0)
        run.progress("forward", index=1, steps=3)
        held = bytearray(b"x") * (300 * 2**20)
        hang()
        """,
        request=request_for(2, memory_limit_bytes=200 * 2**20),
    )

    first, second = result.outcomes
    assert isinstance(first, Measured)
    assert isinstance(second, OutOfMemory)
    assert (second.phase, second.limit_bytes) == ("forward", 200 * 2**20)
    assert second.needed_bytes is not None
    assert second.needed_bytes > 200 * 2**20
    assert "--memory-limit" in second.advice


def test_a_limit_that_is_kept_disturbs_nothing(tmp_path: Path) -> None:
    result = run_script(tmp_path, "run.result(0)", request=request_for(1, memory_limit_bytes=2**34))

    assert isinstance(result.outcomes[0], Measured)


def test_a_cancelled_run_ends_now_and_keeps_what_it_has(tmp_path: Path) -> None:
    cancel = threading.Event()

    def stop_after_the_first(event: Event) -> None:
        if event.kind == "result":
            cancel.set()

    result = run_script(
        tmp_path, "run.result(0); hang()", request=request_for(2), on_event=stop_after_the_first, cancel=cancel
    )

    assert isinstance(result.outcomes[0], Measured)
    assert result.outcomes[1] is None


def test_a_line_that_is_not_finished_is_no_result(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        """
        run.result(0)
        run.write(b'{"kind":"result","index":1,"outc')
        run.progress("optimizer", index=1, steps=4)
        """,
        request=request_for(2),
    )

    assert isinstance(result.outcomes[0], Measured)
    assert isinstance(result.outcomes[1], Died)


def test_a_broken_results_file_is_an_error_and_not_an_outcome(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"results\.jsonl line 2"):
        run_script(tmp_path, "run.result(0); run.write(b'{\"kind\":\\n'); hang()", request=request_for(2))


@pytest.mark.parametrize(("loss", "expected"), [("0.1, 0.3, 0.1", Measured), (None, Died)])
def test_two_ranks_make_one_outcome(tmp_path: Path, loss: str | None, expected: type) -> None:
    second = f"rank.result(0, measured({loss}))" if loss else "os._exit(1)"
    result = run_script(
        tmp_path,
        f"""
        child = os.fork()
        rank = WorkerSide(sys.argv[1], rank=0 if child else 1, num_processes=2)
        rank.progress("forward")
        if child:
            rank.result(0, measured(0.2, 0.2))
            os.waitpid(child, 0)
        else:
            {second}
        """,
    )

    (outcome,) = result.outcomes
    assert isinstance(outcome, expected)
    if isinstance(outcome, Measured):
        assert outcome.measurement.step_times_s == (0.2, 0.3)
        assert outcome.measurement.samples_per_step == (16, 16)
        assert outcome.measurement.num_processes == 2


def test_a_rank_that_waits_for_a_failed_one_is_not_waited_for(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        """
        child = os.fork()
        rank = WorkerSide(sys.argv[1], rank=0 if child else 1, num_processes=2)
        rank.progress("forward")
        if not child:
            rank.result(0, OutOfMemory("no room", phase="backward"))
        hang()
        """,
        grace_s=0.3,
    )

    assert isinstance(result.outcomes[0], OutOfMemory)


def test_a_parent_that_only_starts_the_ranks_is_none_of_them(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        """
        run.progress("start")
        if child := os.fork():
            os.waitpid(child, 0)
        else:
            run.result(0)
        """,
    )

    assert isinstance(result.outcomes[0], Measured)


def test_a_discovery_that_dies_while_describing_says_so_beside_its_baseline(tmp_path: Path) -> None:
    result = run_script(tmp_path, "run.result(0); os.abort()", request=request_for(1, mode="discover"))

    assert isinstance(result.outcomes[0], Measured)
    assert result.facts is None
    assert isinstance(result.failure, Died)
    assert result.failure.signal == "SIGABRT"
    assert "described" in result.failure.cause


def test_a_description_that_takes_too_long_names_all_the_time_that_it_had_and_how_fast_it_went(
    tmp_path: Path,
) -> None:
    """Guards the message, which named what the part under way had left of a minute, and a deadline for all parts."""
    facts = tmp_path / "facts.json"
    facts.write_text(dumps(dataclasses.replace(study_record().facts, undescribed=None)))
    result = run_script(
        tmp_path,
        f"""
        facts = loads(Facts, open({str(facts)!r}).read())
        run.result(0)
        run.line(Described(facts, os.getpid(), may_take_s=60.0))
        time.sleep(1.5)
        run.line(Described(facts, os.getpid(), may_take_s=2.0))
        run.line(Described(facts, os.getpid(), may_take_s=2.0, pace=DescriptionPace(0.5, 0.2)))
        time.sleep(1.5)
        run.line(Described(facts, os.getpid()))
        run.ended()
        """,
        request=request_for(1, mode="discover"),
    )

    assert isinstance(result.outcomes[0], Measured)
    assert result.facts is not None
    assert isinstance(result.facts.undescribed, TimedOut)
    assert "not done within the 2 s that" in result.facts.undescribed.cause
    assert result.pace == DescriptionPace(0.5, 1.5), "the step under way took longer than those before"


def test_sigkill_from_elsewhere_is_the_kernel_only_where_the_kernel_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outcome_when(before: int | None, after: int | None, folder: str) -> object:
        counts = iter([before, after])
        monkeypatch.setattr("autotune.launch.supervise.oom_kills", lambda: next(counts))
        (tmp_path / folder).mkdir()
        return run_script(
            tmp_path / folder, "run.progress('forward', steps=2); os.kill(os.getpid(), signal.SIGKILL)"
        ).outcomes[0]

    assert isinstance(outcome_when(4, 5, "counted"), HostOutOfMemory)
    assert isinstance(outcome_when(None, None, "unknown"), HostOutOfMemory)
    other = outcome_when(4, 4, "other")
    assert isinstance(other, Died)
    assert other.signal == "SIGKILL"


GPU = fake_gpu("GPU-aa", total=2**36, reserved=0, used=2**30)


def on_gpu(meter: FakeMeter) -> Callable[[int | None], RunMeter]:
    """The meter of a machine with one GPU."""
    return lambda device: RunMeter([(GPU, meter)])


def test_the_meter_fills_in_the_peak_of_each_trial_on_a_gpu(tmp_path: Path) -> None:
    made: list[int | None] = []
    under_way = [0]
    readings = [0, 0, 0]

    def used(pids: Sequence[int]) -> int:
        # The first reading after a process says that it trains may follow a look that was before that.
        readings[under_way[0]] += (tmp_path / f"trains{under_way[0]}").exists()
        if readings[under_way[0]] > 1:
            (tmp_path / f"sampled{under_way[0]}").touch()
        return 100 * (under_way[0] + 1)

    meter = FakeMeter(used)

    def make(device: int | None) -> RunMeter:
        made.append(device)
        return on_gpu(meter)(device)

    def follow(event: Event) -> None:
        if event.kind == "started":
            under_way[0] = event.index
            meter.contended = event.index == 1

    result = run_script(
        tmp_path,
        """
        print(os.environ["CUDA_VISIBLE_DEVICES"], run.request.free_bytes)
        run.device = "aa"
        for index in range(3):
            run.progress("forward", index=index, steps=index)
            open(f"trains{index}", "w").close()
            while not os.path.exists(f"sampled{index}"):
                time.sleep(0.01)
            run.result(index, measured(peaks=Peaks(reserved=60)))
        """,
        request=request_for(3),
        device=0,
        meter_factory=make,
        gpus=lambda: Gpus((GPU,), "NVML", "580"),
        on_event=follow,
    )

    measurements = [outcome.measurement for outcome in result.outcomes]
    assert [measurement.peaks.device for measurement in measurements] == [100, 200, 300]
    assert [measurement.peaks.non_torch for measurement in measurements] == [40, 140, 240]
    assert [measurement.contended for measurement in measurements] == [False, True, False]
    assert (result.directory / "stdout.log").read_text() == f"GPU-aa {{'aa': {2**36 - 2**30}}}\n"
    assert made == [0]
    assert meter.state == "closed"


def test_neighbours_contend_a_trial_while_it_is_measured_and_not_in_its_warm_up(tmp_path: Path) -> None:
    reads = [0]

    def used(pids: Sequence[int]) -> int:
        reads[0] += 1
        (tmp_path / "reads.new").write_text(str(reads[0]))
        (tmp_path / "reads.new").rename(tmp_path / "reads")
        return 100

    meter = FakeMeter(used)
    meter.neighbours = Neighbours(1.0, since_s=1.0)

    result = run_script(
        tmp_path,
        """
        run.device = "aa"
        for index in range(2):
            run.progress("forward", index=index, steps=index, measuring_since_s=float(index))
            before = int(open("reads").read()) if index else 0
            # The read under way may have begun before this, and the one after it follows a look at the progress.
            while not os.path.exists("reads") or int(open("reads").read()) <= before + 2:
                time.sleep(0.01)
            run.result(index, measured(peaks=Peaks(reserved=60)))
        """,
        request=request_for(2),
        meter_factory=on_gpu(meter),
    )

    assert [outcome.measurement.contended for outcome in result.outcomes] == [False, True]


def test_what_the_gpu_was_like_in_the_measured_window_stands_beside_the_trial(tmp_path: Path) -> None:
    looks: list[str] = []

    def used(pids: Sequence[int]) -> int:
        is_measured = (tmp_path / "measures").exists()
        looks.append("measured" if is_measured else "warming up")
        meter.reading = DeviceReading(1500, 600.0, ("hardware_thermal",)) if is_measured else DeviceReading(200)
        if looks.count("warming up") > 2:
            (tmp_path / "warm").touch()
        if looks.count("measured") > 2:
            (tmp_path / "seen").touch()
        return 100

    meter = FakeMeter(used)
    result = run_script(
        tmp_path,
        """
        def wait_for(name):
            while not os.path.exists(name):
                time.sleep(0.01)
        run.device = "aa"
        run.progress("forward", steps=1)
        wait_for("warm")
        run.progress("forward", steps=2, measuring_since_s=time.monotonic())
        open("measures", "w").close()
        wait_for("seen")
        run.result(0, measured(peaks=Peaks(reserved=60)))
        """,
        device=0,
        meter_factory=on_gpu(meter),
        gpus=lambda: Gpus((GPU,), "NVML", "580"),
    )
    (outcome,) = result.outcomes
    assert isinstance(outcome, Measured)
    conditions = outcome.measurement.conditions
    assert conditions is not None
    assert conditions.highest_sm_clock_mhz == 1500
    assert conditions.throttled_share > 0
    assert any("the GPU slowed itself down (hardware thermal)" in note for note in outcome.measurement.notes)


def test_what_a_run_holds_before_it_trains_and_while_it_changes_the_trial_is_no_peak(tmp_path: Path) -> None:
    reads = [0]

    def used(pids: Sequence[int]) -> int:
        holds = tmp_path / "holds"
        reads[0] += 1
        (tmp_path / "reads").write_text(str(reads[0]))
        if not holds.exists() or not (text := holds.read_text()):
            return 0
        if text == "changes":
            (tmp_path / "reading").touch()
            while not (tmp_path / "changed").exists():
                time.sleep(0.01)
            return 3000
        return int(text)

    result = run_script(
        tmp_path,
        """
        def hold(text, until=None):
            with open("holds", "w") as file:
                file.write(text)
            before = int(open("reads").read() or 0) if os.path.exists("reads") else 0
            # The read under way may have begun before this, and the one after it follows a look at the progress.
            while not (os.path.exists(until) if until else int(open("reads").read() or 0) > before + 2):
                time.sleep(0.01)
        run.device = "aa"
        run.progress("start")
        with open("holds", "w") as file:
            file.write("9000")
        time.sleep(0.2)
        with open("holds", "w") as file:
            file.write("50")
        run.progress("forward")
        while not os.path.exists("reads"):
            time.sleep(0.01)
        hold("50")
        hold("changes", until="reading")
        run.line(Result(0, measured(peaks=Peaks(reserved=40)), ENVIRONMENT, os.getpid()))
        run.progress("forward", index=1, steps=1)
        with open("holds", "w") as file:
            file.write("100")
        open("changed", "w").close()
        hold("100")
        run.result(1, measured(peaks=Peaks(reserved=400)))
        """,
        request=request_for(2),
        meter_factory=on_gpu(FakeMeter(used)),
    )

    first, second = (outcome.measurement for outcome in result.outcomes)
    assert (first.peaks.device, first.peaks.non_torch, first.notes) == (50, 10, ())
    # Less than what torch reserved is no figure of the device, nor of what is outside of torch.
    assert (second.peaks.device, second.peaks.non_torch) == (None, None)
    assert any("the meter saw less" in note for note in second.notes)


LIMIT = 200 * 2**20
HOLDS_MORE = "held = bytearray(b'x') * (300 * 2**20)"


def test_a_run_that_holds_more_of_a_gpu_than_the_limit_is_out_of_memory(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        "run.device = 'aa'; run.progress('backward', steps=3); hang()",
        request=request_for(1, memory_limit_bytes=LIMIT),
        meter_factory=on_gpu(FakeMeter(lambda pids: LIMIT + 1)),
    )

    (outcome,) = result.outcomes
    assert isinstance(outcome, OutOfMemory)
    assert (outcome.phase, outcome.needed_bytes, outcome.limit_bytes) == ("backward", LIMIT + 1, LIMIT)
    assert outcome.cause.startswith("what the run holds on the GPU reached")


@pytest.mark.parametrize("flag", [{"contended": True}, {"problem": "others cannot be told from the run"}])
def test_what_may_be_others_memory_ends_no_run(flag: dict[str, object], tmp_path: Path) -> None:
    def used(pids: Sequence[int]) -> int:
        (tmp_path / "sampled").touch()
        return LIMIT + 1

    meter = FakeMeter(used)
    vars(meter).update(flag)

    result = run_script(
        tmp_path,
        """
        run.device = "aa"
        run.progress("forward")
        while not os.path.exists("sampled"):
            time.sleep(0.01)
        time.sleep(0.1)
        run.result(0, measured(peaks=Peaks(reserved=60)))
        """,
        request=request_for(1, memory_limit_bytes=LIMIT),
        meter_factory=on_gpu(meter),
    )

    (outcome,) = result.outcomes
    assert isinstance(outcome, Measured)
    assert outcome.measurement.contended or outcome.measurement.notes == (flag["problem"],)


def test_a_script_that_trains_on_the_cpu_of_a_machine_with_a_gpu_keeps_to_the_limit(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        f"run.progress('forward', steps=3); {HOLDS_MORE}; hang()",
        request=request_for(1, memory_limit_bytes=LIMIT),
        meter_factory=on_gpu(FakeMeter(lambda pids: 0)),
    )

    (outcome,) = result.outcomes
    assert isinstance(outcome, OutOfMemory)
    assert outcome.cause.startswith("the resident set reached")


@pytest.mark.parametrize("script", ["run.device = 'aa'; run.progress('forward')", ""])
def test_a_limit_is_on_no_resident_set_on_a_gpu_nor_before_a_process_says_where_it_trains(
    script: str, tmp_path: Path
) -> None:
    result = run_script(
        tmp_path,
        f"{script}\n{HOLDS_MORE}; time.sleep(0.3); del held; run.result(0)",
        request=request_for(1, memory_limit_bytes=LIMIT),
        meter_factory=on_gpu(FakeMeter(lambda pids: 0)),
    )

    assert isinstance(result.outcomes[0], Measured)


def test_a_device_that_is_not_there_is_a_usage_error_that_names_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no device 3: found 0 \(Fake\)"):
        run_script(tmp_path, "", device=3, gpus=lambda: Gpus((GPU,), "NVML", "580"))


def test_an_interpreter_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot start the interpreter '/no/python'") as caught:
        run_script(tmp_path, "", python="/no/python")

    assert "--python" in caught.value.hint


def test_a_place_that_cannot_be_written_is_a_run_error(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where the folder should be")

    with pytest.raises(RunError, match="cannot start a run") as caught:
        run_script(tmp_path, "run.result(0)")

    assert "run from another one" in caught.value.hint


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="no /dev/full here")
def test_a_full_disk_is_a_run_error_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text = Path.write_text

    def write_to_a_full_disk(path: Path, data: str, **options: object) -> int:
        return write_text(Path("/dev/full") if path.name == "request.json" else path, data, **options)

    monkeypatch.setattr(Path, "write_text", write_to_a_full_disk)

    with pytest.raises(RunError, match="No space left on device"):
        run_script(tmp_path, "run.result(0)")


def test_a_disk_that_fills_up_blames_no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")(2**40, 2**40, 0)  # noqa: PYI024
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)

    with pytest.raises(RunError, match="is full"):
        run_script(tmp_path, "sys.exit(1)")


def test_a_folder_that_was_used_before_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "results.jsonl").touch()
    launcher = launcher_for(tmp_path, "run.result(0)")

    with pytest.raises(RunError, match="not empty"):
        launcher.run(
            request_for(),
            device=None,
            on_event=lambda event: None,
            cancel=threading.Event(),
            directory=tmp_path / "old",
        )
